//! Large batches, and workers that do not live to see their end, through whole applies.

use super::rig::{Live, SOON};
use super::world::{HOSTS, PATHS, STEADY, Server, op};
use crate::support::haproxy::{Haproxy, Version};
use crate::support::slow::Slow;
use crate::support::traffic::get_port;
use crate::support::wait;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_thousand_ops_in_one_apply() {
    for version in Version::ALL {
        let mut live = Live::start(version);
        let (load, before) = (live.load(), live.identity());
        let (one, two) = (live.upstream(1), live.upstream(2));
        let mut ops = Vec::new();
        let world = &mut live.world;
        for n in 0..150 {
            let name = format!("n{n}");
            let to = if n % 2 == 0 { one } else { two };
            ops.push(world.server_add("b", &name, Server::to(to)));
            ops.push(world.server_enable("b", &name));
            ops.push(world.server_set_weight("b", &name, 1 + n % 3));
        }
        for n in 0..40 {
            ops.push(world.server_del("b", &format!("n{n}")));
        }
        ops.push(world.cert_set(super::world::DEFAULT, 3));
        let rest = 1000 - ops.len();
        for n in 0..rest {
            let key = format!("/map/k{}", n / 2);
            ops.push(match n % 2 {
                0 => world.map_add(PATHS, &key, "first"),
                _ => world.map_set(PATHS, &key, &format!("v{n}")),
            });
        }
        assert_eq!(ops.len(), 1000);
        let answer = live.apply("auto", &ops).succeed(&live.agent, "runtime");
        let results = answer["op_results"].as_array().unwrap();
        assert_eq!(results.len(), 1000, "{version}");
        assert!(
            results.iter().all(|result| result["ok"] == true),
            "{version}"
        );
        live.agrees("a thousand ops");
        live.serves("a thousand ops", true);
        assert_eq!(live.identity(), before, "{version}");
        live.apply("reload", &[]).succeed(&live.agent, "reload");
        live.world.reloaded();
        live.agrees("a thousand ops, reloaded");
        // And one more is no manifest.
        let mut more = ops;
        more.push(op("map_del", json!({"path": PATHS, "key": "/map/k0"})));
        let refused = live.apply("auto", &more).send(&live.agent);
        assert_eq!(refused.status, 400, "{version}: {}", refused.text());
        assert!(refused.text().contains("1000"), "{}", refused.text());
        assert_eq!(load.stop().failed, 0, "{version}");
    }
}

/// Fifty thousand entries take the place of as many: whoever asks meanwhile finds the one
/// or the other, and never none.
#[test]
fn a_large_map_is_replaced_at_once() {
    const ENTRIES: usize = 50_000;
    for version in Version::ALL {
        let mut live = Live::start(version);
        let before = live.identity();
        let rows = |mark: &str| {
            let row = |n: usize| (format!("/map/{n}"), format!("{mark} {n}"));
            (0..ENTRIES).map(row).collect()
        };
        let replace = live.world.map_replace(PATHS, rows("first"));
        let apply = live.apply("auto", &[replace]);
        apply.succeed(&live.agent, "runtime");
        let (http, over) = (live.world.http, AtomicBool::new(false));
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let mut seen = BTreeSet::new();
                while !over.load(Ordering::SeqCst) {
                    for key in [0, ENTRIES / 2, ENTRIES - 1] {
                        let answer = get_port(http, "any", &format!("/map/{key}")).unwrap();
                        seen.insert(answer.body.replace(&key.to_string(), "n"));
                    }
                }
                seen
            });
            for mark in ["second", "third"] {
                let replace = live.world.map_replace(PATHS, rows(mark));
                let apply = live.apply("auto", &[replace]);
                apply.succeed(&live.agent, "runtime");
                live.agrees(mark);
            }
            over.store(true, Ordering::SeqCst);
            let seen = asking.join().unwrap();
            let all = ["first n", "second n", "third n"];
            assert!(
                seen.iter().all(|word| all.contains(&&**word)),
                "{version}: {seen:?}"
            );
            assert!(seen.contains("third n"), "{version}: {seen:?}");
        });
        assert_eq!(live.identity(), before, "{version}");
        live.apply("reload", &[]).succeed(&live.agent, "reload");
        live.agrees("a large map, reloaded");
    }
}

/// A backend whose only server holds a request, so that a wait in a batch lasts.
fn held(version: Version, flags: &[(&str, &str)]) -> (Live, Slow) {
    let mut live = Live::with(version, |setup| {
        flags
            .iter()
            .fold(setup, |setup, (flag, value)| setup.with(flag, value))
    });
    let slow = Slow::start();
    let one = Server::to(slow.address()).ready();
    let servers = super::world::Servers::from([("one".to_owned(), one)]);
    live.world.backends.insert("w".to_owned(), servers);
    let route = ("w".to_owned(), "w".to_owned());
    live.world.maps.get_mut(HOSTS).unwrap().push(route);
    live.apply("reload", &[]).succeed(&live.agent, "reload");
    (live, slow)
}

