//! Parts: what has to match the manifest, what is too large, and what is missing.

use super::kit::{assert_json, chunked, form, multipart, post, refused, refuses, unchanged};
use crate::apply::kit::{Rig, SOON};
use crate::support::agent::{AUTHORIZATION, Apply, exchange};
use crate::support::haproxy::Version;
use crate::support::wait;
use serde_json::json;

const MIB: usize = 1024 * 1024;

#[test]
fn parts_that_do_not_match_the_manifest_are_refused() {
    let rig = Rig::applied(Version::V3_4);
    let good = rig.next("p2", "two").file("maps/new.map", b"k v\n");
    let with = |edit: &dyn Fn(&mut Apply)| {
        let mut apply = good.clone();
        edit(&mut apply);
        let (body, content_type) = apply.body();
        form(&content_type, &body)
    };
    let part = |name: &str, bytes: &[u8]| (name.to_owned(), Some(name.to_owned()), bytes.to_vec());
    let cases = vec![
        (
            "maps/other.map",
            with(&|a| a.parts.push(part("maps/other.map", b"x"))),
        ),
        (
            "MAPS/new.map",
            with(&|a| a.parts.push(part("MAPS/new.map", b"k v\n"))),
        ),
        (
            "./maps/new.map",
            with(&|a| a.parts.push(part("./maps/new.map", b"k v\n"))),
        ),
        ("../x", with(&|a| a.parts.push(part("../x", b"x")))),
        (
            "/etc/passwd",
            with(&|a| a.parts.push(part("/etc/passwd", b"x"))),
        ),
        ("manifest", with(&|a| a.parts.push(part("manifest", b"{}")))),
        (
            "twice",
            with(&|a| a.parts.push(part("maps/new.map", b"k v\n"))),
        ),
        ("maps/new.map", with(&|a| a.parts[1].2 = b"k v".to_vec())),
        (
            "maps/new.map",
            with(&|a| a.parts[1].2 = b"k v\n\n".to_vec()),
        ),
        ("maps/new.map", with(&|a| a.parts[1].2.clear())),
        ("maps/new.map", with(&|a| a.parts[1].2 = b"k w\n".to_vec())),
        (
            "twice",
            with(&|a| {
                a.parts.push(part("plan", b"blob"));
                a.parts.push(("plan".to_owned(), None, b"blob".to_vec()));
            }),
        ),
        (
            "8388608",
            with(&|a| a.parts.push(part("plan", &vec![b'p'; 8 * MIB + 1]))),
        ),
        // The name counts; a filename is only its echo.
        ("other", with(&|a| a.parts[1].0 = "other".to_owned())),
    ];
    refuses(&rig, &cases, 400, "parts");
    good.succeed(&rig.agent, "reload");
}

/// A held file that is sent once more, wrongly, is no better than a new one.
#[test]
fn a_part_of_a_held_file_is_checked_too() {
    let rig = Rig::applied(Version::V3_4);
    let mut apply = rig.next("p2", "two");
    let name = "maps/host.map".to_owned();
    apply
        .parts
        .push((name.clone(), Some(name), b"b.example be_b\n".to_vec()));
    let (body, content_type) = apply.body();
    let case = ("maps/host.map", form(&content_type, &body));
    refuses(&rig, &[case], 400, "parts");
}

#[test]
fn more_than_64_mib_are_too_large() {
    let rig = Rig::applied(Version::V3_4);
    let before = rig.snapshot();
    let big = vec![b'x'; 63 * MIB];
    let apply = rig
        .next("p2", "two")
        .file("general/big.bin", &big)
        .blob(&vec![b'p'; 2 * MIB]);
    let (body, content_type) = apply.body();
    assert!(body.len() > 64 * MIB);
    // By its length, before a byte of it is read.
    let length = body.len().to_string();
    let too_long = |length: &str| {
        let headers = [
            ("Authorization", AUTHORIZATION),
            ("Content-Type", content_type.as_str()),
            ("Content-Length", length),
        ];
        post(&headers, b"")
    };
    for length in [length.as_str(), "67108865", "999999999999999999"] {
        let reply = exchange(rig.agent.api(), &too_long(length));
        refused(&reply, 413, "parts", "67108864");
    }
    // By its chunks, while it comes.
    let headers = [
        ("Authorization", AUTHORIZATION),
        ("Content-Type", content_type.as_str()),
        ("Transfer-Encoding", "chunked"),
    ];
    let reply = exchange(rig.agent.api(), &post(&headers, &chunked(&body, &[MIB])));
    refused(&reply, 413, "parts", "67108864");
    wait::until("staging is empty", SOON, || {
        (rig.snapshot().leftovers == before.leftovers).then_some(())
    });
    unchanged(&rig, &before, "too large");
}

