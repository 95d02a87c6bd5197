//! The same request in other clothes: chunks, boundaries, part heads, digests.

use super::kit::{chunked, form, multipart, post};
use crate::apply::kit::Rig;
use crate::support::agent::{AUTHORIZATION, Apply, exchange, tree};
use crate::support::haproxy::Version;
use serde_json::{Value, json};
use std::hash::Hasher as _;

fn xxh64(bytes: &[u8]) -> String {
    let mut hasher = twox_hash::XxHash64::with_seed(0);
    hasher.write(bytes);
    format!("{:016x}", hasher.finish())
}

/// Names every file of the manifest by its XXH64.
fn by_xxh64(mut apply: Apply, contents: &[(&str, &[u8])]) -> Apply {
    for file in apply.manifest["files"].as_array_mut().unwrap() {
        let path = file["path"].as_str().unwrap();
        let (_, bytes) = contents.iter().find(|(name, _)| *name == path).unwrap();
        file["digest"] = xxh64(bytes).into();
    }
    apply
}

#[test]
fn chunk_borders_may_fall_anywhere() {
    let rig = Rig::applied(Version::V3_4);
    // Bytes that look like delimiters, line ends and chunk heads.
    let odd = b"\r\n------part-5f1c-borde\r\n0\r\n\r\n--\r\n\r\n------part-5f1c-border\n\r\r\n";
    for (round, sizes) in [&[1][..], &[2, 3, 5], &[7], &[64, 1], &[1000, 13], &[65_536]]
        .iter()
        .enumerate()
    {
        let path = format!("general/odd-{round}");
        let apply = rig
            .next(&format!("p{}", round + 2), "two")
            .file(&path, odd)
            .blob(odd);
        let (body, content_type) = apply.body();
        let headers = [
            ("Authorization", AUTHORIZATION),
            ("Content-Type", content_type.as_str()),
            ("Transfer-Encoding", "chunked"),
        ];
        let reply = exchange(rig.agent.api(), &post(&headers, &chunked(&body, sizes)));
        assert_eq!(reply.status, 200, "{sizes:?}: {}", reply.text());
        assert_eq!(reply.json()["ok"], true, "{sizes:?}: {}", reply.text());
        assert_eq!(tree(&rig.base)[&path], odd, "{sizes:?}");
    }
}

#[test]
fn boundaries_quoted_or_not_up_to_70_characters() {
    let rig = Rig::applied(Version::V3_4);
    let long = "b".repeat(70);
    let cases = [
        ("multipart/form-data; boundary=b", "b"),
        ("multipart/form-data; boundary=\"b\"", "b"),
        ("multipart/form-data;boundary=\"a b:c=d?e\"", "a b:c=d?e"),
        (
            "Multipart/Form-Data; charset=utf-8; BOUNDARY=x'()+_,-./",
            "x'()+_,-./",
        ),
        (&*format!("multipart/form-data; boundary={long}"), &*long),
    ];
    for (content_type, boundary) in cases {
        let apply = rig.next("p2", "one").mode("auto");
        let head = "Content-Disposition: form-data; name=\"manifest\"";
        let mut body = b"a preamble is dropped\r\n".to_vec();
        body.extend(multipart(
            boundary,
            &[(head, apply.manifest.to_string().as_bytes())],
        ));
        body.extend_from_slice(b"and so is an epilogue");
        let reply = exchange(rig.agent.api(), &form(content_type, &body));
        assert_eq!(reply.status, 200, "{content_type}: {}", reply.text());
    }
}

/// Names in part heads: escapes, percent signs, UTF-8, and heads with more than asked.
#[test]
fn part_names_are_read_as_clients_write_them() {
    let rig = Rig::applied(Version::V3_4);
    let names = [
        "general/a \"b\"",
        "general/ü/ß.txt",
        "general/100%25",
        "general/back\\slash",
        "general/semi;colon",
    ];
    let mut apply = rig.next("p2", "two");
    for name in names {
        apply = apply.held(name, name.as_bytes());
    }
    let manifest = apply.manifest.to_string();
    let config = rig.config("two");
    let head = |value: &str| {
        format!("Content-Disposition: form-data; {value}\r\nContent-Type: application/octet-stream")
    };
    let heads = [
        head("name=\"manifest\""),
        head("filename=\"haproxy.cfg\"; name=\"haproxy.cfg\""),
        head("name=\"general/a %22b%22\"; filename=\"general/a %22b%22\""),
        head("name=\"general/ü/ß.txt\"; filename=\"general/ü/ß.txt\""),
        head("name=\"general/100%25\"; filename=\"general/100%25\""),
        head("name=\"general/back\\\\slash\""),
        "content-disposition:form-data;name=\"general/semi;colon\"".to_owned(),
    ];
    let contents: Vec<&[u8]> = std::iter::once(manifest.as_bytes())
        .chain(std::iter::once(config.as_bytes()))
        .chain(names.iter().map(|name| name.as_bytes()))
        .collect();
    let parts: Vec<(&str, &[u8])> = heads.iter().map(String::as_str).zip(contents).collect();
    let reply = exchange(
        rig.agent.api(),
        &form("multipart/form-data; boundary=b", &multipart("b", &parts)),
    );
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["ok"], true, "{}", reply.text());
    let tree = tree(&rig.base);
    for name in names {
        assert_eq!(tree[name], name.as_bytes(), "{name}");
    }
    assert!(rig.agent.state()["files"].get("general/a \"b\"").is_some());
}

