//! `revert_lkg`: back at once, whatever is pending and whatever is expected.

use super::kit::{Rig, leftovers};
use crate::support::agent::{Apply, token, tree};
use crate::support::haproxy::Version;
use crate::support::wait;
use serde_json::Value;

fn revert(plan: &str, epoch: u64, seq: u64) -> Apply {
    let mut apply = Apply::new(plan, epoch, seq).mode("revert_lkg");
    apply.manifest["files"] = Value::Null;
    apply.manifest["expected_prev_plan_id"] = "whatever".into();
    apply.manifest["expected_prev_token"] = token(77, 77);
    apply
}

fn map(rig: &Rig, plan: &str, bytes: &[u8]) -> Apply {
    Apply::new(plan, 1, 2)
        .held("haproxy.cfg", rig.config("one").as_bytes())
        .file("maps/host.map", bytes)
        .file("maps/extra.map", bytes)
        .on(&rig.agent.state())
        .mode("auto")
}

#[test]
fn a_revert_goes_back_and_is_fenced_on_the_epoch_alone() {
    for version in [Version::V3_0, Version::V3_4] {
        let rig = Rig::applied(version);
        map(&rig, "p2", b"b b\n").succeed(&rig.agent, "file_only");
        map(&rig, "p3", b"c c\n").succeed(&rig.agent, "file_only");
        let worker = rig.haproxy.worker_pid();
        let answer = revert("r", 1, 50).succeed(&rig.agent, "reload");
        assert_eq!(answer["plan_id"], "r");
        assert_eq!(answer["applied_plan_id"], "p1", "{version}");
        assert_eq!(answer["applied_token"], token(1, 50), "{version}");
        let rollback = serde_json::json!({"performed": true, "reloaded": true});
        assert_eq!(answer["rollback"], rollback);
        assert_eq!(answer["reload"]["performed"], true);
        assert_ne!(rig.haproxy.worker_pid(), worker);
        let tree = tree(&rig.base);
        assert_eq!(tree["maps/host.map"], b"a.example be_a\n");
        assert!(!tree.contains_key("maps/extra.map"));
        assert_eq!(leftovers(&rig.base), [""; 0]);
        let state = rig.agent.state();
        assert_eq!(state["running_plan_id"], "p1");
        assert_eq!(state["generation"], 4);
        // The controller builds on what it says.
        map(&rig, "p4", b"d d\n").succeed(&rig.agent, "file_only");
    }
}

#[test]
fn a_revert_without_a_last_known_good_set_is_refused() {
    let rig = Rig::new(Version::V3_4);
    let before = rig.snapshot();
    let nack = revert("r", 1, 1).fail(&rig.agent, "revert");
    assert_eq!(nack["lkg_plan_id"], "");
    let after = rig.snapshot();
    assert_eq!(after.files, before.files);
    assert_eq!(after.worker, before.worker);
}

/// A pending reload is consumed: the revert reloads inside the window, and nothing
/// fires when the window ends.
#[test]
fn a_revert_is_not_paced_and_consumes_the_pending_reload() {
    let rig = Rig::with(Version::V3_4, |setup| {
        setup.with("--reload-interval-min", "2s")
    });
    rig.first().succeed(&rig.agent, "reload");
    let scheduled = rig.next("p2", "two").succeed(&rig.agent, "scheduled");
    let due = scheduled["reload"]["scheduled_at"]
        .as_str()
        .unwrap()
        .to_owned();
    let answer = revert("r", 1, 9).succeed(&rig.agent, "reload");
    assert_eq!(answer["applied_plan_id"], "p1");
    assert!(
        answer["at"].as_str().unwrap() < due.as_str(),
        "{answer:#} {due}"
    );
    let state = rig.agent.state();
    assert_eq!(state.get("reload_pending_at"), None);
    assert_eq!(rig.word(), "one");
    let reloads = || {
        rig.agent
            .sample("haptic_agent_reloads_total{result=\"ok\"}")
    };
    assert_eq!(reloads(), 2.0);
    // The next reload is scheduled after the revert's; once it has fired, the old due time
    // is long past, and this is the only one more.
    rig.next("p3", "three").succeed(&rig.agent, "scheduled");
    rig.until_state("the next one fired", |state| {
        state["running_plan_id"] == "p3"
    });
    assert_eq!(reloads(), 3.0);
}

/// The restored set does not load any more: the answer says which step failed.
#[test]
fn a_revert_whose_reload_fails_says_so() {
    let rig = Rig::applied(Version::V3_4);
    // The last known good set names a file that the agent does not own.
    let list = rig.base.join("general-list");
    std::fs::write(&list, "k v\n").unwrap();
    let config = format!(
        "{}    http-request set-header x %[path,map(general-list,-)]\n",
        rig.config("two")
    );
    rig.raw("p2", config.as_bytes())
        .succeed(&rig.agent, "reload");
    std::fs::remove_file(&list).unwrap();
    let nack = revert("r", 1, 9).fail(&rig.agent, "revert_reload");
    assert_eq!(nack["rollback"]["performed"], true);
    assert_eq!(nack["rollback"]["reloaded"], false);
    assert_eq!(nack["running_plan_id"], "p2", "the old worker runs on");
    assert_eq!(rig.word(), "two");
    // Not remembered: once the file is back, so is the set.
    std::fs::write(&list, "k v\n").unwrap();
    revert("r", 1, 10).succeed(&rig.agent, "reload");
    wait::until("p2 is applied", super::kit::SOON, || {
        (rig.agent.state()["applied_plan_id"] == "p2").then_some(())
    });
}

