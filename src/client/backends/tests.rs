mod ops;

use super::*;
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
        (json!({"backends": {}}), "the key \"version\" is missing"),
        (json!({"version": 2, "backends": {}}), "version is 2"),
        (
            json!({"version": 1, "backend": {}}),
            "there is no key \"backend\" here; there are version, profiles, backends",
        ),
        (
            with("servres", json!([])),
            "there are profile, mode, guid, balance, hash_type, lines, servers",
        ),
        (
            server(json!({"name": "s", "adress": "x"})),
            "there are name, address, port, weight, state, keywords",
        ),
        (
            json!({"version": 1, "profiles": {"q": {}}, "backends": {"b": {"profile": "p"}}}),
            "no profile \"p\" in backends.json (there are q)",
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
