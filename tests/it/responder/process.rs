//! The process: how it starts, what it shows, how it ends; alone and within the daemon.

use super::kit::{PATIENCE, Store, ask};
use crate::support::agent::{self, Reply};
use crate::support::wait;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// `haptic-agent respond`, about to be started.
#[derive(Debug)]
pub(super) struct Starting {
    command: Command,
    store: Option<Store>,
}

/// A running one; it ends when this is dropped, and its log is printed if the test is
/// failing.
#[derive(Debug)]
pub(super) struct Respond {
    child: Child,
    log: PathBuf,
    _dir: tempfile::TempDir,
    pub(super) store: Option<Store>,
    checks: Option<SocketAddr>,
    monitoring: Option<SocketAddr>,
}

impl Respond {
    /// On a directory of its own.
    pub(super) fn on_directory() -> Starting {
        let store = Store::new();
        let starting = Self::with(&["--kv-dir", store.path().to_str().unwrap()]);
        Starting {
            store: Some(store),
            ..starting
        }
    }

    /// With these flags and ports of its own.
    pub(super) fn with(flags: &[&str]) -> Starting {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haptic-agent"));
        command
            .arg("respond")
            .args([
                "-listen-addr",
                "127.0.0.1:0",
                "-monitoring-addr",
                "127.0.0.1:0",
            ])
            .args(flags)
            .env_clear()
            .stdin(Stdio::null());
        Starting {
            command,
            store: None,
        }
    }

    pub(super) fn checks(&self) -> SocketAddr {
        self.checks.unwrap()
    }

