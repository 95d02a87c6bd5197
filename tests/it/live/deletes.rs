//! Deletes that wait for their sessions, through whole applies and with requests running:
//! the grace, what follows it, and everything that ends a wait early.

use super::rig::{Live, SOON};
use super::world::{HOSTS, STEADY, Server, Servers, World, op};
use crate::support::agent_check;
use crate::support::haproxy::Version;
use crate::support::slow::Slow;
use crate::support::traffic::{Answer, get_port};
use crate::support::wait;
use serde_json::{Value, json};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The host, and the backend behind it, whose only server is slow.
const SLOW: &str = "w";

/// A world with a slow backend, and requests of the steady host all the time.
struct Drain {
    live: Live,
    slow: Slow,
}

impl Drain {
    fn start(version: Version, flags: &[(&str, &str)]) -> Self {
        let mut live = Live::with(version, |setup| {
            let with = |setup: crate::support::agent::Setup, flag: &(&str, &str)| {
                setup.with(flag.0, flag.1)
            };
            flags.iter().fold(setup, with)
        });
        let slow = Slow::start();
        let one = Server::to(slow.address()).ready();
        let servers = Servers::from([("one".to_owned(), one)]);
        live.world.backends.insert(SLOW.to_owned(), servers);
        let route = (SLOW.to_owned(), SLOW.to_owned());
        live.world.maps.get_mut(HOSTS).unwrap().push(route);
        live.apply("reload", &[]).succeed(&live.agent, "reload");
        live.agrees("a slow backend");
        Self { live, slow }
    }

    /// A request that the slow server holds.
    fn request(&self) -> JoinHandle<io::Result<Answer>> {
        self.slow.hold();
        self.slow.request(self.live.world.http, SLOW)
    }

    /// The apply of the world as it is now, which the worker takes as it runs.
    fn runtime(&mut self, ops: &[Value]) -> Value {
        let answer = self.live.apply("auto", ops);
        answer.succeed(&self.live.agent, "runtime")
    }

    /// The same by a reload; only a server that waited to be deleted is another then.
    fn reload(&mut self) {
        let apply = self.live.apply("reload", &[]);
        apply.succeed(&self.live.agent, "reload");
        self.live.world.reloaded();
    }

    /// The delete of the slow server, in flight.
    fn delete(&mut self, before: Vec<Value>) {
        let mut ops = before;
        ops.push(self.live.world.server_del(SLOW, "one"));
        self.runtime(&ops);
        assert_eq!(self.pending(), (json!(["w/one"]), json!([])));
    }

    /// The slow server is wanted again, and as it was.
    fn slow_again(&mut self) -> Vec<Value> {
        let server = Server::to(self.slow.address());
        let add = self.live.world.server_add(SLOW, "one", server);
        vec![add, self.live.world.server_enable(SLOW, "one")]
    }

    fn pending(&self) -> (Value, Value) {
        let state = self.live.agent.state_with("?plan=0");
        let waiting = &state["pending_deletes"];
        (waiting["servers"].clone(), waiting["backends"].clone())
    }

    fn counted(&self, kind: &str, outcome: &str) -> f64 {
        let labels = format!("kind=\"{kind}\",outcome=\"{outcome}\"");
        let name = format!("haptic_agent_deferred_deletes_total{{{labels}}}");
        self.live.agent.sample(&name)
    }

    fn waiting(&self) -> f64 {
        let name = "haptic_agent_pending_deletes{kind=\"server\"}";
        self.live.agent.sample(name)
    }

    fn has(&self, server: &str) -> bool {
        let state = self.live.haproxy.ask("show servers state").unwrap();
        let mut rows = state.lines();
        rows.any(|row| row.contains(&format!(" {SLOW} ")) && row.contains(&format!(" {server} ")))
    }
}

fn is(seen: f64, wanted: f64) -> bool {
    (seen - wanted).abs() < 0.5
}

/// A request that was cut got something else than its answer.
fn was_cut(answer: &io::Result<Answer>) -> bool {
    !matches!(answer, Ok(Answer { status: 200, .. }))
}

