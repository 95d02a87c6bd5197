//! What each kind becomes on the wire, and what a batch becomes as a whole.

use super::*;
use crate::haproxy::deletes::DeleteOutcome;
use crate::haproxy::identity::Identity;
use crate::wire::limits::MAX_PENDING_SERVER_DELETES;
use serde_json::{Value, json};
use std::collections::HashMap;

struct Files(HashMap<&'static str, &'static str>);

impl Content for Files {
    fn open(&self, path: &str) -> Result<Box<dyn Read + '_>, String> {
        let text = self.0.get(path).ok_or_else(|| format!("{path}: no file"))?;
        Ok(Box::new(text.as_bytes()))
    }
}

const ME: Identity = Identity {
    pid: 1,
    start_micros: 1,
};

fn made(ops: &Value, version: &str, queue: &Queue) -> Result<Batch, NotExecutable> {
    let ops: Vec<Op> = serde_json::from_value(ops.clone()).unwrap();
    let files = Files(HashMap::from([("m", "k v\n"), ("l", "a.pem x\n")]));
    compile(&ops, &version.parse().unwrap(), &files, queue)
}

/// The text of every plain command, `|` where there is a barrier.
fn sent(batch: &Batch) -> Vec<String> {
    let mut all = Vec::new();
    for segment in &batch.segments {
        match segment {
            Segment::Plain { commands, .. } => {
                let text = commands
                    .iter()
                    .map(|c| String::from_utf8(c.bytes().to_vec()).unwrap());
                all.extend(text.map(|t| t.trim_end().to_owned()));
            }
            Segment::MapDels(dels) => {
                all.extend(dels.iter().map(|d| format!("|{}", d.command.text())));
            }
            Segment::Settle(settles) => {
                let names: Vec<String> = settles.iter().map(|s| s.server.to_string()).collect();
                all.push(format!("|settle {}", names.join(" ")));
            }
            Segment::Remove(remove) => {
                let keys: Vec<String> = remove
                    .targets
                    .iter()
                    .map(|t| format!("{}{}", t.key, if t.cut { "!" } else { "" }))
                    .collect();
                all.push(format!("|remove {}", keys.join(" ")));
            }
            other => all.push(format!("|{other:.20?}")),
        }
    }
    all
}

fn lines(ops: &Value, version: &str) -> Vec<String> {
    sent(&made(ops, version, &Queue::default()).unwrap())
}

