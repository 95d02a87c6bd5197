//! The sides of a comparison: the fake agent, and the real one on a HAProxy. Whatever
//! differs from run to run is masked, everything else is compared.

use super::{config, kit};
use crate::support::agent::{self, AUTHORIZATION, PASSWORD, Reply, Setup, USER};
use crate::support::haproxy::{Haproxy, Version};
use crate::support::wait;
use haptic_agent::testkit::fake_agent::Pacing;
use haptic_agent::testkit::fake_haproxy::Version as Branch;
use haptic_agent::testkit::{FakeAgent, FakeHaproxy};
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How long anything that has to happen may take on a loaded machine.
const SOON: Duration = Duration::from_secs(30);

/// One side.
pub(super) trait Side {
    fn name(&self) -> &'static str;

    fn address(&self) -> SocketAddr;

    /// Waits for the reload that is pending, or runs it.
    fn fire(&mut self);

    /// Something else writes a file of the tree, or removes it.
    fn write_behind(&mut self, path: &str, bytes: Option<&[u8]>);

    /// HAProxy is started anew with what is on disk.
    fn restart_haproxy(&mut self);

    /// What it logged that a person should read.
    fn complaints(&self) -> Vec<String>;

    /// `GET /v1/state`.
    fn state(&self, query: &str) -> Value {
        let target = format!("/v1/state{query}");
        let reply = agent::get(self.address(), &target, Some(AUTHORIZATION));
        assert_eq!(reply.status, 200, "{}: {}", self.name(), reply.text());
        reply.json()
    }

    /// The state once deletes have ended, which they do by themselves.
    fn settled(&self) -> Value {
        wait::until_ok("deletes end", SOON, || {
            let state = self.state("");
            let open = |kind: &str| {
                !state["pending_deletes"][kind]
                    .as_array()
                    .unwrap()
                    .is_empty()
            };
            match open("servers") || open("backends") {
                true => Err(state),
                false => Ok(state),
            }
        })
    }
}

/// The fake agent.
#[derive(Debug)]
pub(super) struct Fake {
    agent: FakeAgent,
}

impl Fake {
    pub(super) fn start(paced: bool, version: &str) -> Self {
        let agent = FakeAgent::builder()
            .credentials(USER, PASSWORD)
            .haproxy_version(version)
            .reserved(["master.sock", "worker.sock"].map(str::to_owned))
            .judge(|files| {
                let config = files
                    .get(kit::CONFIG)
                    .map(|bytes| String::from_utf8_lossy(bytes));
                match config.is_some_and(|text| text.contains(kit::BAD)) {
                    true => Err("config : parsing [haproxy.cfg:1] : unknown keyword".to_owned()),
                    false => Ok(()),
                }
            })
            .start()
            .unwrap();
        agent.set_pacing(match paced {
            true => Pacing::AfterEach,
            false => Pacing::None,
        });
        Self { agent }
    }
}

impl Side for Fake {
    fn name(&self) -> &'static str {
        "the fake agent"
    }

    fn address(&self) -> SocketAddr {
        self.agent.address()
    }

    fn fire(&mut self) {
        self.agent.fire();
    }

    fn write_behind(&mut self, path: &str, bytes: Option<&[u8]>) {
        self.agent.write_behind(path, bytes).unwrap();
    }

    fn restart_haproxy(&mut self) {
        self.agent.restart_haproxy();
    }

    fn complaints(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The agent's own binary beside a real HAProxy.
#[derive(Debug)]
pub(super) struct Real {
    agent: agent::Agent,
    haproxy: Haproxy,
    base: PathBuf,
    _dir: tempfile::TempDir,
}

impl Real {
    pub(super) fn start(version: Version, interval: Option<&str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("b");
        fs::create_dir(&base).unwrap();
        let haproxy = Haproxy::start(version, &base, &kit::bootstrap());
        let setup = Setup::new(&base).with("--reload-interval-min", interval.unwrap_or("0"));
        Self {
            agent: setup.start(),
            haproxy,
            base,
            _dir: dir,
        }
    }
}

impl Side for Real {
    fn name(&self) -> &'static str {
        "the agent on HAProxy"
    }

    fn address(&self) -> SocketAddr {
        self.agent.api()
    }

    fn fire(&mut self) {
        wait_for_fire(self);
    }

    fn write_behind(&mut self, path: &str, bytes: Option<&[u8]>) {
        write(&self.base.join(path), bytes);
    }

    fn restart_haproxy(&mut self) {
        let config = fs::read_to_string(self.base.join(kit::CONFIG)).unwrap();
        let version = self.haproxy.version();
        self.haproxy.kill();
        for socket in ["master.sock", "worker.sock"] {
            let _ = fs::remove_file(self.base.join(socket));
        }
        self.haproxy = Haproxy::start(version, &self.base, &config);
        wait_for_known(self);
    }

    fn complaints(&self) -> Vec<String> {
        complaints(&self.agent)
    }
}

