//! Reloads inside the pacing window: one, at its time, with what is on disk then.

use super::kit::{Rig, SOON, leftovers};
use crate::support::agent::tree;
use crate::support::haproxy::Version;
use crate::support::wait;
use serde_json::Value;
use std::time::{Duration, Instant};

fn rig(version: Version, interval: &str) -> Rig {
    let rig = Rig::with(version, |setup| {
        setup.with("--reload-interval-min", interval)
    });
    rig.first().succeed(&rig.agent, "reload");
    rig
}

fn reloads(rig: &Rig) -> f64 {
    rig.agent
        .sample("haptic_agent_reloads_total{result=\"ok\"}")
}

fn fired(rig: &Rig) -> Value {
    rig.until_state("the reload fires", |state| {
        state.get("reload_pending_at").is_none()
    })
}

/// FR-045, FR-047: two applies in one window are one reload, due when it was first said,
/// of the latest set.
#[test]
fn applies_in_the_window_share_one_reload() {
    for version in [Version::V3_0, Version::V3_4] {
        let rig = rig(version, "2s");
        let first_at = rig.agent.state()["last_apply"]["at"].clone();
        let two = rig.next("p2", "two").succeed(&rig.agent, "scheduled");
        let due = two["reload"]["scheduled_at"].clone();
        let state = rig.agent.state();
        assert_eq!(state["reload_pending_at"], due);
        assert_eq!(state["applied_plan_id"], "p2");
        assert_eq!(state["running_plan_id"], "p1");
        assert_eq!(state["worker_ops_plan_id"], "p1");
        assert_eq!(state["lkg_plan_id"], "p1");
        assert_eq!(two["reload"]["performed"], false);
        let three = rig.next("p3", "three").succeed(&rig.agent, "scheduled");
        assert_eq!(three["reload"]["scheduled_at"], due, "never moved");
        // Mode auto joins it too, and so does a set that changes nothing.
        let four = rig
            .next("p4", "three")
            .mode("auto")
            .succeed(&rig.agent, "scheduled");
        assert_eq!(four["reload"]["scheduled_at"], due);
        assert_eq!(rig.word(), "one", "{version}");
        assert_eq!(
            tree(&rig.base)["haproxy.cfg"],
            rig.config("three").as_bytes()
        );
        assert_eq!(rig.agent.sample("haptic_agent_reload_pending"), 1.0);
        assert!(due.as_str() > first_at.as_str());

        let state = fired(&rig);
        assert_eq!(rig.word(), "three", "{version}");
        assert_eq!(reloads(&rig), 2.0, "{version}");
        let last = &state["last_apply"];
        assert_eq!(last["mode"], "reload", "{last:#}");
        assert_eq!(last["plan_id"], "p4");
        assert!(last["at"].as_str() >= due.as_str(), "{last:#} before {due}");
        assert_eq!(state["generation"], 4);
        for id in [
            "applied_plan_id",
            "running_plan_id",
            "worker_ops_plan_id",
            "lkg_plan_id",
        ] {
            assert_eq!(state[id], "p4", "{version} {id}");
        }
        assert_eq!(leftovers(&rig.base), [""; 0]);
        assert_eq!(rig.agent.sample("haptic_agent_reload_pending"), 0.0);
    }
}

/// Killed while it waits: the next life fires it, at the same time if that is still to
/// come, at once if it has passed.
#[test]
fn a_pending_reload_survives_a_kill() {
    let mut rig = rig(Version::V3_4, "3s");
    let two = rig.next("p2", "two").succeed(&rig.agent, "scheduled");
    let due = two["reload"]["scheduled_at"].as_str().unwrap().to_owned();
    rig.agent.kill();
    rig.restart_agent();
    let state = rig.agent.state();
    if state["last_apply"]["mode"] == "scheduled" {
        assert_eq!(state["reload_pending_at"], due.as_str());
        assert_eq!(state["applied_plan_id"], "p2");
        assert_eq!(state["running_plan_id"], "p1");
    }
    let state = fired(&rig);
    assert!(
        state["last_apply"]["at"].as_str().unwrap() >= due.as_str(),
        "{state:#}"
    );
    assert_eq!(state["running_plan_id"], "p2");
    assert_eq!(rig.word(), "two");

    let three = rig.next("p3", "three").succeed(&rig.agent, "scheduled");
    assert!(three["reload"]["scheduled_at"].as_str().unwrap() > due.as_str());
    rig.agent.kill();
    let killed = Instant::now();
    wait::until("the due time has passed", SOON, || {
        (killed.elapsed() > Duration::from_secs(3)).then_some(())
    });
    assert_eq!(rig.word(), "two");
    rig.restart_agent();
    let state = fired(&rig);
    assert_eq!(state["running_plan_id"], "p3");
    assert_eq!(rig.word(), "three");
    assert_eq!(reloads(&rig), 1.0, "in this life");
}

