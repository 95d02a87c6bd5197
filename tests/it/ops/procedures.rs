//! Procedures that read an answer before they go on, against answers that no healthy
//! worker gives on demand: what is sent after each, and what is not.

use super::*;
use crate::support::fake::Fake;
use haptic_agent::haproxy::Identity;
use std::collections::VecDeque;
use std::io::Cursor;
use std::sync::{Arc, Mutex};

const ME: Identity = Identity {
    pid: 7,
    start_micros: 5_000_000,
};
const INFO: &str = "Name: HAProxy\nVersion: 3.4.7\nPid: 7\nStart_time_sec: 5\nStopping: 0\n";
const CERT: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n";

struct Given;

impl Content for Given {
    fn open(&self, path: &str) -> Result<Box<dyn Read + '_>, String> {
        let text = match path.ends_with(".map") {
            true => (0..2000).map(|n| format!("key{n} value\n")).collect(),
            false => format!("{CERT}{KEY}"),
        };
        Ok(Box::new(Cursor::new(text)))
    }
}

/// Runs one op against a worker that gives these answers in turn, and silence after
/// them; `status` is what its listings say. Returns the outcome and the first line of
/// each command.
fn played(op: &Value, answers: &[&str], status: &str) -> (Outcome, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.sock");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let said: Vec<String> = answers.iter().map(|text| (*text).to_owned()).collect();
    let (log, left, status) = (
        Arc::clone(&seen),
        Mutex::new(VecDeque::from(said)),
        status.to_owned(),
    );
    let fake = Fake::start(&path, move |mut peer| {
        let first = peer.line();
        if first == "show info float\n" {
            peer.say(format!("{INFO}\n").as_bytes());
            return;
        }
        if first.starts_with("set severity-output number;") {
            peer.say(format!("\nFilename: x\nStatus: {status}\n\n[6]: 3.4.7\n\n").as_bytes());
            return;
        }
        peer.say(b"\n> ");
        loop {
            let line = peer.line();
            if line.is_empty() {
                return;
            }
            if line == "show info float\n" {
                peer.say(format!("{INFO}\n> ").as_bytes());
                continue;
            }
            if line.starts_with("set severity") {
                peer.say(b"\n> ");
                continue;
            }
            let text = line.trim_end().to_owned();
            while line.ends_with("<<E_O_F\n") {
                if matches!(peer.line().as_str(), "E_O_F\n" | "") {
                    break;
                }
            }
            log.lock().unwrap().push(text);
            let answer = left.lock().unwrap().pop_front().unwrap_or_default();
            let wire = match answer.as_str() {
                "" => "\n> ".to_owned(),
                text => format!("{text}\n\n> "),
            };
            peer.say(wire.as_bytes());
        }
    });
    let ops: Vec<Op> = serde_json::from_value(json!([op])).unwrap();
    let mut queue = Queue::default();
    let batch = compile(&ops, &"3.4.7".parse().unwrap(), &Given, &queue).unwrap();
    let report = batch.run(&WorkerSocket::new(path), ME, &mut queue, &SystemClock);
    drop(fake);
    let mut seen = seen.lock().unwrap().clone();
    seen.dedup();
    (report.results[0].outcome, seen)
}

fn with_path(kind: &str, path: &str) -> Value {
    op(kind, json!({"path": path}))
}

const SET: &str = "set ssl cert a.pem <<E_O_F";
const COMMIT: &str = "commit ssl cert a.pem";
const ABORT: &str = "abort ssl cert a.pem";
const SET_DONE: &str = "[5]: Transaction created for certificate a.pem!";
const LOCKED: &str =
    "[3]: Can't update the certificate!\nOperations on certificates are currently locked!";

const LOCKED_COMMIT: &str = "[3]: Can't commit the certificate!\nOperations on certificates are currently locked!\nCan't commit a.pem!";

#[test]
fn certificates_are_believed_only_by_their_own_name() {
    let foreign = "[3]: The ongoing transaction is about 'b.pem' but you are trying to set 'a.pem'\nCan't update a.pem!";
    let aborted = "[5]: Transaction aborted for certificate 'b.pem'!";
    let abort_b = "abort ssl cert b.pem";
    let ok = Outcome::Ok(haptic_agent::haproxy::ops::Note::Done);
    let table: &[(&[&str], &str, Outcome, &[&str])] = &[
        (
            &[SET_DONE, "Committing a.pem.\nSuccess!"],
            "Used",
            ok,
            &[SET, COMMIT],
        ),
        (
            &[SET_DONE, "Committing a.pem...\nsome warning\nSuccess!"],
            "Used",
            ok,
            &[SET, COMMIT],
        ),
        (
            &[SET_DONE, "Committing a.pem\nSuccess!"],
            "Unused",
            ok,
            &[SET, COMMIT],
        ),
        (
            &[SET_DONE, "Committing a.pem\nSuccess!"],
            "Used",
            Outcome::NotApplied,
            &[SET, COMMIT, ABORT],
        ),
        (
            &[SET_DONE, "Committing a.pem.\nFailed!"],
            "Used",
            Outcome::Rejected,
            &[SET, COMMIT, ABORT],
        ),
        (
            &[SET_DONE, "Committing b.pem.\nSuccess!"],
            "Used",
            Outcome::Rejected,
            &[SET, COMMIT, ABORT],
        ),
        (
            &[SET_DONE, ""],
            "Used",
            Outcome::Rejected,
            &[SET, COMMIT, ABORT],
        ),
        (&[""], "Used", Outcome::Rejected, &[SET, ABORT]),
        (&["[3]: no"], "Used", Outcome::Rejected, &[SET, ABORT]),
        (
            &[foreign, aborted, SET_DONE, "Committing a.pem.\nSuccess!"],
            "Used",
            ok,
            &[SET, abort_b, SET, COMMIT],
        ),
        (
            &[
                foreign,
                "[3]: No ongoing transaction!",
                SET_DONE,
                "Committing a.pem.\nSuccess!",
            ],
            "Used",
            ok,
            &[SET, abort_b, SET, COMMIT],
        ),
        (
            &[foreign, aborted, foreign],
            "Used",
            Outcome::ForeignTransaction,
            &[SET, abort_b, SET, ABORT],
        ),
        (
            &[foreign, "[3]: no"],
            "Used",
            Outcome::ForeignTransaction,
            &[SET, abort_b, ABORT],
        ),
        // Early 3.0 changed the other one.
        (
            &["[5]: Transaction updated for certificate b.pem!", aborted],
            "Used",
            Outcome::ForeignTransaction,
            &[SET, abort_b, ABORT],
        ),
        (
            &[
                LOCKED,
                LOCKED,
                SET_DONE,
                LOCKED_COMMIT,
                "Committing a.pem.\nSuccess!",
            ],
            "Used",
            ok,
            &[SET, COMMIT],
        ),
        (&[LOCKED; 100], "Used", Outcome::Rejected, &[SET, ABORT]),
    ];
    for (answers, status, outcome, commands) in table {
        let seen = played(&with_path("cert_set", "a.pem"), answers, status);
        assert_eq!(
            (seen.0, seen.1.as_slice()),
            (*outcome, &commands.map_owned()[..]),
            "{answers:?}"
        );
    }
}