/// The agent's own binary beside a fake HAProxy that reads the same files.
#[derive(Debug)]
pub(super) struct OnFake {
    agent: agent::Agent,
    haproxy: FakeHaproxy,
    base: PathBuf,
    _dir: tempfile::TempDir,
}

impl OnFake {
    pub(super) fn start(version: Version, interval: Option<&str>) -> Self {
        Self::start_with(version, interval, &[])
    }

    /// With flags of its own.
    pub(super) fn start_with(
        version: Version,
        interval: Option<&str>,
        flags: &[(&str, &str)],
    ) -> Self {
        let this = Self::set_up(version, interval, flags, |_| {});
        this.agent.wait_ready();
        this
    }

    /// An agent that is not waited for, on a HAProxy with faults.
    pub(super) fn spawn(version: Version, prepare: impl FnOnce(&FakeHaproxy)) -> Self {
        Self::set_up(version, None, &[], prepare)
    }

    fn set_up(
        version: Version,
        interval: Option<&str>,
        flags: &[(&str, &str)],
        prepare: impl FnOnce(&FakeHaproxy),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("b");
        fs::create_dir(&base).unwrap();
        fs::write(base.join(kit::CONFIG), kit::bootstrap()).unwrap();
        let files = base.clone();
        let haproxy = FakeHaproxy::builder(branch(version))
            .model(config::load(&base).unwrap())
            .on_reload(move |_| config::load(&files))
            .start(&base.join("master.sock"), &base.join("worker.sock"))
            .unwrap();
        prepare(&haproxy);
        let mut setup = Setup::new(&base).with("--reload-interval-min", interval.unwrap_or("0"));
        for (flag, value) in flags {
            setup = setup.with(flag, value);
        }
        Self {
            agent: setup.spawn(),
            haproxy,
            base,
            _dir: dir,
        }
    }

    /// HAProxy comes back after it died, with what is on disk.
    pub(super) fn restart_dead(&mut self) {
        let model = config::load(&self.base).unwrap();
        self.haproxy.start_again(model).unwrap();
    }

    pub(super) fn agent(&self) -> &agent::Agent {
        &self.agent
    }

    pub(super) fn haproxy(&mut self) -> &mut FakeHaproxy {
        &mut self.haproxy
    }
}

impl Side for OnFake {
    fn name(&self) -> &'static str {
        "the agent on the fake HAProxy"
    }

    fn address(&self) -> SocketAddr {
        self.agent.api()
    }

    fn fire(&mut self) {
        wait_for_fire(self);
    }

    fn write_behind(&mut self, path: &str, bytes: Option<&[u8]>) {
        write(&self.base.join(path), bytes);
    }

    fn restart_haproxy(&mut self) {
        let model = config::load(&self.base).unwrap();
        self.haproxy.start_again(model).unwrap();
        wait_for_known(self);
    }

    fn complaints(&self) -> Vec<String> {
        complaints(&self.agent)
    }
}

fn complaints(agent: &agent::Agent) -> Vec<String> {
    let records = agent.records();
    let loud = |record: &&Value| record["level"] == "warn" || record["level"] == "error";
    let shown = records.iter().filter(loud).map(Value::to_string);
    shown.collect()
}

