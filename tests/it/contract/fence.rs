//! The fence and the known-bad cache: who may build on what, and what is remembered.

use super::kit::{Held, assert_json, conflict, form, multipart, unchanged};
use crate::apply::kit::Rig;
use crate::support::agent::{Apply, Reply, exchange, token};
use crate::support::haproxy::Version;
use serde_json::{Value, json};

fn is_conflict(reply: &Reply, state: &Value, reason: &str) {
    assert_eq!(reply.status, 409, "{}", reply.text());
    assert_json(reply);
    let mut told = reply.json();
    let highest = told.as_object_mut().unwrap().remove("highest_epoch");
    let applied = state["applied_token"]["leader_epoch"].as_u64();
    assert!(highest.unwrap().as_u64() >= applied, "{}", reply.text());
    assert_eq!(told, conflict(state, reason));
}

/// Every reason, and which one wins when several hold.
#[test]
fn every_reason_has_its_conflict() {
    let rig = Rig::new(Version::V3_4);
    // Nothing is applied, and the controller believes that something is.
    let before = rig.snapshot();
    let known = rig
        .first()
        .edit(|m| m["expected_prev_plan_id"] = "p0".into());
    is_conflict(&known.send(&rig.agent), &before.state, "unknown_baseline");
    let other = rig.first().edit(|m| m["expected_prev_token"] = token(3, 3));
    is_conflict(&other.send(&rig.agent), &before.state, "prev_mismatch");
    unchanged(&rig, &before, "without a baseline");

    let first = rig.first().edit(|m| m["token"] = token(5, 7));
    first.succeed(&rig.agent, "reload");
    let before = rig.snapshot();
    type Edit = Box<dyn Fn(&mut Value)>;
    let table: Vec<(&str, Edit)> = vec![
        ("stale_epoch", Box::new(|m| m["token"] = token(4, 99))),
        ("stale_epoch", Box::new(|m| m["token"] = token(0, 99))),
        (
            "stale_epoch",
            Box::new(|m| {
                m["token"] = token(4, 99);
                m["expected_prev_plan_id"] = "other".into();
            }),
        ),
        (
            "stale_epoch",
            Box::new(|m| {
                m["token"] = token(4, 99);
                m["mode"] = "revert_lkg".into();
                m["files"] = Value::Null;
            }),
        ),
        (
            "prev_mismatch",
            Box::new(|m| m["expected_prev_plan_id"] = "p0".into()),
        ),
        (
            "prev_mismatch",
            Box::new(|m| m["expected_prev_plan_id"] = "".into()),
        ),
        (
            "prev_mismatch",
            Box::new(|m| m["expected_prev_plan_id"] = "P1".into()),
        ),
        (
            "prev_mismatch",
            Box::new(|m| m["expected_prev_token"] = token(5, 6)),
        ),
        (
            "prev_mismatch",
            Box::new(|m| m["expected_prev_token"] = token(4, 7)),
        ),
    ];
    for (reason, edit) in table {
        let apply = rig
            .next("p2", "two")
            .edit(|m| m["token"] = token(5, 8))
            .edit(&edit);
        is_conflict(&apply.send(&rig.agent), &before.state, reason);
        // The answer does not wait for the parts, and is the same if they are nonsense.
        let mut broken = apply.clone();
        broken.parts = vec![("not/declared".into(), None, b"x".to_vec())];
        is_conflict(&broken.send(&rig.agent), &before.state, reason);
        unchanged(&rig, &before, reason);
    }
    // A sequence number that does not grow, and an epoch that does, pass.
    let apply = rig.next("p2", "two").edit(|m| m["token"] = token(5, 1));
    apply.succeed(&rig.agent, "reload");
    let apply = rig.next("p3", "three").edit(|m| m["token"] = token(6, 0));
    apply.succeed(&rig.agent, "reload");
    let state = rig.agent.state();
    let late = rig.next("p4", "four").edit(|m| m["token"] = token(5, 99));
    is_conflict(&late.send(&rig.agent), &state, "stale_epoch");
}

/// The highest epoch counts, also of applies that failed, and also after a restart.
#[test]
fn an_epoch_that_was_accepted_keeps_older_ones_out() {
    let mut rig = Rig::applied(Version::V3_4);
    let bad = rig
        .raw("bad", b"nonsense\n")
        .edit(|m| m["token"] = token(9, 1));
    bad.fail(&rig.agent, "reload");
    let older = rig.next("p2", "two").edit(|m| m["token"] = token(8, 1));
    assert_eq!(older.send(&rig.agent).json()["reason"], "stale_epoch");
    rig.agent.kill();
    rig.restart_agent();
    assert_eq!(older.send(&rig.agent).json()["reason"], "stale_epoch");
    let newer = rig.next("p2", "two").edit(|m| m["token"] = token(9, 2));
    newer.succeed(&rig.agent, "reload");
}