/// A change, a wait of two seconds that a request makes last, and a change.
fn lasting(live: &mut Live) -> Vec<Value> {
    let world = &mut live.world;
    vec![
        world.map_add(PATHS, "/map/first", "first"),
        world.server_disable("w", "one"),
        world.wait_server("w", "one"),
        world.map_add(PATHS, "/map/last", "last"),
    ]
}

/// Sends the apply, and does something while its batch waits.
fn meanwhile(live: &mut Live, ops: &[Value], act: impl FnOnce(&mut Haproxy)) -> Value {
    let request = live.apply("auto", ops).request();
    let address = live.agent.api();
    thread::scope(|scope| {
        let sent = scope.spawn(move || crate::support::agent::exchange(address, &request));
        wait::until("the batch waits", SOON, || {
            let shown = live.haproxy.ask("show servers state w").ok()?;
            let row = shown.lines().find(|row| row.contains(" one "))?;
            (row.split(' ').nth(6) == Some("1")).then_some(())
        });
        act(&mut live.haproxy);
        let reply = sent.join().unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    })
}

#[test]
fn a_reload_by_somebody_else_in_the_middle_of_an_apply() {
    for version in Version::ALL {
        let (mut live, slow) = held(version, &[]);
        let load = live.load();
        let (request, before) = (slow.request(live.world.http, "w"), live.identity());
        let ops = lasting(&mut live);
        let answer = meanwhile(&mut live, &ops, |haproxy| {
            let reloaded = haproxy.ask_master("reload").unwrap();
            assert!(reloaded.contains("Success=1"), "{reloaded}");
            slow.let_go();
        });
        let told = format!("{version}: {answer:#}");
        assert_eq!(
            (&answer["ok"], &answer["mode"]),
            (&json!(true), &json!("reload")),
            "{told}"
        );
        let results = answer["op_results"].as_array().unwrap();
        assert!(results.iter().all(|result| result["ok"] == false), "{told}");
        assert_eq!(
            answer["running_plan_id"], answer["applied_plan_id"],
            "{told}"
        );
        assert_ne!(live.identity(), before, "{version}");
        assert_eq!(request.join().unwrap().unwrap().status, 200, "{version}");
        // HAProxy refused none of them.
        let metrics = live.agent.metrics();
        let mut refused = metrics
            .lines()
            .filter(|line| line.starts_with("haptic_agent_op_errors_total{"));
        assert!(
            refused.all(|line| line.ends_with(" 0")),
            "{version}: {metrics}"
        );
        live.world.reloaded();
        live.agrees("reloaded twice");
        assert_eq!(load.stop().failed, 0, "{version}");
    }
}

/// HAProxy ends, or its worker does, with which the master ends too unless the reload
/// comes before it has noticed. No success is claimed that is none, and nothing hangs; with
/// the next HAProxy everything goes on.
#[test]
fn a_worker_that_is_killed_in_the_middle_of_an_apply() {
    for version in Version::ALL {
        for whole in [true, false] {
            killed(version, whole);
        }
    }
}

fn killed(version: Version, whole: bool) {
    let (mut live, slow) = held(version, &[("--reload-timeout", "2s")]);
    let request = slow.request(live.world.http, "w");
    let (before, pid) = (live.world.clone(), live.identity().pid);
    let ops = lasting(&mut live);
    let began = Instant::now();
    let answer = meanwhile(&mut live, &ops, |haproxy| match whole {
        true => haproxy.kill(),
        false => {
            let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
        }
    });
    let told = format!("{version}: {answer:#}");
    assert!(began.elapsed() < Duration::from_secs(20), "{told}");
    let results = answer["op_results"].as_array().unwrap();
    assert_eq!(results[2]["ok"], false, "{told}");
    assert_eq!(results[3]["ok"], false, "{told}");
    match answer["ok"] == true {
        true => {
            assert!(!whole, "{told}");
            assert_eq!(answer["mode"], "reload", "{told}");
            assert_ne!(answer["reload"]["worker_pid"], pid, "{told}");
        }
        false => {
            assert_eq!(answer["error"]["stage"], "reload", "{told}");
            assert_eq!(answer["applied_plan_id"], "", "{told}");
            // What was applied before is on disk again.
            let map = fs::read_to_string(live.world.base.join(PATHS)).unwrap();
            assert_eq!(map, "/map/a one\n", "{told}");
        }
    }
    slow.let_go();
    let _ = request.join();
    // Whoever supervises HAProxy starts it again, from what is on disk.
    live.haproxy.kill();
    for socket in ["master.sock", "worker.sock"] {
        let _ = fs::remove_file(live.world.base.join(socket));
    }
    let config = fs::read_to_string(live.world.base.join("haproxy.cfg")).unwrap();
    live.haproxy = Haproxy::start(version, &before.base, &config);
    let reply = wait::until_ok("a push gets through", SOON, || {
        live.forget_sent();
        let reply = live.apply("reload", &[]).send(&live.agent);
        match reply.status == 200 && reply.json()["ok"] == true {
            true => Ok(reply),
            false => Err(reply.text()),
        }
    });
    assert_eq!(reply.json()["mode"], "reload");
    live.world.reloaded();
    live.agrees("started again");
    assert_eq!(get_port(live.world.http, STEADY, "/").unwrap().status, 200);
}

