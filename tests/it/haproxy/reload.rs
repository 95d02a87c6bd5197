//! Reloads of real masters: good, refused, crowded, and those that leave nothing
//! behind.

use super::*;
use crate::support::haproxy::preamble;
use crate::support::ports::Port;
use crate::support::traffic::{self, Backend, Load};
use crate::support::wait;
use haptic_agent::clock::SystemClock;
use haptic_agent::haproxy::master::ReloadReply;
use haptic_agent::haproxy::{Identity, ReloadOutcome, reload};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::time::Instant;

fn run(haproxy: &Haproxy, before: Option<Identity>, timeout: Duration) -> ReloadOutcome {
    reload(
        &master_of(haproxy),
        &worker_of(haproxy),
        before,
        timeout,
        &SystemClock,
    )
}

/// A reload from the worker that answers now, with time enough.
fn go(haproxy: &Haproxy) -> ReloadOutcome {
    let before = info_of(haproxy).identity;
    run(haproxy, Some(before), Duration::from_secs(20))
}

fn loaded(outcome: ReloadOutcome) -> WorkerInfo {
    match outcome {
        ReloadOutcome::Loaded { worker, .. } => worker,
        other => panic!("not loaded: {other:?}"),
    }
}

#[test]
fn a_good_reload_ends_with_the_new_workers_own_word() {
    on_each(|version, haproxy| {
        let mut seen = vec![info_of(haproxy).identity];
        for _ in 0..3 {
            let worker = loaded(go(haproxy));
            assert!(!seen.contains(&worker.identity), "{version}");
            assert!(!worker.stopping);
            assert_eq!(
                info_of(haproxy),
                worker,
                "{version}: new connections reach it"
            );
            seen.push(worker.identity);
        }
        let list = master_of(haproxy).show_proc(soon()).unwrap();
        assert_eq!(list.reloads, 3, "{version}");
        let unknown = run(haproxy, None, Duration::from_secs(20));
        assert!(!seen.contains(&loaded(unknown).identity), "{version}");
    });
}

#[test]
fn a_refusal_is_haproxys_verdict_and_words() {
    on_each(|version, haproxy| {
        let before = info_of(haproxy);
        let good = minimal(haproxy.base());
        // A file that is missing may come back beside the same set.
        for (fault, line, needle, of_the_set) in [
            (
                "unknown keyword",
                "    frobnicate 1\n",
                "unknown keyword 'frobnicate' in 'frontend' section",
                true,
            ),
            (
                "missing map",
                "    http-request set-header x %[path,map(maps/none.map)]\n",
                "maps/none.map",
                false,
            ),
        ] {
            haproxy.write_config(&format!("{good}{line}"));
            let outcome = go(haproxy);
            let ReloadOutcome::Refused {
                log,
                verdict_on_files,
                ..
            } = outcome
            else {
                panic!("{version}: {fault}: {outcome:?}");
            };
            assert_eq!(verdict_on_files, of_the_set, "{version}: {fault}");
            let words = log.words();
            assert!(
                words.starts_with("[ALERT] config : parsing ["),
                "{version}: {words}"
            );
            assert!(words.contains(needle), "{version}: {words}");
            assert!(
                words.contains(&format!("haproxy.cfg:{}", good.lines().count() + 1)),
                "{words}"
            );
            assert!(!words.contains("path to executable"), "{words}");
            assert_eq!(
                info_of(haproxy),
                before,
                "{version}: the old worker serves on"
            );
        }
        haproxy.write_config(&good);
        assert_ne!(
            loaded(go(haproxy)).identity,
            before.identity,
            "{version}: recovers"
        );
    });
}

#[test]
fn bad_and_good_files_alternate_without_a_trace() {
    on_each(|version, haproxy| {
        let good = minimal(haproxy.base());
        for round in 0..3 {
            haproxy.write_config(&format!("{good}    frobnicate {round}\n"));
            let outcome = go(haproxy);
            assert!(
                matches!(outcome, ReloadOutcome::Refused { .. }),
                "{version}: {outcome:?}"
            );
            haproxy.write_config(&good);
            loaded(go(haproxy));
        }
    });
}

#[test]
fn a_port_of_someone_else_is_no_verdict_on_the_files() {
    on_each(|version, haproxy| {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let good = minimal(haproxy.base());
        haproxy.write_config(&format!("{good}frontend g\n    bind {address}\n"));
        let outcome = go(haproxy);
        assert!(
            matches!(
                outcome,
                ReloadOutcome::Refused {
                    verdict_on_files: false,
                    ..
                }
            ),
            "{version}: {outcome:?}"
        );
        drop(taken);
        loaded(go(haproxy));
    });
}

#[test]
fn an_address_that_cannot_be_bound_is_no_verdict_on_the_files() {
    on_each(|version, haproxy| {
        let good = minimal(haproxy.base());
        haproxy.write_config(&format!("{good}frontend g\n    bind 192.0.2.1:7\n"));
        let outcome = go(haproxy);
        let ReloadOutcome::Refused {
            log,
            verdict_on_files,
            ..
        } = outcome
        else {
            panic!("{version}: {outcome:?}");
        };
        assert!(!verdict_on_files, "{version}");
        assert!(
            log.words().to_lowercase().contains("cannot bind"),
            "{version}: {}",
            log.words()
        );
        haproxy.write_config(&good);
        loaded(go(haproxy));
    });
}

#[test]
fn two_reloads_at_once_both_get_their_verdict() {
    on_each(|version, haproxy| {
        for _ in 0..3 {
            let before = info_of(haproxy).identity;
            let outcomes = std::thread::scope(|scope| {
                let runs: Vec<_> = (0..2)
                    .map(|_| scope.spawn(|| run(haproxy, Some(before), Duration::from_secs(20))))
                    .collect();
                runs.into_iter()
                    .map(|run| run.join().unwrap())
                    .collect::<Vec<_>>()
            });
            for outcome in outcomes {
                assert_ne!(loaded(outcome).identity, before, "{version}");
            }
        }
    });
}

