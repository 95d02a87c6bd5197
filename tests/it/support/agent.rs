//! The agent's own binary beside a HAProxy, and a client that knows the wire only from
//! the contract: raw HTTP/1.1 over a socket, `serde_json` values, nothing of the crate's
//! types.

use super::wait;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

pub(crate) const USER: &str = "controller";
pub(crate) const PASSWORD: &str = "s3cret";
/// `controller:s3cret`, encoded by hand once.
pub(crate) const AUTHORIZATION: &str = "Basic Y29udHJvbGxlcjpzM2NyZXQ=";

/// How long a start or a stop may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long one exchange may take.
const EXCHANGE: Duration = Duration::from_secs(90);

/// How an agent is started.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) base: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
}

impl Setup {
    /// An agent on `base` with `master.sock` and `worker.sock` there, ports of its own,
    /// and no pacing. Its log goes beside the base, never into it.
    pub(crate) fn new(base: &Path) -> Self {
        let mut log = base.as_os_str().to_owned();
        log.push(".agent.log");
        Self {
            base: base.to_path_buf(),
            log: log.into(),
            arguments: ["--reload-interval-min", "0"].map(str::to_owned).to_vec(),
            environment: vec![("LOG_LEVEL".into(), "debug".into())],
        }
    }

    /// One more flag; the last of a repeated one counts.
    pub(crate) fn with(mut self, flag: &str, value: &str) -> Self {
        self.arguments.extend([flag.to_owned(), value.to_owned()]);
        self
    }

    /// The command line, for a test that wraps it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haptic-agent"));
        command
            .arg("--base-dir")
            .arg(&self.base)
            .args([
                "--master-socket",
                "master.sock",
                "--worker-socket",
                "worker.sock",
            ])
            .args(["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"])
            .args(&self.arguments)
            .env("DATAPLANE_USERNAME", USER)
            .env("DATAPLANE_PASSWORD", PASSWORD)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null());
        command
    }

    /// Starts it and waits until it listens, ready or not.
    pub(crate) fn spawn(&self) -> Agent {
        self.spawn_as(self.command())
    }

    /// Starts `command` as the agent: its standard output must be the agent's log.
    pub(crate) fn spawn_as(&self, mut command: Command) -> Agent {
        let log = File::create(&self.log).unwrap();
        let child = command
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut agent = Agent {
            child: Some(child),
            log: self.log.clone(),
            api: None,
            metrics: None,
        };
        let bound = wait::until("the agent listens", PATIENCE, || {
            if let Some(status) = agent.exited() {
                panic!(
                    "the agent ended with {status} instead of starting:\n{}",
                    agent.log()
                );
            }
            let records = agent.records();
            let of = |name: &str| {
                let record = records
                    .iter()
                    .find(|r| r["msg"] == "listening" && r["listener"] == name)?;
                record["address"].as_str()?.parse::<SocketAddr>().ok()
            };
            Some((of("api")?, of("metrics")?))
        });
        agent.api = Some(bound.0);
        agent.metrics = Some(bound.1);
        agent
    }

    /// Starts it and waits until it is ready.
    pub(crate) fn start(&self) -> Agent {
        let agent = self.spawn();
        agent.wait_ready();
        agent
    }
}

/// A running agent; it ends when this is dropped, and its log is printed if the test is
/// failing.
#[derive(Debug)]
pub(crate) struct Agent {
    child: Option<Child>,
    log: PathBuf,
    api: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

impl Agent {
    pub(crate) fn api(&self) -> SocketAddr {
        self.api.unwrap()
    }

