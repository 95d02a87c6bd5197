//! A HAProxy with its agent, a directory to push, and the tool.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::support::agent::{Agent, PASSWORD, Setup, USER};
use crate::support::haproxy::{Haproxy, Version, minimal, preamble};

/// A HAProxy and its agent.
pub(super) struct Pod {
    pub(super) haproxy: Haproxy,
    pub(super) agent: Agent,
    pub(super) setup: Setup,
    pub(super) base: PathBuf,
    _dir: tempfile::TempDir,
}

impl Pod {
    pub(super) fn start(version: Version) -> Self {
        Self::with(version, &[])
    }

    /// With more flags for the agent.
    pub(super) fn with(version: Version, flags: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base");
        fs::create_dir(&base).unwrap();
        let haproxy = Haproxy::start(version, &base, &minimal(&base));
        let mut setup = Setup::new(&base);
        for (flag, value) in flags {
            setup = setup.with(flag, value);
        }
        let agent = setup.start();
        Self {
            haproxy,
            agent,
            setup,
            base,
            _dir: dir,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.agent.api())
    }

    /// What the frontend answers to a request for that host.
    pub(super) fn get(&self, host: &str) -> String {
        let mut stream = UnixStream::connect(self.base.join("front.sock")).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
            .rsplit("\r\n\r\n")
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    /// A configuration that answers with what a map says about the host; `extra` goes
    /// into the frontend.
    pub(super) fn config(&self, extra: &str) -> String {
        format!(
            "{}frontend front\n    bind unix@{}/front.sock\n{extra}    http-request return status 200 content-type text/plain lf-string \"%[req.hdr(host),map(maps/host.map,none)]\"\n",
            preamble(&self.base),
            self.base.display()
        )
    }
}

/// A directory to push.
pub(super) struct Site {
    pub(super) dir: tempfile::TempDir,
}

impl Site {
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let site = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for (name, text) in files {
            site.write(name, text);
        }
        site
    }

    /// What [`Pod::config`] needs.
    pub(super) fn of(pod: &Pod) -> Self {
        Self::new(&[
            ("haproxy.cfg", &pod.config("")),
            ("maps/host.map", "a.example one\n"),
        ])
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn path(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }

    /// Its files, as the agent's tree should have them.
    pub(super) fn tree(&self) -> BTreeMap<String, Vec<u8>> {
        crate::support::agent::tree(self.dir.path())
    }
}

/// How a call ended.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) code: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Out {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error} in {}", self.stdout))
    }

    /// The text must say that.
    #[track_caller]
    pub(super) fn says(&self, text: &str) -> &Self {
        assert!(self.stdout.contains(text), "no {text:?} in\n{self}");
        self
    }

    #[track_caller]
    pub(super) fn ends(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{self}");
        self
    }
}

impl std::fmt::Display for Out {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "exit {}\n--- stdout\n{}--- stderr\n{}",
            self.code, self.stdout, self.stderr
        )
    }
}

/// The tool, with credentials in its environment.
pub(super) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapticctl"));
    command
        .args(words)
        .env_clear()
        .env("HAPTIC_USERNAME", USER)
        .env("HAPTIC_PASSWORD", PASSWORD)
        .stdin(Stdio::null());
    command
}

pub(super) fn run(mut command: Command) -> Out {
    let output = command.output().unwrap();
    Out {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// `hapticctl` with these words, and one agent.
pub(super) fn ctl(url: &str, words: &[&str]) -> Out {
    run(command(&[words, &["--agent", url]].concat()))
}

/// What a relay does with the next apply that passes.
pub(super) type Hook = Box<dyn FnMut(Moment) -> Pass + Send>;

/// Where an apply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Its first bytes have come; the agent has seen none.
    Begun,
    /// The first bytes of its answer have come; the client has seen none.
    Answered,
}

/// What to do with those bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    On,
    Cut,
}

/// A way to an agent with somebody who listens, and an address that stays when the
/// agent comes back on another port.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Relay {
    pub(super) fn new(target: SocketAddr, hook: Hook) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let target = Arc::new(Mutex::new(target));
        let stop = Arc::new(AtomicBool::new(false));
        let (to, ends, hook) = (target.clone(), stop.clone(), Arc::new(Mutex::new(hook)));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    break;
                }
                let (stream, to, hook) = (stream.unwrap(), *to.lock().unwrap(), hook.clone());
                std::thread::spawn(move || pass(&stream, to, &hook));
            }
        });
        Self {
            address,
            target,
            stop,
            thread: Some(thread),
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where later connections go.
    pub(super) fn target(&self) -> Arc<Mutex<SocketAddr>> {
        self.target.clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accept.
        let _ = TcpStream::connect(self.address);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// One connection, both ways, until an end of it is seen.
fn pass(client: &TcpStream, target: SocketAddr, hook: &Arc<Mutex<Hook>>) {
    let Ok(agent) = TcpStream::connect(target) else {
        return;
    };
    let ended = || {
        let _ = client.shutdown(Shutdown::Both);
        let _ = agent.shutdown(Shutdown::Both);
    };
    let in_apply = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            copy(client, &agent, |bytes| {
                if bytes.starts_with(b"POST ") {
                    in_apply.store(true, Ordering::SeqCst);
                    return hook.lock().unwrap()(Moment::Begun);
                }
                Pass::On
            });
            ended();
        });
        copy(&agent, client, |_| {
            match in_apply.swap(false, Ordering::SeqCst) {
                true => hook.lock().unwrap()(Moment::Answered),
                false => Pass::On,
            }
        });
        ended();
    });
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, mut look: impl FnMut(&[u8]) -> Pass) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count) = from.read(&mut buffer) {
        let bytes = &buffer[..count];
        if count == 0 || look(bytes) == Pass::Cut || to.write_all(bytes).is_err() {
            break;
        }
    }
}

/// The lines of an agent in a text, behind its address.
pub(super) fn lines_of<'o>(out: &'o Out, url: &str) -> Vec<&'o str> {
    let lines = out.stdout.lines();
    let mut found = lines.skip_while(|line| !line.starts_with(url));
    let first = found.next();
    first
        .into_iter()
        .chain(found.take_while(|line| line.starts_with("  ")))
        .collect()
}

/// Everything below a directory that holds one of these texts.
pub(super) fn holding(dir: &Path, secrets: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, secrets));
        } else if let Ok(bytes) = fs::read(&path) {
            let text = String::from_utf8_lossy(&bytes);
            if secrets.iter().any(|secret| text.contains(secret)) {
                found.push(path);
            }
        }
    }
    found
}
