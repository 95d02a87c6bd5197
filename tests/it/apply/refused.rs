//! Sets that HAProxy, or the look before it, refuses: a clear answer, the old set back to
//! the last byte, and the old worker serving all the while.

use super::kit::{Rig, SOON, leftovers, photos};
use crate::support::agent::{Apply, tree};
use crate::support::haproxy::Version;
use crate::support::traffic::Load;
use crate::support::wait;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

/// After a refusal: the old set, the old worker, and a state that says so.
fn refused(rig: &Rig, before: &super::kit::Snapshot, what: &str) {
    let after = rig.snapshot();
    assert_eq!(after.worker, before.worker, "{what}");
    assert_eq!(after.files.len(), before.files.len(), "{what}");
    for (path, old) in &before.files {
        // Backups are links, so even the inode is the old one.
        assert_eq!(&after.files[path], old, "{what}: {path}");
    }
    assert_eq!(after.leftovers, before.leftovers, "{what}");
    let state = &after.state;
    assert_eq!(state["applied_plan_id"], "", "{what}: {state:#}");
    assert_eq!(state["running_plan_id"], "p1", "{what}: {state:#}");
    assert_eq!(state["lkg_plan_id"], "p1", "{what}: {state:#}");
    assert_eq!(state["files"], before.state["files"], "{what}");
    assert_eq!(state["generation"], before.state["generation"], "{what}");
    assert_eq!(rig.word(), "one", "{what}");
}