/// The blob: bytes in, base64 out, only while it is the applied plan's.
#[test]
fn the_plan_blob_comes_back_as_it_was_sent() {
    let rig = Rig::applied(Version::V3_4);
    let state = rig.agent.state();
    assert_eq!(state["applied_plan_stored"], false);
    assert_eq!(state.get("applied_plan"), None);
    let every: Vec<u8> = (0..=255).collect();
    for (blob, base64) in [
        (&b""[..], ""),
        (b"f", "Zg=="),
        (b"fo", "Zm8="),
        (b"foo", "Zm9v"),
        (b"\xff\xfe\xfd\xfc", "//79/A=="),
    ] {
        let plan = format!("p-{base64}");
        rig.next(&plan, "one")
            .mode("auto")
            .blob(blob)
            .succeed(&rig.agent, "noop");
        let state = rig.agent.state();
        assert_eq!(state["applied_plan"], base64);
        assert_eq!(state["applied_plan_stored"], true);
        let lean = rig.agent.state_with("?plan=0");
        assert_eq!(lean.get("applied_plan"), None);
        assert_eq!(lean["applied_plan_stored"], true);
    }
    rig.next("all", "one")
        .mode("auto")
        .blob(&every)
        .succeed(&rig.agent, "noop");
    let state = rig.agent.state();
    let text = state["applied_plan"].as_str().unwrap();
    assert_eq!(decode(text), every);
    // The same plan again without a blob keeps it; another plan does not.
    rig.next("all", "one")
        .mode("auto")
        .succeed(&rig.agent, "noop");
    assert_eq!(
        decode(rig.agent.state()["applied_plan"].as_str().unwrap()),
        every
    );
    rig.next("none", "one")
        .mode("auto")
        .succeed(&rig.agent, "noop");
    assert_eq!(rig.agent.state().get("applied_plan"), None);
    // A plan that was refused takes its blob with it.
    let bad = rig.raw("bad", b"nonsense\n").blob(b"of the bad one");
    bad.fail(&rig.agent, "reload");
    let state = rig.agent.state();
    assert_eq!(state.get("applied_plan"), None);
    assert_eq!(state["applied_plan_stored"], false);
}

/// Decodes base64 with padding, by the alphabet.
fn decode(text: &str) -> Vec<u8> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    for group in text.as_bytes().chunks(4) {
        let digits = group.iter().filter(|byte| **byte != b'=');
        let mut bits = 0u32;
        let mut count = 0;
        for digit in digits {
            let value = alphabet.iter().position(|letter| letter == digit).unwrap();
            bits = bits << 6 | u32::try_from(value).unwrap();
            count += 6;
        }
        bits <<= 24 - count;
        out.extend_from_slice(&bits.to_be_bytes()[1..1 + count / 8]);
    }
    out
}

/// A file called `plan` is a file where its filename says so; the blob has none.
#[test]
fn a_file_may_be_called_plan() {
    let rig = Rig::applied(Version::V3_4);
    let apply = rig.next("p2", "two").file("plan", b"a file");
    apply.succeed(&rig.agent, "reload");
    assert_eq!(tree(&rig.base)["plan"], b"a file");
    assert_eq!(rig.agent.state()["applied_plan_stored"], false);
    // Both: the blob comes without a filename then.
    let mut apply = rig.next("p3", "three").file("plan", b"another file");
    apply.parts.push(("plan".into(), None, b"foo".to_vec()));
    apply.succeed(&rig.agent, "reload");
    assert_eq!(tree(&rig.base)["plan"], b"another file");
    assert_eq!(rig.agent.state()["applied_plan"], "Zm9v");
    // The file is held, and the blob is sent as clients usually do without such a file:
    // then it is taken for the file, whose bytes it has not.
    let mut apply = rig.next("p4", "four").held("plan", b"another file");
    apply
        .parts
        .push(("plan".into(), Some("plan".into()), b"foo".to_vec()));
    assert_eq!(apply.send(&rig.agent).status, 400);
    // The blob may come before the files.
    let mut apply = rig.next("p4", "four").held("plan", b"another file");
    apply.parts.insert(0, ("plan".into(), None, b"fo".to_vec()));
    apply.succeed(&rig.agent, "reload");
    assert_eq!(rig.agent.state()["applied_plan"], "Zm8=");
}