#[test]
fn each_kind_has_its_commands() {
    let s = |kind: &str, more: &Value| {
        let mut op = more.clone();
        op["kind"] = json!(kind);
        op["backend"] = json!("b");
        op["server"] = json!("s");
        op
    };
    let e = json!({});
    let table: Vec<(Value, &[&str])> = vec![
        (
            json!({"kind": "backend_add", "backend": "b", "profile": "p", "mode": "tcp", "guid": "g"}),
            &["add backend b from p mode tcp guid g"],
        ),
        (
            json!({"kind": "backend_add", "backend": "b", "profile": "p", "mode": "http"}),
            &["add backend b from p mode http"],
        ),
        (
            json!({"kind": "backend_publish", "backend": "b"}),
            &["publish backend b"],
        ),
        (
            json!({"kind": "backend_unpublish", "backend": "b"}),
            &["unpublish backend b"],
        ),
        (
            json!({"kind": "backend_del", "backend": "b"}),
            &["unpublish backend b"],
        ),
        (
            json!({"kind": "wait_be_removable", "backend": "b", "timeout_ms": 9}),
            &["wait 9ms be-removable b"],
        ),
        (
            s("server_add", &json!({"address": "1.2.3.4", "port": 80})),
            &["add server b/s 1.2.3.4:80"],
        ),
        (
            s(
                "server_add",
                &json!({"address": "::1", "port": 80, "keywords": [{"name": "check"}, {"name": "inter", "args": ["2s"]}]}),
            ),
            &["add server b/s [::1]:80 check inter 2s"],
        ),
        (
            s("server_add", &json!({"address": "[::1]", "port": 80})),
            &["add server b/s [::1]:80"],
        ),
        (
            s("server_add", &json!({"address": "/run/x.sock"})),
            &["add server b/s /run/x.sock"],
        ),
        (
            s("server_add", &json!({"address": "unix@/run/x.sock"})),
            &["add server b/s unix@/run/x.sock"],
        ),
        (
            s("server_enable", &e),
            &[
                "enable agent b/s",
                "set server b/s agent up",
                "enable server b/s",
            ],
        ),
        (
            s("server_enable", &json!({"health": true})),
            &[
                "enable health b/s",
                "enable agent b/s",
                "set server b/s agent up",
                "enable server b/s",
            ],
        ),
        (
            s("server_disable", &e),
            &["disable agent b/s", "disable server b/s"],
        ),
        (
            s("server_set_addr", &json!({"address": "[::1]", "port": 8})),
            &["set server b/s addr ::1 port 8", "|settle b/s"],
        ),
        (
            s("server_set_addr", &json!({"address": "1.2.3.4"})),
            &["set server b/s addr 1.2.3.4", "|settle b/s"],
        ),
        (
            s("server_set_weight", &json!({"weight": 0})),
            &["set server b/s weight 0"],
        ),
        (
            s("server_set_state", &json!({"state": "drain"})),
            &["set server b/s state drain"],
        ),
        (
            s("server_set_state", &json!({"state": "ready"})),
            &[
                "enable agent b/s",
                "set server b/s agent up",
                "set server b/s state ready",
            ],
        ),
        (
            s("wait_srv_removable", &json!({"timeout_ms": 30000})),
            &["wait 2000ms srv-removable b/s"],
        ),
        (
            s("shutdown_sessions", &e),
            &["shutdown sessions server b/s"],
        ),
        (
            s("server_del", &e),
            &["disable agent b/s", "disable server b/s"],
        ),
        (
            json!({"kind": "map_add", "path": "m", "key": "k", "value": "a; b"}),
            &["add map m <<E_O_F\nk a; b\nE_O_F"],
        ),
        (
            json!({"kind": "map_add", "path": "m", "key": "k"}),
            &["add map m <<E_O_F\nk \nE_O_F"],
        ),
        (
            json!({"kind": "map_set", "path": "m", "key": "k", "value": "v"}),
            &["set map m k v"],
        ),
        (
            json!({"kind": "map_del", "path": "m", "key": "k"}),
            &["|del map m k"],
        ),
    ];
    for (op, wanted) in table {
        assert_eq!(lines(&json!([op]), "3.4.7"), wanted, "{op}");
    }
}

#[test]
fn a_row_with_an_agent_check_is_enabled_in_four_steps() {
    let ops = |keywords: Value, health: bool| {
        json!([
            {"kind": "server_add", "backend": "b", "server": "s", "address": "1.2.3.4", "port": 80, "keywords": keywords},
            {"kind": "server_enable", "backend": "b", "server": "s", "health": health},
        ])
    };
    let seen = lines(
        &ops(json!([{"name": "check"}, {"name": "agent-check"}]), true),
        "3.0.11",
    );
    let wanted = [
        "enable health b/s",
        "enable agent b/s",
        "set server b/s agent up",
        "enable server b/s",
    ];
    assert_eq!(seen[1..], wanted);
    assert_eq!(
        lines(&ops(json!([{"name": "agent-check"}]), false), "3.4.7")[1..],
        wanted[1..]
    );
    let refused = made(&ops(json!([]), true), "3.4.7", &Queue::default()).unwrap_err();
    assert_eq!((refused.index, refused.outcome), (1, Outcome::Invalid));
}