/// The set that was scheduled is refused when its time comes: nobody waits for that
/// answer, so the state carries it, and the old set is back.
#[test]
fn a_scheduled_reload_that_is_refused_is_told_by_the_state() {
    for version in [Version::V3_0, Version::V3_4] {
        let rig = rig(version, "1s");
        let config = format!("{}    frobnicate\n", rig.config("bad"));
        let bad = rig
            .raw("bad", config.as_bytes())
            .file("maps/new.map", b"k v\n");
        bad.succeed(&rig.agent, "scheduled");
        assert_eq!(rig.agent.state()["applied_plan_id"], "bad");
        let state = fired(&rig);
        let last = &state["last_apply"];
        assert_eq!(last["ok"], false, "{version}: {last:#}");
        assert_eq!(last["error"]["stage"], "scheduled_reload");
        assert!(
            last["error"]["message"]
                .as_str()
                .unwrap()
                .contains("frobnicate")
        );
        assert_eq!(last["plan_id"], "bad");
        assert_eq!(state["applied_plan_id"], "");
        assert_eq!(state["running_plan_id"], "p1");
        assert_eq!(state["generation"], 2);
        let tree = tree(&rig.base);
        assert_eq!(tree["haproxy.cfg"], rig.config("one").as_bytes());
        assert!(!tree.contains_key("maps/new.map"));
        assert_eq!(rig.word(), "one");
        assert_eq!(leftovers(&rig.base), [""; 0]);
        // HAProxy's verdict on these bytes is known now: it is not asked again.
        let (asked, hits) = (reloads(&rig), "haptic_agent_known_bad_hits_total");
        assert!(rig.agent.sample(hits) < 1.0);
        let again = rig
            .raw("bad again", config.as_bytes())
            .file("maps/new.map", b"k v\n");
        let nack = again.send(&rig.agent).json();
        assert_eq!(nack["ok"], false, "{version}: {nack:#}");
        assert_eq!(nack["plan_id"], "bad again");
        assert_eq!(nack["reload"]["performed"], false);
        assert!(
            nack["error"]["message"]
                .as_str()
                .unwrap()
                .contains("frobnicate")
        );
        assert!((rig.agent.sample(hits) - 1.0).abs() < 0.1);
        assert!((reloads(&rig) - asked).abs() < 0.1);
        assert!(rig.agent.state().get("reload_pending_at").is_none());
        // A refused reload opens a window of its own.
        rig.next("p2", "two").succeed(&rig.agent, "scheduled");
        let state = fired(&rig);
        assert_eq!(state["running_plan_id"], "p2", "{version}: {state:#}");
        assert_eq!(rig.word(), "two");
    }
}

/// FR-048: no window is no delay, and an idle agent does not spin.
#[test]
fn without_a_window_nothing_waits_and_nothing_spins() {
    let rig = Rig::applied(Version::V3_4);
    for round in 0..3 {
        let word = format!("w{round}");
        rig.next(&word, &word).succeed(&rig.agent, "reload");
    }
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", rig.agent.pid())).unwrap();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        let number = |at: usize| fields[at].parse::<u64>().unwrap();
        number(11) + number(12)
    };
    let (began, before) = (Instant::now(), ticks());
    wait::until("some time has passed", SOON, || {
        (began.elapsed() > Duration::from_secs(2)).then_some(())
    });
    // A hundredth of a second a tick; a busy loop would be two hundred.
    assert!(ticks() - before < 20, "{} ticks", ticks() - before);
}

/// The time comes while HAProxy is away: nothing was asked of anybody, so nothing is
/// decided, and the reload comes once there is somebody to ask.
#[test]
fn a_due_reload_waits_for_a_master_that_is_gone() {
    for version in [Version::V3_0, Version::V3_4] {
        let mut rig = Rig::with(version, |setup| {
            setup
                .with("--reload-interval-min", "1s")
                .with("--reload-timeout", "1s")
        });
        rig.first().succeed(&rig.agent, "reload");
        rig.next("p2", "two").succeed(&rig.agent, "scheduled");
        rig.haproxy.kill();
        wait::until("the agent has tried", SOON, || {
            (rig.agent
                .sample("haptic_agent_reloads_total{result=\"failed\"}")
                >= 1.0)
                .then_some(())
        });
        let state = rig.agent.state();
        assert!(
            state.get("reload_pending_at").is_some(),
            "{version}: {state:#}"
        );
        assert_eq!(state["applied_plan_id"], "p2", "{version}: {state:#}");
        assert!(state["degraded"]["reason"].is_string(), "{state:#}");
        rig.restart_haproxy();
        let state = rig.until_state("it has fired", |state| state["running_plan_id"] == "p2");
        assert_eq!(state["applied_plan_id"], "p2", "{version}: {state:#}");
        assert_eq!(state.get("reload_pending_at"), None, "{version}: {state:#}");
        assert_eq!(state.get("degraded"), None, "{version}: {state:#}");
        assert_eq!(state["haproxy"]["worker_pid"], rig.haproxy.worker_pid());
        assert_eq!(rig.word(), "two");
    }
}

