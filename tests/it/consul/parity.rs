//! The fake answers as the real one does: the same requests, and every difference fails.

use crate::kv::kit::PREFIX;
use crate::support::consul::{Consul, Mode};
use haptic_agent::http::basic::base64;
use haptic_agent::http::client::{Body, Cancel, Connection, Method, Origin, Request, Until};
use haptic_agent::testkit::FakeConsul;
use serde_json::{Value as Json, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What can be compared of an answer: its status, its body without indexes, and how its
/// own index moved since the last answer that had one.
#[derive(Debug, PartialEq)]
struct Seen {
    status: u16,
    body: Json,
    moved: Option<std::cmp::Ordering>,
    early: bool,
}

struct Side {
    name: &'static str,
    address: SocketAddr,
    index: u64,
    /// `ModifyIndex` of the last row that was read.
    modified: u64,
}

impl Side {
    fn new(name: &'static str, address: SocketAddr) -> Self {
        Self {
            name,
            address,
            index: 0,
            modified: 0,
        }
    }

    fn ask(&mut self, step: &Step) -> Seen {
        let target = step
            .target
            .replace("{index}", &self.index.to_string())
            .replace("{ahead}", &(self.index + 1000).to_string())
            .replace("{modified}", &self.modified.to_string());
        let body = step
            .body
            .replace("\"{modified}\"", &self.modified.to_string());
        let origin = Origin::parse(&format!("http://{}", self.address)).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        let mut connection = Connection::open(&origin, end, &Cancel::new()).unwrap();
        let request = Request {
            method: step.method,
            target: &target,
            fields: &[],
            body: Body::Bytes(body.as_bytes()),
        };
        let begin = Instant::now();
        let answer = connection.send(request, Until::all(end)).unwrap();
        let early = begin.elapsed() < Duration::from_millis(350);
        let status = answer.status();
        let index: Option<u64> = answer
            .head()
            .text("X-Consul-Index")
            .map(|t| t.parse().unwrap());
        let bytes = answer.collect(1 << 20).unwrap();
        let mut body = match serde_json::from_slice::<Json>(&bytes) {
            Ok(json) => json,
            Err(_) => Json::String(String::from_utf8_lossy(&bytes).trim().to_owned()),
        };
        self.without_indexes(&mut body);
        let moved = index.map(|index| index.cmp(&self.index));
        self.index = index.unwrap_or(self.index);
        Seen {
            status,
            body,
            moved,
            early,
        }
    }

    fn without_indexes(&mut self, body: &mut Json) {
        match body {
            Json::Array(rows) => rows.iter_mut().for_each(|row| self.without_indexes(row)),
            Json::Object(fields) => {
                if let Some(Json::Number(index)) = fields.get("ModifyIndex") {
                    self.modified = index.as_u64().unwrap();
                }
                fields.remove("ModifyIndex");
                fields.remove("CreateIndex");
                fields.remove("Results");
                // In other words: which operation failed is what counts.
                fields.remove("What");
                fields
                    .values_mut()
                    .for_each(|value| self.without_indexes(value));
            }
            _ => {}
        }
    }
}

struct Step {
    method: Method,
    target: String,
    body: String,
}

fn step(method: Method, target: &str, body: &str) -> Step {
    let target = target.replace("{p}", &format!("/v1/kv/{PREFIX}"));
    Step {
        method,
        target,
        body: body.to_owned(),
    }
}

fn get(target: &str) -> Step {
    step(Method::Get, target, "")
}

fn put(target: &str, body: &str) -> Step {
    step(Method::Put, target, body)
}

fn delete(target: &str) -> Step {
    step(Method::Delete, target, "")
}

fn cas(key: &str, value: &str, index: Json) -> Json {
    json!({"KV": {"Verb": "cas", "Key": format!("{PREFIX}/{key}"), "Value": base64(value.as_bytes()), "Index": index}})
}

#[test]
fn the_fake_answers_as_the_real_one() {
    let real = Consul::start(Mode::Open);
    let fake = FakeConsul::start().unwrap();
    let mut sides = [
        Side::new("real", real.address()),
        Side::new("fake", fake.address()),
    ];
    let set = json!({"KV": {"Verb": "set", "Key": "notes/a", "Value": base64(b"n")}});
    let txn = |operations: &[Json]| put("/v1/txn", &Json::from(operations.to_vec()).to_string());
    let steps = [
        get("{p}/?recurse"),
        get("{p}/a"),
        put("/v1/kv/other", "x"),
        get("{p}/?recurse"),
        put("{p}/b", "drain"),
        put("{p}/a", "50%\n"),
        put("{p}/a%20b%2Fc", "maint"),
        put("{p}/empty", ""),
        put("{p}/folder/", ""),
        get("{p}/?recurse"),
        // Nothing below the prefix: the list does not move.
        put("/v1/kv/other", "y"),
        get("{p}/?recurse"),
        get("{p}/?recurse&index={index}&wait=400ms"),
        get("{p}/?recurse&index={ahead}&wait=400ms"),
        get("{p}/?recurse&index=1&wait=5s"),
        get("{p}/?recurse&index=0&wait=5s"),
        // The same value again moves nothing, a number of the writer's does.
        put("{p}/a", "50%\n"),
        get("{p}/?recurse"),
        put("{p}/a?flags=18446744073709551615", "50%\n"),
        get("{p}/?recurse"),
        get("{p}/a"),
        // Check and set.
        put("{p}/a?cas=0", "drain"),
        put("{p}/a?cas=1", "drain"),
        put("{p}/new?cas=0", "drain"),
        get("{p}/a?consistent"),
        put("{p}/a?cas={modified}&flags=7", "maint"),
        get("{p}/a?consistent"),
        delete("{p}/a?cas=1"),
        delete("{p}/a?cas={modified}"),
        get("{p}/a"),
        delete("{p}/a"),
        // Transactions: all or nothing.
        txn(&[cas("t", "drain", json!(0)), set.clone()]),
        get("{p}/t"),
        txn(&[cas("t", "maint", json!(1)), set.clone()]),
        txn(&[set.clone(), cas("t", "maint", json!(1))]),
        get("{p}/t"),
        txn(&[cas("t", "maint", json!("{modified}")), set]),
        get("{p}/t"),
        get("/v1/kv/notes/?recurse"),
        // A prefix is text.
        put("{p}ment/x", "drain"),
        get("{p}/?recurse"),
        delete("{p}/b"),
        get("{p}/?recurse"),
        delete("{p}/a%20b%2Fc"),
        delete("{p}/empty"),
        delete("{p}/folder/"),
        delete("{p}/t"),
        delete("{p}/new"),
        get("{p}/?recurse"),
        get("{p}/?recurse&index={index}&wait=400ms"),
    ];
    for (at, step) in steps.iter().enumerate() {
        let [real, fake] = sides.each_mut().map(|side| (side.name, side.ask(step)));
        assert_eq!(
            real.1, fake.1,
            "step {at}, {:?} {}: {} on the left, {} on the right",
            step.method, step.target, real.0, fake.0
        );
    }
}
