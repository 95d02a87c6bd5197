//! Deletes that wait, and those that cannot.

use super::*;
use crate::support::agent_check;
use crate::support::ports::Port;
use crate::support::slow::Slow;
use crate::support::traffic::{Answer, Backend, Load, get_port};
use crate::support::wait;
use haptic_agent::haproxy::deletes::{DeleteOutcome, ObjectKind, Policy, pass};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

const PATIENT: Policy = Policy {
    grace: Duration::from_secs(600),
    cut: true,
};

fn server(kind: &str, name: &str, more: Value) -> Value {
    let mut fields = more;
    fields["backend"] = json!("b");
    fields["server"] = json!(name);
    op(kind, fields)
}

fn del(name: &str) -> Value {
    server("server_del", name, json!({}))
}

fn add(name: &str, to: SocketAddr) -> Value {
    server(
        "server_add",
        name,
        json!({"address": to.ip().to_string(), "port": to.port()}),
    )
}

impl Bench {
    /// Passes until `done`; what happened meanwhile.
    fn passes(
        &mut self,
        policy: Policy,
        mut done: impl FnMut(&Self) -> bool,
    ) -> Vec<(String, DeleteOutcome)> {
        let mut events = Vec::new();
        wait::until(
            "the deletes come to their end",
            Duration::from_secs(30),
            || {
                let worker = self.worker();
                let pass = pass(&mut self.queue, &worker, policy, &SystemClock);
                assert_eq!(pass.error, None);
                assert_eq!(pass.next.is_none(), self.queue.is_empty());
                events.extend(
                    self.queue
                        .take_events()
                        .into_iter()
                        .map(|e| (e.key.to_string(), e.outcome)),
                );
                done(self).then_some(())
            },
        );
        events
    }

    fn has(&self, backend: &str, name: &str) -> bool {
        let dump = self.ask(&format!("show servers state {backend}"));
        dump.lines()
            .any(|line| line.split(' ').nth(3) == Some(name))
    }
}

/// A frontend in front of backend `b`, whose only server is given.
fn serving(base: &Path, port: &Port, first: SocketAddr) -> String {
    format!(
        "{}    timeout server 30s\nfrontend f\n    bind 127.0.0.1:{}\n    default_backend b\nbackend b\n    balance roundrobin\n    server s1 {first}\ndefaults tmpl from noname\n",
        preamble(base).replace("defaults\n", "defaults noname\n"),
        port.number(),
    )
    .replace("defaults tmpl from noname\n", "")
}

/// A wait that a delete behind it takes over has no command of its own. Where the batch
/// fails behind it, it is not the one to blame.
#[test]
fn a_wait_that_a_delete_takes_over_is_never_blamed() {
    each(|bench| {
        let wait = server("wait_srv_removable", "s1", json!({"timeout_ms": 100}));
        let bad = server("server_set_weight", "none", json!({"weight": 1}));
        let report = bench.run(&json!([wait, del("s1"), bad, wait, del("s1")]));
        assert_eq!(report.ended, Ended::Refused { index: 2 });
        let seen: Vec<&str> = report.results.iter().map(|r| r.outcome.as_str()).collect();
        assert_eq!(seen[..3], ["ok", "ok", "rejected"]);
        assert_eq!(seen[3], "not_run", "{seen:?}");
    });
}

#[test]
fn a_server_goes_when_its_last_request_ended_and_nobody_notices() {
    for version in Version::ALL {
        let (port, slow, second) = (Port::reserve(), Slow::start(), Backend::start("second"));
        let mut bench = Bench::start(version, |base| serving(base, &port, slow.address()));
        let request = slow.request(port.number(), "x");
        bench.good(&json!([
            add("s2", second.address()),
            server("server_enable", "s2", json!({}))
        ]));
        let report = bench.good(&json!([
            server("server_disable", "s1", json!({})),
            server("wait_srv_removable", "s1", json!({"timeout_ms": 30000})),
            del("s1"),
        ]));
        let outcomes: Vec<_> = report.results.iter().map(|r| r.outcome.as_str()).collect();
        assert_eq!(outcomes, ["ok", "ok", "deferred"]);
        assert_eq!(report.deletes.len(), 1);
        assert_eq!(bench.queue.pending(), (vec!["b/s1".to_owned()], vec![]));
        let load = Load::start(port.number(), "x", "/");
        let mut seen = 0;
        bench.passes(PATIENT, |_| {
            seen += 1;
            seen > 20
        });
        assert!(bench.has("b", "s1") && !bench.queue.is_empty());
        slow.let_go();
        let events = bench.passes(PATIENT, |bench| bench.queue.is_empty());
        assert_eq!(events, [("b/s1".to_owned(), DeleteOutcome::Done)]);
        assert!(!bench.has("b", "s1"));
        let answer = request.join().unwrap().unwrap();
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, "slow"),
            "{version}"
        );
        assert_eq!(load.stop().failed, 0, "{version}");
        assert_eq!(bench.haproxy.worker_pid(), bench.before.identity.pid);
    }
}

