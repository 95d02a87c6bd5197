//! `hapticctl` as a person runs it.

use serde_json::Value as Json;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// How a command ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

impl Ended {
    #[track_caller]
    pub(super) fn good(self) -> Self {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    /// Ended with 1, and says this somewhere.
    #[track_caller]
    pub(super) fn bad(self, says: &str) -> Self {
        assert_eq!(self.code, 1, "{self:#?}");
        let said = self.out.contains(says) || self.err.contains(says);
        assert!(said, "not said: {says}\n{self:#?}");
        self
    }

    #[track_caller]
    pub(super) fn json(&self) -> Json {
        serde_json::from_str(&self.out).unwrap()
    }

    /// The object of one key.
    #[track_caller]
    pub(super) fn key(&self, key: &str) -> Json {
        let json = self.json();
        let keys = json["keys"].as_array().unwrap();
        let found = keys.iter().find(|object| object["key"] == key);
        found
            .unwrap_or_else(|| panic!("no {key} in {json:#}"))
            .clone()
    }
}

/// Runs `hapticctl words…` with these variables and no others of ours.
pub(super) fn run(env: &[(&str, &str)], words: &[&str]) -> Ended {
    let output = Command::new(env!("CARGO_BIN_EXE_hapticctl"))
        .args(words)
        .env_clear()
        .env("USER", "alice")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Ended {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// `haptic-agent respond` on a directory, with what it listens on.
#[derive(Debug)]
pub(super) struct Responder {
    child: Child,
    pub(super) checks: String,
    pub(super) monitoring: String,
}

impl Responder {
    pub(super) fn start(kv: &Path, socket: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_haptic-agent"))
            .arg("respond")
            .args([
                "--listen-addr",
                "127.0.0.1:0",
                "--monitoring-addr",
                "127.0.0.1:0",
            ])
            .arg("--kv-dir")
            .arg(kv)
            .args(["--kv-missing", "make", "--sync-deadline", "0"])
            .arg("--haproxy-socket")
            .arg(socket)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut checks, mut monitoring) = (None, None);
        let mut lines = lines.map_while(Result::ok);
        while checks.is_none() || monitoring.is_none() {
            let line = lines.next().expect("it says where it listens");
            let record: serde_json::Value = serde_json::from_str(&line).unwrap();
            let address = record["address"].as_str().map(str::to_owned);
            match record["listener"].as_str() {
                Some("checks") => checks = address,
                Some("monitoring") => monitoring = address,
                Some(_) | None => {}
            }
        }
        // What it logs later has to go somewhere.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            child,
            checks: checks.unwrap(),
            monitoring: format!("http://{}", monitoring.unwrap()),
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ended_before = self.child.kill();
        let _ended = self.child.wait();
    }
}