#[test]
fn a_refused_configuration_changes_nothing_in_the_end() {
    for version in Version::ALL {
        let rig = Rig::new(version);
        // Odd attributes are part of what has to come back.
        let config = rig.base.join("haproxy.cfg");
        fs::set_permissions(&config, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::chown(&config, Some(65534), Some(65534)).unwrap();
        rig.first().succeed(&rig.agent, "reload");
        let before = rig.snapshot();
        let load = Load::start(rig.port(), "any", "/");
        let good = rig.config("two");
        let cases: Vec<(&str, Vec<u8>)> = vec![
            ("unknown keyword", format!("{good}    frobnicate\n").into()),
            (
                "maps/none.map",
                format!("{good}    http-request set-header x %[path,map(maps/none.map)]\n").into(),
            ),
            (
                "",
                format!("{good}backend b\n    server s no.such.host.invalid:80\n").into(),
            ),
            ("empty", Vec::new()),
            ("", good.trim_end().into()),
            ("", [good.as_bytes(), b"# a \0 in a comment\n"].concat()),
        ];
        for (words, bytes) in cases {
            let what = format!(
                "{version}: {words:?} {:?}",
                String::from_utf8_lossy(&bytes).len()
            );
            let apply = rig
                .raw("bad", &bytes)
                .file("maps/new.map", b"k v\n")
                .file("general/dir/new", b"x");
            let nack = apply.fail(&rig.agent, "reload");
            let message = nack["error"]["message"].as_str().unwrap();
            assert!(message.contains(words), "{what}: {message}");
            assert!(!message.is_empty(), "{what}");
            assert_eq!(nack["rollback"]["performed"], true, "{what}: {nack:#}");
            assert_eq!(nack["rollback"]["reloaded"], false, "{what}: {nack:#}");
            refused(&rig, &before, &what);
            assert!(!rig.base.join("general").exists(), "{what}");
        }
        let seen = load.stop();
        assert_eq!(seen.failed, 0, "{version}: {seen:?}");
        assert!(seen.good > 0);
        rig.next("p2", "two").succeed(&rig.agent, "reload");
        assert_eq!(rig.word(), "two");
        assert_eq!(rig.agent.state().get("degraded"), None);
    }
}

/// An address that is taken, without a load: while the new process tries to bind it,
/// HAProxy itself has the old one stop listening, with or without an agent.
#[test]
fn an_address_that_cannot_be_bound_changes_nothing_in_the_end() {
    for version in [Version::V3_0, Version::V3_4] {
        let rig = Rig::applied(version);
        let before = rig.snapshot();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let config = format!("{}    bind 127.0.0.1:{port}\n", rig.config("two"));
        let nack = rig.raw("bad", config.as_bytes()).fail(&rig.agent, "reload");
        let message = nack["error"]["message"].as_str().unwrap();
        assert!(message.contains("bind"), "{message}");
        refused(&rig, &before, &format!("{version}"));
    }
}

/// 3.2 and 3.4 lose the worker that serves when a second reload in a row is refused and
/// this one failed at its addresses. What is put back is loaded at once then.
#[test]
fn a_worker_that_a_second_refusal_ends_is_back_at_once() {
    for version in Version::ALL {
        let rig = Rig::applied(version);
        let good = tree(&rig.base);
        let unknown = format!("{}    frobnicate\n", rig.config("bad"));
        let nowhere = format!("{}    bind unix@/nowhere/x.sock\n", rig.config("bad"));
        for round in 0..2 {
            // Other bytes each time, or the answer comes from memory.
            let first = rig.raw("bad", format!("{unknown}# {round}\n").as_bytes());
            first.fail(&rig.agent, "reload");
            let second = rig.raw("worse", format!("{nowhere}# {round}\n").as_bytes());
            let nack = second.fail(&rig.agent, "reload");
            let lost = version != Version::V3_0;
            assert_eq!(nack["rollback"]["reloaded"], lost, "{version}: {nack:#}");
            assert_eq!(rig.word(), "one", "{version}");
            let state = rig.agent.state();
            assert_eq!(state["running_plan_id"], "p1", "{version}: {state:#}");
            assert_eq!(state["worker"]["answers"], true, "{version}: {state:#}");
            assert_eq!(tree(&rig.base), good, "{version}");
        }
    }
}

/// FR-043, FR-058: bad, good, bad, good in a row; after each, disk holds what a worker
/// really loaded.
#[test]
fn bad_and_good_in_turn() {
    for version in Version::ALL {
        let rig = Rig::applied(version);
        let mut good = "one".to_owned();
        for round in 0..4 {
            let config = format!("{}    frobnicate {round}\n", rig.config("bad"));
            let bad = rig.raw("bad", config.as_bytes());
            bad.fail(&rig.agent, "reload");
            assert_eq!(rig.word(), good, "{version} {round}");
            assert_eq!(tree(&rig.base)["haproxy.cfg"], rig.config(&good).as_bytes());
            let state = rig.agent.state();
            assert!(
                state["degraded"]["reason"]
                    .as_str()
                    .unwrap()
                    .contains("frobnicate")
            );
            good = format!("word{round}");
            let answer = rig
                .next(&format!("g{round}"), &good)
                .succeed(&rig.agent, "reload");
            assert_eq!(answer["reload"]["worker_pid"], rig.haproxy.worker_pid());
            assert_eq!(rig.word(), good, "{version} {round}");
            let state = rig.agent.state();
            assert_eq!(state["generation"], round + 2);
            assert_eq!(state.get("degraded"), None, "FR-077: a reload worked");
            assert_eq!(leftovers(&rig.base), [""; 0], "{version} {round}");
        }
    }
}

/// Somebody has edited a file by hand, and the set that comes next is refused: what stood
/// there goes back, and nobody says that it is the last known good set.
#[test]
fn a_hand_edit_that_goes_back_is_not_called_the_last_known_good_set() {
    for version in [Version::V3_0, Version::V3_4] {
        let rig = Rig::applied(version);
        let edited = format!("{}    frobnicate by hand\n", rig.config("one"));
        fs::write(rig.base.join("haproxy.cfg"), &edited).unwrap();
        let config = format!("{}    frobnicate\n", rig.config("bad"));
        let verified = rig.agent.state_with("?verify=1");
        assert_eq!(verified["applied_plan_id"], "");
        assert_eq!(verified["lkg_plan_id"], "p1");
        let nack = rig.raw("bad", config.as_bytes()).fail(&rig.agent, "reload");
        assert_eq!(nack["rollback"]["performed"], true, "{nack:#}");
        assert_eq!(nack["lkg_plan_id"], "", "{nack:#}");
        assert_eq!(tree(&rig.base)["haproxy.cfg"], edited.as_bytes());
        let state = rig.agent.state();
        assert_eq!(state["lkg_plan_id"], "", "{state:#}");
        let revert = Apply::new("back", 1, 9).on(&state).mode("revert_lkg");
        let nack = revert.fail(&rig.agent, "revert");
        let message = nack["error"]["message"].as_str().unwrap();
        assert!(message.contains("send a full set"), "{message}");
        rig.next("p2", "two").succeed(&rig.agent, "reload");
        assert_eq!(rig.agent.state()["lkg_plan_id"], "p2");
    }
}

/// Before there is any last known good set, what stood there is what comes back.
#[test]
fn a_refused_first_apply_puts_the_bootstrap_back() {
    for version in [Version::V3_0, Version::V3_4] {
        let rig = Rig::new(version);
        fs::create_dir(rig.base.join("maps")).unwrap();
        fs::write(rig.base.join("maps/there.map"), "of the image\n").unwrap();
        let before = photos(&rig.base);
        let config = format!("{}    frobnicate\n", rig.config("bad"));
        let first = Apply::new("p1", 1, 1)
            .file("haproxy.cfg", config.as_bytes())
            .file("maps/there.map", b"of the controller\n")
            .file("maps/new.map", b"k v\n")
            .on(&rig.agent.state());
        first.fail(&rig.agent, "reload");
        assert_eq!(photos(&rig.base), before, "{version}");
        let state = rig.agent.state();
        for id in ["applied_plan_id", "running_plan_id", "lkg_plan_id"] {
            assert_eq!(state[id], "", "{version} {id}");
        }
        assert_eq!(state["files"], serde_json::json!({}), "{version}");
        assert_eq!(rig.word(), "bootstrap");
        assert_eq!(leftovers(&rig.base), [""; 0], "{version}");
        rig.first().succeed(&rig.agent, "reload");
        // The file that was not in the set is not the agent's.
        assert_eq!(tree(&rig.base)["maps/there.map"], b"of the image\n");
    }
}

/// A set that takes the worker's stats socket away loads, and nobody can tell which
/// worker runs it: no verdict, so the files stay, the baseline is unknown, and the next
/// good set ends it.
#[test]
fn a_set_without_a_stats_socket_is_unconfirmed_and_not_the_end() {
    for version in [Version::V3_0, Version::V3_4] {
        let rig = Rig::with(version, |setup| setup.with("--reload-timeout", "8s"));
        rig.first().succeed(&rig.agent, "reload");
        let deaf: String = rig
            .config("deaf")
            .lines()
            .filter(|line| !line.contains("stats socket"))
            .map(|line| format!("{line}\n"))
            .collect();
        let nack = rig.raw("deaf", deaf.as_bytes()).fail(&rig.agent, "reload");
        assert_eq!(nack["running_plan_id"], "", "{version}: {nack:#}");
        assert_eq!(nack["lkg_plan_id"], "p1", "{version}: {nack:#}");
        assert_eq!(nack.get("rollback"), None, "{version}: the files stay");
        assert_eq!(tree(&rig.base)["haproxy.cfg"], deaf.as_bytes());
        let state = rig.agent.state();
        assert_eq!(state["applied_plan_id"], "");
        assert_eq!(state["running_plan_id"], "");
        assert!(state.get("degraded").is_some());
        rig.next("p2", "two").succeed(&rig.agent, "reload");
        assert_eq!(rig.word(), "two");
        let state = rig.agent.state();
        assert_eq!(state["running_plan_id"], "p2");
        assert_eq!(state.get("degraded"), None);
        assert_eq!(leftovers(&rig.base), [""; 0]);
    }
}

/// A plan that the controller validated is what a later failure goes back to; one that
/// it did not validate is not.
#[test]
fn a_validated_plan_becomes_the_last_known_good_one() {
    for validated in [true, false] {
        let rig = Rig::applied(Version::V3_4);
        let two = Apply::new("p2", 1, 2)
            .held("haproxy.cfg", rig.config("one").as_bytes())
            .file("maps/host.map", b"b.example be_b\n")
            .on(&rig.agent.state())
            .mode("auto");
        two.succeed(&rig.agent, "file_only");
        assert_eq!(rig.agent.state()["lkg_plan_id"], "p1");
        assert_eq!(leftovers(&rig.base).len(), 1, "one backup");
        let config = format!("{}    frobnicate\n", rig.config("bad"));
        let bad = Apply::new("p3", 1, 3)
            .file("haproxy.cfg", config.as_bytes())
            .file("maps/host.map", b"c.example be_c\n")
            .on(&rig.agent.state())
            .edit(|m| {
                if validated {
                    m["validated_plan_id"] = "p2".into();
                }
            });
        let nack = bad.fail(&rig.agent, "reload");
        let (lkg, map) = if validated {
            ("p2", &b"b.example be_b\n"[..])
        } else {
            ("p1", &b"a.example be_a\n"[..])
        };
        assert_eq!(nack["lkg_plan_id"], lkg);
        assert_eq!(tree(&rig.base)["maps/host.map"], map);
        assert_eq!(leftovers(&rig.base), [""; 0]);
    }
}

/// A plan id that is not the applied one validates nothing.
#[test]
fn another_validated_plan_promotes_nothing() {
    let rig = Rig::applied(Version::V3_4);
    let change = |plan: &str, map: &[u8], validated: &str| {
        Apply::new(plan, 1, 2)
            .held("haproxy.cfg", rig.config("one").as_bytes())
            .file("maps/host.map", map)
            .on(&rig.agent.state())
            .mode("auto")
            .edit(|m| m["validated_plan_id"] = validated.into())
            .succeed(&rig.agent, "file_only")
    };
    change("p2", b"b b\n", "p0");
    let answer = change("p3", b"c c\n", "p3");
    assert_eq!(answer["lkg_plan_id"], "p1");
    let answer = change("p4", b"d d\n", "p3");
    assert_eq!(answer["lkg_plan_id"], "p3");
    // A noop promotes too: the controller has nothing else to send.
    let noop = Apply::new("p4", 1, 3)
        .held("haproxy.cfg", rig.config("one").as_bytes())
        .held("maps/host.map", b"d d\n")
        .on(&rig.agent.state())
        .mode("auto")
        .edit(|m| m["validated_plan_id"] = "p4".into());
    let answer = noop.succeed(&rig.agent, "noop");
    assert_eq!(answer["lkg_plan_id"], "p4");
    assert_eq!(leftovers(&rig.base), [""; 0]);
}

/// FR-060: HAProxy is gone in the middle. A bounded wait, an answer, the old set.
#[test]
fn a_master_that_is_gone_is_a_bounded_wait() {
    let mut rig = Rig::with(Version::V3_4, |setup| setup.with("--reload-timeout", "2s"));
    rig.first().succeed(&rig.agent, "reload");
    rig.haproxy.kill();
    let nack = rig.next("p2", "two").fail(&rig.agent, "reload");
    assert!(
        nack["timing"]["total_ms"].as_u64().unwrap() < 15_000,
        "{nack:#}"
    );
    assert_eq!(nack.get("rollback"), None, "{nack:#}");
    rig.restart_haproxy();
    assert_eq!(
        rig.word(),
        "two",
        "the set stays, and HAProxy starts with it"
    );
    wait::until("the agent has seen the new worker", SOON, || {
        let state = rig.agent.state_with("?verify=1&plan=0");
        (state["haproxy"]["worker_pid"] == rig.haproxy.worker_pid()).then_some(())
    });
    rig.next("p2", "two").succeed(&rig.agent, "reload");
    assert_eq!(rig.word(), "two");
}