#[test]
fn sessions_are_cut_when_the_grace_is_over() {
    for version in Version::ALL {
        let (port, slow) = (Port::reserve(), Slow::start());
        let mut bench = Bench::start(version, |base| serving(base, &port, slow.address()));
        let request = slow.request(port.number(), "x");
        bench.good(&json!([
            server("shutdown_sessions", "s1", json!({})),
            del("s1")
        ]));
        let events = bench.passes(PATIENT, |bench| bench.queue.is_empty());
        assert_eq!(events, [("b/s1".to_owned(), DeleteOutcome::Done)]);
        let cut = request.join().unwrap();
        assert!(!matches!(cut, Ok(Answer { status: 200, .. })), "{cut:?}");
        assert!(!bench.has("b", "s1"));
    }
}

/// As the client composes it: how long the sessions may take is the configured grace.
#[test]
fn a_wait_without_a_time_leaves_the_grace_to_the_configuration() {
    for version in Version::ALL {
        let (port, slow) = (Port::reserve(), Slow::start());
        let mut bench = Bench::start(version, |base| serving(base, &port, slow.address()));
        let request = slow.request(port.number(), "x");
        bench.good(&json!([
            server("server_disable", "s1", json!({})),
            server("wait_srv_removable", "s1", json!({})),
            del("s1"),
        ]));
        let at_once = Policy {
            grace: Duration::ZERO,
            cut: true,
        };
        let events = bench.passes(at_once, |bench| bench.queue.is_empty());
        assert_eq!(events, [("b/s1".to_owned(), DeleteOutcome::Done)]);
        let cut = request.join().unwrap();
        assert!(!matches!(cut, Ok(Answer { status: 200, .. })), "{cut:?}");
    }
}

#[test]
fn a_switch_forbids_cutting_and_the_entry_is_given_up() {
    let (port, slow) = (Port::reserve(), Slow::start());
    let mut bench = Bench::start(Version::V3_4, |base| serving(base, &port, slow.address()));
    // A client with more patience than the five attempts take.
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port.number())).unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    wait::until("the request arrives", Duration::from_secs(10), || {
        (slow.asked() > 0).then_some(())
    });
    bench.good(&json!([del("s1")]));
    let policy = Policy {
        grace: Duration::ZERO,
        cut: false,
    };
    let events = bench.passes(policy, |bench| bench.queue.is_empty());
    let outcomes: Vec<_> = events.iter().map(|(_, outcome)| *outcome).collect();
    use DeleteOutcome::{Abandoned, Deferred};
    assert_eq!(
        outcomes,
        [Deferred, Deferred, Deferred, Deferred, Abandoned]
    );
    slow.let_go();
    let mut answer = String::new();
    client
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(bench.has("b", "s1"));
}

