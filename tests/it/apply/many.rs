//! Several controllers, slow and vanishing clients, an end in the middle, and the
//! two-hundredth failure.

// The figures of a run.
#![allow(clippy::print_stdout)]

use super::kit::{Rig, SOON, leftovers, photos};
use crate::support::agent::{Agent, Apply, Reply, get, read_reply, token, tree};
use crate::support::haproxy::Version;
use crate::support::wait;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const ATTEMPTS: usize = 100;

/// One controller: reads the state, builds on it, sends; what it was told.
fn race(rig: &Rig, name: &str, epoch: u64, landed: &AtomicUsize) -> Vec<(String, String, Reply)> {
    let config = rig.config("one");
    let mut told = Vec::new();
    for attempt in 0..ATTEMPTS {
        let state = rig.agent.state_with("?plan=0");
        let plan = format!("e{epoch}-{name}{attempt}");
        let apply = Apply::new(&plan, epoch, attempt as u64)
            .held("haproxy.cfg", config.as_bytes())
            .file("maps/host.map", format!("{plan} x\n").as_bytes())
            .on(&state)
            .mode("auto");
        let reply = apply.send(&rig.agent);
        if reply.status == 200 {
            landed.fetch_add(1, Ordering::SeqCst);
        }
        let built_on = state["applied_plan_id"].as_str().unwrap().to_owned();
        told.push((built_on, plan, reply));
    }
    told
}

/// FR-059: whatever two controllers send, the accepted applies are one chain, each built
/// on the one before, and a newer epoch ends the older one for good.
#[test]
fn racing_controllers_make_one_chain() {
    let rig = Rig::applied(Version::V3_4);
    let (old, new) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let told = thread::scope(|scope| {
        let older = scope.spawn(|| race(&rig, "a", 1, &old));
        let rig = &rig;
        let same = scope.spawn(|| race(rig, "b", 1, &old));
        wait::until("the older leaders have landed some", SOON, || {
            (old.load(Ordering::SeqCst) >= 20).then_some(())
        });
        let newer = scope.spawn(|| race(rig, "", 2, &new));
        [
            older.join().unwrap(),
            same.join().unwrap(),
            newer.join().unwrap(),
        ]
    });
    let all: Vec<_> = told.into_iter().flatten().collect();
    // From the plan that was built on to the one that landed on it.
    let mut chain = std::collections::BTreeMap::new();
    for (built_on, plan, reply) in &all {
        match reply.status {
            200 => {
                let answer = reply.json();
                assert_eq!(answer["ok"], true, "{answer:#}");
                assert_eq!(answer["mode"], "file_only", "{answer:#}");
                let fork = chain.insert(built_on.clone(), plan.clone());
                assert_eq!(fork, None, "{built_on} was built on twice");
            }
            409 => {
                let reason = reply.json()["reason"].as_str().unwrap().to_owned();
                assert!(
                    ["prev_mismatch", "stale_epoch"].contains(&&*reason),
                    "{reason}"
                );
                if plan.starts_with("e2") {
                    assert_ne!(reason, "stale_epoch");
                }
            }
            503 => assert_eq!(reply.json()["stage"], "busy"),
            other => panic!("{other}: {}", reply.text()),
        }
    }
    let count: usize = old.load(Ordering::SeqCst) + new.load(Ordering::SeqCst);
    let state = rig.agent.state_with("?verify=1");
    assert_eq!(state["generation"], count + 1, "each one moved it by one");
    assert!(new.load(Ordering::SeqCst) > 0);
    // Once the newer epoch had landed, the older one never did again: the last of the
    // chain is the newer one's, and its map is what disk holds.
    let last = state["applied_plan_id"].as_str().unwrap().to_owned();
    assert!(last.starts_with("e2-"), "{last}");
    assert_eq!(state["applied_token"]["leader_epoch"], 2);
    assert_eq!(
        tree(&rig.base)["maps/host.map"],
        format!("{last} x\n").as_bytes()
    );
    // From the first plan to the last one, without a gap or a fork, and never back to the
    // older epoch.
    let mut at = "p1".to_owned();
    let mut links = 0;
    while let Some(next) = chain.get(&at) {
        assert!(
            !(at.starts_with("e2") && next.starts_with("e1")),
            "{at} {next}"
        );
        at.clone_from(next);
        links += 1;
    }
    assert_eq!((at, links), (last, count));
    assert!(state.get("invariant_violation").is_none(), "{state:#}");
}

