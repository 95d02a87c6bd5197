//! Every rule of the manifest, broken one at a time, over the wire.

use super::kit::{form, multipart, refuses};
use crate::apply::kit::Rig;
use crate::support::agent::{Apply, sha256, token};
use crate::support::haproxy::Version;
use serde_json::{Value, json};

const MIB: u64 = 1024 * 1024;

fn file(path: &str, digest: &str, size: i64) -> Value {
    json!({"path": path, "digest": digest, "size": size, "kind": "general", "reload_on_change": false})
}

fn text(manifest: &[u8]) -> Vec<u8> {
    let head = "Content-Disposition: form-data; name=\"manifest\"";
    form(
        "multipart/form-data; boundary=b",
        &multipart("b", &[(head, manifest)]),
    )
}

/// A manifest that would pass, with one thing about it changed.
fn changed(good: &Apply, edit: impl FnOnce(&mut Value)) -> Vec<u8> {
    text(good.clone().edit(edit).manifest.to_string().as_bytes())
}

fn with_paths(good: &Apply, paths: &[&str]) -> Vec<u8> {
    let digest = sha256(b"");
    changed(good, |m| {
        m["files"] = paths.iter().map(|path| file(path, &digest, 0)).collect();
    })
}

#[test]
fn a_path_that_breaks_a_rule_is_refused() {
    let rig = Rig::applied(Version::V3_4);
    let good = rig.next("p2", "two");
    let long = format!("maps/{}", "x".repeat(251));
    let cases: Vec<(&str, Vec<u8>)> = [
        ("empty", ""),
        ("255", long.as_str()),
        ("relative", "/etc/passwd"),
        ("dot", ".hidden"),
        ("dot", "a/.hidden/b"),
        ("dot", "."),
        ("dot", ".."),
        ("dot", "./a"),
        ("dot", "a/./b"),
        ("dot", "a/../b"),
        ("dot", "../a"),
        ("trailing", "a/"),
        ("empty component", "a//b"),
        ("control", "a\0b"),
        ("control", "a\nb"),
        ("control", "a\tb"),
        ("control", "a\u{7f}"),
        ("dot", ".haptic-agent.json"),
        ("dot", ".haptic-agent-plan.bin"),
        ("dot", ".haptic-tmp/x"),
        ("dot", "maps/.haptic-lkg/0"),
        ("agent's own", "master.sock"),
        ("agent's own", "worker.sock"),
        ("agent's own", "worker.sock/below"),
    ]
    .iter()
    .map(|(words, path)| (*words, with_paths(&good, &[path])))
    .collect();
    refuses(&rig, &cases, 400, "manifest");
    let more = vec![
        ("twice", with_paths(&good, &["maps/a", "maps/b", "maps/a"])),
        ("directory", with_paths(&good, &["a", "a/b"])),
        ("directory", with_paths(&good, &["a/b/c/d", "z", "a/b"])),
    ];
    refuses(&rig, &more, 400, "manifest");
}

#[test]
fn digests_and_sizes_are_checked_by_shape() {
    let rig = Rig::applied(Version::V3_4);
    let good = rig.next("p2", "two");
    let sha = sha256(b"");
    let mut cases: Vec<(&str, Vec<u8>)> = Vec::new();
    for digest in [
        String::new(),
        "abc".to_owned(),
        sha.to_uppercase(),
        format!("sha256:{sha}"),
        sha[..63].to_owned(),
        format!("{sha}0"),
        sha.replace('e', "g"),
        "ef46db3751d8e99".to_owned(),
        "EF46DB3751D8E999".to_owned(),
        "ef46db3751d8e9990".to_owned(),
        "0xef46db3751d8e999".to_owned(),
        " ef46db3751d8e99".to_owned(),
    ] {
        let request = changed(&good, |m| m["files"] = json!([file("a", &digest, 0)]));
        cases.push(("digest", request));
    }
    for size in [
        json!(-1),
        json!(-9_223_372_036_854_775_808_i64),
        json!("0"),
        json!(1.5),
        json!(null),
    ] {
        let request = changed(&good, |m| {
            m["files"] = json!([file("a", &sha, 0)]);
            m["files"][0]["size"] = size;
        });
        cases.push(("", request));
    }
    let too_much = [
        vec![65 * MIB as i64],
        vec![64 * MIB as i64, 1],
        vec![i64::MAX, i64::MAX, i64::MAX],
    ];
    for sizes in too_much {
        let request = changed(&good, |m| {
            m["files"] = sizes
                .iter()
                .enumerate()
                .map(|(at, size)| file(&format!("f{at}"), &sha, *size))
                .collect();
        });
        cases.push(("67108864", request));
    }
    refuses(&rig, &cases, 400, "manifest");
}

