//! HAProxy does things on its own: it restarts, is reloaded by somebody, comes late, or
//! brings its bootstrap configuration back.

use super::kit::{Rig, SOON, serving};
use crate::support::agent::{Apply, Setup, tree};
use crate::support::haproxy::{Haproxy, Version};
use crate::support::ports::Port;
use crate::support::wait;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

fn reloads(rig: &Rig) -> f64 {
    rig.agent
        .sample("haptic_agent_reloads_total{result=\"ok\"}")
}

fn holds(rig: &Rig, state: &Value) -> bool {
    state["running_plan_id"] == "p1"
        && state["applied_plan_id"] == "p1"
        && state["worker_ops_plan_id"] == "p1"
        && state["haproxy"]["worker_pid"] == rig.haproxy.worker_pid()
}

/// The whole of HAProxy is killed and comes up again with what is on disk. What it runs
/// is not known until one reload of the agent's own set has made it so.
#[test]
fn a_restarted_haproxy_is_taken_over_again_by_one_reload() {
    for version in [Version::V3_0, Version::V3_4] {
        let mut rig = Rig::applied(version);
        assert_eq!(reloads(&rig), 1.0);
        rig.restart_haproxy();
        let born = rig.haproxy.worker_pid();
        let state = rig.until_state("the baseline is back", |state| holds(&rig, state));
        assert_ne!(state["haproxy"]["worker_pid"], born);
        assert_eq!(state["generation"], 1);
        assert_eq!(reloads(&rig), 2.0, "{version}");
        assert_eq!(rig.agent.sample("haptic_agent_worker_changes_total"), 1.0);
        assert_eq!(rig.word(), "one");
        let apply = rig.next("p2", "two");
        apply.succeed(&rig.agent, "reload");
    }
}

/// HAProxy dies while the agent lives: within one look the state says that the worker does
/// not answer, since when and why, an apply meets the same, and its return is told too.
#[test]
fn the_state_says_whether_the_worker_answers() {
    let mut rig = Rig::applied(Version::V3_4);
    let up = rig.agent.state()["worker"].clone();
    assert_eq!(up["answers"], true, "{up:#}");
    assert_eq!(up.get("reason"), None, "{up:#}");
    rig.haproxy.kill();
    let state = rig.until_state("the worker is missed", |state| {
        state["worker"]["answers"] == false
    });
    let down = state["worker"].clone();
    assert!(down["since"].as_str() > up["since"].as_str(), "{down:#}");
    assert!(!down["reason"].as_str().unwrap().is_empty(), "{down:#}");
    assert_eq!(state["applied_plan_id"], "p1", "disk still holds it");
    assert_eq!(rig.agent.sample("haptic_agent_haproxy_up"), 0.0);
    // It stays one outage, whoever looks.
    let verified = rig.agent.state_with("?verify=1");
    assert_eq!(verified["worker"]["since"], down["since"]);
    rig.restart_haproxy();
    let state = rig.until_state("the worker is back", |state| {
        state["worker"]["answers"] == true && holds(&rig, state)
    });
    assert!(state["worker"]["since"].as_str() > down["since"].as_str());
    assert_eq!(state["worker"].get("reason"), None);
}

/// A set for a HAProxy that is gone is answered in seconds, not after the whole time of a
/// reload, and stays: it may be what lets HAProxy start again. Nothing is claimed of it,
/// and a revert takes it back without a HAProxy too.
#[test]
fn a_set_for_a_haproxy_that_is_gone_is_what_it_starts_with() {
    for (version, sockets_go) in [(Version::V3_0, false), (Version::V3_4, true)] {
        let mut rig = Rig::applied(version);
        let good = tree(&rig.base);
        rig.haproxy.kill();
        if sockets_go {
            for socket in ["master.sock", "worker.sock"] {
                let _ = fs::remove_file(rig.base.join(socket));
            }
        }
        let asked = Instant::now();
        let nack = rig.next("p2", "two").fail(&rig.agent, "reload");
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(20), "{version}: {took:?}");
        assert_eq!(nack["reload"]["performed"], false, "{nack:#}");
        assert_eq!(nack.get("rollback"), None, "{nack:#}");
        let message = nack["error"]["message"].as_str().unwrap();
        let begins = "HAProxy is not running: the set is on disk";
        assert!(message.starts_with(begins), "{message}");
        let state = rig.agent.state();
        assert_eq!(state["worker"]["answers"], false);
        assert_eq!(state["applied_plan_id"], "", "{state:#}");
        assert_eq!(state["lkg_plan_id"], "p1", "{state:#}");
        let set = tree(&rig.base);
        assert_eq!(set["haproxy.cfg"], rig.config("two").as_bytes());

        let revert = Apply::new("back", 1, 9).on(&state).mode("revert_lkg");
        revert.fail(&rig.agent, "revert_reload");
        assert_eq!(tree(&rig.base), good, "{version}");
        rig.next("p2", "two").fail(&rig.agent, "reload");
        assert_eq!(tree(&rig.base), set, "{version}");
        rig.agent.kill();

        rig.restart_haproxy();
        assert_eq!(rig.word(), "two", "it starts with what is on disk");
        rig.restart_agent();
        let state = rig.agent.state();
        assert_eq!(state["applied_plan_id"], "", "{state:#}");
        rig.next("p3", "three").succeed(&rig.agent, "reload");
    }
}