#[test]
fn waits_before_a_delete_only_set_its_grace() {
    let s = |kind: &str, ms: u32| json!({"kind": kind, "backend": "b", "server": "s", "timeout_ms": ms});
    let deferred = |ops: Value| {
        let batch = made(&ops, "3.4.7", &Queue::default()).unwrap();
        let graces: Vec<Option<u64>> = batch.deferred.iter().map(|(_, r)| r.grace_ms).collect();
        (sent(&batch).len(), graces)
    };
    assert_eq!(deferred(json!([s("server_del", 0)])), (2, vec![None]));
    assert_eq!(
        deferred(json!([s("wait_srv_removable", 700), s("server_del", 0)])),
        (2, vec![Some(700)])
    );
    assert_eq!(
        deferred(json!([
            s("wait_srv_removable", 700),
            s("shutdown_sessions", 0),
            s("server_del", 0)
        ])),
        (2, vec![Some(0)])
    );
    // A wait that says no time leaves it to the configuration.
    let open = json!([
        {"kind": "wait_srv_removable", "backend": "b", "server": "s"},
        s("server_del", 0)
    ]);
    assert_eq!(deferred(open), (2, vec![None]));
    // Behind the delete they are commands of their own.
    assert_eq!(
        deferred(json!([s("server_del", 0), s("wait_srv_removable", 700)])),
        (3, vec![None])
    );
    let backend = json!([
        {"kind": "wait_be_removable", "backend": "b", "timeout_ms": 900},
        {"kind": "backend_del", "backend": "b"},
    ]);
    assert_eq!(deferred(backend), (1, vec![Some(900)]));
}

#[test]
fn a_delete_whose_name_comes_again_is_done_in_place() {
    let del = json!({"kind": "server_del", "backend": "b", "server": "s"});
    let add = json!({"kind": "server_add", "backend": "b", "server": "s", "address": "1.2.3.4", "port": 80});
    let cut = json!({"kind": "shutdown_sessions", "backend": "b", "server": "s"});
    let both = made(&json!([del, add]), "3.4.7", &Queue::default()).unwrap();
    assert_eq!(sent(&both), ["|remove b/s", "add server b/s 1.2.3.4:80"]);
    assert!(both.deferred.is_empty());
    let both = made(&json!([cut, del, add]), "3.4.7", &Queue::default()).unwrap();
    assert_eq!(sent(&both)[0], "|remove b/s!");
    assert_eq!(both.absorbed.len(), 1);
    let after = made(&json!([add, del]), "3.4.7", &Queue::default()).unwrap();
    assert_eq!(after.deferred.len(), 1);
    // The servers of a backend that comes again go with it.
    let whole = json!([
        {"kind": "server_del", "backend": "b", "server": "t"},
        {"kind": "backend_del", "backend": "b"},
        {"kind": "backend_add", "backend": "b", "profile": "p", "mode": "http"},
    ]);
    let whole = made(&whole, "3.4.7", &Queue::default()).unwrap();
    assert_eq!(sent(&whole)[..2], ["|remove b/t", "|remove b"]);
    assert!(whole.deferred.is_empty());
}

#[test]
fn what_waits_makes_way_or_is_cancelled() {
    let key = |server: &str| Key::Server {
        backend: "b".to_owned(),
        server: server.to_owned(),
    };
    let backend = Key::Backend {
        backend: "b".to_owned(),
    };
    let mut queue = Queue::default();
    let all = [key("s"), key("t"), backend.clone()];
    let requests = all.clone().map(|key| DeleteRequest {
        key,
        grace_ms: None,
    });
    queue.add(&requests, ME);
    let add = json!({"kind": "server_add", "backend": "b", "server": "s", "address": "1.2.3.4", "port": 80});
    let enable = json!({"kind": "server_enable", "backend": "b", "server": "s"});
    let batch = made(&json!([add, enable]), "3.4.7", &queue).unwrap();
    assert_eq!(sent(&batch)[0], "|remove b/s");
    assert!(batch.cancels.is_empty(), "it is gone by then");
    let batch = made(
        &json!([{"kind": "backend_add", "backend": "b", "profile": "p", "mode": "http"}]),
        "3.4.7",
        &queue,
    )
    .unwrap();
    assert_eq!(sent(&batch)[0], "|remove b/s b/t b");
    for (op, key) in [
        (enable, key("s")),
        (
            json!({"kind": "server_set_state", "backend": "b", "server": "t", "state": "ready"}),
            key("t"),
        ),
        (json!({"kind": "backend_publish", "backend": "b"}), backend),
    ] {
        let batch = made(&json!([op]), "3.4.7", &queue).unwrap();
        assert_eq!(batch.cancels, [key]);
    }
    let drain =
        json!({"kind": "server_set_state", "backend": "b", "server": "t", "state": "drain"});
    assert!(
        made(&json!([drain]), "3.4.7", &queue)
            .unwrap()
            .cancels
            .is_empty()
    );
}

