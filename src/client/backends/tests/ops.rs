//! From records to records.

use super::*;
use crate::client::backends::ops::{BackendOps, Context, compose};
use crate::format::HaproxyVersion;
use crate::wire::op::Op;
use crate::wire::state::RuntimeInventory;

fn composed(old: &Value, new: &Value, version: &str) -> Result<BackendOps, Vec<String>> {
    composed_in(TEMPLATE, old, new, version)
}

fn composed_in(
    template: &str,
    old: &Value,
    new: &Value,
    version: &str,
) -> Result<BackendOps, Vec<String>> {
    let old = declared_in(template, old).unwrap();
    let new = declared_in(template, new).unwrap();
    let version: HaproxyVersion = version.parse().unwrap();
    let inventory = RuntimeInventory {
        certs: vec!["held.pem".into()],
        ..RuntimeInventory::default()
    };
    let context = Context {
        version: &version,
        declared: &new,
        inventory: &inventory,
    };
    compose(old.records(), &context)
}

/// `kind backend[/server] rest` for each op.
fn shown(ops: &[Op]) -> Vec<String> {
    ops.iter()
        .map(|op| {
            let mut text = format!("{} {}", op.kind, op.backend.as_deref().unwrap());
            if let Some(server) = &op.server {
                text.push_str(&format!("/{server}"));
            }
            for word in [&op.profile, &op.mode, &op.guid, &op.address]
                .into_iter()
                .flatten()
            {
                text.push_str(&format!(" {word}"));
            }
            for number in [op.port, op.weight, op.timeout_ms].into_iter().flatten() {
                text.push_str(&format!(" {number}"));
            }
            for keyword in &op.keywords {
                text.push_str(&format!(" {} {}", keyword.name, keyword.args.join(" ")));
            }
            if op.health == Some(true) {
                text.push_str(" health");
            }
            text.trim_end().to_owned()
        })
        .collect()
}

fn b(servers: Value) -> Value {
    file(http(), json!({}), servers)
}

fn s(name: &str, last: u8) -> Value {
    json!({"name": name, "address": format!("10.0.0.{last}"), "port": 80})
}

