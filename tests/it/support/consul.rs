//! A real Consul server in memory, on ports of its own.

use super::{servers, wait};
use haptic_agent::http::client::{Body, Cancel, Connection, Method, Origin, Request, Until};
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a start may take on a loaded machine.
const START: Duration = Duration::from_secs(40);
/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(20);
/// Ports that were free are taken by somebody else now and then.
const ATTEMPTS: usize = 4;

/// The token that may do everything where rights are enforced.
pub(crate) const ROOT: &str = "root";

/// How a server is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Everything is allowed.
    Open,
    /// Nothing is allowed without a token; [`ROOT`] may do everything.
    DenyByDefault,
    /// One of two servers, so that there is no leader before [`Consul::join`].
    Half,
}

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Consul {
    mode: Mode,
    dir: tempfile::TempDir,
    ports: [u16; 4],
    child: Child,
}

impl Consul {
    /// Starts a server and waits until it answers, and leads unless it is a half.
    pub(crate) fn start(mode: Mode) -> Self {
        for _ in 0..ATTEMPTS {
            let dir = tempfile::tempdir().unwrap();
            let ports = free_ports();
            let child = spawn(mode, dir.path(), ports);
            let mut this = Self {
                mode,
                dir,
                ports,
                child,
            };
            if this.await_start() {
                return this;
            }
            eprintln!("consul did not start: {}", this.log());
        }
        panic!("no consul starts");
    }

    /// Where its API listens.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports[0]))
    }

    /// The unix socket on which an open server listens as well.
    pub(crate) fn socket(&self) -> std::path::PathBuf {
        self.dir.path().join("consul.sock")
    }

    /// Stores a value, with the token that may do everything.
    pub(crate) fn put(&self, key: &str, value: &str) {
        let (status, body) = self.call(Method::Put, &kv(key), value.as_bytes());
        assert_eq!((status, body.as_str().trim()), (200, "true"), "put {key}");
    }

    /// Deletes a key.
    pub(crate) fn delete(&self, key: &str) {
        let (status, body) = self.call(Method::Delete, &kv(key), b"");
        assert_eq!(
            (status, body.as_str().trim()),
            (200, "true"),
            "delete {key}"
        );
    }

    /// Any request of the root token: status and body.
    pub(crate) fn call(&self, method: Method, target: &str, body: &[u8]) -> (u16, String) {
        call(self.address(), Some(ROOT), method, target, body).unwrap()
    }

    /// Makes `token` one that may do what `rules` say, now or from now on.
    pub(crate) fn give(&self, token: &str, rules: &str) {
        let name = format!("p{}", &token[..8]);
        let rules = serde_json::to_string(rules).unwrap();
        let policy = format!("{{\"Name\":\"{name}\",\"Rules\":{rules}}}");
        let (_, found) = self.call(Method::Get, &format!("/v1/acl/policy/name/{name}"), b"");
        let id = serde_json::from_str::<serde_json::Value>(&found)
            .ok()
            .and_then(|policy| Some(policy["ID"].as_str()?.to_owned()));
        let target = match &id {
            Some(id) => format!("/v1/acl/policy/{id}"),
            None => "/v1/acl/policy".to_owned(),
        };
        let (status, said) = self.call(Method::Put, &target, policy.as_bytes());
        assert_eq!(status, 200, "{said}");
        if id.is_none() {
            let body =
                format!("{{\"SecretID\":\"{token}\",\"Policies\":[{{\"Name\":\"{name}\"}}]}}");
            let (status, said) = self.call(Method::Put, "/v1/acl/token", body.as_bytes());
            assert_eq!(status, 200, "{said}");
        }
    }

    /// Makes `token` unknown.
    pub(crate) fn take(&self, token: &str) {
        let target = "/v1/acl/token/self";
        let (status, said) = call(self.address(), Some(token), Method::Get, target, b"").unwrap();
        assert_eq!(status, 200, "{said}");
        let accessor = serde_json::from_str::<serde_json::Value>(&said).unwrap();
        let accessor = accessor["AccessorID"].as_str().unwrap().to_owned();
        let (status, said) = self.call(Method::Delete, &format!("/v1/acl/token/{accessor}"), b"");
        assert_eq!(status, 200, "{said}");
    }

    /// Ends the server at once; its keys are lost.
    pub(crate) fn kill(&mut self) {
        let _ended_before = self.child.kill();
        self.child.wait().unwrap();
    }

    /// Starts it anew on the same ports, empty.
    pub(crate) fn start_again(&mut self) {
        self.kill();
        self.child = spawn(self.mode, self.dir.path(), self.ports);
        assert!(self.await_start(), "{}", self.log());
    }

    /// Stops it in its tracks: connections are taken and nothing is answered.
    pub(crate) fn freeze(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    /// Makes the halves a cluster with a leader.
    pub(crate) fn join(&self, other: &Self) {
        let target = format!("/v1/agent/join/127.0.0.1:{}", other.ports[2]);
        let (status, said) = self.call(Method::Put, &target, b"");
        assert_eq!(status, 200, "{said}");
        wait::until("two servers elect a leader", START, || {
            self.leads().then_some(())
        });
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn leads(&self) -> bool {
        let target = "/v1/kv/probe-of-the-tests?raw";
        match call(self.address(), Some(ROOT), Method::Get, target, b"") {
            Some((status, _)) => status == 404,
            None => false,
        }
    }

    /// Whether it answers in time; false if it ended.
    fn await_start(&mut self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < START {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            let ready = match self.mode {
                Mode::Open | Mode::DenyByDefault => self.leads(),
                Mode::Half => {
                    let target = "/v1/agent/self";
                    call(self.address(), None, Method::Get, target, b"").is_some()
                }
            };
            if ready {
                return true;
            }
            wait::try_until(Duration::from_millis(50), &mut || None::<()>);
        }
        false
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("consul.log")).unwrap_or_default()
    }
}