/// The same, noticed by a reader that asks to verify: it is told the truth, and what the
/// reader found does not keep the agent from repairing it.
#[test]
fn a_reload_by_somebody_else_is_noticed_by_whoever_looks_first() {
    for version in [Version::V3_0, Version::V3_4] {
        let rig = Rig::applied(version);
        let said = rig.haproxy.ask_master("reload").unwrap();
        assert!(said.starts_with("Success=1"), "{said}");
        let state = rig.agent.state_with("?verify=1");
        assert_eq!(state["running_plan_id"], "", "{version}: {state:#}");
        assert_eq!(state["worker_ops_plan_id"], "", "{version}");
        assert_eq!(state["applied_plan_id"], "p1", "the disk is as it was");
        rig.until_state("the baseline is back", |state| holds(&rig, state));
        assert_eq!(reloads(&rig), 2.0, "{version}");
    }
}

/// An apply that comes first is not held up by it, and is not fooled: without ops a set
/// that changes nothing still has to be loaded.
#[test]
fn an_apply_after_a_foreign_reload_reloads() {
    let rig = Rig::applied(Version::V3_4);
    rig.haproxy.ask_master("reload").unwrap();
    let again = rig.next("p2", "one").mode("auto");
    again.succeed(&rig.agent, "reload");
    let state = rig.agent.state();
    assert_eq!(state["running_plan_id"], "p2");
}

/// HAProxy's container restarts and copies its bootstrap configuration over ours: another
/// writer. Nothing is overwritten, nothing is claimed, and a full set repairs it.
#[test]
fn a_bootstrap_that_comes_back_is_a_foreign_writer() {
    for version in [Version::V3_0, Version::V3_4] {
        for (restart_agent, in_place) in [(false, false), (true, false), (false, true)] {
            let mut rig = Rig::applied(version);
            if restart_agent {
                rig.agent.kill();
            }
            let bootstrap = rig.config("bootstrap");
            if in_place {
                fs::write(rig.base.join("haproxy.cfg"), &bootstrap).unwrap();
            }
            rig.restart_haproxy_with(&bootstrap);
            if restart_agent {
                rig.restart_agent();
            }
            let worker = rig.haproxy.worker_pid();
            let state = rig.until_state("the baseline is gone", |state| {
                state["applied_plan_id"] == "" && state["haproxy"]["worker_pid"] == worker
            });
            assert_eq!(state["running_plan_id"], "", "{version}: {state:#}");
            assert_eq!(state["worker_ops_plan_id"], "");
            assert_eq!(tree(&rig.base)["haproxy.cfg"], bootstrap.as_bytes());
            assert_eq!(rig.haproxy.worker_pid(), worker, "nothing was reloaded");
            assert_eq!(rig.word(), "bootstrap");
            // Whoever believes in p1 is told.
            let stale = Apply::new("p2", 1, 2)
                .file("haproxy.cfg", rig.config("two").as_bytes())
                .on(&state)
                .edit(|m| m["expected_prev_plan_id"] = "p1".into());
            assert_eq!(stale.send(&rig.agent).json()["reason"], "unknown_baseline");
            rig.next("p2", "two")
                .mode("auto")
                .succeed(&rig.agent, "reload");
            assert_eq!(rig.word(), "two");
        }
    }
}

