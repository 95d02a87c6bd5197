//! A real HAProxy in master-worker mode, in a directory of its own.

use super::{servers, wait};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// How long a start may take on a loaded machine.
const START: Duration = Duration::from_secs(20);
/// How long a stop may take before it becomes a kill.
const STOP: Duration = Duration::from_secs(3);

/// The branches every behaviour is shown on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V3_0,
    V3_2,
    V3_4,
}

impl Version {
    /// All of them, oldest first.
    pub(crate) const ALL: [Self; 3] = [Self::V3_0, Self::V3_2, Self::V3_4];

    /// `3.0`, as it stands in the name of its directory.
    pub(crate) fn branch(self) -> &'static str {
        match self {
            Self::V3_0 => "3.0",
            Self::V3_2 => "3.2",
            Self::V3_4 => "3.4",
        }
    }

    /// Its executable.
    pub(crate) fn executable(self) -> PathBuf {
        servers::executable(&format!("haproxy-{}", self.branch()), "haproxy")
    }

    /// `haproxy -c -f file`, run in the file's directory.
    pub(crate) fn check(self, file: &Path) -> Output {
        Command::new(self.executable())
            .args(["-c", "-f"])
            .arg(file)
            .current_dir(file.parent().unwrap())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HAProxy {}", self.branch())
    }
}

/// A global and a defaults section with everything the agent relies on: relative
/// paths that start at `base`, an admin socket with handed-over listeners.
pub(crate) fn preamble(base: &Path) -> String {
    let base = base.display();
    format!(
        "global\n    default-path origin {base}\n    stats socket {base}/worker.sock mode 600 level admin expose-fd listeners\n    hard-stop-after 5s\ndefaults\n    mode http\n    timeout client 5s\n    timeout connect 2s\n    timeout server 5s\n"
    )
}

/// The smallest configuration that serves: `preamble` and a frontend on a unix socket.
pub(crate) fn minimal(base: &Path) -> String {
    let socket = base.join("front.sock");
    format!(
        "{}frontend front\n    bind unix@{}\n    http-request return status 200\n",
        preamble(base),
        socket.display()
    )
}

/// A running master and its workers; they end when this is dropped, and what they
/// logged is printed if the test is failing.
#[derive(Debug)]
pub(crate) struct Haproxy {
    version: Version,
    base: PathBuf,
    master: Child,
}

impl Haproxy {
    /// Writes `config` to `base/haproxy.cfg`, starts the master with the master socket
    /// `base/master.sock`, and waits until `base/worker.sock` answers `show info`.
    pub(crate) fn start(version: Version, base: &Path, config: &str) -> Self {
        fs::write(base.join("haproxy.cfg"), config).unwrap();
        let command = Self::command(version, base, base, "mode,600,level,admin");
        Self::start_as(version, base, command)
    }

    /// The master's command line: its configuration in `base`, its socket in `run`.
    pub(crate) fn command(version: Version, base: &Path, run: &Path, socket: &str) -> Command {
        let mut command = Command::new(version.executable());
        command
            .arg("-W")
            .arg("-S")
            .arg(format!("{},{socket}", run.join("master.sock").display()))
            .arg("-f")
            .arg(base.join("haproxy.cfg"))
            .current_dir(base);
        command
    }

    /// Starts `command`, whose sockets and log are, seen from here, in `run`.
    pub(crate) fn start_as(version: Version, run: &Path, mut command: Command) -> Self {
        let log = File::create(run.join("haproxy.log")).unwrap();
        let master = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap();
        let mut this = Self {
            version,
            base: run.to_path_buf(),
            master,
        };
        wait::until(&format!("{version} answers show info"), START, || {
            if let Some(status) = this.exited() {
                panic!("{version} ended with {status} instead of starting");
            }
            match (this.ask("show info"), this.ask_master("show proc;quit")) {
                (Ok(info), Ok(_)) if info.starts_with("Name: HAProxy") => Some(()),
                (Ok(_) | Err(_), _) => None,
            }
        });
        this
    }

    /// Which branch this is.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Its base directory.
    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    /// The configuration file.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.base.join("haproxy.cfg")
    }

    /// Replaces the configuration file by rename. Does not reload.
    pub(crate) fn write_config(&self, text: &str) {
        let beside = self.base.join("haproxy.cfg.new");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, self.config_file()).unwrap();
    }

    /// The path of the worker's stats socket.
    pub(crate) fn worker_socket(&self) -> PathBuf {
        self.base.join("worker.sock")
    }

    /// The path of the master socket.
    pub(crate) fn master_socket(&self) -> PathBuf {
        self.base.join("master.sock")
    }

    /// One line to the worker's stats socket, the whole answer.
    pub(crate) fn ask(&self, line: &str) -> std::io::Result<String> {
        ask(&self.worker_socket(), line)
    }

    /// One line to the master socket, the whole answer.
    pub(crate) fn ask_master(&self, line: &str) -> std::io::Result<String> {
        ask(&self.master_socket(), line)
    }

    /// The pid of the worker that answers now.
    pub(crate) fn worker_pid(&self) -> u32 {
        let info = self.ask("show info").unwrap();
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid: "));
        pid.unwrap().trim().parse().unwrap()
    }

    /// The master's pid.
    pub(crate) fn master_pid(&self) -> u32 {
        self.master.id()
    }

    /// The master's exit status, once it has ended.
    pub(crate) fn exited(&mut self) -> Option<std::process::ExitStatus> {
        self.master.try_wait().unwrap()
    }

    /// Everything master and workers printed so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.base.join("haproxy.log")).unwrap_or_default()
    }

    /// Ends master and workers at once and waits for the master.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.master.wait().unwrap();
    }

    fn signal(&self, signal: Signal) {
        let group = i32::try_from(self.master.id()).ok().and_then(Pid::from_raw);
        // The group may have ended by itself; nothing is left to do then.
        let _ = kill_process_group(group.unwrap(), signal);
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {} printed:\n{}---", self.version, self.log());
        }
        self.signal(Signal::TERM);
        let ended = wait::try_until(STOP, &mut || self.master.try_wait().ok().flatten());
        self.signal(Signal::KILL);
        if ended.is_none() {
            let _ = self.master.wait();
        }
    }
}

/// One line to a socket, read to the end of the stream within a bound.
pub(crate) fn ask(socket: &Path, line: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