/// The first entry of a path wins: changed, removed, brought back and changed again, in
/// several lives of the agent, it is the last known good file that comes back, with its
/// owner and mode.
#[test]
fn many_changes_since_the_last_known_good_set_are_one_way_back() {
    let mut rig = Rig::new(Version::V3_4);
    rig.first()
        .file("general/keep", b"old")
        .file("maps/two.map", b"2 2\n")
        .succeed(&rig.agent, "reload");
    let two = rig.base.join("maps/two.map");
    std::os::unix::fs::chown(&two, Some(65534), Some(65534)).unwrap();
    // The owner is not content, so this is no foreign write; a set that carries on.
    let before = super::kit::photos(&rig.base);
    let config = rig.config("one");
    let steps: [&[(&str, &str)]; 5] = [
        &[
            ("maps/host.map", "b b\n"),
            ("general/keep", "old"),
            ("maps/two.map", "3 3\n"),
        ],
        &[("general/keep", "new"), ("maps/three.map", "new\n")],
        &[
            ("maps/host.map", "c c\n"),
            ("maps/two.map", "4 4\n"),
            ("maps/three.map", "newer\n"),
        ],
        &[],
        &[("maps/host.map", "d d\n"), ("general/deep/new", "x")],
    ];
    for (round, files) in steps.iter().enumerate() {
        let mut apply = Apply::new(&format!("s{round}"), 1, 9)
            .held("haproxy.cfg", config.as_bytes())
            .on(&rig.agent.state())
            .mode("auto");
        for (path, text) in *files {
            apply = apply.file(path, text.as_bytes());
        }
        apply.succeed(&rig.agent, "file_only");
        rig.agent.kill();
        rig.restart_agent();
        assert_eq!(rig.agent.state()["applied_plan_id"], format!("s{round}"));
        assert_eq!(rig.agent.state()["lkg_plan_id"], "p1");
    }
    revert("r", 1, 10).succeed(&rig.agent, "reload");
    assert_eq!(super::kit::photos(&rig.base), before);
    assert!(!rig.base.join("general/deep").exists());
    assert_eq!(leftovers(&rig.base), [""; 0]);
}

/// The copies that applies took are as good as ever, whatever somebody writes over the
/// file that came after.
#[test]
fn a_hand_edit_of_what_applies_have_changed_is_put_back() {
    let rig = Rig::applied(Version::V3_2);
    map(&rig, "p2", b"b b\n").succeed(&rig.agent, "file_only");
    std::fs::write(rig.base.join("maps/host.map"), "by hand\n").unwrap();
    let answer = revert("r", 1, 9).succeed(&rig.agent, "reload");
    assert_eq!(answer["applied_plan_id"], "p1");
    assert_eq!(tree(&rig.base)["maps/host.map"], b"a.example be_a\n");
}

/// Of what no apply has changed there is no copy: a hand edit of it is left as it is, and
/// no reload makes it the last known good set.
#[test]
fn a_hand_edit_of_anything_else_is_in_a_reverts_way() {
    let rig = Rig::applied(Version::V3_2);
    map(&rig, "p2", b"b b\n").succeed(&rig.agent, "file_only");
    let edited = format!("{}# by hand\n", rig.config("one"));
    std::fs::write(rig.base.join("haproxy.cfg"), &edited).unwrap();
    let worker = rig.haproxy.worker_pid();
    let nack = revert("r", 1, 9).fail(&rig.agent, "revert");
    let message = nack["error"]["message"].as_str().unwrap();
    assert!(message.contains("full set with mode reload"), "{message}");
    let rollback = serde_json::json!({"performed": true, "reloaded": false});
    assert_eq!(nack["rollback"], rollback);
    let held = tree(&rig.base);
    assert_eq!(held["maps/host.map"], b"a.example be_a\n", "undone on disk");
    assert_eq!(held["haproxy.cfg"], edited.as_bytes());
    assert_eq!(rig.haproxy.worker_pid(), worker);
    rig.next("p3", "three").succeed(&rig.agent, "reload");
    assert_eq!(rig.word(), "three");
}

/// `auto` without ops is believed. What HAProxy would have refused is found by the reload
/// that comes next, which takes all back that has changed since the last one.
#[test]
fn a_broken_set_that_needed_no_command_is_found_at_the_next_reload() {
    let rig = Rig::applied(Version::V3_4);
    let before = tree(&rig.base);
    let broken = format!("{}nonsense here\n", rig.config("two"));
    rig.raw("p2", broken.as_bytes())
        .mode("auto")
        .succeed(&rig.agent, "file_only");
    let next = |plan: &str, mode: &str| {
        Apply::new(plan, 1, 3)
            .held("haproxy.cfg", broken.as_bytes())
            .file("maps/host.map", b"b b\n")
            .on(&rig.agent.state())
            .mode(mode)
    };
    next("p3", "auto").succeed(&rig.agent, "file_only");
    let state = rig.agent.state();
    assert_eq!(state["worker_ops_plan_id"], "p3");
    assert_eq!(rig.word(), "one", "the worker has not been told");
    next("p4", "reload").fail(&rig.agent, "reload");
    assert_eq!(tree(&rig.base), before);
}
