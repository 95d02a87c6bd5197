//! Workers that fall silent, cut their answers, trickle, change or die: never a false
//! success, never a hang, and what was not sent is said to be so.

use super::*;
use crate::support::fake::{Fake, Peer};
use haptic_agent::haproxy::Identity;
use haptic_agent::haproxy::batch::Batch;
use haptic_agent::haproxy::deletes::{DeleteRequest, Key, Policy, pass};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const ME: Identity = Identity {
    pid: 7,
    start_micros: 5_000_000,
};

fn info(pid: u32, stopping: u8) -> String {
    format!("Name: HAProxy\nVersion: 3.4.7\nPid: {pid}\nStart_time_sec: 5\nStopping: {stopping}\n")
}

struct None_;

impl Content for None_ {
    fn open(&self, path: &str) -> Result<Box<dyn Read + '_>, String> {
        Err(format!("{path}: no file"))
    }
}

/// `count` ops of one silent command each.
fn batch(count: usize) -> Batch {
    let ops: Vec<Value> = (0..count)
        .map(|n| {
            op(
                "map_set",
                json!({"path": "m", "key": format!("k{n}"), "value": "v"}),
            )
        })
        .collect();
    let ops: Vec<Op> = serde_json::from_value(json!(ops)).unwrap();
    compile(&ops, &"3.4.7".parse().unwrap(), &None_, &Queue::default()).unwrap()
}

/// A worker that answers everything silently, until `misbehave` says otherwise for the
/// nth command of the session; `None` ends the connection.
fn worker(
    path: &Path,
    pids: [u32; 3],
    misbehave: impl Fn(usize, &str, &mut Peer) -> Option<bool> + Send + Sync + 'static,
) -> Fake {
    worker_saying(path, pids.map(|pid| info(pid, 0)), misbehave)
}

/// The same with what it says of itself: when a session opens, at its end, and to a
/// connection of its own.
fn worker_saying(
    path: &Path,
    says: [String; 3],
    misbehave: impl Fn(usize, &str, &mut Peer) -> Option<bool> + Send + Sync + 'static,
) -> Fake {
    Fake::start(path, move |mut peer| {
        let mut looks = 0;
        let mut commands = 0;
        let first = peer.line();
        if first == "show info float\n" {
            // A connection of its own: the last look.
            peer.say(format!("{}\n", says[2]).as_bytes());
            return;
        }
        assert_eq!(first, "prompt\n");
        peer.say(b"\n> ");
        loop {
            let line = peer.line();
            if line.is_empty() {
                return;
            }
            if line == "show info float\n" {
                let said = &says[looks.min(1)];
                looks += 1;
                peer.say(format!("{said}\n> ").as_bytes());
                continue;
            }
            if !line.starts_with("set severity") {
                match misbehave(commands, &line, &mut peer) {
                    None => return,
                    Some(true) => {
                        commands += 1;
                        continue;
                    }
                    Some(false) => commands += 1,
                }
            }
            if !peer.say(b"\n> ") {
                return;
            }
        }
    })
}

fn run(batch: &Batch, path: &Path) -> (BatchReport, Duration) {
    let start = Instant::now();
    let report = batch.run(
        &WorkerSocket::new(path.to_path_buf()),
        ME,
        &mut Queue::default(),
        &SystemClock,
    );
    (report, start.elapsed())
}

fn counts(report: &BatchReport) -> (usize, usize, usize) {
    let of = |outcome: Outcome| {
        report
            .results
            .iter()
            .filter(|r| r.outcome == outcome)
            .count()
    };
    let ok = report.results.iter().filter(|r| r.outcome.is_ok()).count();
    (ok, of(Outcome::Unknown), of(Outcome::NotRun))
}

#[test]
fn an_orderly_worker_completes_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.sock");
    let _fake = worker(&path, [7, 7, 7], |_, _, _| Some(false));
    let (report, _) = run(&batch(500), &path);
    assert!(matches!(report.ended, Ended::Complete { .. }), "{report:?}");
    assert_eq!(counts(&report), (500, 0, 0));
}

#[test]
fn a_worker_that_dies_between_two_commands() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.sock");
    for at in [0, 1, 57, 99] {
        let _fake = worker(&path, [7, 7, 7], move |n, _, _| (n < at).then_some(false));
        let (report, _) = run(&batch(100), &path);
        assert!(matches!(report.ended, Ended::Unknown { .. }), "{report:?}");
        let (ok, unknown, not_run) = counts(&report);
        // The close may overtake answers, and all commands went out in one window.
        assert!(ok <= at, "{ok} answers of {at}");
        assert_eq!((ok + unknown, not_run), (100, 0));
        assert!(report.reached_worker);
    }
}

