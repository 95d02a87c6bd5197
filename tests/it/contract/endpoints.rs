//! Paths, methods, content types, and what is on a connection after an answer.

use super::kit::assert_json;
use crate::apply::kit::Rig;
use crate::support::agent::{AUTHORIZATION, Reply, exchange, get, read_reply};
use crate::support::haproxy::Version;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

const TEXT: Option<&str> = Some("text/plain; charset=utf-8");

fn ask(rig: &Rig, method: &str, target: &str) -> Reply {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: agent\r\nAuthorization: {AUTHORIZATION}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    exchange(rig.agent.api(), head.as_bytes())
}

#[test]
fn every_path_and_method_has_its_answer() {
    let rig = Rig::new(Version::V3_4);
    let api = rig.agent.api();
    for (path, body) in [("/healthz", "ok"), ("/readyz", "ready")] {
        let reply = get(api, path, None);
        assert_eq!((reply.status, reply.text().trim_end()), (200, body));
        assert_eq!(reply.header("content-type"), TEXT, "{path}");
        // A probe with whatever credentials is answered as well.
        assert_eq!(get(api, path, Some("Basic nonsense")).status, 200);
    }
    let reply = get(api, "/v1/state", Some(AUTHORIZATION));
    assert_eq!(reply.status, 200);
    assert_json(&reply);

    for path in ["/healthz", "/readyz", "/v1/state"] {
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
            let reply = ask(&rig, method, path);
            assert_eq!(reply.status, 405, "{method} {path}");
            assert_eq!(reply.header("allow"), Some("GET, HEAD"), "{method} {path}");
            assert_eq!(reply.header("content-type"), TEXT);
        }
    }
    for method in ["GET", "HEAD", "PUT", "DELETE"] {
        let reply_status = if method == "HEAD" {
            head_only(&rig, "/v1/apply").status
        } else {
            let reply = ask(&rig, method, "/v1/apply");
            assert_eq!(reply.header("allow"), Some("POST"), "{method}");
            reply.status
        };
        assert_eq!(reply_status, 405, "{method}");
    }
    for path in [
        "/",
        "/v1",
        "/v1/state/",
        "/v1/apply/x",
        "/metrics",
        "/HEALTHZ",
        "/v1//state",
    ] {
        let reply = get(api, path, Some(AUTHORIZATION));
        assert_eq!(reply.status, 404, "{path}");
        assert_eq!(reply.header("content-type"), TEXT, "{path}");
    }
}

/// HEAD over a connection: status and headers, and not one byte of a body after them.
fn head_only(rig: &Rig, target: &str) -> Reply {
    let mut stream = TcpStream::connect(rig.agent.api()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    write!(
        stream,
        "HEAD {target} HTTP/1.1\r\nHost: agent\r\nAuthorization: {AUTHORIZATION}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, "", "{target}");
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    Reply {
        status: status.parse().unwrap(),
        headers: lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        body: Vec::new(),
    }
}

#[test]
fn head_answers_like_get_without_a_body() {
    let rig = Rig::new(Version::V3_4);
    for path in [
        "/healthz",
        "/readyz",
        "/v1/state",
        "/v1/state?plan=0",
        "/nowhere",
    ] {
        let (head, full) = (
            head_only(&rig, path),
            get(rig.agent.api(), path, Some(AUTHORIZATION)),
        );
        assert_eq!(head.status, full.status, "{path}");
        for name in ["content-type", "content-length"] {
            assert_eq!(head.header(name), full.header(name), "{path} {name}");
        }
    }
}

/// One connection carries states, refusals whose body was read, and applies, in any
/// order; a controller pools connections for 90 s.
#[test]
fn a_connection_is_used_again_and_again() {
    let rig = Rig::new(Version::V3_4);
    let mut stream = TcpStream::connect(rig.agent.api()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut send = |bytes: &[u8]| {
        stream.write_all(bytes).unwrap();
        read_reply(&mut stream)
    };
    let state =
        format!("GET /v1/state HTTP/1.1\r\nHost: agent\r\nAuthorization: {AUTHORIZATION}\r\n\r\n");
    let kept = |request: Vec<u8>| {
        let text = String::from_utf8(request).unwrap();
        text.replace("Connection: close\r\n", "").into_bytes()
    };
    for round in 0..5 {
        assert_eq!(send(state.as_bytes()).status, 200, "{round}");
        assert_eq!(
            send(b"GET /healthz HTTP/1.1\r\nHost: agent\r\n\r\n").status,
            200
        );
        let mut stale = rig.first();
        stale.manifest["expected_prev_plan_id"] = "other".into();
        stale.parts.clear();
        // The whole body fits what has been read with the head, so nothing is in the way.
        let reply = send(&kept(stale.request()));
        assert_eq!(reply.status, 409, "{}", reply.text());
        if reply
            .header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"))
        {
            panic!("round {round}: a refusal of a body that was here closed the connection");
        }
    }
    let reply = send(&kept(rig.first().request()));
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()["ok"], true, "{}", reply.text());
    assert_eq!(send(state.as_bytes()).json()["applied_plan_id"], "p1");
}