/// What a batch made is listed without a reload, in the answer and in the state.
#[test]
fn new_stores_are_known_without_a_reload() {
    for version in Version::ALL {
        let mut live = Live::start(version);
        let listed = |live: &Live, kind: &str| {
            let state = live.agent.state_with("?plan=0");
            state["runtime_inventory"][kind].to_string()
        };
        let generation = |live: &Live| {
            let state = live.agent.state_with("?plan=0");
            state["runtime_inventory"]["generation"].as_u64().unwrap()
        };
        let (before, first) = (live.identity(), generation(&live));
        assert!(!listed(&live, "certs").contains("certs/x.pem"), "{version}");
        let ops = [
            live.world.cert_new("certs/x.pem", 1),
            live.world.ca_new("ca/x.pem", vec![1]),
        ];
        let answer = live.apply("auto", &ops).succeed(&live.agent, "runtime");
        let told = &answer["runtime_inventory"];
        assert!(
            told["certs"].to_string().contains("certs/x.pem"),
            "{version}: {answer:#}"
        );
        assert!(
            told["ca_files"].to_string().contains("ca/x.pem"),
            "{version}: {answer:#}"
        );
        assert!(listed(&live, "certs").contains("certs/x.pem"), "{version}");
        assert!(listed(&live, "ca_files").contains("ca/x.pem"), "{version}");
        assert!(generation(&live) > first, "{version}");
        assert_eq!(live.identity(), before, "{version}");
        // What nothing uses goes with a reload, and is known to be gone.
        live.apply("reload", &[]).succeed(&live.agent, "reload");
        assert!(!listed(&live, "certs").contains("certs/x.pem"), "{version}");
        assert!(!listed(&live, "ca_files").contains("ca/x.pem"), "{version}");
    }
}

/// Applies that come before the worker was looked at owe the look to those after them.
#[test]
fn a_difference_is_found_however_soon_the_next_apply_comes() {
    for version in Version::ALL {
        let mut live = Live::with(version, |setup| setup);
        // A look at this one takes longer than the applies that follow it.
        let row = |n: u32| (format!("/large/{n:06}"), format!("value-{n:06}"));
        live.world
            .map_replace(PATHS, (0..20_000).map(row).collect());
        live.apply("reload", &[]).succeed(&live.agent, "reload");
        let mut op = live.world.map_add(PATHS, "/map/b", "file");
        op["value"] = json!("op");
        live.apply("auto", std::slice::from_ref(&op))
            .succeed(&live.agent, "runtime");
        for n in 0..5 {
            let op = live.world.map_add(HOSTS, &format!("soon-{n}.example"), "x");
            let reply = live
                .apply("auto", std::slice::from_ref(&op))
                .send(&live.agent);
            assert_eq!(reply.json()["ok"], true, "{version}");
        }
        wait::until("the difference is counted", SOON, || {
            let differs = live.agent.sample("haptic_runtime_map_divergence_total");
            (differs > 0.5).then_some(())
        });
        let word = || get_port(live.world.http, "any", "/map/b").unwrap().body;
        wait::until("the file is loaded", SOON, || {
            (word() == "file").then_some(())
        });
    }
}

/// A worker that is out of step after a batch is counted and reloaded, not sooner than
/// the pacing allows.
#[test]
fn a_difference_is_repaired_by_a_paced_reload() {
    for version in Version::ALL {
        let mut live = Live::with(version, |setup| setup.with("--reload-interval-min", "5s"));
        let (load, before) = (live.load(), live.identity());
        // The op does not say what the file says.
        let mut op = live.world.map_add(PATHS, "/map/b", "file");
        op["value"] = json!("op");
        live.apply("auto", &[op]).succeed(&live.agent, "runtime");
        let state = wait::until("a reload is scheduled", SOON, || {
            let state = live.agent.state_with("?plan=0");
            state.get("reload_pending_at").is_some().then_some(state)
        });
        assert_eq!(state["worker_ops_plan_id"], "", "{version}");
        assert_eq!(live.identity(), before, "{version}");
        let word = || get_port(live.world.http, "any", "/map/b").unwrap().body;
        assert_eq!(word(), "op", "{version}");
        wait::until("the file is loaded", SOON, || {
            (word() == "file").then_some(())
        });
        let differs = live.agent.sample("haptic_runtime_map_divergence_total");
        assert!((differs - 1.0).abs() < 0.5, "{version}: {differs}");
        let state = wait::until("it is known what runs", SOON, || {
            let state = live.agent.state_with("?plan=0");
            let known = state["worker_ops_plan_id"] == state["applied_plan_id"];
            known.then_some(state)
        });
        assert_eq!(
            state["running_plan_id"], state["applied_plan_id"],
            "{version}"
        );
        assert_eq!(load.stop().failed, 0, "{version}");
    }
}