pub(super) fn branch(version: Version) -> Branch {
    match version {
        Version::V3_0 => Branch::V3_0,
        Version::V3_2 => Branch::V3_2,
        Version::V3_4 => Branch::V3_4,
    }
}

fn wait_for_fire(side: &dyn Side) {
    wait::until("the pending reload runs", SOON, || {
        side.state("?plan=0")
            .get("reload_pending_at")
            .is_none()
            .then_some(())
    });
}

/// Another worker was noticed, and it is known again what runs.
fn wait_for_known(side: &dyn Side) {
    wait::until_ok("the applied set is reloaded once", SOON, || {
        let state = side.state("?plan=0&verify=1");
        let running = state["running_plan_id"] == state["applied_plan_id"];
        let reloaded =
            state["last_apply"]["reload"]["worker_pid"] == state["haproxy"]["worker_pid"];
        if running && reloaded {
            Ok(())
        } else {
            Err(state)
        }
    });
}

fn write(path: &std::path::Path, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            let beside = path.with_extension("beside");
            fs::write(&beside, bytes).unwrap();
            fs::rename(beside, path).unwrap();
        }
        None => fs::remove_file(path).unwrap(),
    }
}

/// Makes two runs comparable: workers are numbered by their appearance, times and words
/// become placeholders.
#[derive(Debug, Default)]
pub(super) struct Mask {
    workers: Vec<u64>,
}

impl Mask {
    pub(super) fn reply(&mut self, reply: &Reply) -> Value {
        let headers: Vec<Value> = ["content-type", "allow", "retry-after", "www-authenticate"]
            .iter()
            .filter_map(|name| Some(json!([name, reply.header(name)?])))
            .collect();
        let body = match serde_json::from_slice::<Value>(&reply.body) {
            Ok(value) => {
                let newline = reply.body.last() == Some(&b'\n');
                json!({"json": self.value(value), "newline": newline})
            }
            Err(_) => json!(reply.text()),
        };
        json!({"status": reply.status, "headers": headers, "body": body})
    }

    pub(super) fn value(&mut self, mut value: Value) -> Value {
        self.mask(&mut value);
        value
    }

    fn mask(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::Array(results)) = fields.get_mut("op_results") {
                    blur(results);
                }
                for (name, field) in fields.iter_mut() {
                    let text = field.is_string();
                    match name.as_str() {
                        // A fake has no sockets.
                        "reserved_paths" => *field = json!([]),
                        "worker_socket" => *field = json!("…"),
                        "worker_pid" => *field = self.worker(field),
                        "timing" | "took_ms" | "worker_start_time_unix_micros" => {
                            *field = json!("…");
                        }
                        "at" | "since" | "scheduled_at" | "reload_pending_at" | "message"
                        | "reason" | "output" | "agent_version"
                            if text && !is_reason(field) =>
                        {
                            *field = json!("…");
                        }
                        _ => self.mask(field),
                    }
                }
                // HAProxy greets, or not, depending on the moment.
                if fields.get("performed") == Some(&json!(true))
                    && fields.get("ok") == Some(&json!(true))
                {
                    fields.remove("output");
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn worker(&mut self, pid: &Value) -> Value {
        let pid = pid.as_u64().unwrap();
        let known = self.workers.iter().position(|seen| *seen == pid);
        let number = known.unwrap_or_else(|| {
            self.workers.push(pid);
            self.workers.len() - 1
        });
        json!(format!("worker {number}"))
    }
}

/// Commands behind one that was refused may have been on their way already.
fn blur(results: &mut [Value]) {
    let refused = results.iter().position(|result| result["ok"] == false);
    let behind = refused.map_or(results.len(), |at| at + 1);
    for result in results.iter_mut().skip(behind) {
        *result = json!({"kind": result["kind"]});
    }
}

/// The reasons of a conflict are the contract's words, not an operator's.
fn is_reason(value: &Value) -> bool {
    [
        "prev_mismatch",
        "stale_epoch",
        "unknown_baseline",
        "worker_ops_mismatch",
    ]
    .iter()
    .any(|reason| value == reason)
}
