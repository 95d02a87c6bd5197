//! HAProxy and the agent as child processes that do not outlive the demo.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use haptic_agent::clock::{Clock, SystemClock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long a child may take to end after it was asked to.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// A child process; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Whether it still runs.
    pub(crate) fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end, waits, and makes it end if it does not. The exit code is there
    /// if it ended by itself.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (true, Some(pid)) = (self.alive(), pid) {
            // A process that has just ended needs no signal.
            let _ = kill_process(pid, Signal::TERM);
        }
        let start = SystemClock.now();
        while SystemClock.now().duration_since(start) < LAST_WORDS {
            if let Ok(Some(status)) = self.child.try_wait() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The HAProxy that the demo uses: `HAPROXY`, else the one on PATH if it is new
/// enough, else one that `tests/get-servers` brings. Gives path and version line.
pub(crate) fn find_haproxy() -> Result<(PathBuf, String), String> {
    if let Some(named) = std::env::var_os("HAPROXY") {
        let path = PathBuf::from(named);
        return match version(&path) {
            Some(line) if new_enough(&line) => Ok((path, line)),
            Some(line) => Err(format!("HAPROXY is {line}, and 3.0 or newer is needed")),
            None => Err(format!("HAPROXY={} does not run", path.display())),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut too_old = None;
    for dir in std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]) {
        let candidate = dir.join("haproxy");
        match version(&candidate) {
            Some(line) if new_enough(&line) => return Ok((candidate, line)),
            Some(line) => too_old = Some(line),
            None => {}
        }
    }
    let found = too_old.map_or("there is no haproxy on PATH".to_owned(), |line| {
        format!("the haproxy on PATH is {line}")
    });
    println!("   {found}; taking 3.4 from Debian's archive (nothing is installed)");
    bring().map_err(|why| {
        format!(
            "{found}, and tests/get-servers cannot bring one: {why}\n\
             install HAProxy 3.0 or newer: package \"haproxy\" of Debian 13, Alpine 3.20, Fedora 41 or newer, \
             or haproxy.debian.net; or name one with HAPROXY=/path/to/haproxy"
        )
    })
}

fn bring() -> Result<(PathBuf, String), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let servers = std::env::var_os("HAPTIC_SERVERS")
        .map_or_else(|| root.join("target/servers"), PathBuf::from);
    let out = Command::new(root.join("tests/get-servers"))
        .arg(&servers)
        .arg("haproxy-3.4")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("it does not start: {error}"))?;
    if !out.status.success() {
        return Err(format!("it ended with {}", out.status));
    }
    let path = servers.join("haproxy-3.4/haproxy");
    let line = version(&path).ok_or_else(|| format!("{} does not run", path.display()))?;
    Ok((path, line))
}

/// The first line of `haproxy -v`.
fn version(path: &Path) -> Option<String> {
    if !path.is_file() {
        return None;
    }
    let out = Command::new(path).arg("-v").output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let line = text.lines().next()?;
    line.starts_with("HAProxy version ").then(|| {
        let end = line.find(" - https").unwrap_or(line.len());
        line.get(..end).unwrap_or(line).to_owned()
    })
}

/// `HAProxy version 3.0.11-1…` is, 2.9 is not.
fn new_enough(line: &str) -> bool {
    let number = line.split(' ').nth(2).unwrap_or("");
    let major = number.split('.').next().unwrap_or("");
    major.parse::<u32>().is_ok_and(|major| major >= 3)
}

/// Starts HAProxy in master-worker mode; what it says goes to `log`.
pub(crate) fn start_haproxy(haproxy: &Path, base: &Path, log: &Path) -> Result<Process, String> {
    let file = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let both = file.try_clone().map_err(|error| error.to_string())?;
    let child = Command::new(haproxy)
        // A relative path behind -S would be taken for a host and port.
        .args(["-W", "-S"])
        .arg(base.join("haproxy-master.sock"))
        .args(["-f", "haproxy.cfg"])
        .current_dir(base)
        .stdin(Stdio::null())
        .stdout(both)
        .stderr(file)
        .spawn()
        .map_err(|error| format!("{}: {error}", haproxy.display()))?;
    Ok(Process { child })
}

/// The worker's answer to `show info`, if it gives one now.
pub(crate) fn show_info(socket: &Path) -> Option<String> {
    let text = ask(socket, "show info")?;
    text.starts_with("Name: HAProxy").then_some(text)
}