/// Existing controllers name content by XXH64; the state answers in the kind that the
/// last manifest used for the path.
#[test]
fn xxh64_manifests_work_and_are_answered_in_kind() {
    assert_eq!(xxh64(b""), "ef46db3751d8e999");
    assert_eq!(xxh64(b"global\n"), "f72338a7e0367f8f");
    let rig = Rig::new(Version::V3_4);
    let config = rig.config("one");
    let contents: Vec<(&str, &[u8])> = vec![
        ("haproxy.cfg", config.as_bytes()),
        ("maps/empty.map", b""),
        ("maps/host.map", b"a.example be_a\n"),
    ];
    let mut apply = Apply::new("p1", 1, 1).on(&rig.agent.state());
    for (path, bytes) in &contents {
        apply = apply.file(path, bytes);
    }
    by_xxh64(apply, &contents).succeed(&rig.agent, "reload");
    let files = rig.agent.state()["files"].clone();
    assert_eq!(
        files["maps/empty.map"],
        json!({"digest": "ef46db3751d8e999", "size": 0})
    );
    assert_eq!(files["haproxy.cfg"]["digest"], xxh64(config.as_bytes()));
    // Held, by either kind; the kind changes per path.
    let state = rig.agent.state();
    let mut apply = Apply::new("p2", 1, 2).on(&state).mode("auto");
    for (path, bytes) in &contents {
        apply = apply.held(path, bytes);
    }
    let mut mixed = by_xxh64(apply.clone(), &contents);
    mixed.manifest["files"][1]["digest"] = crate::support::agent::sha256(b"").into();
    mixed.succeed(&rig.agent, "noop");
    let files = rig.agent.state()["files"].clone();
    assert_eq!(
        files["maps/empty.map"]["digest"].as_str().unwrap().len(),
        64
    );
    assert_eq!(files["maps/host.map"]["digest"].as_str().unwrap().len(), 16);
    // A wrong XXH64 of a part is refused like a wrong SHA-256.
    let wrong = rig
        .next("p3", "three")
        .edit(|m| m["files"][0]["digest"] = xxh64(b"other").into());
    assert_eq!(wrong.send(&rig.agent).json()["stage"], "parts");
}

/// Two contents of one XXH64: what is sent is what lands, and a set that was refused
/// does not condemn its twin.
#[test]
fn contents_that_collide_under_xxh64_are_told_apart() {
    let (one, two) = (
        &b"maps/11c714b2cc3f873f.map"[..],
        &b"maps/71b06949baa8f2ff.map"[..],
    );
    assert_eq!(xxh64(one), "9ff5793cac578118");
    assert_eq!(xxh64(two), "9ff5793cac578118");
    let rig = Rig::applied(Version::V3_4);
    let config = rig.config("one");
    let set = |plan: &str, bytes: &[u8]| {
        let state = rig.agent.state();
        let mut apply = Apply::new(plan, 1, 2)
            .held("haproxy.cfg", config.as_bytes())
            .file("general/twin", bytes)
            .on(&state)
            .mode("auto");
        apply.manifest["files"][1]["digest"] = Value::from("9ff5793cac578118");
        apply
    };
    set("p2", one).succeed(&rig.agent, "file_only");
    assert_eq!(tree(&rig.base)["general/twin"], one);
    // Held under that name and sent with other bytes: the sent ones land.
    set("p3", two).succeed(&rig.agent, "file_only");
    assert_eq!(tree(&rig.base)["general/twin"], two);
    set("p4", two).succeed(&rig.agent, "noop");

    // The twin of a refused configuration: what one names is no list of addresses.
    let loads = |path: &[u8]| {
        let path = String::from_utf8(path.to_vec()).unwrap();
        format!("{config}    http-request set-header x %[src,map_ip({path},-)]\n")
    };
    let sent = |plan: &str, map: &[u8], good: bool| {
        let state = rig.agent.state();
        let bytes = loads(map);
        let mut apply = Apply::new(plan, 1, 3)
            .file("haproxy.cfg", bytes.as_bytes())
            .on(&state);
        if good {
            apply = apply.file("maps/71b06949baa8f2ff.map", b"192.0.2.1 v\n");
        } else {
            apply = apply.file("maps/11c714b2cc3f873f.map", b"nobody v\n");
        }
        apply.manifest["files"][0]["digest"] = xxh64(bytes.as_bytes()).into();
        apply
    };
    sent("bad", one, false).fail(&rig.agent, "reload");
    // By XXH64 the cache answers only once the content is here, and then at once.
    let told = rig.agent.sample("haptic_agent_known_bad_hits_total");
    let nack = sent("bad", one, false).fail(&rig.agent, "reload");
    assert_eq!(nack["reload"]["performed"], false, "{nack:#}");
    assert_eq!(
        rig.agent.sample("haptic_agent_known_bad_hits_total"),
        told + 1.0
    );
    sent("good", two, true).succeed(&rig.agent, "reload");
}