    pub(super) fn monitoring(&self) -> SocketAddr {
        self.monitoring.unwrap()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn get(&self, path: &str) -> Reply {
        agent::get(self.monitoring.unwrap(), path, None)
    }

    pub(super) fn sample(&self, name: &str) -> f64 {
        let text = self.get("/-/metrics").text();
        let line = text.lines().find_map(|line| {
            let rest = line.strip_prefix(name)?;
            rest.strip_prefix(' ')
        });
        let line = line.unwrap_or_else(|| panic!("no sample {name} in\n{text}"));
        line.parse().unwrap()
    }

    pub(super) fn wait_synced(&self) {
        wait::until("the responder is ready", PATIENCE, || {
            (self.get("/-/readiness").status == 200).then_some(())
        });
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn records(&self) -> Vec<Value> {
        self.log()
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub(super) fn wait_exit(&mut self) -> i32 {
        let status = wait::until("the responder ends", PATIENCE, || self.exited());
        status.code().unwrap()
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Starting {
    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(super) fn flag(mut self, flag: &str, value: &str) -> Self {
        self.command.args([flag, value]);
        self
    }

    /// Starts it without waiting for anything.
    pub(super) fn spawn(mut self) -> Respond {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let file = File::create(&log).unwrap();
        let child = self
            .command
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Respond {
            child,
            log,
            _dir: dir,
            store: self.store,
            checks: None,
            monitoring: None,
        }
    }

    /// Starts it and waits until both listeners are there.
    pub(super) fn start(self) -> Respond {
        let mut respond = self.spawn();
        let (checks, monitoring) = wait::until("the responder listens", PATIENCE, || {
            if let Some(status) = respond.exited() {
                panic!("it ended with {status}:\n{}", respond.log());
            }
            let records = respond.records();
            let of = |name: &str| {
                let listening = |r: &&Value| r["msg"] == "listening" && r["listener"] == name;
                let record = records.iter().find(listening)?;
                record["address"].as_str()?.parse::<SocketAddr>().ok()
            };
            Some((of("checks")?, of("monitoring")?))
        });
        respond.checks = Some(checks);
        respond.monitoring = Some(monitoring);
        respond
    }
}

impl Drop for Respond {
    fn drop(&mut self) {
        let _ended_before = self.child.kill();
        let _status = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the responder's log\n{}", self.log());
        }
    }
}

#[test]
fn it_becomes_ready_answers_shows_itself_and_stops() {
    let mut respond = Respond::on_directory().start();
    respond.wait_synced();
    assert_eq!(respond.get("/-/liveness").text(), "ok\n");
    assert_eq!(ask(respond.checks(), "web/s1 canary\n"), "ready 100%\n");
    respond.store.as_ref().unwrap().set("canary", "drain");
    wait::until("the key counts", PATIENCE, || {
        (ask(respond.checks(), "web/s1 canary\n") == "drain\n").then_some(())
    });
    wait::until("the change is logged", PATIENCE, || {
        let records = respond.records();
        let told = records.iter().find(|r| r["row"] == "web/s1")?;
        assert_eq!(
            (&told["from"], &told["to"], &told["key"]),
            (&"ready".into(), &"drain".into(), &"canary".into())
        );
        Some(())
    });
    assert!(respond.sample("haptic_responder_replies_total{verdict=\"drain\"}") >= 1.0);
    assert!((respond.sample("haptic_responder_kv_synced") - 1.0).abs() < f64::EPSILON);
    assert!(respond.sample("process_resident_memory_bytes") > 0.0);
    let coverage = respond.get("/-/coverage").json();
    assert_eq!(coverage["rows"][0]["row"], "web/s1");
    assert_eq!(coverage["rows"][0]["decided_by"], "canary");
    assert_eq!(coverage["haproxy"], Value::Null, "no socket was given");
    let key = respond.get("/-/coverage?key=canary").json();
    assert_eq!(
        (&key["value"], &key["in_store"]),
        (&"drain".into(), &true.into())
    );
    assert_eq!(respond.get("/-/coverage?key=%zz").status, 400);
    assert_eq!(respond.get("/metrics").status, 404);
    let post =
        b"POST /-/metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(
        agent::exchange(respond.monitoring.unwrap(), post).status,
        405
    );

    let start = Instant::now();
    respond.signal(Signal::TERM);
    assert_eq!(respond.wait_exit(), 0);
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
}

/// Every series exists from the start, so that a rate has a first value.
#[test]
fn closed_label_sets_are_at_zero_from_the_start() {
    let respond = Respond::on_directory().start();
    respond.wait_synced();
    let text = respond.get("/-/metrics").text();
    let sets: [(&str, &str, &[&str]); 8] = [
        (
            "replies_total",
            "verdict",
            &["ready", "drain", "maint", "weight"],
        ),
        (
            "silent_total",
            "reason",
            &["unsynced", "no_key", "too_long"],
        ),
        (
            "kv_reads_total",
            "result",
            &["changed", "same", "hold", "error"],
        ),
        (
            "kv_errors_total",
            "kind",
            &["connect", "timeout", "http", "leader", "acl", "parse"],
        ),
        (
            "kv_hold",
            "reason",
            &["filtered", "index", "probe", "marker", "directory"],
        ),
        (
            "overrides",
            "verdict",
            &["ready", "drain", "maint", "weight"],
        ),
        (
            "rows",
            "state",
            &[
                "following",
                "pending",
                "diverged",
                "not_asking",
                "agent_off",
                "not_enrolled",
                "foreign",
            ],
        ),
        ("looks_total", "result", &["ok", "error"]),
    ];
    for (name, label, values) in sets {
        for value in values {
            let sample = format!("haptic_responder_{name}{{{label}=\"{value}\"}} ");
            assert!(text.contains(&sample), "{sample} in\n{text}");
        }
    }
    for name in [
        "reply_seconds_count",
        "connections",
        "accept_errors_total",
        "kv_synced",
        "kv_last_read_timestamp_seconds",
        "kv_keys",
        "kv_invalid_values",
        "transitions_total",
        "keys_unasked",
    ] {
        let sample = format!("\nhaptic_responder_{name} ");
        assert!(text.contains(&sample), "{sample} in\n{text}");
    }
    assert!(text.contains("haptic_responder_build_info{version="));
}

/// Without a copy by the deadline: a code of its own, the reason, and no answer before.
#[test]
fn a_store_that_is_away_at_the_start_is_an_exit_code_of_its_own() {
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let start = Instant::now();
    let mut respond = Respond::with(&["-consul-addr", &nobody.to_string()])
        .flag("-sync-deadline", "1500ms")
        .start();
    assert_eq!(
        ask(respond.checks(), "web/s1 canary\n"),
        "",
        "nothing is said"
    );
    let readiness = respond.get("/-/readiness");
    assert_eq!(readiness.status, 503);
    assert_eq!(respond.get("/-/liveness").status, 200);
    assert_eq!(respond.wait_exit(), 5);
    assert!(start.elapsed() >= Duration::from_millis(1500));
    let records = respond.records();
    let last = records.last().unwrap();
    assert_eq!(last["level"], "error", "{last}");
    let said = last["error"].as_str().unwrap();
    assert!(said.contains("--sync-deadline"), "{said}");
    assert!(said.contains(&nobody.to_string()), "{said}");
}

/// With a deadline of 0 it waits, silent and not ready, until the store is there.
#[test]
fn a_deadline_of_zero_waits_for_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("kv");
    // A directory without its mark is no store.
    fs::create_dir(&store).unwrap();
    let respond = Respond::with(&["-kv-dir", store.to_str().unwrap()])
        .env("HAPTIC_RESPONDER_SYNC_DEADLINE", "0")
        .start();
    wait::until("a reason is shown", PATIENCE, || {
        let readiness = respond.get("/-/readiness");
        assert_eq!(readiness.status, 503);
        readiness.text().contains(".haptic-kv").then_some(())
    });
    assert_eq!(ask(respond.checks(), "web/s1\n"), "");
    fs::write(store.join(".haptic-kv"), "1\n").unwrap();
    respond.wait_synced();
    assert_eq!(ask(respond.checks(), "web/s1\n"), "ready 100%\n");
}

#[test]
fn what_cannot_start_says_why() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let kv = dir.path().join("kv");
    let kv = kv.to_str().unwrap();
    let nothing = dir.path().join("not-mounted/kv");
    let nothing = nothing.to_str().unwrap();
    let listener = TcpListener::bind(&taken);
    let taken_again = listener.map_or(taken.clone(), |l| {
        std::mem::forget(l);
        taken
    });
    let table: [(&[&str], i32, &str); 6] = [
        (&["-kv-dir", nothing, "-sync-deadline", "1s"], 5, "mount it"),
        (
            &["-kv-dir", kv, "-listen-addr", &taken_again],
            3,
            "stop it or choose another port",
        ),
        (
            &["-kv-dir", kv, "-monitoring-addr", &taken_again],
            3,
            "choose another port",
        ),
        (
            &["-consul-addr", "https://127.0.0.1:8501"],
            2,
            "https, which is not built in",
        ),
        (&["-kv-prefix", "a//b"], 2, "--kv-prefix"),
        (
            &["-kv-dir", kv, "-consul-addr", "127.0.0.1:1"],
            2,
            "one store",
        ),
    ];
    for (flags, code, want) in table {
        let mut respond = Respond::with(flags).spawn();
        assert_eq!(respond.wait_exit(), code, "{flags:?}: {}", respond.log());
        let said = respond.log();
        assert!(said.contains(want), "{flags:?}: {said}");
    }
}