#[test]
fn a_long_request_survives_its_server_within_the_grace() {
    for version in Version::ALL {
        let mut drain = Drain::start(version, &[("--delete-grace", "60s")]);
        let load = drain.live.load();
        let (request, before) = (drain.request(), drain.live.identity());
        let two = drain.live.to(1);
        let world = &mut drain.live.world;
        let ops = vec![
            world.server_add(SLOW, "two", two),
            world.server_enable(SLOW, "two"),
            world.server_disable(SLOW, "one"),
        ];
        drain.delete(ops);
        assert!(is(drain.waiting(), 1.0), "{version}");
        // It is probed meanwhile, and new requests go elsewhere.
        let looks = |drain: &Drain| {
            let log = drain.live.agent.log();
            log.matches("\"looked at deferred deletes\"").count()
        };
        wait::until("it is probed some times", SOON, || {
            (looks(&drain) > 4).then_some(())
        });
        for _ in 0..5 {
            let other = get_port(drain.live.world.http, SLOW, "/").unwrap();
            assert_eq!(other.body, "u1", "{version}");
        }
        assert!(drain.has("one") && !request.is_finished(), "{version}");
        assert!(is(drain.waiting(), 1.0), "{version}");
        // One that is stuck costs the others nothing.
        let many: Vec<String> = (0..40).map(|n| format!("n{n}")).collect();
        let to = drain.live.to(2);
        let world = &mut drain.live.world;
        let mut ops = Vec::new();
        for name in &many {
            ops.push(world.server_add("b", name, to.clone()));
            ops.push(world.server_enable("b", name));
        }
        ops.extend(many.iter().map(|name| world.server_del("b", name)));
        drain.runtime(&ops);
        wait::until("the others are gone", SOON, || {
            (drain.pending() == (json!(["w/one"]), json!([]))).then_some(())
        });
        assert!(is(drain.counted("server", "done"), 40.0), "{version}");
        assert!(drain.has("one") && !request.is_finished(), "{version}");
        drain.slow.let_go();
        let answer = request.join().unwrap().unwrap();
        assert_eq!((answer.status, &*answer.body), (200, "slow"), "{version}");
        drain.live.agrees("the server is gone");
        assert!(!drain.has("one"), "{version}");
        for (outcome, count) in [("done", 41.0), ("deferred", 0.0), ("abandoned", 0.0)] {
            assert!(is(drain.counted("server", outcome), count), "{outcome}");
        }
        assert!(is(drain.waiting(), 0.0), "{version}");
        assert_eq!(drain.live.identity(), before, "{version}");
        drain.live.serves("the server is gone", false);
        drain.reload();
        drain.live.agrees("the server is gone, reloaded");
        assert_eq!(load.stop().failed, 0, "{version}");
    }
}

/// After the agent's grace, after the one that the op names, and at once.
#[test]
fn a_longer_request_is_cut_when_the_grace_is_over() {
    let grace = Duration::from_millis(700);
    for version in Version::ALL {
        let mut drain = Drain::start(version, &[("--delete-grace", "700ms")]);
        let (load, before) = (drain.live.load(), drain.live.identity());
        type Front = fn(&World) -> Vec<Value>;
        let fronts: [(Front, Duration); 3] = [
            (|_| Vec::new(), grace),
            (
                |world| {
                    let mut wait = world.wait_server(SLOW, "one");
                    wait["timeout_ms"] = json!(200);
                    vec![wait]
                },
                Duration::from_millis(200),
            ),
            (|world| vec![world.shutdown(SLOW, "one")], Duration::ZERO),
        ];
        for (front, least) in fronts {
            let request = drain.request();
            let began = Instant::now();
            let ops = front(&drain.live.world);
            // Without a grace it may be over before anyone looks.
            let mut ops = ops;
            ops.push(drain.live.world.server_del(SLOW, "one"));
            drain.runtime(&ops);
            let answer = request.join().unwrap();
            assert!(was_cut(&answer), "{version}: {answer:?}");
            let took = began.elapsed();
            assert!(took >= least, "{version}: {took:?} of {least:?}");
            assert!(took < Duration::from_secs(5), "{version}: {took:?}");
            drain.live.agrees("the server is gone");
            let ops = drain.slow_again();
            drain.runtime(&ops);
            drain.live.agrees("the server is back");
        }
        assert!(is(drain.counted("server", "done"), 3.0), "{version}");
        assert_eq!(drain.live.identity(), before, "{version}");
        assert_eq!(load.stop().failed, 0, "{version}");
    }
}