#[test]
fn what_is_wanted_again_is_not_deleted() {
    for version in Version::ALL {
        let (port, slow) = (Port::reserve(), Slow::start());
        let mut bench = Bench::start(version, |base| serving(base, &port, slow.address()));
        let request = slow.request(port.number(), "x");
        bench.good(&json!([del("s1")]));
        // Still busy: the same name cannot come again at once.
        let (outcome, words) = bench.bad(&json!([add("s1", slow.address())]), 0);
        assert_eq!(outcome, Outcome::Busy);
        assert_eq!(
            words,
            "Server still has connections attached to it, cannot remove it."
        );
        bench.good(&json!([server("server_enable", "s1", json!({}))]));
        assert!(bench.queue.is_empty());
        assert_eq!(
            bench.queue.take_events()[0].outcome,
            DeleteOutcome::Superseded
        );
        slow.let_go();
        assert_eq!(request.join().unwrap().unwrap().status, 200);
        assert_eq!(get_port(port.number(), "x", "/").unwrap().status, 200);
        // And a queued one that is free makes way for its successor.
        bench.good(&json!([del("s1")]));
        let third = Backend::start("third");
        bench.good(&json!([
            add("s1", third.address()),
            server("server_enable", "s1", json!({}))
        ]));
        assert_eq!(bench.queue.take_events()[0].outcome, DeleteOutcome::Done);
        assert!(bench.queue.is_empty());
        assert_eq!(get_port(port.number(), "x", "/").unwrap().body, "third");
        // In one batch.
        let fourth = Backend::start("fourth");
        let report = bench.good(&json!([
            del("s1"),
            add("s1", fourth.address()),
            server("server_enable", "s1", json!({}))
        ]));
        assert!(report.deletes.is_empty());
        assert_eq!(get_port(port.number(), "x", "/").unwrap().body, "fourth");
    }
}

#[test]
fn what_is_gone_or_cannot_go_is_said() {
    each(|bench| {
        let report = bench.good(&json!([del("none"), del("s1")]));
        assert_eq!(report.results[0].outcome.as_str(), "absent");
        assert_eq!(report.deletes.len(), 1);
        bench.ask("del server b/s1");
        let events = bench.passes(PATIENT, |bench| bench.queue.is_empty());
        assert_eq!(events, [("b/s1".to_owned(), DeleteOutcome::Done)]);
        bench.good(&json!([del("s2")]));
        bench.ask("enable server b/s2");
        let events = bench.passes(PATIENT, |bench| bench.queue.is_empty());
        assert_eq!(events, [("b/s2".to_owned(), DeleteOutcome::Superseded)]);
    });
    for version in Version::ALL {
        let mut bench = Bench::start(version, |base| {
            format!(
                "{}    use-server s1 if TRUE\n",
                routing(base).split("backend fixed").next().unwrap()
            )
        });
        bench.good(&json!([del("s1")]));
        let events = bench.passes(PATIENT, |bench| bench.queue.is_empty());
        assert_eq!(events, [("b/s1".to_owned(), DeleteOutcome::Abandoned)]);
    }
}

#[test]
fn a_thousand_wait_and_not_one_more() {
    each(|bench| {
        let name = |n: usize| format!("n{n}");
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        let adds: Vec<Value> = (0..1000).map(|n| add(&name(n), to)).collect();
        bench.good(&json!(adds));
        let dels: Vec<Value> = (0..1000).map(|n| del(&name(n))).collect();
        let report = bench.good(&json!(dels));
        assert_eq!(report.deletes.len(), 1000);
        assert_eq!(bench.queue.room(ObjectKind::Server), 0);
        // The same ones merge, another does not fit.
        bench.good(&json!(dels[..10]));
        let refused = bench.try_run(&json!([del("n5"), del("s1")])).unwrap_err();
        assert_eq!((refused.index, refused.outcome), (1, Outcome::QueueFull));
        let text = serde_json::to_string(&bench.queue).unwrap();
        bench.queue = serde_json::from_str(&text).unwrap();
        let events = bench.passes(PATIENT, |bench| bench.queue.is_empty());
        assert_eq!(events.len(), 1000);
        assert!(
            events
                .iter()
                .all(|(_, outcome)| *outcome == DeleteOutcome::Done)
        );
        assert!(!bench.has("b", "n999") && bench.has("b", "s1"));
    });
}

#[test]
fn another_worker_supersedes_what_waited_for_the_old_one() {
    each(|bench| {
        bench.good(&json!([del("s1")]));
        bench.reload();
        let events = bench.passes(PATIENT, |bench| bench.queue.is_empty());
        assert_eq!(events, [("b/s1".to_owned(), DeleteOutcome::Superseded)]);
        assert!(bench.has("b", "s1"));
        let report = bench.run(&json!([del("s1")]));
        assert!(matches!(report.ended, Ended::WorkerChanged { .. }));
        assert!(!report.reached_worker);
        assert_eq!(report.results[0].outcome, Outcome::NotRun);
    });
}

