//! The answers of an apply that come before its manifest is looked at, in their order.

use super::kit::{Held, form, multipart, post, refused, refuses, unchanged};
use crate::apply::kit::{Rig, SOON};
use crate::support::agent::{AUTHORIZATION, Apply, Reply, Setup, exchange, get};
use crate::support::haproxy::{Haproxy, Version, minimal};
use crate::support::wait;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

/// Like [`AUTHORIZATION`], with another user, and with another password.
const OTHER_USER: &str = "Basic Y29udHJvbGxlcng6czNjcmV0";
const OTHER_PASSWORD: &str = "Basic Y29udHJvbGxlcjpzM2NyZXR4";

fn unauthorized(reply: &Reply, what: &str) {
    assert_eq!(reply.status, 401, "{what}: {}", reply.text());
    let realm = reply.header("www-authenticate");
    assert_eq!(realm, Some("Basic realm=\"haptic-agent\""), "{what}");
    let kind = reply.header("content-type");
    assert_eq!(kind, Some("text/plain; charset=utf-8"), "{what}");
}

/// FR-063: a wrong user and a wrong password differ in nothing.
#[test]
fn credentials_come_before_everything_else() {
    let rig = Rig::applied(Version::V3_4);
    let before = rig.snapshot();
    let good = rig.next("p2", "two");
    let (body, content_type) = good.body();
    let length = body.len().to_string();
    let mut answers = Vec::new();
    for wrong in [
        None,
        Some(OTHER_USER),
        Some(OTHER_PASSWORD),
        Some("Basic"),
        Some("Basic "),
        Some("Bearer Y29udHJvbGxlcjpzM2NyZXQ="),
        Some("Basic Y29udHJvbGxlcjpzM2NyZXQ"),
        Some("Basic Y29udHJvbGxlcjpzM2NyZXQ=, Basic Y29udHJvbGxlcjpzM2NyZXQ="),
        Some("Basic !!!!"),
    ] {
        let what = format!("{wrong:?}");
        let mut headers = vec![
            ("Content-Type", content_type.as_str()),
            ("Content-Length", length.as_str()),
        ];
        headers.extend(wrong.map(|value| ("Authorization", value)));
        let reply = exchange(rig.agent.api(), &post(&headers, &body));
        unauthorized(&reply, &what);
        answers.push(reply.body);
        unauthorized(&get(rig.agent.api(), "/v1/state", wrong), &what);
        unauthorized(&get(rig.agent.api(), "/v1/state?verify=1", wrong), &what);
        // Not a word about a body that is no multipart either.
        let headers = [("Content-Type", "text/plain"), ("Content-Length", "3")];
        unauthorized(&exchange(rig.agent.api(), &post(&headers, b"abc")), &what);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1);
    unchanged(&rig, &before, "credentials");
}

/// FR-054: HAProxy is not there yet. The agent lives, says so, and changes nothing; once
/// HAProxy comes it is ready without being asked.
#[test]
fn before_it_is_ready_it_says_so_and_holds_the_state_back() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("b");
    std::fs::create_dir(&base).unwrap();
    let agent = Setup::new(&base).spawn();
    let api = agent.api();
    assert_eq!(get(api, "/healthz", None).status, 200);
    let ready = get(api, "/readyz", None);
    assert_eq!(
        (ready.status, ready.text().trim_end()),
        (503, "initialising")
    );
    assert_eq!(
        ready.header("content-type"),
        Some("text/plain; charset=utf-8")
    );

    // The credentials come first, and everything about the body comes later.
    let (body, content_type) = Apply::new("p1", 1, 1).file("haproxy.cfg", b"x\n").body();
    let length = body.len().to_string();
    let headers = [
        ("Authorization", OTHER_USER),
        ("Content-Type", content_type.as_str()),
        ("Content-Length", length.as_str()),
    ];
    unauthorized(&exchange(api, &post(&headers, &body)), "not ready");
    for request in [form(&content_type, &body), form("text/plain", b"x")] {
        refused(&exchange(api, &request), 503, "startup", "starting");
    }
    assert!(!base.join("haproxy.cfg").exists());
    assert!(!base.join(".haptic-tmp").exists());

    let held = std::thread::spawn(move || get(api, "/v1/state", Some(AUTHORIZATION)));
    // Somebody who leaves is let go.
    let mut gone = TcpStream::connect(api).unwrap();
    write!(
        gone,
        "GET /v1/state HTTP/1.1\r\nHost: a\r\nAuthorization: {AUTHORIZATION}\r\n\r\n"
    )
    .unwrap();
    drop(gone);
    let haproxy = Haproxy::start(Version::V3_4, &base, &minimal(&base));
    agent.wait_ready();
    let state = held.join().unwrap();
    assert_eq!(state.status, 200);
    assert_eq!(state.json()["haproxy"]["worker_pid"], haproxy.worker_pid());
    assert_eq!(state.json()["applied_plan_id"], "");
    wait::until("connections are given back", SOON, || {
        (agent.sample("haptic_agent_connections") <= 1.0).then_some(())
    });
}

