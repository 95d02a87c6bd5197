//! Requests as bytes, and the promise of every refusal.

use crate::apply::kit::{Rig, Snapshot};
use crate::support::agent::{AUTHORIZATION, Agent, Apply, Reply, exchange, read_reply};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(60);

/// A POST with these header lines and this body, as it is.
pub(super) fn post(headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut request = b"POST /v1/apply HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n".to_vec();
    for (name, value) in headers {
        request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(body);
    request
}

/// An authorized POST of a whole body.
pub(super) fn form(content_type: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len().to_string();
    post(
        &[
            ("Authorization", AUTHORIZATION),
            ("Content-Type", content_type),
            ("Content-Length", &length),
        ],
        body,
    )
}

/// `body` in chunks of the given sizes, over and over, and the last chunk.
pub(super) fn chunked(body: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = body;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let (chunk, left) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
        out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
        rest = left;
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

/// Parts as given: the lines of a head, and the content.
pub(super) fn multipart(boundary: &str, parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (head, content) in parts {
        body.extend_from_slice(format!("--{boundary}\r\n{head}\r\n\r\n").as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body
}

/// An upload that is held open: the head and the first `bytes` of the body are sent.
pub(super) struct Held {
    stream: TcpStream,
    rest: Vec<u8>,
}

impl Held {
    pub(super) fn open(agent: &Agent, apply: &Apply, bytes: usize) -> Self {
        let (body, content_type) = apply.body();
        let request = form(&content_type, &body);
        let (now, rest) = request.split_at(request.len() - body.len() + bytes);
        let mut stream = TcpStream::connect(agent.api()).unwrap();
        stream.set_read_timeout(Some(ANSWER)).unwrap();
        stream.write_all(now).unwrap();
        Self {
            stream,
            rest: rest.to_vec(),
        }
    }

    /// Opens it with everything but the last `bytes` of the body sent.
    pub(super) fn open_but(agent: &Agent, apply: &Apply, bytes: usize) -> Self {
        let length = apply.body().0.len();
        Self::open(agent, apply, length - bytes)
    }

    /// Sends the rest and reads the answer.
    pub(super) fn finish(mut self) -> Reply {
        // The answer may have come before all of it is sent.
        let _ = self.stream.write_all(&self.rest);
        read_reply(&mut self.stream)
    }
}

/// Every request of `cases` is refused with its status, stage and words, and nothing of
/// tree, staging, backups, state and worker is another one after it.
pub(super) fn refuses(rig: &Rig, cases: &[(&str, Vec<u8>)], status: u16, stage: &str) {
    for (words, request) in cases {
        let before = rig.snapshot();
        let reply = exchange(rig.agent.api(), request);
        refused(&reply, status, stage, words);
        unchanged(rig, &before, words);
    }
}

/// An error body of two strings, under JSON's content type, ended by a newline.
pub(super) fn refused(reply: &Reply, status: u16, stage: &str, words: &str) {
    assert_eq!(reply.status, status, "{words}: {}", reply.text());
    assert_json(reply);
    let body = reply.json();
    assert_eq!(body["stage"], stage, "{words}: {body}");
    let message = body["message"].as_str().unwrap();
    assert!(message.contains(words), "{words:?} is not in {message:?}");
    assert_eq!(body.as_object().unwrap().len(), 2, "{body}");
}

pub(super) fn assert_json(reply: &Reply) {
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.body.last(), Some(&b'\n'), "{:?}", reply.text());
}

pub(super) fn unchanged(rig: &Rig, before: &Snapshot, what: &str) {
    let after = rig.snapshot();
    assert_eq!(after.files, before.files, "{what}");
    assert_eq!(after.leftovers, before.leftovers, "{what}");
    assert_eq!(after.worker, before.worker, "{what}");
    let (after, before) = (&after.state, &before.state);
    assert_eq!(after, before, "{what}: {after:#} was {before:#}");
}

/// The whole body of a Conflict with that reason, by what the state says now.
pub(super) fn conflict(state: &Value, reason: &str) -> Value {
    json!({
        "reason": reason,
        "applied_plan_id": state["applied_plan_id"], "applied_token": state["applied_token"],
        "running_plan_id": state["running_plan_id"],
        "worker_ops_plan_id": state["worker_ops_plan_id"], "lkg_plan_id": state["lkg_plan_id"],
    })
}