trait MapOwned {
    fn map_owned(&self) -> Vec<String>;
}

impl MapOwned for &[&str] {
    fn map_owned(&self) -> Vec<String> {
        self.iter().map(|text| (*text).to_owned()).collect()
    }
}

#[test]
fn a_new_certificate_that_fails_is_taken_away_again() {
    let new = "[5]: New empty certificate store 'a.pem'!";
    let exists = "[3]: Certificate 'a.pem' already exists!";
    let (make, del) = ("new ssl cert a.pem", "del ssl cert a.pem");
    let ok = Outcome::Ok(haptic_agent::haproxy::ops::Note::Done);
    let table: &[(&[&str], &str, Outcome, &[&str])] = &[
        (
            &[new, SET_DONE, "Committing a.pem\nSuccess!"],
            "Unused",
            ok,
            &[make, SET, COMMIT],
        ),
        (
            &[new, SET_DONE, "[3]: no"],
            "Unused",
            Outcome::Rejected,
            &[make, SET, COMMIT, ABORT, del],
        ),
        (
            &[new, "[3]: no"],
            "Unused",
            Outcome::Rejected,
            &[make, SET, ABORT, del],
        ),
        (&[exists], "Used", Outcome::Rejected, &[make]),
        (
            &[exists, SET_DONE, "Committing a.pem\nSuccess!"],
            "Empty",
            ok,
            &[make, SET, COMMIT],
        ),
        (
            &["[5]: New empty certificate store 'b.pem'!"],
            "Used",
            Outcome::Rejected,
            &[make],
        ),
    ];
    for (answers, status, outcome, commands) in table {
        let seen = played(&with_path("cert_new", "a.pem"), answers, status);
        assert_eq!(
            (seen.0, seen.1.as_slice()),
            (*outcome, &commands.map_owned()[..]),
            "{answers:?}"
        );
    }
}

#[test]
fn a_map_version_is_committed_only_when_every_piece_is_confirmed() {
    let prepare = "prepare map a.map";
    let add = |v: u64| format!("add map @{v} a.map <<E_O_F");
    let commit = |v: u64| format!("commit map @{v} a.map");
    let run = |answers: &[&str]| played(&with_path("map_replace", "a.map"), answers, "");
    let (outcome, seen) = run(&["[6]: New version created: 12"]);
    assert!(outcome.is_ok());
    assert_eq!(seen, [prepare.to_owned(), add(12), commit(12)]);
    for not_a_version in [
        "",
        "[6]: New version created: ",
        "[6]: New version created: 0",
        "[6]: New version created: +1",
        "[6]: New version created: 1x",
        "[3]: New version created: 1",
        "[3]: no",
    ] {
        assert_eq!(
            run(&[not_a_version]),
            (Outcome::Rejected, vec![prepare.to_owned()])
        );
    }
    for refused in [
        &["[6]: New version created: 1", "[3]: no"][..],
        &["[6]: New version created: 1", "", "[3]: no"],
    ] {
        assert_eq!(
            run(refused),
            (Outcome::Rejected, vec![prepare.to_owned(), add(1)])
        );
    }
    let pieces = [
        "[6]: New version created: 1",
        "",
        "",
        "",
        "[3]: Version number out of range.",
    ];
    let (outcome, seen) = run(&pieces);
    assert_eq!(
        (outcome, seen.last()),
        (Outcome::Rejected, Some(&commit(1))),
        "{seen:?}"
    );
}

#[test]
fn a_wait_that_ends_is_told_from_one_that_fails() {
    let wait = op(
        "wait_srv_removable",
        json!({"backend": "b", "server": "s", "timeout_ms": 10}),
    );
    for (answer, outcome) in [
        ("[6]: Done.", "ok"),
        ("[3]: Wait delay expired.", "busy"),
        ("[3]: Failed. Server is not in maintenance.", "rejected"),
        ("[3]: Interrupted. (null)", "rejected"),
        ("", "rejected"),
    ] {
        assert_eq!(played(&wait, &[answer], "").0.as_str(), outcome, "{answer}");
    }
}