#[test]
fn a_fifth_upload_is_told_to_come_back() {
    let rig = Rig::applied(Version::V3_4);
    let before = rig.snapshot();
    let apply = rig.next("p2", "two").file("maps/new.map", &[b'x'; 4096]);
    let mut held: Vec<Held> = (0..4)
        .map(|_| Held::open_but(&rig.agent, &apply, 3000))
        .collect();
    // A probe takes a place as well, so none is sent before the four have theirs.
    wait::until("four uploads are under way", SOON, || {
        let staging = std::fs::read_dir(rig.base.join(".haptic-tmp")).ok()?;
        (staging.count() == 4).then_some(())
    });
    let probe = form("text/plain", b"no multipart");
    let reply = wait::until_ok("all places are taken", SOON, || {
        let reply = exchange(rig.agent.api(), &probe);
        if reply.status == 503 {
            Ok(reply)
        } else {
            Err(reply)
        }
    });
    refused(&reply, 503, "busy", "again");
    assert_eq!(reply.header("retry-after"), Some("1"));
    let reply = apply.send(&rig.agent);
    refused(&reply, 503, "busy", "again");
    assert_eq!(reply.header("retry-after"), Some("1"));
    // Reading needs no place.
    assert_eq!(rig.agent.state()["applied_plan_id"], "p1");
    assert!(
        rig.agent
            .sample("haptic_agent_apply_rejected_total{stage=\"busy\"}")
            >= 2.0
    );

    // One leaves, and its place is free; so is what it had staged.
    drop(held.pop());
    let reply = wait::until_ok("a place is free", SOON, || {
        let reply = exchange(rig.agent.api(), &probe);
        if reply.status == 400 {
            Ok(reply)
        } else {
            Err(reply)
        }
    });
    refused(&reply, 400, "request", "multipart");
    drop(held);
    wait::until("staging is empty", SOON, || {
        (rig.snapshot().leftovers == before.leftovers).then_some(())
    });
    unchanged(&rig, &before, "busy");
    rig.next("p2", "two").succeed(&rig.agent, "reload");
}

const MANIFEST: &str = "Content-Disposition: form-data; name=\"manifest\"";