    pub(crate) fn metrics_address(&self) -> SocketAddr {
        self.metrics.unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn wait_ready(&self) {
        wait::until("the agent is ready", PATIENCE, || {
            (get(self.api(), "/readyz", None).status == 200).then_some(())
        });
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The whole records of its log.
    pub(crate) fn records(&self) -> Vec<Value> {
        self.log()
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().unwrap().try_wait().unwrap()
    }

    /// `kill -9`, and waits for the end.
    pub(crate) fn kill(&mut self) {
        let child = self.child.as_mut().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// SIGTERM, and waits for the end.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        wait::until("the agent ends", PATIENCE, || self.exited())
    }

    /// `GET /v1/state`, which must be a 200.
    pub(crate) fn state(&self) -> Value {
        self.state_with("")
    }

    /// `GET /v1/state?query`.
    pub(crate) fn state_with(&self, query: &str) -> Value {
        let reply = get(
            self.api(),
            &format!("/v1/state{query}"),
            Some(AUTHORIZATION),
        );
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// The text of `/metrics`.
    pub(crate) fn metrics(&self) -> String {
        get(self.metrics_address(), "/metrics", None).text()
    }

    /// The value of one sample, by the whole of its name and labels.
    pub(crate) fn sample(&self, name: &str) -> f64 {
        let text = self.metrics();
        let line = text.lines().find(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(' '))
        });
        let line = line.unwrap_or_else(|| panic!("no sample {name} in\n{text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- the agent's log\n{}", self.log());
        }
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }
}

/// GET over a connection of its own.
pub(crate) fn get(address: SocketAddr, target: &str, authorization: Option<&str>) -> Reply {
    let credentials = authorization.map_or(String::new(), |a| format!("Authorization: {a}\r\n"));
    let head =
        format!("GET {target} HTTP/1.1\r\nHost: agent\r\n{credentials}Connection: close\r\n\r\n");
    exchange(address, head.as_bytes())
}

/// Sends bytes as they are and reads one answer.
pub(crate) fn exchange(address: SocketAddr, request: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(EXCHANGE)).unwrap();
    stream.set_write_timeout(Some(EXCHANGE)).unwrap();
    // An early answer may come, and the rest be refused, while this still writes.
    let _ = stream.write_all(request);
    read_reply(&mut stream)
}

/// Reads one answer with a declared length.
pub(crate) fn read_reply(stream: &mut impl Read) -> Reply {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line
        .split(' ')
        .nth(1)
        .unwrap_or_else(|| panic!("no status in {line:?}"));
    let status = status.parse().unwrap();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut reply = Reply {
        status,
        headers,
        body: Vec::new(),
    };
    let length: usize = reply.header("content-length").unwrap().parse().unwrap();
    reply.body.resize(length, 0);
    reader.read_exact(&mut reply.body).unwrap();
    reply
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

pub(crate) fn token(epoch: u64, seq: u64) -> Value {
    json!({"leader_epoch": epoch, "render_seq": seq})
}

/// One apply request, built like a controller builds it.
#[derive(Debug, Clone)]
pub(crate) struct Apply {
    /// The manifest; edit it freely.
    pub(crate) manifest: Value,
    /// Parts in the order they are sent: name, filename, bytes.
    pub(crate) parts: Vec<(String, Option<String>, Vec<u8>)>,
}

impl Apply {
    /// Mode `reload`, no files yet, on an agent without a baseline.
    pub(crate) fn new(plan_id: &str, epoch: u64, seq: u64) -> Self {
        Self {
            manifest: json!({
                "plan_id": plan_id, "plan_schema_version": 1,
                "token": token(epoch, seq),
                "expected_prev_plan_id": "", "expected_prev_token": token(0, 0),
                "files": [], "mode": "reload",
            }),
            parts: Vec::new(),
        }
    }

    /// Builds on what a state or an answer says is applied.
    pub(crate) fn on(mut self, state: &Value) -> Self {
        self.manifest["expected_prev_plan_id"] = state["applied_plan_id"].clone();
        self.manifest["expected_prev_token"] = state["applied_token"].clone();
        self
    }

    pub(crate) fn mode(mut self, mode: &str) -> Self {
        self.manifest["mode"] = mode.into();
        self
    }

    /// A file of the set, and its part.
    pub(crate) fn file(mut self, path: &str, bytes: &[u8]) -> Self {
        self = self.held(path, bytes);
        self.parts
            .push((path.to_owned(), Some(path.to_owned()), bytes.to_vec()));
        self
    }

    /// A file of the set whose content is not sent.
    pub(crate) fn held(mut self, path: &str, bytes: &[u8]) -> Self {
        let kind = match path.rsplit('.').next() {
            Some("cfg") => "config",
            Some("map") => "map",
            Some("pem") => "cert",
            _ => "general",
        };
        let file = json!({
            "path": path, "digest": sha256(bytes), "size": bytes.len(), "kind": kind,
            "reload_on_change": false,
        });
        self.manifest["files"].as_array_mut().unwrap().push(file);
        self
    }

    /// The plan blob.
    pub(crate) fn blob(mut self, bytes: &[u8]) -> Self {
        self.parts
            .push(("plan".into(), Some("plan".into()), bytes.to_vec()));
        self
    }

    /// Any change of the manifest.
    pub(crate) fn edit(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.manifest);
        self
    }

    /// The multipart body and its content type.
    pub(crate) fn body(&self) -> (Vec<u8>, String) {
        let boundary = "----part-5f1c-border";
        let mut body = Vec::new();
        let manifest = self.manifest.to_string();
        part(&mut body, boundary, "manifest", None, manifest.as_bytes());
        for (name, filename, bytes) in &self.parts {
            part(&mut body, boundary, name, filename.as_deref(), bytes);
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        (body, format!("multipart/form-data; boundary={boundary}"))
    }

    /// The whole request with a length.
    pub(crate) fn request(&self) -> Vec<u8> {
        let (body, content_type) = self.body();
        let mut request = format!(
            "POST /v1/apply HTTP/1.1\r\nHost: agent\r\nAuthorization: {AUTHORIZATION}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(&body);
        request
    }

    /// Sends it.
    pub(crate) fn send(&self, agent: &Agent) -> Reply {
        exchange(agent.api(), &self.request())
    }

    /// Sends it; the answer must be a 200 with `ok: true` and that mode.
    pub(crate) fn succeed(&self, agent: &Agent, mode: &str) -> Value {
        let reply = self.send(agent);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let answer = reply.json();
        assert_eq!(answer["ok"], true, "{answer:#}");
        assert_eq!(answer["mode"], mode, "{answer:#}");
        answer
    }

    /// Sends it; the answer must be a NACK of that stage.
    pub(crate) fn fail(&self, agent: &Agent, stage: &str) -> Value {
        let reply = self.send(agent);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let answer = reply.json();
        assert_eq!(answer["ok"], false, "{answer:#}");
        assert_eq!(answer["mode"], "rejected", "{answer:#}");
        assert_eq!(answer["applied_plan_id"], "", "{answer:#}");
        assert_eq!(answer["error"]["stage"], stage, "{answer:#}");
        answer
    }
}

fn part(body: &mut Vec<u8>, boundary: &str, name: &str, filename: Option<&str>, bytes: &[u8]) {
    let filename = filename.map_or(String::new(), |f| format!("; filename=\"{f}\""));
    body.extend_from_slice(
        format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"{filename}\r\n\r\n"
        )
        .as_bytes(),
    );
    body.extend_from_slice(bytes);
    body.extend_from_slice(b"\r\n");
}

/// Every regular file below `base` that a manifest could name, with its bytes.
pub(crate) fn tree(base: &Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    fn walk(base: &Path, dir: &Path, out: &mut std::collections::BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            if name.to_string_lossy().starts_with('.') {
                continue;
            }
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                walk(base, &entry.path(), out);
            } else if kind.is_file() {
                let path = entry.path();
                let relative = path
                    .strip_prefix(base)
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                out.insert(relative, fs::read(&path).unwrap());
            }
        }
    }
    let mut out = std::collections::BTreeMap::new();
    walk(base, base, &mut out);
    out.remove("haproxy.log");
    out
}