/// 64 MiB of body are not too large.
#[test]
fn the_largest_body_fits() {
    let rig = Rig::applied(Version::V3_4);
    let build = |bytes: usize| {
        rig.next("p2", "two")
            .file("general/big.bin", &vec![b'x'; bytes])
            .blob(&vec![b'p'; 8 * MIB])
    };
    let spare = 64 * MIB - build(MIB).body().0.len();
    let mut apply = build(MIB + spare - 16);
    // The size's own digits move the length; the blob makes it exact.
    let missing = 64 * MIB - apply.body().0.len();
    let name = "maps/rest.map";
    apply = apply.file(name, b"");
    let over = apply.body().0.len();
    assert!(missing < 4096, "{missing}");
    if over > 64 * MIB {
        apply = build(MIB + spare - 4096).file(name, b"");
    }
    assert!(apply.body().0.len() <= 64 * MIB);
    apply.succeed(&rig.agent, "reload");
    let state = rig.agent.state();
    assert_eq!(state["applied_plan_stored"], true);
    assert_eq!(
        state["applied_plan"].as_str().unwrap().len(),
        (8 * MIB).div_ceil(3) * 4
    );
}

#[test]
fn missing_content_is_named_and_only_that() {
    let rig = Rig::applied(Version::V3_4);
    let before = rig.snapshot();
    let apply = rig
        .next("p2", "two")
        .held("maps/z.map", b"z z\n")
        .held("maps/a.map", b"a a\n")
        .held("general/m", b"m")
        .file("maps/sent.map", b"s s\n");
    let reply = apply.send(&rig.agent);
    assert_eq!(reply.status, 409);
    assert_json(&reply);
    assert_eq!(
        reply.json(),
        json!({"missing": ["general/m", "maps/a.map", "maps/z.map"]})
    );
    unchanged(&rig, &before, "missing");
    // Same path and size, other bytes; another path with the same bytes: not held.
    for (path, bytes) in [
        ("maps/host.map", b"b.example be_a\n"),
        ("maps/copy.map", b"a.example be_a\n"),
    ] {
        let mut other = rig.next("p2", "two");
        other.manifest["files"].as_array_mut().unwrap().pop();
        let reply = other.held(path, bytes).send(&rig.agent);
        assert_eq!(reply.json(), json!({"missing": [path]}));
    }
    unchanged(&rig, &before, "missing");
    let mut whole = apply;
    for (path, bytes) in [
        ("maps/a.map", &b"a a\n"[..]),
        ("general/m", b"m"),
        ("maps/z.map", b"z z\n"),
    ] {
        whole
            .parts
            .push((path.into(), Some(path.into()), bytes.to_vec()));
    }
    whole.succeed(&rig.agent, "reload");
}

/// The first apply over a bootstrap configuration: what stands there is not the agent's,
/// so it is not held, even if it has the same bytes.
#[test]
fn a_file_that_the_agent_did_not_put_there_is_not_held() {
    let rig = Rig::new(Version::V3_4);
    let bytes = std::fs::read(rig.base.join("haproxy.cfg")).unwrap();
    let apply = Apply::new("p1", 1, 1)
        .held("haproxy.cfg", &bytes)
        .on(&rig.agent.state());
    let reply = apply.send(&rig.agent);
    assert_eq!(reply.json(), json!({"missing": ["haproxy.cfg"]}));
    // With its content it is the agent's, and is left to its inode or replaced by the
    // same bytes; either way it loads.
    let apply = Apply::new("p1", 1, 1)
        .file("haproxy.cfg", &bytes)
        .on(&rig.agent.state());
    apply.succeed(&rig.agent, "reload");
    assert_eq!(rig.word(), "bootstrap");
}

/// A part that breaks off in the middle of the disk's work leaves nothing, however often.
#[test]
fn refused_parts_leave_nothing_behind() {
    let rig = Rig::applied(Version::V3_4);
    let before = rig.snapshot();
    let head = "Content-Disposition: form-data; name=\"manifest\"";
    let apply = rig.next("p2", "two").held("maps/a.map", &[b'a'; 70_000]);
    let manifest = apply.manifest.to_string();
    for round in 0..20 {
        let wrong = vec![b'b'; 70_000 - round % 2];
        let body = multipart(
            "b",
            &[
                (head, manifest.as_bytes()),
                (
                    "Content-Disposition: form-data; name=\"haproxy.cfg\"",
                    rig.config("two").as_bytes(),
                ),
                (
                    "Content-Disposition: form-data; name=\"maps/a.map\"",
                    &wrong,
                ),
            ],
        );
        let reply = exchange(
            rig.agent.api(),
            &form("multipart/form-data; boundary=b", &body),
        );
        refused(&reply, 400, "parts", "maps/a.map");
    }
    unchanged(&rig, &before, "wrong parts");
}