/// A plan id and a token may repeat: more ops than one apply holds are sent as several.
#[test]
fn one_plan_in_several_applies_is_fenced_on_each_answer() {
    let rig = Rig::applied(Version::V3_4);
    let mut generation = rig.agent.state()["generation"].as_u64().unwrap();
    for _ in 0..3 {
        let state = rig.agent.state();
        let again = Apply::new("p1", 1, 1)
            .held("haproxy.cfg", rig.config("one").as_bytes())
            .held("maps/host.map", b"a.example be_a\n")
            .on(&state)
            .mode("auto");
        again.succeed(&rig.agent, "noop");
        generation += 1;
        assert_eq!(rig.agent.state()["generation"], generation);
    }
}

/// The fence is asked again under the apply lock: whoever was admitted first and comes
/// in second is refused, whatever was sent in between.
#[test]
fn a_slow_upload_that_was_overtaken_is_refused() {
    let rig = Rig::applied(Version::V3_4);
    let slow = rig
        .next("slow", "slow")
        .file("maps/slow.map", &[b'x'; 50_000]);
    let held = Held::open_but(&rig.agent, &slow, 2000);
    crate::support::wait::until("the slow one is staging", crate::apply::kit::SOON, || {
        crate::apply::kit::leftovers(&rig.base)
            .iter()
            .any(|path| path.contains(".haptic-tmp/"))
            .then_some(())
    });
    rig.next("p2", "two").succeed(&rig.agent, "reload");
    let mut before = rig.snapshot();
    before
        .leftovers
        .retain(|path| !path.contains(".haptic-tmp/"));
    is_conflict(&held.finish(), &before.state, "prev_mismatch");
    unchanged(&rig, &before, "overtaken");
    assert_eq!(rig.word(), "two");
}

fn reloads(rig: &Rig) -> f64 {
    ["ok", "refused", "failed", "unconfirmed"]
        .iter()
        .map(|result| {
            rig.agent.sample(&format!(
                "haptic_agent_reloads_total{{result=\"{result}\"}}"
            ))
        })
        .sum()
}

/// HAProxy's verdict on those very bytes is repeated for a minute: before the parts,
/// without a reload, under whatever plan id and baseline it comes again.
#[test]
fn a_refused_set_is_known_before_its_parts() {
    for version in [Version::V3_0, Version::V3_4] {
        let rig = Rig::applied(version);
        let config = format!("{}    frobnicate now\n", rig.config("bad"));
        let bad = rig.raw("bad", config.as_bytes());
        let first = bad.fail(&rig.agent, "reload");
        assert_eq!(first["rollback"]["performed"], true, "{first:#}");
        let told = reloads(&rig);
        let before = rig.snapshot();

        let mut again = rig.raw("bad again", config.as_bytes());
        again.manifest["files"].as_array_mut().unwrap().reverse();
        // What would have come does not matter any more.
        again.parts = vec![("not/declared".into(), None, b"x".to_vec())];
        let nack = again.fail(&rig.agent, "reload");
        assert_eq!(nack["plan_id"], "bad again");
        assert_eq!(nack["error"]["stage"], first["error"]["stage"]);
        let (words, told_first) = (&nack["error"]["message"], &first["error"]["message"]);
        let (words, told_first) = (words.as_str().unwrap(), told_first.as_str().unwrap());
        assert!(words.starts_with(told_first), "{words}");
        let added = &words[told_first.len()..];
        assert!(added.contains("not asked again"), "{words}");
        assert!(added.contains("change any byte"), "{words}");
        assert_eq!(nack["running_plan_id"], before.state["running_plan_id"]);
        assert_eq!(nack["lkg_plan_id"], "p1");
        assert!(nack["at"].as_str() > first["at"].as_str(), "{nack:#}");
        assert_eq!(nack.get("rollback"), None, "nothing was rolled back now");
        assert_eq!(nack["reload"]["performed"], false, "{nack:#}");
        assert_eq!(reloads(&rig), told, "{version}");
        unchanged(&rig, &before, "known bad");
        assert_eq!(rig.agent.sample("haptic_agent_known_bad_hits_total"), 1.0);

        // One byte more is another set.
        let other = format!("{config}# another\n");
        rig.raw("other", other.as_bytes())
            .fail(&rig.agent, "reload");
        assert_eq!(reloads(&rig), told + 1.0, "{version}");
        // The fence comes before the cache.
        let stale = rig.raw("bad", config.as_bytes()).edit(|m| {
            m["expected_prev_plan_id"] = "nowhere".into();
        });
        assert_eq!(stale.send(&rig.agent).status, 409);
        // After a good apply the ids of the answer are those of now.
        rig.next("p2", "two").succeed(&rig.agent, "reload");
        let reply = rig.raw("bad", config.as_bytes()).send(&rig.agent);
        let nack = reply.json();
        assert_eq!(nack["ok"], false);
        assert_eq!(nack["running_plan_id"], "p2", "{nack:#}");
        assert_eq!(nack["lkg_plan_id"], "p2", "{nack:#}");
        assert_eq!(rig.agent.state()["applied_plan_id"], "p2");
        assert_eq!(rig.word(), "two");
    }
}

