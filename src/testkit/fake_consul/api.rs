//! Requests to a fake Consul and their answers.

use std::io::Read as _;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tiny_http::{Header, Request, Response};

use super::{Fault, Rights, Seen, Shared, State, Stored};
use crate::http::basic::base64;

/// The longest body that is read.
const MAX_BODY_BYTES: u64 = 1024 * 1024;
/// How long a query waits that does not say so.
const DEFAULT_WAIT: Duration = Duration::from_secs(300);
/// The longest wait.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// An answer before it is bytes.
struct Answer {
    status: u16,
    body: Vec<u8>,
    fields: Vec<(&'static str, String)>,
    chunked: bool,
}

impl Answer {
    fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            body: body.into(),
            fields: Vec::new(),
            chunked: false,
        }
    }

    fn json(status: u16, body: &Json) -> Self {
        let text = serde_json::to_string_pretty(body).unwrap_or_default();
        Self::new(status, text)
    }

    fn indexed(mut self, index: u64) -> Self {
        self.fields.push(("X-Consul-Index", index.to_string()));
        self.fields
            .push(("X-Consul-Knownleader", "true".to_owned()));
        self.fields.push(("X-Consul-Lastcontact", "0".to_owned()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(have, _)| *have != name);
        self
    }

    fn with(self, name: &'static str, value: impl Into<String>) -> Self {
        let mut this = self.without(name);
        this.fields.push((name, value.into()));
        this
    }
}

/// Answers one request; a client that has left is no concern of a fake.
pub(super) fn answer(shared: &Shared, mut request: Request) {
    let seen = Seen {
        method: request.method().to_string(),
        target: request.url().to_owned(),
        token: request
            .headers()
            .iter()
            .find(|field| field.field.equiv("X-Consul-Token"))
            .map(|field| field.value.to_string()),
        at: Instant::now(),
    };
    let mut body = Vec::new();
    let read = request
        .as_reader()
        .take(MAX_BODY_BYTES)
        .read_to_end(&mut body);
    if read.is_err() {
        return;
    }
    shared.lock().seen.push(seen.clone());
    let answer = route(shared, &seen, &body);
    let length = (!answer.chunked).then_some(answer.body.len());
    let fields = answer
        .fields
        .iter()
        .filter_map(|(name, value)| Header::from_bytes(name.as_bytes(), value.as_bytes()).ok());
    let response = Response::new(
        answer.status.into(),
        fields.collect(),
        answer.body.as_slice(),
        length,
        None,
    )
    .with_chunked_threshold(if answer.chunked { 0 } else { usize::MAX });
    let _client_gone = request.respond(response);
}

fn route(shared: &Shared, seen: &Seen, body: &[u8]) -> Answer {
    let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
    let query = Query(query);
    let rights = {
        let state = shared.lock();
        match &state.only_token {
            Some(only) if seen.token.as_deref() != Some(only) => Rights::Unknown,
            Some(_) | None => state.rights.clone(),
        }
    };
    if !shared.lock().leader {
        return Answer::new(500, "No cluster leader");
    }
    if rights == Rights::Unknown {
        return Answer::new(403, "ACL not found");
    }
    if seen.method == "PUT" && path == "/v1/txn" {
        let answer = transaction(&mut shared.lock(), &rights, body);
        shared.changed.notify_all();
        return answer;
    }
    let Some(key) = path.strip_prefix("/v1/kv/").map(decoded) else {
        return Answer::new(404, "");
    };
    match seen.method.as_str() {
        "GET" if query.has("recurse") => list(shared, &rights, &key, &query),
        "GET" => one(&shared.lock(), &rights, &key),
        "PUT" | "DELETE" if !rights.allow(&key) => Answer::new(403, "Permission denied"),
        "PUT" | "DELETE" => {
            let done = change(&mut shared.lock(), &seen.method, &key, &query, body);
            shared.changed.notify_all();
            Answer::new(200, if done { "true" } else { "false" })
        }
        _ => Answer::new(405, ""),
    }
}

fn list(shared: &Shared, rights: &Rights, prefix: &str, query: &Query<'_>) -> Answer {
    let fault = shared.lock().faults.pop_front();
    let spoiled = match fault {
        Some(Fault::Status(status, body)) => return Answer::new(status, body),
        Some(Fault::Body(body)) => {
            let index = shared.lock().store.index_below(prefix);
            return Answer::new(200, body).indexed(index);
        }
        other => other,
    };
    wait(shared, prefix, query);
    let state = shared.lock();
    let all = state.store.below(prefix).count();
    let rows: Vec<Json> = state
        .store
        .below(prefix)
        .filter(|(key, _)| rights.allow(key))
        .map(|(key, stored)| row(key, stored))
        .collect();
    let filtered = state.says_filtered && rows.len() < all;
    let index = state.store.index_below(prefix);
    drop(state);
    let answer = if rows.is_empty() {
        Answer::new(404, "")
    } else {
        Answer::json(200, &Json::Array(rows))
    };
    let mut answer = answer.indexed(index);
    if filtered {
        answer = answer.with("X-Consul-Results-Filtered-By-ACLs", "true");
    }
    match spoiled {
        None | Some(Fault::Status(..) | Fault::Body(_)) => answer,
        Some(Fault::NoIndex) => answer.without("X-Consul-Index"),
        Some(Fault::Index(text)) => answer.with("X-Consul-Index", text),
        Some(Fault::Filtered) => answer.with("X-Consul-Results-Filtered-By-ACLs", "true"),
        Some(Fault::Leaderless) => answer.with("X-Consul-Knownleader", "false"),
        Some(Fault::Chunked) => Answer {
            chunked: true,
            ..answer
        },
        Some(Fault::Late(time)) => {
            let stopped = shared.changed.wait_timeout_while(shared.lock(), time, |_| {
                !shared.stopping.load(Ordering::SeqCst)
            });
            drop(stopped);
            answer
        }
    }
}

