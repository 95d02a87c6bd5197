use super::ops::{BackendOps, Context, compose};
use super::*;
use crate::format::HaproxyVersion;
use crate::wire::op::Op;
use crate::wire::state::RuntimeInventory;
use serde_json::{Value, json};

const TEMPLATE: &str = "global\n    x\n# haptic: backends\ndefaults tail\n";

fn declared_in(template: &str, source: &Value) -> Result<Declared, DeclaredError> {
    let source = source.to_string();
    let read = Declared::read(
        "backends.json",
        Some(source.as_bytes()),
        "h.cfg",
        template.as_bytes(),
    );
    read.map(|declared| declared.unwrap())
}

fn declared(source: &Value) -> Declared {
    declared_in(TEMPLATE, source).unwrap()
}

/// One backend `b` of profile `p` with these servers.
fn file(profile: Value, mut backend: Value, servers: Value) -> Value {
    backend["profile"] = "p".into();
    backend["servers"] = servers;
    json!({"version": 1, "profiles": {"p": profile}, "backends": {"b": backend}})
}

fn http() -> Value {
    json!({"mode": "http", "balance": "roundrobin"})
}

#[test]
fn records_become_text_in_the_place_of_the_placeholder() {
    let source = json!({
        "version": 1,
        "profiles": {
            "web": {"mode": "http", "default_server": ["check", "inter 2s", "weight 7"]},
            "raw": {},
        },
        "backends": {
            "shop": {"profile": "web", "guid": "g1", "balance": "leastconn", "lines": ["timeout server 9s"], "servers": [
                {"name": "s2", "address": "10.0.0.2", "port": 80},
                {"name": "s1", "address": "::1", "port": 81, "weight": 0, "keywords": ["inter 5s", "maxconn 9"]},
                {"name": "off", "address": "10.0.0.3", "port": 82, "state": "maint", "keywords": ["no-check"]},
                {"name": "spare"},
            ]},
            "mail": {"profile": "raw", "mode": "tcp", "servers": [
                {"name": "u", "address": "unix@/run/m.sock"}, {"name": "h", "address": "mx.example", "port": 25},
            ]},
        },
    });
    let text = String::from_utf8(declared(&source).text()).unwrap();
    let wanted = "global
    x
# haptic: backends begin, generated from backends.json
backend mail from raw
    mode tcp
    server u unix@/run/m.sock
    server h mx.example:25

backend shop from web
    mode http
    guid g1
    balance leastconn
    server s2 10.0.0.2:80 weight 7 check inter 2s
    server s1 [::1]:81 weight 0 check inter 5s maxconn 9
    server off 10.0.0.3:82 weight 7 inter 2s disabled
    server spare 192.0.2.1:1 weight 7 check inter 2s disabled
    timeout server 9s

# haptic: backends end
defaults tail
";
    assert_eq!(text, wanted);
}

#[test]
fn the_placeholder_stands_once_and_with_its_file() {
    let good = json!({"version": 1, "backends": {}});
    for (template, source, wanted) in [
        ("a\n", None, None),
        ("# haptic: backends\n", Some(&good), None),
        ("\t# haptic: backends \r\nx", Some(&good), None),
        ("# haptic: backends", Some(&good), None),
        (
            "a\n",
            Some(&good),
            Some("put the line `# haptic: backends`"),
        ),
        (
            "a\n# haptic: backends\n",
            None,
            Some("h.cfg line 2 is the place"),
        ),
        (
            "# haptic: backends\n\n# haptic: backends\n",
            Some(&good),
            Some("line 3"),
        ),
        (
            "a\n# haptic: backends end\n",
            Some(&good),
            Some("this is generated text"),
        ),
    ] {
        let source = source.map(Value::to_string);
        let source = source.as_ref().map(String::as_bytes);
        let seen = Declared::read("backends.json", source, "h.cfg", template.as_bytes());
        match (seen, wanted) {
            (Ok(seen), None) => assert_eq!(seen.is_some(), source.is_some()),
            (Err(error), Some(wanted)) => {
                let words = error.to_string();
                assert!(words.contains(wanted), "{words}");
            }
            (seen, _) => panic!("{template:?}: {seen:?}"),
        }
    }
    // What it makes is not taken for a template again.
    let text = declared(&good).text();
    assert!(declared_in(std::str::from_utf8(&text).unwrap(), &good).is_err());
}