/// Five attempts that each take two seconds: each is counted, the last gives up.
#[test]
fn a_delete_that_never_succeeds_is_given_up() {
    let one = |version: Version| {
        let flags = [("--delete-grace", "0"), ("--delete-cut", "no")];
        let mut drain = Drain::start(version, &flags);
        drain.slow.hold();
        // With more patience than the attempts take.
        let address = (Ipv4Addr::LOCALHOST, drain.live.world.http);
        let mut client = TcpStream::connect(address).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let request = format!("GET / HTTP/1.1\r\nHost: {SLOW}\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        wait::until("the request arrives", SOON, || {
            (drain.slow.asked() > 0).then_some(())
        });
        let before = drain.live.identity();
        drain.delete(Vec::new());
        wait::until("an attempt is counted", SOON, || {
            (drain.counted("server", "deferred") > 0.5).then_some(())
        });
        assert_eq!(drain.pending(), (json!(["w/one"]), json!([])), "{version}");
        assert!(is(drain.waiting(), 1.0), "{version}");
        let state = wait::until("it is given up", SOON, || {
            let state = drain.live.agent.state_with("?plan=0");
            (state["pending_deletes"]["servers"] == json!([])).then_some(state)
        });
        for (outcome, count) in [("deferred", 4.0), ("abandoned", 1.0), ("done", 0.0)] {
            assert!(is(drain.counted("server", outcome), count), "{outcome}");
        }
        assert!(is(drain.waiting(), 0.0), "{version}");
        let records = drain.live.agent.records();
        let said = records
            .iter()
            .find(|record| record["object"] == "w/one")
            .unwrap();
        assert_eq!(
            said["reason"],
            "Server still has connections attached to it, cannot remove it."
        );
        // It stays, in maintenance, and nobody takes that for a difference.
        assert!(drain.has("one"), "{version}");
        let last = state["applied_plan_id"].clone();
        assert_eq!(state["worker_ops_plan_id"], last, "{version}");
        let differs = drain
            .live
            .agent
            .sample("haptic_runtime_map_divergence_total");
        assert!(differs < 0.5, "{version}");
        assert_eq!(drain.live.identity(), before, "{version}");
        drain.slow.let_go();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{version}: {answer}");
        // The next reload takes it along.
        drain.reload();
        drain.live.agrees("reloaded");
    };
    thread::scope(|scope| {
        for version in Version::ALL {
            scope.spawn(move || one(version));
        }
    });
}

#[test]
fn what_is_wanted_again_stays() {
    for version in Version::ALL {
        let mut drain = Drain::start(version, &[]);
        let load = drain.live.load();
        let whole = drain.live.world.clone();
        let before = drain.live.identity();
        type Back = fn(&mut World) -> Value;
        let backs: [Back; 2] = [
            |world| world.server_enable(SLOW, "one"),
            |world| world.server_set_state(SLOW, "one", super::world::Admin::Ready),
        ];
        for (n, back) in backs.into_iter().enumerate() {
            let request = drain.request();
            drain.delete(Vec::new());
            drain.live.world = whole.clone();
            let ops = [back(&mut drain.live.world)];
            drain.runtime(&ops);
            assert_eq!(drain.pending(), (json!([]), json!([])), "{version}");
            let superseded = drain.counted("server", "superseded");
            assert!(is(superseded, n as f64 + 1.0), "{version}: {superseded}");
            drain.live.agrees("wanted again");
            drain.slow.let_go();
            assert_eq!(request.join().unwrap().unwrap().status, 200, "{version}");
            let answer = get_port(drain.live.world.http, SLOW, "/").unwrap();
            assert_eq!((answer.status, &*answer.body), (200, "slow"), "{version}");
        }
        assert_eq!(drain.live.identity(), before, "{version}");
        // Another of that name can come only when it is gone.
        let request = drain.request();
        drain.delete(Vec::new());
        let ops = drain.slow_again();
        let apply = drain.live.apply("auto", &ops);
        let answer = apply.succeed(&drain.live.agent, "reload");
        assert_eq!(
            answer["op_results"][0]["output"],
            "Server still has connections attached to it, cannot remove it."
        );
        assert_eq!(answer["op_results"][1]["output"], "not_run");
        drain.live.world.reloaded();
        drain.live.agrees("busy, and reloaded");
        drain.slow.let_go();
        assert_eq!(request.join().unwrap().unwrap().status, 200, "{version}");
        assert_eq!(load.stop().failed, 0, "{version}");
    }
}