#[test]
fn a_busy_master_is_recognised() {
    // An unbindable address keeps a reload busy for two seconds. 3.0 does not take
    // connections meanwhile, so only the others ever say that they are busy.
    for version in [Version::V3_2, Version::V3_4] {
        let dir = tempfile::tempdir().unwrap();
        let haproxy = Haproxy::start(version, dir.path(), &minimal(dir.path()));
        haproxy.write_config(&format!(
            "{}frontend g\n    bind 192.0.2.1:7\n",
            minimal(dir.path())
        ));
        // Whichever of the two commands the master takes up first keeps it busy, so a try
        // may see the refusal of its own reload instead.
        let took = wait::until(
            "the master says it is busy",
            Duration::from_secs(30),
            || {
                let mut first = UnixStream::connect(haproxy.master_socket()).ok()?;
                first.write_all(b"reload\n").ok()?;
                let started = Instant::now();
                let reply = master_of(&haproxy).reload_once(soon());
                matches!(reply, ReloadReply::Busy).then(|| started.elapsed())
            },
        );
        assert!(
            took < Duration::from_secs(2),
            "{version}: busy is said at once: {took:?}"
        );
    }
}

#[test]
fn without_a_master_nothing_was_sent() {
    on_each(|version, haproxy| {
        let before = info_of(haproxy).identity;
        haproxy.kill();
        let started = Instant::now();
        let outcome = run(haproxy, Some(before), Duration::from_millis(300));
        assert!(
            matches!(outcome, ReloadOutcome::Unreachable { .. }),
            "{version}: {outcome:?}"
        );
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(250), "tried on: {took:?}");
        assert!(took < Duration::from_secs(2), "{took:?}");
        std::fs::remove_file(haproxy.master_socket()).unwrap();
        let outcome = run(haproxy, Some(before), Duration::from_millis(50));
        assert!(
            matches!(outcome, ReloadOutcome::Unreachable { .. }),
            "{version}: {outcome:?}"
        );
    });
}

#[test]
fn success_without_a_worker_that_answers_is_unconfirmed() {
    on_each(|version, haproxy| {
        let good = minimal(haproxy.base());
        let other = good.replace("/worker.sock", "/elsewhere.sock");
        for config in [other.as_str(), ""] {
            let before = info_of(haproxy).identity;
            haproxy.write_config(config);
            let started = Instant::now();
            let outcome = run(haproxy, Some(before), Duration::from_millis(1500));
            assert!(
                matches!(outcome, ReloadOutcome::Unconfirmed { .. }),
                "{version}: {config:?}: {outcome:?}"
            );
            let took = started.elapsed();
            assert!(took < Duration::from_secs(4), "{version}: {took:?}");
            haproxy.write_config(&good);
            let worker = loaded(run(haproxy, Some(before), Duration::from_secs(20)));
            assert_ne!(worker.identity, before, "{version}: recovers");
        }
    });
}

#[test]
fn a_session_from_before_stays_with_the_old_worker() {
    on_each(|version, haproxy| {
        let before = info_of(haproxy);
        let mut old = UnixStream::connect(haproxy.worker_socket()).unwrap();
        old.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        old.write_all(b"prompt\n").unwrap();
        let worker = loaded(go(haproxy));
        assert_ne!(worker.identity, before.identity);
        old.write_all(b"show info float\n").unwrap();
        let mut lines = BufReader::new(&old).lines().map(Result::unwrap);
        let stopping = lines.find(|line| line.starts_with("Stopping: ")).unwrap();
        assert_eq!(stopping, "Stopping: 1", "{version}");
        assert_eq!(info_of(haproxy).identity, worker.identity, "{version}");
    });
}

#[test]
fn warnings_of_a_good_configuration_are_kept() {
    on_each(|version, haproxy| {
        let backend = "backend b\n    redirect location /x\n    http-request set-header x z\n";
        let good = minimal(haproxy.base());
        haproxy.write_config(&format!("{good}{backend}"));
        let outcome = go(haproxy);
        let ReloadOutcome::Loaded { log, .. } = outcome else {
            panic!("{version}: {outcome:?}");
        };
        assert!(
            log.text().contains("Loading success."),
            "{version}: {}",
            log.text()
        );
        let words = log.words();
        assert!(words.starts_with("[WARNING] "), "{version}: {words:?}");
        assert!(!words.contains("Loading success."), "{version}: {words:?}");
        assert!(!log.truncated());
    });
}

#[test]
fn traffic_goes_on_through_reloads() {
    for version in Version::ALL {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        let (port, backend) = (Port::reserve(), Backend::start("one"));
        let config = format!(
            "{}frontend f\n    bind 127.0.0.1:{}\n    default_backend b\nbackend b\n    server s {}\n",
            preamble(base),
            port.number(),
            backend.address()
        );
        let haproxy = Haproxy::start(version, base, &config);
        let answer = traffic::get_port(port.number(), "x.example", "/").unwrap();
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, "one"),
            "{version}"
        );
        let load = Load::start(port.number(), "x.example", "/");
        for _ in 0..3 {
            let before = load.seen().good;
            loaded(go(&haproxy));
            wait::until("traffic after the reload", Duration::from_secs(10), || {
                (load.seen().good > before + 20).then_some(())
            });
        }
        let seen = load.stop();
        assert_eq!(seen.failed, 0, "{version}: {seen:?}");
        assert!(backend.hits() >= seen.good, "{version}: {seen:?}");
    }
}