/// A slow sender holds its place and nothing else.
#[test]
fn a_slow_sender_delays_nobody() {
    let rig = Rig::applied(Version::V3_4);
    let slow = rig
        .next("slow", "slow")
        .file("general/slow", &[b's'; 200_000]);
    let request = slow.request();
    let mut stream = TcpStream::connect(rig.agent.api()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let (head, rest) = request.split_at(request.len() / 2);
    stream.write_all(head).unwrap();
    wait::until("it is staging", SOON, || {
        (!leftovers(&rig.base).is_empty()).then_some(())
    });
    for round in 0..5 {
        stream.write_all(&rest[round..=round]).unwrap();
        let word = format!("w{round}");
        let answer = rig.next(&word, &word).succeed(&rig.agent, "reload");
        assert!(
            answer["timing"]["admit_ms"].as_u64().unwrap() < 2_000,
            "{answer:#}"
        );
        assert_eq!(rig.word(), word);
    }
    stream.write_all(&rest[5..]).unwrap();
    assert_eq!(read_reply(&mut stream).status, 409);
    assert_eq!(leftovers(&rig.base), [""; 0]);
}

/// Once its parts are in, an apply does not need its client.
#[test]
fn an_apply_whose_client_left_is_finished() {
    let rig = Rig::applied(Version::V3_4);
    for round in 0..5 {
        let word = format!("w{round}");
        let request = rig.next(&word, &word).request();
        let mut stream = TcpStream::connect(rig.agent.api()).unwrap();
        stream.write_all(&request).unwrap();
        drop(stream);
        rig.until_state("it is applied", |state| {
            state["running_plan_id"] == word.as_str()
        });
        assert_eq!(rig.word(), word);
    }
    assert_eq!(rig.agent.state()["generation"], 6);
}

/// SIGTERM in the middle: the apply ends as it would have, its client gets the answer,
/// and the next life finds nothing to repair.
#[test]
fn a_termination_lets_the_apply_end() {
    // An address that is taken is tried by HAProxy for two seconds.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut rig = Rig::applied(Version::V3_4);
    let before = photos(&rig.base);
    let config = format!("{}    bind 127.0.0.1:{port}\n", rig.config("two"));
    let request = rig.raw("p2", config.as_bytes()).request();
    let mut stream = TcpStream::connect(rig.agent.api()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(&request).unwrap();
    wait::until("the set is on disk", SOON, || {
        (tree(&rig.base)["haproxy.cfg"] == config.as_bytes()).then_some(())
    });
    rig.agent.signal(Signal::TERM);
    let reply = read_reply(&mut stream);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["error"]["stage"], "reload", "{}", reply.text());
    let status = wait::until("the agent ends", SOON, || rig.agent.exited());
    assert!(status.success(), "{status}");
    assert_eq!(photos(&rig.base), before);
    rig.restart_agent();
    let state = rig.agent.state();
    assert_eq!(state["running_plan_id"], "p1");
    assert_eq!(state["last_apply"]["plan_id"], "p2");
    assert!(
        !rig.agent.log().contains("recovering"),
        "{}",
        rig.agent.log()
    );
    drop(taken);
    rig.raw("p2", config.as_bytes())
        .succeed(&rig.agent, "reload");
}

#[derive(Debug)]
struct Weight {
    descriptors: usize,
    threads: usize,
    resident_kib: u64,
    names: usize,
}

fn weigh(agent: &Agent, rig: &Rig) -> Weight {
    let pid = agent.pid();
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let rss = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let rss = rss.trim().split(' ').next().unwrap().parse().unwrap();
    let mut names = 0;
    let mut dirs = vec![rig.base.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            names += 1;
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    Weight {
        descriptors: count("fd"),
        threads: count("task"),
        resident_kib: rss,
        names,
    }
}

/// One failure of every kind.
fn fail_once(rig: &Rig, round: usize) {
    let state = rig.agent.state_with("?plan=0");
    let mark = format!("k {round}\n");
    let fresh = |config: &[u8]| {
        Apply::new("bad", 1, 3)
            .file("haproxy.cfg", config)
            .file("maps/host.map", mark.as_bytes())
            .blob(&[b'b'; 10_000])
            .on(&state)
    };
    // Refused by the look before the reload, without one.
    fresh(b"").fail(&rig.agent, "reload");
    let state = rig.agent.state_with("?plan=0");
    let good = rig.config("one");
    let again = |apply: Apply| apply.on(&state);
    let mut wrong = again(fresh(good.as_bytes()));
    wrong.parts[1].2 = b"other\n".to_vec();
    assert_eq!(wrong.send(&rig.agent).status, 400);
    let stale = again(fresh(good.as_bytes())).edit(|m| m["token"] = token(0, 0));
    assert_eq!(stale.send(&rig.agent).status, 409);
    let missing = again(fresh(good.as_bytes())).held("maps/none.map", mark.as_bytes());
    assert!(missing.send(&rig.agent).json()["missing"].is_array());
    let none = Apply::new("r", 1, 4).edit(|m: &mut Value| m["files"] = serde_json::json!([]));
    again(none).fail(&rig.agent, "backup");
    if round % 10 == 0 {
        let config = format!("{good}    frobnicate {round}\n");
        again(fresh(config.as_bytes())).fail(&rig.agent, "reload");
    }
}

/// FR-056: failures leave nothing that adds up.
#[test]
fn failures_do_not_add_up() {
    failures(40);
}

/// A thousand NACKs, and half as many more of each way to be refused before one.
#[test]
#[ignore = "long; make soak runs it"]
fn a_thousand_failures_do_not_add_up() {
    failures(500);
}

/// `rounds` rounds of [`fail_once`] after ten that warm up.
fn failures(rounds: usize) {
    let rig = Rig::applied(Version::V3_4);
    for round in 0..10 {
        fail_once(&rig, round);
    }
    let settled = |what: &str| {
        wait::until(what, SOON, || {
            (rig.agent.sample("haptic_agent_connections") <= 1.0).then_some(())
        });
        weigh(&rig.agent, &rig)
    };
    let before = settled("the connections of the warm-up are gone");
    for round in 10..10 + rounds {
        fail_once(&rig, round);
    }
    let after = settled("all connections are gone");
    println!("{rounds} rounds of failures: {before:?}, then {after:?}");
    assert_eq!(after.names, before.names, "{before:?} {after:?}");
    assert!(
        after.descriptors <= before.descriptors + 2,
        "{before:?} {after:?}"
    );
    assert!(after.threads <= before.threads + 2, "{before:?} {after:?}");
    assert!(
        after.resident_kib < before.resident_kib + 4096,
        "{before:?} {after:?}"
    );
    assert_eq!(leftovers(&rig.base), [""; 0]);
    assert_eq!(rig.word(), "one");
    assert_eq!(get(rig.agent.api(), "/readyz", None).status, 200);
    let state = rig.agent.state_with("?plan=0");
    assert!(state.get("invariant_violation").is_none(), "{state:#}");
    let next = Apply::new("p2", 1, 5)
        .file("haproxy.cfg", rig.config("two").as_bytes())
        .on(&state);
    next.succeed(&rig.agent, "reload");
}

/// Readers see one moment: the plan, the file's digest and the generation belong together,
/// also while every read hashes the tree and applies change it.
#[test]
fn a_state_is_of_one_moment() {
    let rig = Rig::applied(Version::V3_4);
    let config = rig.config("one");
    let content = |plan: &str| format!("{plan} {plan}\n");
    let rounds: u64 = 60;
    // Ends the readers also if the writer ends in a panic.
    struct Done<'a>(&'a AtomicUsize);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(1, Ordering::SeqCst);
        }
    }
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (rig, config, done) = (&rig, &config, &done);
        scope.spawn(move || {
            let _done = Done(done);
            for round in 0..rounds {
                let plan = format!("r{round}");
                let apply = Apply::new(&plan, 1, round)
                    .held("haproxy.cfg", config.as_bytes())
                    .file("maps/host.map", content(&plan).as_bytes())
                    .on(&rig.agent.state_with("?plan=0"))
                    .mode("auto");
                apply.succeed(&rig.agent, "file_only");
            }
        });
        for query in ["?verify=1", "", "?verify=1&plan=0"] {
            scope.spawn(move || {
                while done.load(Ordering::SeqCst) == 0 {
                    let state = rig.agent.state_with(query);
                    let plan = state["applied_plan_id"].as_str().unwrap();
                    assert_ne!(plan, "", "{query}: {state:#}");
                    let Some(round) = plan.strip_prefix('r') else {
                        continue;
                    };
                    let digest = crate::support::agent::sha256(content(plan).as_bytes());
                    assert_eq!(state["files"]["maps/host.map"]["digest"], digest, "{query}");
                    assert_eq!(state["generation"], round.parse::<u64>().unwrap() + 2);
                    assert_eq!(state["last_apply"]["plan_id"], plan, "{query}");
                    assert_eq!(state["applied_token"], token(1, round.parse().unwrap()));
                }
            });
        }
    });
    assert_eq!(rig.agent.state()["generation"], rounds + 1);
}