#[test]
fn a_backend_goes_after_its_servers_unless_it_is_wanted_again() {
    let mut drain = Drain::start(Version::V3_4, &[]);
    let load = drain.live.load();
    let before = drain.live.identity();
    let names = |all: &[&str]| json!(all);
    let whole = drain.live.world.clone();
    // Published again: its server goes, and it stays.
    let request = drain.request();
    let ops = drain.live.world.backend_goes(SLOW);
    drain.runtime(&ops);
    assert_eq!(drain.pending(), (names(&["w/one"]), names(&[SLOW])));
    drain.live.world = whole;
    let gone = drain.live.world.server_del(SLOW, "one");
    let route = drain.live.world.map_del(HOSTS, SLOW);
    let publish = op("backend_publish", json!({"backend": SLOW}));
    drain.runtime(&[route, gone, publish]);
    assert_eq!(drain.pending(), (names(&["w/one"]), names(&[])));
    assert!(is(drain.counted("backend", "superseded"), 1.0));
    drain.slow.let_go();
    assert_eq!(request.join().unwrap().unwrap().status, 200);
    drain.live.agrees("an empty backend");
    assert!(is(drain.counted("server", "done"), 1.0));
    // And away with it, with a server that is in use.
    let one = Server::to(drain.slow.address());
    let world = &mut drain.live.world;
    let ops = vec![
        world.server_add(SLOW, "one", one),
        world.server_enable(SLOW, "one"),
        world.map_add(HOSTS, SLOW, SLOW),
    ];
    drain.runtime(&ops);
    let request = drain.request();
    let ops = drain.live.world.backend_goes(SLOW);
    drain.runtime(&ops);
    // Neither goes before the other has.
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        assert_eq!(drain.pending(), (names(&["w/one"]), names(&[SLOW])));
        assert!(
            drain
                .live
                .haproxy
                .ask("show backend")
                .unwrap()
                .contains("\nw\n")
        );
    }
    drain.slow.let_go();
    assert_eq!(request.join().unwrap().unwrap().status, 200);
    drain.live.agrees("both are gone");
    assert!(is(drain.counted("server", "done"), 2.0));
    assert!(is(drain.counted("backend", "done"), 1.0));
    for kind in ["server", "backend"] {
        assert!(is(drain.counted(kind, "deferred"), 0.0), "{kind}");
    }
    assert_eq!(drain.live.identity(), before);
    assert_eq!(load.stop().failed, 0);
}

#[test]
fn deletes_outlive_the_agent_and_not_the_worker() {
    for version in Version::ALL {
        let mut drain = Drain::start(version, &[]);
        let load = drain.live.load();
        let (request, before) = (drain.request(), drain.live.identity());
        drain.delete(Vec::new());
        drain.live.restart_agent();
        assert_eq!(drain.pending(), (json!(["w/one"]), json!([])), "{version}");
        assert!(is(drain.waiting(), 1.0), "{version}");
        assert!(drain.has("one") && !request.is_finished(), "{version}");
        drain.slow.let_go();
        assert_eq!(request.join().unwrap().unwrap().status, 200, "{version}");
        drain.live.agrees("gone");
        assert!(is(drain.counted("server", "done"), 1.0), "{version}");
        assert_eq!(drain.live.identity(), before, "{version}");

        // A reload of the same agent supersedes what waits.
        let ops = drain.slow_again();
        drain.runtime(&ops);
        let request = drain.request();
        drain.delete(Vec::new());
        drain.reload();
        assert_eq!(drain.pending(), (json!([]), json!([])), "{version}");
        assert!(is(drain.counted("server", "superseded"), 1.0), "{version}");
        drain.live.agrees("reloaded");
        drain.slow.let_go();
        assert_eq!(request.join().unwrap().unwrap().status, 200, "{version}");

        // And one by somebody else while no agent was there.
        let ops = drain.slow_again();
        drain.runtime(&ops);
        let request = drain.request();
        drain.delete(Vec::new());
        drain.live.agent.kill();
        let reloaded = drain.live.haproxy.ask_master("reload").unwrap();
        assert!(reloaded.contains("Success=1"), "{reloaded}");
        drain.live.agent = drain.live.setup.start();
        wait::until("nothing waits", SOON, || {
            (drain.pending() == (json!([]), json!([]))).then_some(())
        });
        assert!(is(drain.counted("server", "done"), 0.0), "{version}");
        assert!(is(drain.counted("server", "superseded"), 1.0), "{version}");
        assert!(!drain.has("one"), "{version}");
        drain.slow.let_go();
        assert_eq!(request.join().unwrap().unwrap().status, 200, "{version}");
        assert_eq!(load.stop().failed, 0, "{version}");
    }
}