/// What the worker shows as a server's status.
pub(crate) fn server_status(socket: &Path, backend: &str, server: &str) -> Option<String> {
    let text = ask(socket, "show stat -1 4 -1")?;
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next()?.trim_start_matches("# ").split(',').collect();
    let status = columns.iter().position(|column| *column == "status")?;
    lines.find_map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let here = fields.first() == Some(&backend) && fields.get(1) == Some(&server);
        here.then(|| fields.get(status).map(|&status| status.to_owned()))?
    })
}

fn ask(socket: &Path, command: &str) -> Option<String> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(format!("{command}\n").as_bytes()).ok()?;
    let mut text = String::new();
    stream.take(1024 * 1024).read_to_string(&mut text).ok()?;
    Some(text)
}

/// A field of `show info`.
pub(crate) fn info_field(info: &str, name: &str) -> Option<String> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        .map(str::to_owned)
}

/// The agent with its log.
#[derive(Debug)]
pub(crate) struct Agent {
    /// The process.
    pub(crate) process: Process,
    /// Its records as they come.
    records: Receiver<String>,
    /// The records that have been looked at.
    pub(crate) seen: Vec<String>,
}

/// A binary that was built beside the demo, or is in the directory `HAPTIC_BIN`.
pub(crate) fn binary(name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let built = own.parent().and_then(Path::parent).map(Path::to_owned);
    let directory = std::env::var_os("HAPTIC_BIN").map(PathBuf::from).or(built);
    directory
        .map(|directory| directory.join(name))
        .filter(|path| path.is_file())
        .ok_or_else(|| format!("no {name} beside {}; run make build", own.display()))
}

/// Runs `hapticctl` in `directory`; its exit code, and what it said on standard output.
pub(crate) fn ctl(
    binary: &Path,
    directory: &Path,
    words: &[&str],
    environment: &[(&str, &str)],
) -> Result<(i32, String), String> {
    let out = Command::new(binary)
        .args(words)
        .current_dir(directory)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("{}: {error}", binary.display()))?;
    let code = out
        .status
        .code()
        .ok_or_else(|| format!("hapticctl ended with {}", out.status))?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    if said.is_empty() && code != 0 {
        return Err(String::from_utf8_lossy(&out.stderr).into_owned());
    }
    Ok((code, said))
}

impl Agent {
    /// Starts it for `base`, on free ports of the loopback address, answering agent checks
    /// at `check`.
    pub(crate) fn start(
        binary: &Path,
        base: &Path,
        check: &str,
        environment: &[(&str, &str)],
    ) -> Result<Self, String> {
        let mut child = Command::new(binary)
            .arg("--base-dir")
            .arg(base)
            .args(["--listen", "127.0.0.1:0"])
            .args(["--metrics-listen", "127.0.0.1:0"])
            .args(["--reload-interval-min", "0"])
            .args(["--check-listen", check])
            .envs(environment.iter().copied())
            .env("LOG_LEVEL", "info")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let stdout = child.stdout.take();
        let (send, records) = mpsc::channel();
        if let Some(stdout) = stdout {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if send.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Self {
            process: Process { child },
            records,
            seen: Vec::new(),
        })
    }

    /// The address that a listener got, once the log has named it.
    pub(crate) fn listening(&mut self, listener: &str) -> Option<String> {
        self.seen.extend(self.records.try_iter());
        self.seen.iter().find_map(|line| {
            let record: Value = serde_json::from_str(line).ok()?;
            (record["msg"] == "listening" && record["listener"] == listener)
                .then(|| record["address"].as_str().map(str::to_owned))?
        })
    }

    /// The last records, for someone who has to find out what went wrong.
    pub(crate) fn last_records(&mut self) -> String {
        self.seen.extend(self.records.try_iter());
        let from = self.seen.len().saturating_sub(20);
        self.seen.get(from..).unwrap_or_default().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_below_three_are_too_old() {
        for (line, want) in [
            ("HAProxy version 3.0.11-1+deb13u4 2025/01/01", true),
            ("HAProxy version 3.4.7-1", true),
            ("HAProxy version 10.1", true),
            ("HAProxy version 2.9.9", false),
            ("HAProxy version", false),
        ] {
            assert_eq!(new_enough(line), want, "{line}");
        }
    }
}