/// `verify=1` hashes: a change that keeps size and times is found by nothing else.
#[test]
fn verify_finds_a_writer_that_covers_its_tracks() {
    let rig = Rig::applied(Version::V3_4);
    let map = rig.base.join("maps/host.map");
    let times = fs::metadata(&map).unwrap();
    fs::write(&map, "a.example be_X\n").unwrap();
    let file = fs::File::options().write(true).open(&map).unwrap();
    file.set_times(
        fs::FileTimes::new()
            .set_modified(times.modified().unwrap())
            .set_accessed(times.accessed().unwrap()),
    )
    .unwrap();
    let told = &rig.agent.state()["files"]["maps/host.map"]["digest"];
    assert_eq!(*told, crate::support::agent::sha256(b"a.example be_a\n"));
    let state = rig.agent.state_with("?verify=1");
    assert_eq!(state["applied_plan_id"], "", "{state:#}");
    assert_eq!(
        state["files"]["maps/host.map"]["digest"],
        crate::support::agent::sha256(b"a.example be_X\n")
    );
    // What is on disk now is what is held now.
    let back = Apply::new("p2", 1, 2)
        .held("haproxy.cfg", rig.config("one").as_bytes())
        .held("maps/host.map", b"a.example be_a\n")
        .on(&state);
    let missing = serde_json::json!({"missing": ["maps/host.map"]});
    assert_eq!(back.send(&rig.agent).json(), missing);
    let mut back = back;
    let path = "maps/host.map".to_owned();
    back.parts
        .push((path.clone(), Some(path), b"a.example be_a\n".to_vec()));
    back.succeed(&rig.agent, "reload");
    assert_eq!(rig.agent.state_with("?verify=1")["applied_plan_id"], "p2");
    assert_eq!(fs::read(&map).unwrap(), b"a.example be_a\n");
}

/// A file that was deleted, or replaced by something that is no file, is a foreign
/// writer as well, and no reason to end.
#[test]
fn a_file_that_is_gone_or_no_file_any_more_is_noticed() {
    for what in ["gone", "directory", "symlink", "fifo"] {
        let rig = Rig::applied(Version::V3_4);
        let map = rig.base.join("maps/host.map");
        fs::remove_file(&map).unwrap();
        match what {
            "gone" => {}
            "directory" => fs::create_dir(&map).unwrap(),
            "symlink" => std::os::unix::fs::symlink("/etc/passwd", &map).unwrap(),
            _ => {
                let made = std::process::Command::new("mkfifo")
                    .arg(&map)
                    .status()
                    .unwrap();
                assert!(made.success());
            }
        }
        let state = rig.agent.state_with("?verify=1");
        assert_eq!(state["applied_plan_id"], "", "{what}: {state:#}");
        assert!(
            state["files"]["maps/host.map"]["size"] != 15,
            "{what}: {state:#}"
        );
        if what == "gone" {
            let back = Apply::new("p2", 1, 2)
                .held("haproxy.cfg", rig.config("one").as_bytes())
                .file("maps/host.map", b"a.example be_a\n")
                .on(&state);
            back.succeed(&rig.agent, "reload");
            assert_eq!(fs::read(&map).unwrap(), b"a.example be_a\n");
        } else {
            let back = Apply::new("p2", 1, 2)
                .held("haproxy.cfg", rig.config("one").as_bytes())
                .file("maps/host.map", b"a.example be_a\n")
                .on(&state);
            let nack = back.fail(&rig.agent, "backup");
            let message = nack["error"]["message"].as_str().unwrap();
            assert!(message.contains("maps/host.map"), "{what}: {message}");
        }
    }
}

/// FR-054: HAProxy starts after the agent, and the agent is ready right after it.
#[test]
fn an_agent_that_was_first_is_ready_soon_after_haproxy() {
    for version in Version::ALL {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("b");
        fs::create_dir(&base).unwrap();
        let port = Port::reserve();
        let agent = Setup::new(&base).spawn();
        let haproxy = Haproxy::start(version, &base, &serving(&base, port.number(), "late"));
        let began = Instant::now();
        agent.wait_ready();
        // It is tried every 20 ms; the rest is a loaded machine.
        assert!(
            began.elapsed() < Duration::from_secs(3),
            "{:?}",
            began.elapsed()
        );
        let state = agent.state();
        assert_eq!(state["haproxy"]["worker_pid"], haproxy.worker_pid());
    }
}