/// Something else writes the tree while a reload waits: the reload still comes, and
/// claims nothing.
#[test]
fn a_scheduled_reload_of_a_foreign_tree_claims_no_plan() {
    let rig = rig(Version::V3_4, "2s");
    rig.next("p2", "two").succeed(&rig.agent, "scheduled");
    rig.haproxy.write_config(&rig.config("foreign"));
    let state = fired(&rig);
    assert_eq!(rig.word(), "foreign");
    for id in ["applied_plan_id", "running_plan_id", "worker_ops_plan_id"] {
        assert_eq!(state[id], "", "{id}: {state:#}");
    }
    let full = rig.next("p3", "three");
    full.succeed(&rig.agent, "scheduled");
    let state = fired(&rig);
    assert_eq!(state["running_plan_id"], "p3");
    assert_eq!(rig.word(), "three");
}

/// The first set ever comes in a window, because the one before it was refused, and is
/// refused as well: the bootstrap configuration comes back both times.
#[test]
fn a_scheduled_first_set_that_is_refused_puts_the_bootstrap_back() {
    let rig = Rig::with(Version::V3_4, |setup| {
        setup.with("--reload-interval-min", "1s")
    });
    let before = super::kit::photos(&rig.base);
    let bad = |plan: &str| {
        let config = format!("{}    frobnicate {plan}\n", rig.config("bad"));
        crate::support::agent::Apply::new(plan, 1, 1)
            .file("haproxy.cfg", config.as_bytes())
            .file("maps/new.map", b"k v\n")
            .on(&rig.agent.state())
    };
    bad("b1").fail(&rig.agent, "reload");
    assert_eq!(super::kit::photos(&rig.base), before);
    bad("b2").succeed(&rig.agent, "scheduled");
    let state = fired(&rig);
    assert_eq!(state["last_apply"]["error"]["stage"], "scheduled_reload");
    assert_eq!(super::kit::photos(&rig.base), before);
    assert_eq!(state["files"], serde_json::json!({}));
    for id in ["applied_plan_id", "running_plan_id", "lkg_plan_id"] {
        assert_eq!(state[id], "", "{id}");
    }
    assert_eq!(rig.word(), "bootstrap");
    rig.first().succeed(&rig.agent, "scheduled");
    fired(&rig);
    assert_eq!(rig.word(), "one");
}

/// HAProxy restarts inside the window: the reload that makes the baseline known again
/// keeps to the window too.
#[test]
fn the_repair_after_a_restart_is_paced() {
    let mut rig = rig(Version::V3_4, "8s");
    rig.restart_haproxy();
    let state = rig.agent.state_with("?verify=1");
    assert_eq!(state["running_plan_id"], "", "noticed by whoever looks");
    assert_eq!(state["applied_plan_id"], "p1");
    let state = rig.until_state("the repair is scheduled", |state| {
        state.get("reload_pending_at").is_some()
    });
    let due = state["reload_pending_at"].as_str().unwrap().to_owned();
    assert_eq!(reloads(&rig), 1.0);
    let state = fired(&rig);
    assert_eq!(state["running_plan_id"], "p1");
    assert!(state["last_apply"]["at"].as_str().unwrap() >= due.as_str());
    assert_eq!(reloads(&rig), 2.0);
    assert_eq!(rig.word(), "one");
}

/// Something removes the main configuration while a reload waits. A 3.2 or 3.4 master
/// would end of it: it is never asked to, and the last known good set comes back.
#[test]
fn a_missing_configuration_is_never_reloaded() {
    for version in Version::ALL {
        let mut rig = rig(version, "1s");
        rig.next("p2", "two").succeed(&rig.agent, "scheduled");
        std::fs::remove_file(rig.base.join("haproxy.cfg")).unwrap();
        let state = fired(&rig);
        let last = &state["last_apply"];
        assert_eq!(
            last["error"]["stage"], "scheduled_reload",
            "{version}: {last:#}"
        );
        assert_eq!(last["reload"]["performed"], false, "{version}: {last:#}");
        assert_eq!(rig.haproxy.exited(), None, "{version}: the master lives");
        assert_eq!(rig.word(), "one", "{version}");
        assert_eq!(state["applied_plan_id"], "", "{version}");
        let file = std::fs::read(rig.base.join("haproxy.cfg")).unwrap();
        assert_eq!(file, rig.config("one").as_bytes(), "{version}");
        let full = rig.next("p3", "three").send(&rig.agent).json();
        assert_eq!(full["ok"], true, "{version}: {full:#}");
        rig.until_state("it is loaded", |state| state["running_plan_id"] == "p3");
        assert_eq!(rig.word(), "three", "{version}");
    }
}