#[test]
fn answers_in_single_bytes_are_answers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.sock");
    let _fake = worker(&path, [7, 7, 7], |_, _, peer| {
        for byte in b"\n> " {
            peer.say(&[*byte]);
        }
        Some(true)
    });
    let (report, _) = run(&batch(100), &path);
    assert!(matches!(report.ended, Ended::Complete { .. }), "{report:?}");
}

#[test]
fn silence_ends_by_the_patience_of_one_command() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.sock");
    let _fake = worker(&path, [7, 7, 7], |n, _, peer| {
        if n == 3 {
            peer.hang();
        }
        Some(false)
    });
    let (report, took) = run(&batch(1000), &path);
    assert!(matches!(report.ended, Ended::Unknown { .. }), "{report:?}");
    assert!(took < Duration::from_secs(14), "{took:?}");
    let (ok, unknown, not_run) = counts(&report);
    assert_eq!(ok, 3);
    assert!(unknown > 0 && not_run > 0, "{unknown} {not_run}");
    assert_eq!(ok + unknown + not_run, 1000);
}

#[test]
fn an_answer_too_many_or_cut_is_no_success() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.sock");
    for said in [&b"\n> \n> "[..], b"\n>", b"surprise\n> "] {
        let _fake = worker(&path, [7, 7, 7], move |n, _, peer| match n {
            20 => {
                peer.say(said);
                if said.ends_with(b" ") {
                    Some(true)
                } else {
                    None
                }
            }
            _ => Some(false),
        });
        let (report, _) = run(&batch(50), &path);
        assert!(
            !matches!(report.ended, Ended::Complete { .. }),
            "{said:?} {report:?}"
        );
        assert!(counts(&report).0 < 50);
    }
}

#[test]
fn a_refusal_stops_the_sending() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.sock");
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let _fake = worker(&path, [7, 7, 7], move |n, _, peer| {
        counter.fetch_add(1, Ordering::SeqCst);
        if n == 10 {
            peer.say(b"[3]: no\n\n> ");
        }
        Some(n == 10)
    });
    let (report, _) = run(&batch(1000), &path);
    assert_eq!(report.ended, Ended::Refused { index: 10 });
    assert_eq!(report.results[10].words, "no");
    let (ok, unknown, not_run) = counts(&report);
    assert_eq!(unknown, 0);
    assert_eq!(ok + not_run + 1, 1000);
    assert_eq!(
        seen.load(Ordering::SeqCst),
        ok + 1,
        "what was answered was sent"
    );
    // One window and what was refilled before the refusal was read.
    assert!(ok * 15 < 2 * 8192 + 15 * 11, "{ok}");
}

#[test]
fn every_look_at_the_worker_counts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.sock");
    for (pids, reached) in [([8, 8, 8], false), ([7, 8, 8], true), ([7, 7, 8], true)] {
        let _fake = worker(&path, pids, |_, _, _| Some(false));
        let (report, _) = run(&batch(5), &path);
        assert!(
            matches!(report.ended, Ended::WorkerChanged { .. }),
            "{pids:?} {report:?}"
        );
        assert_eq!(report.reached_worker, reached);
        assert_eq!(counts(&report).0, 0);
    }
    let _fake = worker(&path, [7, 7, 7], |n, _, peer| {
        if n == 2 {
            peer.say(b"[3]: Proxy is disabled.\n\n> ");
        }
        Some(n == 2)
    });
    let (report, _) = run(&batch(5), &path);
    assert!(
        matches!(report.ended, Ended::WorkerChanged { .. }),
        "{report:?}"
    );
}

/// Process ids come again: only with its start time is one the same.
#[test]
fn a_worker_with_the_pid_of_before_is_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.sock");
    let (me, leaving) = (info(7, 0), info(7, 1));
    let later = info(7, 0).replace("_sec: 5", "_sec: 5.000001");
    for (other, text) in [(&later, "another worker"), (&leaving, "leaving")] {
        for (says, reached) in [
            ([other, other, other], false),
            ([&me, other, other], true),
            ([&me, &me, other], true),
        ] {
            let says = says.map(String::clone);
            let _fake = worker_saying(&path, says, |_, _, _| Some(false));
            let (report, _) = run(&batch(5), &path);
            let Ended::WorkerChanged { words } = &report.ended else {
                panic!("{report:?}");
            };
            assert!(words.contains(text), "{words}");
            assert_eq!(report.reached_worker, reached);
            assert_eq!(counts(&report).0, 0);
        }
    }
    // Nor is anything deleted there that was to go from the one before.
    let mut queue = Queue::default();
    let key = Key::Server {
        backend: "b".to_owned(),
        server: "s".to_owned(),
    };
    let request = DeleteRequest {
        key,
        grace_ms: None,
    };
    queue.add(std::slice::from_ref(&request), ME);
    let says = [&later, &later, &later].map(String::clone);
    let _fake = worker_saying(&path, says, |_, line, _| panic!("{line}"));
    let socket = WorkerSocket::new(path.clone());
    let pass = pass(&mut queue, &socket, Policy::default(), &SystemClock);
    assert_eq!((pass.error, pass.next), (None, None));
    let events = queue.take_events();
    assert_eq!(events.len(), 1);
    assert_eq!(
        events[0].outcome,
        haptic_agent::haproxy::deletes::DeleteOutcome::Superseded
    );
}