/// Waits as a blocking query does: until the index is another one, higher than that
/// asked for, or the time is over.
fn wait(shared: &Shared, prefix: &str, query: &Query<'_>) {
    let index: u64 = query
        .value("index")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    if index == 0 {
        return;
    }
    let wait = query.value("wait").and_then(duration);
    let wait = wait.unwrap_or(DEFAULT_WAIT).min(MAX_WAIT);
    let waited = shared
        .changed
        .wait_timeout_while(shared.lock(), wait, |state| {
            let stop = shared.stopping.load(Ordering::SeqCst) || !state.leader;
            !stop && state.store.index_below(prefix) <= index
        });
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}

fn one(state: &State, rights: &Rights, key: &str) -> Answer {
    if !rights.allow(key) {
        return Answer::new(403, "Permission denied");
    }
    match state.store.get(key) {
        Some(stored) => {
            let rows = Json::Array(vec![row(key, stored)]);
            Answer::json(200, &rows).indexed(stored.modify_index)
        }
        None => Answer::new(404, "").indexed(state.store.index()),
    }
}

fn change(state: &mut State, method: &str, key: &str, query: &Query<'_>, body: &[u8]) -> bool {
    let cas = query.value("cas").and_then(|text| text.parse().ok());
    if cas.is_some_and(|index| !state.store.may_set(key, index)) {
        return false;
    }
    let index = state.store.advance();
    if method == "PUT" {
        let flags = query.value("flags").and_then(|text| text.parse().ok());
        state.store.put(key, body, flags.unwrap_or(0), index);
    } else {
        state.store.delete(key, index);
    }
    true
}

#[derive(Deserialize)]
struct Operation {
    #[serde(rename = "KV")]
    kv: Change,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Change {
    verb: String,
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    flags: u64,
    #[serde(default)]
    index: u64,
}

fn transaction(state: &mut State, rights: &Rights, body: &[u8]) -> Answer {
    let Ok(operations) = serde_json::from_slice::<Vec<Operation>>(body) else {
        return Answer::new(400, "Failed to parse body");
    };
    let mut errors = Vec::new();
    for (at, Operation { kv }) in operations.iter().enumerate() {
        let what = if !rights.allow(&kv.key) {
            "Permission denied".to_owned()
        } else if matches!(kv.verb.as_str(), "cas" | "delete-cas")
            && !state.store.may_set(&kv.key, kv.index)
        {
            format!("failed to set key {:?}, index is stale", kv.key)
        } else {
            continue;
        };
        errors.push(json!({"OpIndex": at, "What": what}));
    }
    if !errors.is_empty() {
        return Answer::json(409, &json!({"Results": null, "Errors": errors}));
    }
    let index = state.store.advance();
    for Operation { kv } in &operations {
        match kv.verb.as_str() {
            "set" | "cas" => {
                let Some(value) = unbase64(&kv.value) else {
                    return Answer::new(400, "value is not base64");
                };
                state.store.put(&kv.key, &value, kv.flags, index);
            }
            "delete" | "delete-cas" => {
                state.store.delete(&kv.key, index);
            }
            _ => return Answer::new(400, "unknown verb"),
        }
    }
    Answer::json(200, &json!({"Results": [], "Errors": null}))
}

fn row(key: &str, stored: &Stored) -> Json {
    let value = if stored.value.is_empty() {
        Json::Null
    } else {
        Json::String(base64(&stored.value))
    };
    json!({
        "LockIndex": 0,
        "Key": key,
        "Flags": stored.flags,
        "Value": value,
        "CreateIndex": stored.create_index,
        "ModifyIndex": stored.modify_index,
    })
}

struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    fn pairs(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let pairs = self.0.split('&');
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    fn has(&self, name: &str) -> bool {
        self.pairs().any(|(have, _)| have == name)
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        let mut found = self.pairs().filter(|(have, _)| *have == name);
        found.next().map(|(_, value)| value)
    }
}

/// `55s`, `1500ms`, `5m`.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    match text.get(digits.len()..)? {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number * 60)),
        _ => None,
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = (first == b'%').then(|| tail.get(..2)).flatten();
        let byte = escaped
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn unbase64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut held) = (0_u32, 0_u32);
    for digit in text.trim_end_matches('=').bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from((bits >> held) & 0xff).ok()?);
        }
    }
    Some(bytes)
}