/// Agent and HAProxy both start anew on the files of their last life.
#[test]
fn both_start_again_on_what_they_left() {
    for version in [Version::V3_0, Version::V3_4] {
        let mut rig = Rig::applied(version);
        assert!(rig.agent.terminate().success());
        rig.restart_haproxy();
        rig.restart_agent();
        let state = rig.until_state("the baseline is back", |state| holds(&rig, state));
        assert_eq!(state["generation"], 1, "{version}");
        assert!(reloads(&rig) <= 1.0, "{version}");
        wait::until("it serves", SOON, || (rig.word() == "one").then_some(()));
    }
}

/// FR-061: HAProxy comes back as another release; everything that depends on it is asked
/// anew.
#[test]
fn an_upgraded_haproxy_is_recognised() {
    let mut rig = Rig::applied(Version::V3_0);
    assert!(
        rig.agent.state()["haproxy"]["version"]
            .as_str()
            .unwrap()
            .starts_with("3.0.")
    );
    rig.haproxy.kill();
    for socket in ["master.sock", "worker.sock"] {
        let _ = fs::remove_file(rig.base.join(socket));
    }
    rig.haproxy = Haproxy::start(Version::V3_4, &rig.base, &rig.config("one"));
    // The start wrote the same bytes anew: another writer, though an honest one.
    let state = rig.until_state("the new one is seen", |state| {
        state["haproxy"]["version"]
            .as_str()
            .unwrap()
            .starts_with("3.4.")
    });
    assert!(
        state["haproxy"]["full_version"]
            .as_str()
            .unwrap()
            .starts_with("3.4.")
    );
    // What a 3.4 master dies of is found now; before it was not looked for.
    let nack = rig.raw("bad", rig.config("bad").trim_end().as_bytes());
    nack.fail(&rig.agent, "reload");
    rig.next("p2", "two").succeed(&rig.agent, "reload");
    assert_eq!(rig.word(), "two");
}

/// FR-060: a worker that hangs costs each look a bounded time, and no answer.
#[test]
fn a_hanging_worker_holds_nobody_up_for_long() {
    use rustix::process::{Pid, Signal, kill_process};
    let rig = Rig::applied(Version::V3_4);
    let pid = Pid::from_raw(i32::try_from(rig.haproxy.worker_pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let began = Instant::now();
    let config = rig.config("one");
    let state = rig.agent.state();
    let noop = Apply::new("p2", 1, 2)
        .held("haproxy.cfg", config.as_bytes())
        .held("maps/host.map", b"a.example be_a\n")
        .on(&state)
        .mode("auto");
    let answer = noop.send(&rig.agent);
    rig.agent.state_with("?verify=1");
    let took = began.elapsed();
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["mode"], "noop");
    assert!(took < Duration::from_secs(12), "{took:?}");
    let state = rig.agent.state_with("?verify=1");
    assert_eq!(
        state["running_plan_id"], "p1",
        "it is the same worker: {state:#}"
    );
    assert_eq!(state["applied_plan_id"], "p2");
}

/// The same bytes written anew, or a touched file, are no foreign write; an apply notices
/// a real one without being asked to verify.
#[test]
fn only_other_bytes_are_a_foreign_write() {
    let rig = Rig::applied(Version::V3_4);
    let map = rig.base.join("maps/host.map");
    let again = |text: &str| {
        let beside = rig.base.join("maps/beside");
        fs::write(&beside, text).unwrap();
        fs::rename(&beside, &map).unwrap();
    };
    again("a.example be_a\n");
    fs::write(rig.base.join("haproxy.cfg"), rig.config("one")).unwrap();
    assert_eq!(rig.agent.state_with("?verify=1")["applied_plan_id"], "p1");
    rig.next("p2", "one")
        .mode("auto")
        .succeed(&rig.agent, "noop");
    again("a.example be_b\n");
    let next = rig.next("p3", "one").mode("auto");
    let reply = next.send(&rig.agent);
    assert_eq!(reply.status, 409, "{}", reply.text());
    assert_eq!(reply.json()["reason"], "unknown_baseline");
    assert_eq!(
        fs::read(&map).unwrap(),
        b"a.example be_b\n",
        "not overwritten"
    );
    let state = rig.agent.state();
    assert_eq!(state["applied_plan_id"], "");
    fs::remove_file(&map).unwrap();
    let full = Apply::new("p3", 1, 9)
        .held("haproxy.cfg", rig.config("one").as_bytes())
        .file("maps/host.map", b"a.example be_a\n")
        .on(&state)
        .mode("auto");
    full.succeed(&rig.agent, "reload");
    assert_eq!(fs::read(&map).unwrap(), b"a.example be_a\n");
}