/// What was given up is still there: who adds it again makes way for it first, and one
/// more delete of it takes a place in the queue.
#[test]
fn what_was_given_up_is_not_forgotten() {
    let key = Key::Server {
        backend: "b".to_owned(),
        server: "s".to_owned(),
    };
    let mut queue = Queue::default();
    queue.bind(ME);
    queue.finish(&key, DeleteOutcome::Abandoned, "");
    let op = |kind: &str| json!({"kind": kind, "backend": "b", "server": "s", "address": "1.2.3.4", "port": 80});
    let batch = made(&json!([op("server_add")]), "3.4.7", &queue).unwrap();
    assert_eq!(sent(&batch), ["|remove b/s", "add server b/s 1.2.3.4:80"]);
    let batch = made(&json!([op("server_enable")]), "3.4.7", &queue).unwrap();
    assert_eq!(batch.cancels, [key]);
    let others: Vec<DeleteRequest> = (0..MAX_PENDING_SERVER_DELETES)
        .map(|n| DeleteRequest {
            key: Key::Server {
                backend: "b".to_owned(),
                server: format!("n{n}"),
            },
            grace_ms: None,
        })
        .collect();
    queue.add(&others, ME);
    let full = made(&json!([op("server_del")]), "3.4.7", &queue).unwrap_err();
    assert_eq!(full.outcome, Outcome::QueueFull);
}

#[test]
fn two_addresses_of_one_server_are_kept_apart() {
    let addr = |server: &str, last: u8| json!({"kind": "server_set_addr", "backend": "b", "server": server, "address": format!("1.2.3.{last}")});
    assert_eq!(
        lines(&json!([addr("s", 1), addr("t", 1), addr("s", 2)]), "3.4.7"),
        [
            "set server b/s addr 1.2.3.1",
            "set server b/t addr 1.2.3.1",
            "|settle b/s",
            "set server b/s addr 1.2.3.2",
            "|settle b/s b/t",
        ]
    );
}

#[test]
fn all_inline_waits_share_one_budget() {
    let waits: Vec<Value> = (0..20)
        .map(|n| json!({"kind": "wait_srv_removable", "backend": "b", "server": format!("s{n}"), "timeout_ms": 30000}))
        .collect();
    let seen = lines(&json!(waits), "3.4.7");
    assert_eq!(seen[14], "wait 2000ms srv-removable b/s14");
    assert_eq!(seen[15], "wait 1ms srv-removable b/s15");
}

#[test]
fn too_many_words_or_bytes_are_too_big() {
    let with = |keywords: Value| {
        let add = json!([{"kind": "server_add", "backend": "b", "server": "s", "address": "1.2.3.4", "port": 80, "keywords": keywords}]);
        made(&add, "3.4.7", &Queue::default()).map_err(|refused| refused.outcome)
    };
    let args = |count: usize| json!([{"name": "x", "args": vec!["y"; count]}]);
    assert!(with(args(59)).is_ok());
    assert_eq!(with(args(60)).unwrap_err(), Outcome::TooBig);
    assert_eq!(
        with(json!([{"name": "x".repeat(13_000)}])).unwrap_err(),
        Outcome::TooBig
    );
}

#[test]
fn every_kind_is_refused_without_its_fields() {
    for name in crate::wire::op::OpKind::names() {
        let refused = made(&json!([{"kind": name}]), "3.4.7", &Queue::default()).unwrap_err();
        assert_eq!(
            (refused.index, refused.outcome, refused.kind.as_str()),
            (0, Outcome::Invalid, name)
        );
    }
}