/// The same within one batch: nothing waits, and nobody takes it for gone.
#[test]
fn what_is_deleted_and_wanted_in_one_batch_stays() {
    for version in Version::ALL {
        let mut live = Live::start(version);
        let load = live.load();
        let before = live.identity();
        let looks = |live: &Live| {
            let log = live.agent.log();
            log.matches("\"looked at what the batch changed\"").count()
        };
        let whole = live.world.clone();
        let del = live.world.server_del("b", "s1");
        live.world = whole;
        let backs = [
            live.world.server_enable("b", "s1"),
            live.world
                .server_set_state("b", "s1", super::world::Admin::Ready),
        ];
        let mut batches: Vec<Vec<Value>> = backs.map(|back| vec![del.clone(), back]).to_vec();
        if version == Version::V3_4 {
            let of = |kind: &str| op(kind, json!({"backend": "b"}));
            batches.push(vec![of("backend_del"), of("backend_publish")]);
        }
        for ops in batches {
            let seen = looks(&live);
            let apply = live.apply("auto", &ops);
            let answer = apply.succeed(&live.agent, "runtime");
            let results = answer["op_results"].as_array().unwrap();
            assert!(
                results.iter().all(|result| result["ok"] == true),
                "{version}"
            );
            let state = live.agent.state_with("?plan=0");
            let none = json!({"servers": [], "backends": []});
            assert_eq!(state["pending_deletes"], none, "{version}: {ops:?}");
            wait::until("the worker is looked at", SOON, || {
                (looks(&live) > seen).then_some(())
            });
            live.agrees("deleted and wanted");
            live.serves("deleted and wanted", false);
            assert_eq!(live.identity(), before, "{version}: {ops:?}");
        }
        assert_eq!(load.stop().failed, 0, "{version}");
    }
}

/// A disabled row stays so whatever its agent says; back again, its agent is asked again.
#[test]
fn a_row_that_is_ready_again_is_asked_again() {
    for version in Version::ALL {
        let mut live = Live::start(version);
        let (agent, drains) = agent_check::responder();
        live.world.more_config = format!(
            "backend extra_a\n    balance roundrobin\n    server s1 {} agent-check agent-addr {} agent-port {} agent-inter 20ms\n",
            live.upstream(1),
            agent.ip(),
            agent.port()
        );
        live.apply("reload", &[]).succeed(&live.agent, "reload");
        let route = live.world.map_add(HOSTS, "a", "extra_a");
        live.apply("auto", &[route]).succeed(&live.agent, "runtime");
        let load = live.load();
        let of = |kind: &str, more: Value| {
            let mut fields = more;
            fields["backend"] = json!("extra_a");
            fields["server"] = json!("s1");
            op(kind, fields)
        };
        let admin = |live: &Live| {
            let state = live.haproxy.ask("show servers state extra_a").unwrap();
            let row = state.lines().find(|row| row.contains(" s1 ")).unwrap();
            row.split(' ').nth(6).unwrap().to_owned()
        };
        let status = |live: &Live| get_port(live.world.http, "a", "/").unwrap().status;
        let backs = [
            of("server_set_state", json!({"state": "ready"})),
            of("server_enable", json!({})),
        ];
        for back in backs {
            drains.store(false, Ordering::SeqCst);
            wait::until("its agent has it served", SOON, || {
                (status(&live) == 200).then_some(())
            });
            let disable = of("server_disable", json!({}));
            live.apply("auto", &[disable])
                .succeed(&live.agent, "runtime");
            let end = Instant::now() + Duration::from_millis(300);
            while Instant::now() < end {
                assert_eq!(admin(&live), "1", "{version}: the agent ended it");
            }
            assert_eq!(status(&live), 503, "{version}");
            live.apply("auto", &[back]).succeed(&live.agent, "runtime");
            assert_eq!(status(&live), 200, "{version}");
            drains.store(true, Ordering::SeqCst);
            wait::until("the agent drains it", SOON, || {
                (admin(&live) == "8").then_some(())
            });
        }
        live.agrees("asked again");
        assert_eq!(load.stop().failed, 0, "{version}");
        assert!(live.world.backends.contains_key(STEADY));
    }
}