impl Drop for Consul {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- consul printed:\n{}---", self.log());
        }
        self.kill();
    }
}

fn kv(key: &str) -> String {
    haptic_agent::responder::key::kv_path(key)
}

fn spawn(mode: Mode, dir: &Path, ports: [u16; 4]) -> Child {
    let [http, server, serf, wan] = ports.map(|port| port.to_string());
    let log = File::create(dir.join("consul.log")).unwrap();
    let mut command = Command::new(servers::executable("consul", "consul"));
    command
        .args(["agent", "-bind", "127.0.0.1", "-client", "127.0.0.1"])
        .args(["-node", &format!("node-{http}"), "-log-level", "warn"])
        .args(["-http-port", &http, "-server-port", &server])
        .args(["-serf-lan-port", &serf, "-serf-wan-port", &wan])
        .args(["-dns-port", "-1", "-grpc-port", "-1"]);
    match mode {
        Mode::Open => {
            let listen = dir.join("listen.json");
            let socket = dir.join("consul.sock");
            let text = format!(
                "{{\"addresses\":{{\"http\":\"127.0.0.1 unix://{}\"}}}}",
                socket.display()
            );
            fs::write(&listen, text).unwrap();
            command.arg("-dev").arg("-config-file").arg(listen);
        }
        Mode::DenyByDefault => {
            let rules = dir.join("acl.json");
            let text = format!(
                "{{\"acl\":{{\"enabled\":true,\"default_policy\":\"deny\",\"down_policy\":\"deny\",\"token_ttl\":\"0s\",\"policy_ttl\":\"0s\",\"tokens\":{{\"master\":\"{ROOT}\"}}}}}}"
            );
            fs::write(&rules, text).unwrap();
            command.arg("-dev").arg("-config-file").arg(rules);
        }
        Mode::Half => {
            command
                .args(["-server", "-bootstrap-expect", "2"])
                .arg("-data-dir")
                .arg(dir.join("data"));
        }
    }
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .process_group(0)
        .spawn()
        .unwrap()
}

/// Ports that were free a moment ago. Consul does not share them, so they cannot be
/// held until it has them.
fn free_ports() -> [u16; 4] {
    let held = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|listener| listener.local_addr().unwrap().port())
}

fn call(
    address: SocketAddr,
    token: Option<&str>,
    method: Method,
    target: &str,
    body: &[u8],
) -> Option<(u16, String)> {
    let origin = Origin::parse(&format!("http://{address}")).unwrap();
    let mut connection =
        Connection::open(&origin, Instant::now() + REQUEST, &Cancel::new()).ok()?;
    let fields: Vec<_> = token
        .iter()
        .map(|token| ("X-Consul-Token", *token))
        .collect();
    let request = Request {
        method,
        target,
        fields: &fields,
        body: Body::Bytes(body),
    };
    let answer = connection.send(request, Until::within(REQUEST)).ok()?;
    let status = answer.status();
    let body = answer.collect(1 << 24).ok()?;
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}