#[test]
fn servers_that_stay_are_changed_in_their_places() {
    let mut check = s("s", 1);
    check["keywords"] = json!(["check"]);
    let changed = |key: &str, value: Value| {
        let mut server = check.clone();
        server[key] = value;
        server
    };
    let mut moved_in = changed("address", json!("10.0.0.9"));
    moved_in["weight"] = 3.into();
    let spare = json!({"name": "s", "keywords": ["check"]});
    // Old, new, what comes before the maps, what comes after them.
    type Row<'a> = (Value, Value, &'a [&'a str], &'a [&'a str]);
    let table: &[Row<'_>] = &[
        (check.clone(), check.clone(), &[], &[]),
        (check.clone(), changed("weight", json!(1)), &[], &[]),
        (
            check.clone(),
            changed("address", json!("10.0.0.9")),
            &["server_set_addr b/s 10.0.0.9 80"],
            &[],
        ),
        (
            check.clone(),
            changed("port", json!(81)),
            &["server_set_addr b/s 10.0.0.1 81"],
            &[],
        ),
        (
            check.clone(),
            changed("address", json!("[::9]")),
            &["server_set_addr b/s ::9 80"],
            &[],
        ),
        (
            check.clone(),
            changed("weight", json!(0)),
            &["server_set_weight b/s 0"],
            &[],
        ),
        (
            changed("weight", json!(9)),
            check.clone(),
            &["server_set_weight b/s 1"],
            &[],
        ),
        (
            check.clone(),
            changed("state", json!("maint")),
            &[],
            &["server_disable b/s"],
        ),
        (
            changed("state", json!("maint")),
            check.clone(),
            &["server_enable b/s health"],
            &[],
        ),
        (
            check.clone(),
            spare.clone(),
            &[],
            &["server_disable b/s", "server_set_addr b/s 192.0.2.1 1"],
        ),
        (
            spare.clone(),
            moved_in,
            &[
                "server_set_addr b/s 10.0.0.9 80",
                "server_set_weight b/s 3",
                "server_enable b/s health",
            ],
            &[],
        ),
    ];
    for (old, new, change, leave) in table {
        for version in ["3.0.11", "3.4.7"] {
            let ops = composed(&b(json!([old])), &b(json!([new])), version).unwrap();
            assert_eq!(shown(&ops.change), *change, "{old} {new}");
            assert_eq!(shown(&ops.leave), *leave, "{old} {new}");
            let rest = [&ops.add, &ops.publish, &ops.unpublish, &ops.remove];
            assert!(rest.iter().all(|ops| ops.is_empty()));
            assert_eq!(ops.notes.is_empty(), change.is_empty() && leave.is_empty());
        }
    }
}

#[test]
fn servers_come_and_go() {
    let profile = json!({"mode": "http", "balance": "uri", "hash_type": "consistent djb2", "default_server": ["check", "inter 2s"]});
    let of = |servers: Value| file(profile.clone(), json!({}), servers);
    let mut slow = s("c", 3);
    slow["weight"] = 5.into();
    slow["keywords"] = json!(["inter 9s", "crt held.pem"]);
    let mut off = json!({"name": "d", "address": "/run/d.sock", "state": "maint"});
    off["keywords"] = json!(["no-check"]);
    let ops = composed(
        &of(json!([s("a", 1), s("b", 2)])),
        &of(json!([slow, s("b", 2), off, {"name": "e"}])),
        "3.0.11",
    );
    let ops = ops.unwrap();
    assert_eq!(
        shown(&ops.change),
        [
            "server_add b/c 10.0.0.3 80 weight 5 check  inter 9s crt held.pem",
            "server_enable b/c health",
            "server_add b/d /run/d.sock inter 2s",
            "server_add b/e 192.0.2.1 1 check  inter 2s",
        ]
    );
    assert_eq!(
        shown(&ops.leave),
        [
            "server_disable b/a",
            "wait_srv_removable b/a",
            "server_del b/a"
        ]
    );
}

#[test]
fn whole_backends_come_and_go_from_3_4_on() {
    let none = json!({"version": 1, "profiles": {"p": http()}, "backends": {}});
    let some = file(
        http(),
        json!({"guid": "g"}),
        json!([s("a", 1), {"name": "spare"}]),
    );
    let ops = composed(&none, &some, "3.4.7").unwrap();
    assert_eq!(
        shown(&ops.add),
        [
            "backend_add b p http g",
            "server_add b/a 10.0.0.1 80",
            "server_enable b/a",
            "server_add b/spare 192.0.2.1 1",
        ]
    );
    assert_eq!(shown(&ops.publish), ["backend_publish b"]);
    let ops = composed(&some, &none, "3.4.7").unwrap();
    assert_eq!(shown(&ops.unpublish), ["backend_unpublish b"]);
    assert_eq!(shown(&ops.leave).len(), 6);
    assert_eq!(shown(&ops.remove), ["wait_be_removable b", "backend_del b"]);
    for (old, new) in [(&none, &some), (&some, &none)] {
        let why = composed(old, new, "3.3.13").unwrap_err();
        assert!(
            why[0].contains("from 3.4 on, and this is 3.3.13"),
            "{why:?}"
        );
    }
}

#[test]
fn a_limit_that_only_a_start_works_out_is_a_reload() {
    let none = json!({"version": 1, "profiles": {"p": http()}, "backends": {}});
    let mut server = s("a", 1);
    server["keywords"] = json!(["maxconn 9", "minconn 2"]);
    let why = composed(&none, &b(json!([server])), "3.4.7").unwrap_err();
    assert!(why.len() == 1 && why[0].contains("minconn"), "{why:?}");
    // In a backend that HAProxy started with it counts.
    assert!(composed(&b(json!([])), &b(json!([server])), "3.4.7").is_ok());
}

/// Each row: what changes, and a piece of the only reason for a reload.
#[test]
fn what_no_op_brings_about_is_a_reload_that_says_so() {
    let one = |server: &Value| b(json!([server]));
    let plain = s("s", 1);
    let with = |key: &str, value: Value| {
        let mut server = plain.clone();
        server[key] = value;
        server
    };
    let asked = |weight: u16, state: &str| {
        let mut server = with("keywords", json!(["check", "agent-check", "agent-port 1"]));
        server["weight"] = weight.into();
        server["state"] = state.into();
        server
    };
    let added = |server: Value| (b(json!([plain.clone()])), b(json!([plain.clone(), server])));
    let with_keyword = |text: &str| {
        let mut server = s("t", 2);
        server["keywords"] = json!([text]);
        added(server)
    };
    let balance = |balance: &str, servers: Value| {
        file(
            json!({"mode": "http"}),
            json!({"balance": balance}),
            servers,
        )
    };
    let grows = |name: &str| {
        (
            balance(name, json!([s("s", 1)])),
            balance(name, json!([s("s", 1), s("t", 2)])),
        )
    };
    let attribute = |key: &str, value: Value| {
        let mut backend = json!({});
        backend[key] = value;
        (one(&plain), file(http(), backend, json!([plain.clone()])))
    };
    let table = [
        (
            (one(&plain), one(&with("keywords", json!(["check"])))),
            "has other keywords",
        ),
        (
            (one(&plain), one(&with("address", json!("host")))),
            "only an address literal",
        ),
        (
            (one(&with("address", json!("host"))), one(&plain)),
            "only an address literal",
        ),
        (
            (one(&asked(5, "ready")), one(&asked(6, "ready"))),
            "its agent-check sets it back",
        ),
        (
            (one(&asked(5, "ready")), one(&asked(5, "maint"))),
            "which its agent-check decides",
        ),
        (
            (
                balance("source", json!([plain.clone()])),
                balance("source", json!([with("weight", json!(7))])),
            ),
            "static balancing",
        ),
        (
            (
                b(json!([s("a", 1), s("b", 2)])),
                b(json!([s("b", 2), s("a", 1)])),
            ),
            "in another order",
        ),
        (grows("source"), "balances by `source`"),
        (grows("static-rr"), "balances by `static-rr`"),
        (grows("first"), "the place in the list counts"),
        ((grows("uri").1, grows("uri").0), "balances by `uri`"),
        (
            added(json!({"name": "t", "address": "host", "port": 1})),
            "no address literal",
        ),
        (with_keyword("resolvers dns"), "no server keyword resolvers"),
        (with_keyword("strict-maxconn"), "needs HAProxy 3.2"),
        (
            with_keyword("pool-max-conn 5"),
            "not known to mean the same",
        ),
        (
            with_keyword("agent-send x\\n"),
            "must not hold any of ; < > \\",
        ),
        (
            with_keyword("crt other.pem"),
            "does not hold under that name",
        ),
        (attribute("mode", json!("tcp")), "another profile, mode"),
        (attribute("guid", json!("g")), "another profile, mode"),
        (
            attribute("balance", json!("leastconn")),
            "another profile, mode",
        ),
        (
            attribute("lines", json!(["timeout server 1s"])),
            "another profile, mode",
        ),
    ];
    for ((old, new), wanted) in table {
        let why = composed(&old, &new, "3.0.11").unwrap_err();
        assert_eq!(why.len(), 1, "{why:?}");
        assert!(why[0].contains(wanted), "wanted {wanted:?} in {why:?}");
    }
}

#[test]
fn what_the_configuration_says_elsewhere_is_respected() {
    let none = json!({"version": 1, "profiles": {"p": {"mode": "http"}}, "backends": {}});
    let bare = |servers: Value| file(json!({"mode": "http"}), json!({}), servers);
    let one = bare(json!([s("a", 1)]));
    let two = bare(json!([s("a", 1), s("c", 2)]));
    let told = |key: &str, value: Value, servers: Value| {
        let mut profile = json!({"mode": "http"});
        profile[key] = value;
        file(profile, json!({}), servers)
    };
    let around = |text: &str| format!("{text}# haptic: backends\n");
    type Row<'a> = (&'a str, Value, Value, Option<&'a str>);
    let table: Vec<Row<'_>> = vec![
        ("", one.clone(), two.clone(), None),
        (
            "# balance source\n balance leastconn\n",
            one.clone(),
            two.clone(),
            None,
        ),
        (
            " balance source\n",
            one.clone(),
            two.clone(),
            Some("nothing says whether"),
        ),
        (
            " balance source\n",
            told("balance", json!("random(3)"), json!([s("a", 1)])),
            told("balance", json!("random(3)"), json!([s("a", 1), s("c", 2)])),
            None,
        ),
        (
            " default-server check\n",
            one.clone(),
            two.clone(),
            Some("`default-server` line"),
        ),
        (
            " default-server check\n",
            told("default_server", json!(["check"]), json!([s("a", 1)])),
            told(
                "default_server",
                json!(["check"]),
                json!([s("a", 1), s("c", 2)]),
            ),
            None,
        ),
        (
            " use_backend b if x\n",
            one.clone(),
            none.clone(),
            Some("mentions b "),
        ),
        (" use_backend bb if x\n", one.clone(), none.clone(), None),
        (
            " acl x nbsrv(b) gt 1\n",
            none.clone(),
            one.clone(),
            Some("mentions b "),
        ),
        (
            " acl x srv_is_up(b/c)\n",
            two.clone(),
            one.clone(),
            Some("mentions server b/c"),
        ),
        (" acl x srv_is_up(z/c)\n", two.clone(), one.clone(), None),
    ];
    for (text, old, new, wanted) in table {
        let seen = composed_in(&around(text), &old, &new, "3.4.7");
        match (seen, wanted) {
            (Ok(_), None) => {}
            (Err(why), Some(wanted)) => {
                assert!(
                    why.iter().any(|why| why.contains(wanted)),
                    "{text:?} {why:?}"
                );
            }
            (seen, _) => panic!("{text:?}: {seen:?}"),
        }
    }
    let pinned = |servers: Value| file(http(), json!({"lines": ["use-server c if x"]}), servers);
    let why = composed(
        &pinned(json!([s("a", 1), s("c", 2)])),
        &pinned(json!([s("a", 1)])),
        "3.4.7",
    );
    assert!(why.unwrap_err()[0].contains("mentions server b/c"));
}