#[test]
fn nobody_there_is_unknown_and_nothing_was_sent() {
    let dir = tempfile::tempdir().unwrap();
    let (report, _) = run(&batch(3), &dir.path().join("none.sock"));
    assert!(matches!(report.ended, Ended::Unknown { .. }));
    assert!(!report.reached_worker);
    assert_eq!(counts(&report), (0, 0, 3));
}

#[test]
fn a_lost_answer_of_a_pass_is_no_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.sock");
    let requests: Vec<DeleteRequest> = (0..10)
        .map(|n| DeleteRequest {
            key: Key::Server {
                backend: "b".to_owned(),
                server: format!("s{n}"),
            },
            grace_ms: Some(0),
        })
        .collect();
    let mut queue = Queue::default();
    queue.add(&requests, ME);
    let socket = WorkerSocket::new(path.clone());
    for _ in 0..20 {
        let _fake = worker(&path, [7, 7, 7], |n, _, peer| {
            peer.say(b"[6]: Server deleted.\n\n> ");
            (n < 5).then_some(true)
        });
        let pass = pass(&mut queue, &socket, Policy::default(), &SystemClock);
        assert!(pass.error.is_some() && pass.next.is_some());
        assert!(queue.take_events().is_empty());
    }
    assert_eq!(queue.pending().0.len(), 10);
    let _fake = worker(&path, [7, 7, 7], |_, _, peer| {
        peer.say(b"[3]: No such server.\n\n> ");
        Some(true)
    });
    let last = pass(&mut queue, &socket, Policy::default(), &SystemClock);
    assert_eq!((last.error, last.next), (None, None));
    assert_eq!(queue.take_events().len(), 10);
}

#[test]
fn a_former_worker_that_takes_a_connection_is_no_newcomer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.sock");
    let former = |peer: &mut Peer, session: bool| {
        let said = info(6, 0).replace("_sec: 5", "_sec: 4");
        peer.say(format!("{said}\n{}", if session { "> " } else { "" }).as_bytes());
    };
    // The first two connections of each kind reach the former worker.
    let (sessions, looks) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let _fake = Fake::start(&path, move |mut peer| {
        if peer.line() == "show info float\n" {
            match looks.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => former(&mut peer, false),
                _ => {
                    peer.say(format!("{}\n", info(7, 0)).as_bytes());
                }
            }
            return;
        }
        let number = sessions.fetch_add(1, Ordering::SeqCst);
        peer.say(b"\n> ");
        loop {
            match peer.line().as_str() {
                "" => return,
                "show info float\n" if number < 2 => former(&mut peer, true),
                "show info float\n" => {
                    peer.say(format!("{}\n> ", info(7, 0)).as_bytes());
                }
                line => {
                    assert!(number >= 2 || line.starts_with("set severity"), "{line}");
                    peer.say(b"\n> ");
                }
            }
        }
    });
    let (report, _) = run(&batch(5), &path);
    assert!(matches!(report.ended, Ended::Complete { .. }), "{report:?}");
}

#[test]
fn a_former_worker_supersedes_no_delete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.sock");
    let mut queue = Queue::default();
    let key = Key::Backend {
        backend: "b".to_owned(),
    };
    let newer = Identity {
        pid: 9,
        start_micros: 6_000_000,
    };
    let request = DeleteRequest {
        key: key.clone(),
        grace_ms: None,
    };
    queue.add(std::slice::from_ref(&request), newer);
    let socket = WorkerSocket::new(path.clone());
    let _fake = worker(&path, [7, 7, 7], |_, _, _| None);
    let pass = pass(&mut queue, &socket, Policy::default(), &SystemClock);
    assert!(pass.error.is_some());
    assert!(queue.contains(&key));
}