/// A reload that takes its time holds up neither readers nor whoever the fence refuses.
#[test]
fn a_slow_reload_holds_up_no_reader() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let rig = Rig::applied(Version::V3_4);
    let config = format!("{}    bind 127.0.0.1:{port}\n", rig.config("two"));
    let slow = rig.raw("p2", config.as_bytes());
    let stale = rig
        .next("p3", "three")
        .edit(|m| m["expected_prev_plan_id"] = "p0".into());
    thread::scope(|scope| {
        let applying = scope.spawn(|| slow.fail(&rig.agent, "reload"));
        wait::until("the set is on disk", SOON, || {
            (tree(&rig.base)["haproxy.cfg"] == config.as_bytes()).then_some(())
        });
        let mut answered = 0;
        while !applying.is_finished() && answered < 20 {
            let state = rig.agent.state();
            if !applying.is_finished() {
                assert_eq!(state["applied_plan_id"], "p1", "what was published last");
                assert_eq!(get(rig.agent.api(), "/readyz", None).status, 200);
                rig.agent.metrics();
                let reply = stale.send(&rig.agent);
                if !applying.is_finished() {
                    assert_eq!(reply.json()["reason"], "prev_mismatch");
                }
                answered += 1;
            }
        }
        assert!(
            answered > 2,
            "{answered} rounds within a reload of two seconds"
        );
        applying.join().unwrap();
    });
    assert_eq!(rig.word(), "one");
}