/// Each row: the file, and a piece of the refusal.
#[test]
fn every_rule_of_the_file_is_told() {
    let server = |server: Value| file(http(), json!({}), json!([server]));
    let with = |key: &str, value: Value| {
        let mut backend = json!({});
        backend[key] = value;
        file(http(), backend, json!([]))
    };
    let keyword = |text: &str| {
        server(json!({"name": "s", "address": "1.2.3.4", "port": 1, "keywords": [text]}))
    };
    let table = [
        (json!({"backends": {}}), "missing field `version`"),
        (json!({"version": 2, "backends": {}}), "version is 2"),
        (
            json!({"version": 1, "backend": {}}),
            "unknown field `backend`, expected one of `version`, `profiles`, `backends`",
        ),
        (
            with("servres", json!([])),
            "expected one of `profile`, `mode`, `guid`, `balance`, `hash_type`, `lines`, `servers`",
        ),
        (
            server(json!({"name": "s", "adress": "x"})),
            "expected one of `name`, `address`, `port`, `weight`, `state`, `keywords`",
        ),
        (
            json!({"version": 1, "profiles": {"q": {}}, "backends": {"b": {"profile": "p"}}}),
            "no profile \"p\" in backends.json (known: q)",
        ),
        (
            json!({"version": 1, "profiles": {"p": {}}, "backends": {"b": {"profile": "p"}}}),
            "it has no mode",
        ),
        (with("mode", json!("udp")), "must be http or tcp"),
        (
            json!({"version": 1, "profiles": {"p": http()}, "backends": {"b c": {"profile": "p"}}}),
            "letters, digits",
        ),
        (with("balance", json!("x # y")), "must not hold quotes"),
        (
            with("lines", json!(["server s 1.2.3.4:1"])),
            "cannot stand there",
        ),
        (
            with("lines", json!(["  default-server check"])),
            "cannot stand there",
        ),
        (with("lines", json!([".if 1"])), "cannot stand there"),
        (with("lines", json!(["frontend x"])), "cannot stand there"),
        (with("lines", json!(["a\nfrontend x"])), "one line"),
        (with("lines", json!(["a \\"])), "must not hold"),
        (server(json!({"name": "a/b"})), "letters, digits"),
        (
            server(json!({"name": "s", "port": 1})),
            "a port and no address",
        ),
        (server(json!({"name": "s", "state": "ready"})), "spare slot"),
        (
            server(json!({"name": "s", "address": "1.2.3.4"})),
            "no port",
        ),
        (server(json!({"name": "s", "address": "host"})), "no port"),
        (
            server(json!({"name": "s", "address": "1.2.3.4", "port": 0})),
            "1 to 65535",
        ),
        (
            server(json!({"name": "s", "address": "/run/x", "port": 1})),
            "has none",
        ),
        (
            server(json!({"name": "s", "address": "1.2.3.4", "port": 1, "weight": 257})),
            "0 to 256",
        ),
        (
            server(json!({"name": "s", "state": "drain"})),
            "\"weight\": 0",
        ),
        (
            server(json!({"name": "s", "state": "up"})),
            "ready or maint",
        ),
        (keyword("weight 5"), "as a key of the server"),
        (keyword("disabled"), "\"state\": \"maint\""),
        (keyword("check inter 2s"), "an item of its own"),
        (keyword("inter"), "has 1 argument(s)"),
        (keyword(" "), "a keyword is empty"),
        (keyword("sni str(#x)"), "must not hold any of"),
        (keyword("no-check"), "takes away what is not there"),
        (
            file(
                json!({"mode": "http", "default_server": ["check 1"]}),
                json!({}),
                json!([{"name": "s"}]),
            ),
            "default_server: ",
        ),
        (
            file(http(), json!({}), json!([{"name": "s"}, {"name": "s"}])),
            "server \"s\" is declared twice",
        ),
    ];
    for (source, wanted) in table {
        let words = declared_in(TEMPLATE, &source).unwrap_err().to_string();
        assert!(words.contains(wanted), "wanted {wanted:?} in {words:?}");
        assert!(words.starts_with("backends.json: "), "{words}");
    }
    let twice = br#"{"version": 1, "profiles": {"p": {"mode": "tcp"}}, "backends": {"b": {"profile": "p"}, "b": {"profile": "p"}}}"#;
    let words = Declared::read("backends.json", Some(twice), "h.cfg", TEMPLATE.as_bytes());
    let words = words.unwrap_err().to_string();
    assert!(
        words.contains("\"b\" is declared twice") && words.contains("line 1"),
        "{words}"
    );
}

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
            "wait_srv_removable b/a 30000",
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
    assert_eq!(
        shown(&ops.remove),
        ["wait_be_removable b 30000", "backend_del b"]
    );
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