#[test]
fn rows_with_an_agent_check_serve_and_stay_in_maintenance() {
    for version in Version::ALL {
        let (port, first, second, agent) = (
            Port::reserve(),
            Backend::start("first"),
            Backend::start("second"),
            agent_check::responder(),
        );
        let (agent, drain) = agent;
        let mut bench = Bench::start(version, |base| serving(base, &port, first.address()));
        let to = second.address();
        let keywords = json!([
            {"name": "agent-check"}, {"name": "agent-port", "args": [agent.port().to_string()]},
            {"name": "agent-inter", "args": ["20ms"]},
        ]);
        bench.good(&json!([
            server(
                "server_add",
                "s2",
                json!({"address": to.ip().to_string(), "port": to.port(), "keywords": keywords})
            ),
            server("server_enable", "s2", json!({})),
        ]));
        wait::until("the row serves", Duration::from_secs(10), || {
            (get_port(port.number(), "x", "/").ok()?.body == "second").then_some(())
        });
        let admin = |bench: &Bench| {
            let state = bench.ask("show servers state b");
            let row = state.lines().find(|l| l.contains(" s2 ")).unwrap();
            row.split(' ').nth(6).unwrap().to_owned()
        };
        for back in [
            server("server_enable", "s2", json!({})),
            server("server_set_state", "s2", json!({"state": "ready"})),
        ] {
            drain.store(false, Ordering::SeqCst);
            bench.good(&json!([server("server_disable", "s2", json!({}))]));
            let end = Instant::now() + Duration::from_millis(300);
            while Instant::now() < end {
                let maintained = admin(&bench);
                assert_eq!(maintained, "1", "the agent's ready ended it on {version}");
            }
            // Back again, it is asked again.
            bench.good(&json!([back]));
            assert_eq!(admin(&bench), "0", "{version}");
            drain.store(true, Ordering::SeqCst);
            wait::until("the agent drains it", Duration::from_secs(10), || {
                (admin(&bench) == "8").then_some(())
            });
        }
        bench.good(&json!([del("s2")]));
        bench.passes(PATIENT, |bench| bench.queue.is_empty());
        assert!(!bench.has("b", "s2"));
        // Added now, enabled by a later batch.
        drain.store(false, Ordering::SeqCst);
        bench.good(&json!([server(
            "server_add",
            "s2",
            json!({"address": to.ip().to_string(), "port": to.port(), "keywords": keywords})
        ),]));
        bench.good(&json!([server("server_enable", "s2", json!({}))]));
        wait::until("the row serves", Duration::from_secs(10), || {
            (get_port(port.number(), "x", "/").ok()?.body == "second").then_some(())
        });
    }
}

#[test]
fn a_reload_from_outside_in_the_middle_of_a_batch() {
    for version in Version::ALL {
        let (port, slow) = (Port::reserve(), Slow::start());
        let mut bench = Bench::start(version, |base| {
            let serving = serving(base, &port, slow.address());
            format!("{serving}    server s2 127.0.0.1:9 disabled\n")
        });
        let request = slow.request(port.number(), "x");
        let master = bench.haproxy.master_socket();
        let socket = bench.haproxy.worker_socket();
        let reload = thread::spawn(move || {
            wait::until("the batch has begun", Duration::from_secs(10), || {
                let state = crate::support::haproxy::ask(&socket, "show servers state b").ok()?;
                let row = state.lines().find(|l| l.contains(" s1 "))?;
                (row.split(' ').nth(6) == Some("1")).then_some(())
            });
            let answer = crate::support::haproxy::ask(&master, "reload").unwrap();
            assert!(answer.contains("Success=1"), "{answer}");
            slow.let_go();
        });
        let report = bench.run(&json!([
            server("server_disable", "s1", json!({})),
            server("wait_srv_removable", "s1", json!({"timeout_ms": 2000})),
            server("server_set_weight", "s2", json!({"weight": 4})),
        ]));
        reload.join().unwrap();
        assert!(
            matches!(report.ended, Ended::WorkerChanged { .. }),
            "{version}: {report:?}"
        );
        assert!(report.reached_worker && report.results.iter().all(|r| !r.outcome.is_ok()));
        assert_eq!(request.join().unwrap().unwrap().status, 200, "{version}");
    }
}