#[test]
fn counts_are_bounded() {
    let rig = Rig::applied(Version::V3_4);
    let good = rig.next("p2", "two");
    let sha = sha256(b"");
    let ops = |count: usize| {
        Value::Array(vec![
            json!({"kind": "map_del", "path": "m", "key": "k"});
            count
        ])
    };
    let cases = vec![
        (
            "4097",
            changed(&good, |m| {
                m["files"] = (0..4097)
                    .map(|at| file(&format!("f{at}"), &sha, 0))
                    .collect();
            }),
        ),
        ("1001", changed(&good, |m| m["ops"] = ops(1001))),
        (
            "1001",
            changed(&good, |m| {
                m["in_place_ops"] = ops(1001);
                m["worker_ops_plan_id"] = "p2".into();
                m["expected_worker_ops_plan_id"] = "p1".into();
            }),
        ),
        (
            "in_place_ops",
            changed(&good, |m| m["in_place_ops"] = ops(1)),
        ),
        (
            "in_place_ops",
            changed(&good, |m| {
                m["in_place_ops"] = ops(1);
                m["worker_ops_plan_id"] = "p2".into();
            }),
        ),
        (
            "in_place_ops",
            changed(&good, |m| {
                m["in_place_ops"] = ops(1);
                m["expected_worker_ops_plan_id"] = "p1".into();
            }),
        ),
        (
            "8388608",
            changed(&good, |m| m["padding"] = "x".repeat(8 << 20).into()),
        ),
    ];
    refuses(&rig, &cases, 400, "manifest");
    // The limits themselves are no refusal: that many empty files are only missing.
    let at_limit = changed(&good, |m| {
        m["files"] = (0..4096)
            .map(|at| file(&format!("f{at}"), &sha256(b"x"), 1))
            .collect();
        m["ops"] = ops(1000);
        m["in_place_ops"] = ops(1000);
        m["worker_ops_plan_id"] = "p2".into();
        m["expected_worker_ops_plan_id"] = "p1".into();
    });
    let reply = crate::support::agent::exchange(rig.agent.api(), &at_limit);
    assert_eq!(reply.status, 409, "{}", reply.text());
    assert_eq!(reply.json()["missing"].as_array().unwrap().len(), 4096);
}

#[test]
fn fields_of_another_type_are_refused() {
    let rig = Rig::applied(Version::V3_4);
    let good = rig.next("p2", "two");
    type Edit = fn(&mut Value);
    let edits: &[(&str, Edit)] = &[
        ("plan_id", |m| m["plan_id"] = "".into()),
        ("plan_id", |m| {
            m.as_object_mut().unwrap().remove("plan_id");
        }),
        ("", |m| m["plan_id"] = 7.into()),
        ("mode", |m| {
            m.as_object_mut().unwrap().remove("mode");
        }),
        ("", |m| m["mode"] = "fast".into()),
        ("", |m| m["mode"] = "Reload".into()),
        ("", |m| m["mode"] = Value::Null),
        ("token", |m| {
            m.as_object_mut().unwrap().remove("token");
        }),
        ("", |m| {
            m["token"] = json!({"leader_epoch": -1, "render_seq": 0})
        }),
        ("", |m| {
            m["token"] = json!({"leader_epoch": "1", "render_seq": 0})
        }),
        ("object", |m| m["token"] = json!([1, 2])),
        ("object", |m| {
            m["files"] = json!([["a", sha256(b""), 0, "general"]])
        }),
        ("", |m| m["plan_schema_version"] = "1".into()),
        ("", |m| m["files"] = json!({"a": 1})),
        ("", |m| m["files"] = json!([7])),
        ("", |m| m["files"][0]["kind"] = "lua".into()),
        ("", |m| m["files"][0]["path"] = 1.into()),
        ("", |m| m["files"][0]["reload_on_change"] = "no".into()),
        ("", |m| m["ops"] = json!([{"kind": "map_set", "value": 7}])),
        ("", |m| {
            m["ops"] = json!([{"kind": "server_set_weight", "weight": "7"}])
        }),
        ("", |m| m["ops"] = json!([{"kind": 7}])),
        ("", |m| m["ops"] = json!({"kind": "map_set"})),
        ("revert_lkg", |m| m["mode"] = "revert_lkg".into()),
    ];
    let mut cases: Vec<(&str, Vec<u8>)> = edits
        .iter()
        .map(|(words, edit)| (*words, changed(&good, edit)))
        .collect();
    for nonsense in [
        &b""[..],
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b"{\"plan_id\":\"a\"} tail",
    ] {
        cases.push(("", text(nonsense)));
    }
    let mut twice = good.manifest.to_string();
    twice.insert_str(1, "\"plan_id\":\"first\",");
    cases.push(("", text(twice.as_bytes())));
    refuses(&rig, &cases, 400, "manifest");
}

/// Additive changes are not refused: unknown keys of the manifest, of a file and of an
/// op, fields that may be absent, and a `null` in their place.
#[test]
fn what_version_1_may_gain_later_is_ignored() {
    let rig = Rig::applied(Version::V3_4);
    let apply = rig.next("p2", "two").edit(|m| {
        m["from_the_future"] = json!({"deep": [1, 2, {"x": null}]});
        m["files"][0]["colour"] = "blue".into();
        m["files"][0]
            .as_object_mut()
            .unwrap()
            .remove("reload_on_change");
        m["token"]["extra"] = 1.into();
        m["ops"] = Value::Null;
        m["in_place_ops"] = Value::Null;
        m["validated_plan_id"] = Value::Null;
        m["expected_worker_ops_plan_id"] = Value::Null;
        m["worker_ops_plan_id"] = Value::Null;
    });
    apply.succeed(&rig.agent, "reload");
    let absent = rig.next("p3", "three").edit(|m| {
        m.as_object_mut().unwrap().remove("ops");
        m.as_object_mut().unwrap().remove("plan_schema_version");
    });
    absent.succeed(&rig.agent, "reload");
    // A revert may name its files with null, or not at all.
    for without in [true, false] {
        let mut revert = Apply::new("r", 1, 9).mode("revert_lkg");
        revert.manifest["files"] = Value::Null;
        if without {
            revert.manifest.as_object_mut().unwrap().remove("files");
        }
        let answer = revert.succeed(&rig.agent, "reload");
        assert_eq!(answer["applied_plan_id"], "p3");
        assert_eq!(answer["applied_token"], token(1, 9));
    }
}