/// What says nothing about the bytes is not remembered: a port that is taken.
#[test]
fn an_address_in_use_is_no_verdict_on_the_files() {
    let rig = Rig::applied(Version::V3_4);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let config = format!("{}    bind 127.0.0.1:{port}\n", rig.config("two"));
    let nack = rig.raw("p2", config.as_bytes()).fail(&rig.agent, "reload");
    assert!(
        nack["error"]["message"].as_str().unwrap().contains("bind"),
        "{nack:#}"
    );
    assert_eq!(rig.word(), "one");
    drop(taken);
    // FR-049: once the port is free the same set loads.
    rig.raw("p2", config.as_bytes())
        .succeed(&rig.agent, "reload");
    assert_eq!(rig.word(), "two");
}

/// What a set names and does not hold can come back: the same set is judged again, at once.
#[test]
fn a_file_beside_the_set_that_was_missing_is_no_verdict_on_the_files() {
    for version in [Version::V3_0, Version::V3_4] {
        let rig = Rig::applied(version);
        let beside = rig.base.join("beside.http");
        let config = format!(
            "{}    errorfile 503 {}\n",
            rig.config("two"),
            beside.display()
        );
        let nack = rig.raw("p2", config.as_bytes()).fail(&rig.agent, "reload");
        let words = nack["error"]["message"].as_str().unwrap();
        assert!(words.contains("beside.http"), "{version}: {words}");
        assert_eq!(rig.word(), "one", "{version}");
        std::fs::write(&beside, "HTTP/1.0 503 No\r\n\r\nno\n").unwrap();
        rig.raw("p2", config.as_bytes())
            .succeed(&rig.agent, "reload");
        assert_eq!(rig.word(), "two", "{version}");
    }
}

/// A refused body that is still coming does not cost the client the answer.
#[test]
fn an_early_conflict_reaches_a_client_that_streams_on() {
    let rig = Rig::applied(Version::V3_4);
    let big = vec![b'x'; 20 * 1024 * 1024];
    for round in 0..10 {
        let stale = rig
            .next("p2", "two")
            .file("general/big.bin", &big)
            .edit(|m| m["expected_prev_plan_id"] = "nowhere".into());
        let reply = stale.send(&rig.agent);
        assert_eq!(reply.status, 409, "round {round}");
        assert_eq!(reply.json()["reason"], "prev_mismatch");
    }
}

/// An apply without a single part is whole as well.
#[test]
fn a_manifest_alone_is_a_whole_request() {
    let rig = Rig::applied(Version::V3_4);
    let apply = rig.next("p2", "one").mode("auto");
    let head = "Content-Disposition: form-data; name=\"manifest\"";
    let body = multipart("b", &[(head, apply.manifest.to_string().as_bytes())]);
    let reply = exchange(
        rig.agent.api(),
        &form("multipart/form-data; boundary=b", &body),
    );
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["mode"], "noop");
}

/// In-place ops are fenced when they would run: while a reload waits, and when the one
/// that is asked for has to.
#[test]
fn in_place_ops_are_fenced_while_a_reload_waits() {
    let rig = Rig::with(Version::V3_4, |setup| {
        setup.with("--reload-interval-min", "60s")
    });
    rig.first().succeed(&rig.agent, "reload");
    let with_ops = |mode: &str, expected: &str| {
        rig.next("p3", "two").mode(mode).edit(|m| {
            m["in_place_ops"] =
                json!([{"kind": "map_set", "path": "maps/host.map", "key": "a", "value": "b"}]);
            m["worker_ops_plan_id"] = "p3".into();
            m["expected_worker_ops_plan_id"] = expected.into();
        })
    };
    // Nothing is pending yet; this reload would be, so what it would leave to do in place
    // is fenced, and in mode `auto`, which does not reload, it is not.
    let reply = with_ops("reload", "p0").send(&rig.agent);
    is_conflict(&reply, &rig.agent.state(), "worker_ops_mismatch");
    with_ops("auto", "p0").succeed(&rig.agent, "file_only");
    rig.next("p2", "two").succeed(&rig.agent, "scheduled");
    let state = rig.agent.state();
    assert_eq!(state["running_plan_id"], "p1");
    assert_eq!(state["worker_ops_plan_id"], "p3");
    for mode in ["auto", "reload"] {
        let reply = with_ops(mode, "p2").send(&rig.agent);
        is_conflict(&reply, &state, "worker_ops_mismatch");
    }
    with_ops("auto", "p3").succeed(&rig.agent, "scheduled");
}
