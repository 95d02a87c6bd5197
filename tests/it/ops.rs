//! Runtime ops against real HAProxy 3.0, 3.2 and 3.4, and against peers that misbehave.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::cast_possible_truncation
)]

mod backends;
mod broken;
mod certs;
mod deletes;
mod maps;
mod procedures;
mod random;
mod readback;
mod servers;

use crate::support::haproxy::{Haproxy, Version, preamble};
use crate::support::wait;
use haptic_agent::clock::SystemClock;
use haptic_agent::haproxy::batch::{BatchReport, Ended};
use haptic_agent::haproxy::deletes::Queue;
use haptic_agent::haproxy::ops::{Content, NotExecutable, Outcome, compile};
use haptic_agent::haproxy::{Deadline, WorkerInfo, WorkerSocket};
use haptic_agent::wire::op::Op;
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Files below a directory, as the apply hands them in.
struct Tree(PathBuf);

impl Content for Tree {
    fn open(&self, path: &str) -> Result<Box<dyn Read + '_>, String> {
        match fs::File::open(self.0.join(path)) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => Err(format!("{path}: {error}")),
        }
    }
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

/// A worker with what the ops need: maps, a backend that takes servers, certificates.
struct Bench {
    haproxy: Haproxy,
    before: WorkerInfo,
    queue: Queue,
    dir: tempfile::TempDir,
}

impl Bench {
    fn start(version: Version, config: impl Fn(&Path) -> String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let text = config(dir.path());
        let haproxy = Haproxy::start(version, dir.path(), &text);
        let before = WorkerSocket::new(haproxy.worker_socket())
            .info(soon())
            .unwrap();
        Self {
            haproxy,
            before,
            queue: Queue::default(),
            dir,
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn worker(&self) -> WorkerSocket {
        WorkerSocket::new(self.haproxy.worker_socket())
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let file = self.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    fn try_run(&mut self, ops: &Value) -> Result<BatchReport, NotExecutable> {
        let ops: Vec<Op> = serde_json::from_value(ops.clone()).unwrap();
        let content = Tree(self.path().to_path_buf());
        let batch = compile(&ops, &self.before.version, &content, &self.queue)?;
        let worker = self.worker();
        Ok(batch.run(&worker, self.before.identity, &mut self.queue, &SystemClock))
    }

    /// Runs ops that are executable.
    fn run(&mut self, ops: &Value) -> BatchReport {
        match self.try_run(ops) {
            Ok(report) => report,
            Err(refused) => panic!("{}: {refused}", self.haproxy.version()),
        }
    }

    /// Runs ops that all succeed, and shows that the worker is the same.
    fn good(&mut self, ops: &Value) -> BatchReport {
        let report = self.run(ops);
        let version = self.haproxy.version();
        assert!(
            matches!(&report.ended, Ended::Complete { worker } if worker.identity == self.before.identity),
            "{version}: {report:#?}"
        );
        assert!(
            report.results.iter().all(|r| r.outcome.is_ok()),
            "{version}: {report:#?}"
        );
        assert!(report.reached_worker);
        report
    }

    /// Runs ops of which `index` is the first to fail: its outcome and words.
    fn bad(&mut self, ops: &Value, index: usize) -> (Outcome, String) {
        let report = self.run(ops);
        assert_eq!(
            report.ended,
            Ended::Refused { index },
            "{}: {report:#?}",
            self.haproxy.version()
        );
        assert!(report.results[..index].iter().all(|r| r.outcome.is_ok()));
        assert!(report.deletes.is_empty());
        let result = &report.results[index];
        (result.outcome, result.words.clone())
    }

    /// Reloads, and waits for the new worker: for some milliseconds after the verdict
    /// the former one may still take a connection.
    fn reload(&self) -> WorkerInfo {
        let answer = self.haproxy.ask_master("reload").unwrap();
        assert!(answer.contains("Success=1"), "{answer}");
        let former = self.before.identity;
        wait::until("the new worker answers", Duration::from_secs(10), || {
            let info = self.worker().info(soon()).ok()?;
            (info.identity != former).then_some(info)
        })
    }

    fn ask(&self, line: &str) -> String {
        self.haproxy.ask(line).unwrap()
    }
}

/// `op("map_add", json!({...}))`.
fn op(kind: &str, fields: Value) -> Value {
    let mut fields = fields;
    fields["kind"] = json!(kind);
    fields
}

/// Writes the files a configuration refers to and returns it: maps, a backend `b` with
/// dynamic load balancing and one server, a static one, a frontend on a unix socket.
fn routing(base: &Path) -> String {
    fs::create_dir_all(base.join("maps")).unwrap();
    fs::write(base.join("maps/host.map"), "a one\nb two\n").unwrap();
    fs::write(base.join("maps/other.map"), "").unwrap();
    let socket = base.join("front.sock");
    format!(
        "{}frontend front\n    bind unix@{}\n    http-request return status 200 content-type text/plain lf-string \"%[path,map(maps/host.map,none)]|%[path,map(maps/other.map,none)]\" if {{ path_beg / }}\n    default_backend b\nbackend b\n    balance roundrobin\n    server s1 127.0.0.1:1\n    server s2 127.0.0.1:1 weight 5\nbackend fixed\n    balance source\n    server s1 127.0.0.1:1\ndefaults tmpl\n    mode http\n    balance roundrobin\n    timeout connect 2s\n    timeout server 5s\n",
        preamble(base),
        socket.display()
    )
}

fn each(test: impl Fn(&mut Bench)) {
    for version in Version::ALL {
        test(&mut Bench::start(version, routing));
    }
}