#[test]
fn what_is_not_multipart_is_a_bad_request() {
    let rig = Rig::applied(Version::V3_4);
    let apply = rig.next("p2", "two");
    let (body, content_type) = apply.body();
    let manifest = apply.manifest.to_string();
    let bytes = manifest.as_bytes();
    let border = "multipart/form-data; boundary=b";
    let with = |content_type: &str| form(content_type, &body);
    let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
    // Without parts: bytes beyond a part's declared size would be refused for that.
    let mut alone = apply.clone();
    alone.parts.clear();
    let alone = alone.body().0;
    let cut = |by: usize| form(&content_type, &alone[..alone.len() - by]);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("multipart", with("application/json")),
        ("multipart", with("multipart/mixed; boundary=b")),
        ("multipart", with("")),
        ("boundary", with("multipart/form-data")),
        ("parameters", with("multipart/form-data; boundary=")),
        ("boundary", with(&long)),
        (
            "boundary",
            with("multipart/form-data; boundary=a; boundary=b"),
        ),
        ("", with("multipart/form-data; boundary=another")),
        ("", form(border, b"")),
        ("", form(border, b"--b--\r\n")),
        (
            "first part",
            form(
                border,
                &multipart(
                    "b",
                    &[("Content-Disposition: form-data; name=\"plan\"", bytes)],
                ),
            ),
        ),
        (
            "first part",
            form(
                border,
                &multipart(
                    "b",
                    &[("Content-Disposition: form-data; name=\"Manifest\"", bytes)],
                ),
            ),
        ),
        (
            "",
            form(
                border,
                &multipart("b", &[("Content-Type: application/json", bytes)]),
            ),
        ),
        (
            "",
            form(
                border,
                &multipart(
                    "b",
                    &[("Content-Disposition: attachment; name=\"manifest\"", bytes)],
                ),
            ),
        ),
        (
            "",
            form(
                border,
                &multipart("b", &[("Content-Disposition: form-data", bytes)]),
            ),
        ),
        (
            "",
            form(border, &multipart("b", &[("no colon here", bytes)])),
        ),
        (
            "",
            form(
                border,
                &multipart("b", &[(&format!("{MANIFEST}\r\n{MANIFEST}"), bytes)]),
            ),
        ),
        (
            "",
            form(
                border,
                &multipart(
                    "b",
                    &[(
                        &format!("{MANIFEST}\r\nContent-Transfer-Encoding: base64"),
                        bytes,
                    )],
                ),
            ),
        ),
        (
            "",
            form(
                border,
                &multipart(
                    "b",
                    &[(&format!("{MANIFEST}\r\nX: {}", "x".repeat(9000)), bytes)],
                ),
            ),
        ),
        // The whole of it, without its last delimiter, and without the dashes of it.
        ("", cut(2 + "------part-5f1c-border--".len())),
        ("", cut(4)),
        ("", cut(100)),
    ];
    refuses(&rig, &cases, 400, "request");
}

/// A body that ends before its length, or whose chunks are none, is no body.
#[test]
fn a_cut_or_badly_framed_body_is_a_bad_request() {
    let rig = Rig::applied(Version::V3_4);
    let apply = rig.next("p2", "two").file("maps/new.map", &[b'x'; 100_000]);
    let (body, content_type) = apply.body();
    let before = rig.snapshot();
    for cut in [1, 50, 2000, 60_000, body.len() - 10] {
        let request = form(&content_type, &body);
        let mut stream = TcpStream::connect(rig.agent.api()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream.write_all(&request[..request.len() - cut]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let reply = crate::support::agent::read_reply(&mut stream);
        refused(&reply, 400, "request", "");
        wait::until("staging is empty", SOON, || {
            (rig.snapshot().leftovers == before.leftovers).then_some(())
        });
    }
    unchanged(&rig, &before, "cut");
    let chunked = |framed: &[u8]| {
        let headers = [
            ("Authorization", AUTHORIZATION),
            ("Content-Type", content_type.as_str()),
            ("Transfer-Encoding", "chunked"),
        ];
        post(&headers, framed)
    };
    let half = &body[..1000];
    let framed = |head: &str, tail: &str| {
        let mut bytes = format!("{head}\r\n").into_bytes();
        bytes.extend_from_slice(half);
        bytes.extend_from_slice(tail.as_bytes());
        chunked(&bytes)
    };
    let cases = vec![
        ("", framed("xyz", "\r\n0\r\n\r\n")),
        ("", framed("3e8", "xx0\r\n\r\n")),
        ("", framed("3e8", "\r\n0\r\n\r\n")), // the form is not closed
        ("", framed("-3e8", "\r\n0\r\n\r\n")),
        ("", framed("000000000003e8", "\r\n0\r\n\r\n")),
    ];
    refuses(&rig, &cases, 400, "request");
}
