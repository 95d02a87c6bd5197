//! What no worker is asked: ops that break a rule, that its version lacks or that do not
//! fit. The whole batch is left unsent, the op at fault is named with its rule, and the
//! files are reloaded. The peer is a model of HAProxy that keeps what it was told.

use super::modelled::{MAP, Site};
use super::world::op;
use crate::support::certs;
use crate::support::haproxy::Version;
use serde_json::{Value, json};

const OPS: usize = 100;
const AT: usize = 50;

impl Site {
    /// A batch whose middle is `bad` is not sent, and `output` says why.
    fn refuses(&mut self, bad: &Value, output: &str) {
        let what = format!("{}: {bad}", self.version);
        let good = op("map_set", json!({"path": MAP, "key": "/a", "value": "two"}));
        let mut ops = vec![good; OPS];
        ops[AT] = bad.clone();
        self.haproxy.clear_commands();
        let reloads = self.haproxy.reloads();
        let answer = self.apply("auto", &ops).succeed(&self.agent, "reload");
        assert!(answer.get("error").is_none(), "{what}: {answer:#}");
        let results = answer["op_results"].as_array().unwrap();
        assert_eq!(results.len(), OPS, "{what}");
        for (n, (result, op)) in results.iter().zip(&ops).enumerate() {
            assert_eq!(result["kind"], op["kind"], "{what}");
            assert_eq!(result["ok"], false, "{what}");
            let wanted = match n {
                AT => output,
                _ => "not sent: another op of the batch is not executable",
            };
            assert_eq!(result["output"], wanted, "{what}: op {n}");
        }
        let commands = self.haproxy.commands();
        // Beside looks only what waited before may be asked about.
        let looks = [
            "prompt",
            "set severity-output",
            "show ",
            "del server b/x",
            "del backend y",
        ];
        let sent: Vec<&String> = commands
            .iter()
            .filter(|command| !looks.iter().any(|look| command.starts_with(look)))
            .collect();
        assert!(sent.is_empty(), "{what}: {sent:?}");
        assert_eq!(self.haproxy.reloads(), reloads + 1, "{what}");
        let state = self.agent.state_with("?plan=0");
        assert_eq!(state["running_plan_id"], state["applied_plan_id"], "{what}");
        let violated = !output.starts_with("queue_full: ");
        assert_eq!(
            state["invariant_violation"] == "ops_executable",
            violated,
            "{what}"
        );
    }
}

fn server(kind: &str, more: Value) -> Value {
    let mut fields = more;
    for (field, value) in [("backend", "b"), ("server", "s1")] {
        if fields.get(field).is_none() {
            fields[field] = json!(value);
        }
    }
    op(kind, fields)
}

fn add(more: Value) -> Value {
    let mut fields = more;
    if fields.get("address").is_none() {
        fields["address"] = json!("127.0.0.1");
        fields["port"] = json!(80);
    }
    fields["server"] = json!("new");
    server("server_add", fields)
}

fn keyword(name: &str, args: &[&str]) -> Value {
    add(json!({"keywords": [{"name": name, "args": args}]}))
}

fn map(kind: &str, key: &str, value: &str) -> Value {
    op(kind, json!({"path": MAP, "key": key, "value": value}))
}

fn row(more: Value) -> Value {
    let mut fields = more;
    for (field, value) in [("path", "lists/a.list"), ("cert", "certs/a.pem")] {
        if fields.get(field).is_none() {
            fields[field] = json!(value);
        }
    }
    op("crtlist_add", fields)
}

const BLANKS: &str = "must not hold blanks or control characters";
const MARKS: &str = "must not hold any of ; < > \\";
const NAME: &str = "may hold letters, digits and _ . : - only";

/// Each rule of a field, and what is said of who breaks it.
fn of_fields() -> Vec<(Value, String)> {
    let long = "n".repeat(256);
    let shown = "n".repeat(80);
    let mut all = Vec::new();
    let mut case = |op: Value, words: &str| all.push((op, format!("invalid: {words}")));
    case(map("map_set", "", "v"), "key is \"\" and must not be empty");
    case(
        map("map_set", "a b", "v"),
        &format!("key is \"a b\" and {BLANKS}"),
    );
    case(
        map("map_set", "a\t", "v"),
        &format!("key is \"a\\t\" and {BLANKS}"),
    );
    case(
        map("map_add", "a\n", "v"),
        &format!("key is \"a\\n\" and {BLANKS}"),
    );
    case(
        map("map_set", "a\u{7f}", "v"),
        &format!("key is \"a\\u{{7f}}\" and {BLANKS}"),
    );
    case(
        map("map_set", "a;b", "v"),
        &format!("key is \"a;b\" and {MARKS}"),
    );
    case(
        map("map_del", "a<b", "v"),
        &format!("key is \"a<b\" and {MARKS}"),
    );
    case(
        map("map_set", "a>b", "v"),
        &format!("key is \"a>b\" and {MARKS}"),
    );
    case(
        map("map_set", "a\\b", "v"),
        &format!("key is \"a\\\\b\" and {MARKS}"),
    );
    case(
        map("map_set", "#0x1", "v"),
        "key is \"#0x1\" and must not start with #",
    );
    case(
        map("map_set", "a", ""),
        "value is \"\" and must not be empty",
    );
    case(
        map("map_set", "a", "b c"),
        &format!("value is \"b c\" and {BLANKS}"),
    );
    case(
        map("map_set", "a", "<<X"),
        &format!("value is \"<<X\" and {MARKS}"),
    );
    for bad in ["b\nc", "b\rc", "b\0c"] {
        case(
            map("map_add", "a", bad),
            &format!("value is {bad:?} and must be one line without CR and NUL"),
        );
    }
    for bad in [" b", "b ", "\tb", "b\t", " "] {
        case(
            map("map_add", "a", bad),
            &format!(
                "value is {bad:?} and must not start or end with a blank, HAProxy would cut it"
            ),
        );
    }
    for bad in ["#1", "@1", "*x"] {
        case(
            op("map_set", json!({"path": bad, "key": "a", "value": "b"})),
            &format!("path is {bad:?} and must not start with # @ or *"),
        );
    }
    case(
        op("map_del", json!({"path": long, "key": "a"})),
        &format!("path is {shown:?} and must have at most 255 bytes"),
    );
    case(
        op("cert_set", json!({"path": "a;b"})),
        &format!("path is \"a;b\" and {MARKS}"),
    );
    for (bad, rule) in [
        ("", "must not be empty"),
        ("a/b", NAME),
        ("ü", NAME),
        ("a b", NAME),
    ] {
        case(
            server("server_enable", json!({"server": bad})),
            &format!("server is {bad:?} and {rule}"),
        );
    }
    case(
        server("server_enable", json!({"backend": long})),
        &format!("backend is {shown:?} and must have at most 255 bytes"),
    );
    for bad in [
        "localhost",
        "fd@3",
        "abns@x",
        "ipv4@127.0.0.1",
        "fe80::1%eth0",
        "1.2.3.4:80",
    ] {
        case(
            add(json!({"address": bad, "port": 80})),
            &format!("address is {bad:?} and must be an IPv4 or IPv6 address"),
        );
    }
    case(add(json!({"address": "127.0.0.1"})), "port is missing");
    for bad in [0, 65_536, -5, 70_000] {
        let words = format!("port is {bad} and must be 1 to 65535");
        case(add(json!({"address": "127.0.0.1", "port": bad})), &words);
        let change = json!({"address": "127.0.0.1", "port": bad});
        case(server("server_set_addr", change), &words);
    }
    case(
        add(json!({"address": "/x.sock", "port": 1})),
        "port is 1 and a unix socket has none",
    );
    case(
        server("server_set_addr", json!({"address": "/x.sock"})),
        "address is \"/x.sock\" and must be an IPv4 or IPv6 address",
    );
    for bad in [-1, 257] {
        case(
            server("server_set_weight", json!({"weight": bad})),
            &format!("weight is {bad} and must be 0 to 256"),
        );
    }
    for bad in [0, 30_001] {
        case(
            server("wait_srv_removable", json!({"timeout_ms": bad})),
            &format!("timeout_ms is {bad} and must be 1 to 30000"),
        );
    }
    case(
        server("server_set_state", json!({"state": "up"})),
        "state is \"up\" and must be ready, maint or drain",
    );
    case(
        keyword("a b", &[]),
        &format!("keywords.name is \"a b\" and {BLANKS}"),
    );
    for bad in ["a\\nb", "a;b", ""] {
        case(
            keyword("cookie", &[bad]),
            &format!(
                "keywords.args is {bad:?} and must not be empty nor hold control characters or any of ; < > \\, not even as an escape like \\n"
            ),
        );
    }
    let mark = "must not hold [ or ] nor start with #";
    case(
        row(json!({"options": [{"name": "[alpn"}]})),
        &format!("options.name is \"[alpn\" and {mark}"),
    );
    case(
        row(json!({"options": [{"name": "alpn", "args": ["h2]"]}]})),
        &format!("options.args is \"h2]\" and {mark}"),
    );
    case(
        row(json!({"sni_filters": ["#x"]})),
        &format!("sni_filters is \"#x\" and {mark}"),
    );
    case(
        row(json!({"sni_filters": ["a b"]})),
        &format!("sni_filters is \"a b\" and {BLANKS}"),
    );
    case(
        row(json!({"cert": "*x"})),
        "cert is \"*x\" and must not start with # @ or *",
    );
    for (kind, missing) in [
        ("server_set_weight", "weight"),
        ("server_set_state", "state"),
        ("server_set_addr", "address"),
        ("server_add", "address"),
        ("wait_srv_removable", "timeout_ms"),
    ] {
        case(server(kind, json!({})), &format!("{missing} is missing"));
    }
    for (kind, fields, missing) in [
        ("map_set", json!({"path": MAP, "key": "a"}), "value"),
        ("map_del", json!({"path": MAP}), "key"),
        ("map_replace", json!({}), "path"),
        ("crtlist_del", json!({"path": "lists/a.list"}), "cert"),
        ("server_enable", json!({"backend": "b"}), "server"),
        ("server_del", json!({"server": "s1"}), "backend"),
    ] {
        case(op(kind, fields), &format!("{missing} is missing"));
    }
    all
}

/// What a version lacks.
fn of_versions(version: Version) -> Vec<(Value, String)> {
    let number = match version {
        Version::V3_0 => "3.0.11",
        Version::V3_2 => "3.2.26",
        Version::V3_4 => "3.4.7",
    };
    let mut all = vec![(
        op("frobnicate", json!({})),
        "unsupported: this agent knows no op of the kind \"frobnicate\"".to_owned(),
    )];
    for name in [
        "enabled",
        "no-check",
        "resolvers",
        "init-addr",
        "socks4",
        "redir",
        "log-proto",
    ] {
        let words = format!("unsupported: HAProxy takes no server keyword {name} at runtime");
        all.push((keyword(name, &["x"]), words));
    }
    let needs = |what: &str, least: &str| {
        format!("unsupported: {what} needs HAProxy {least} and this is {number}")
    };
    if version != Version::V3_4 {
        for kind in [
            "backend_add",
            "backend_publish",
            "backend_unpublish",
            "backend_del",
            "wait_be_removable",
        ] {
            let fields = json!({"backend": "b", "profile": "p", "mode": "http", "timeout_ms": 1});
            all.push((op(kind, fields), needs(kind, "3.4")));
        }
    }
    if version == Version::V3_0 {
        let ca = op("ca_set", json!({"path": "ca/a.pem"}));
        all.push((ca, needs("changing a CA file at runtime", "3.2")));
        for (name, least) in [
            ("init-state", "3.1"),
            ("strict-maxconn", "3.2"),
            ("idle-ping", "3.2"),
        ] {
            let what = format!("the server keyword {name}");
            all.push((keyword(name, &["x"]), needs(&what, least)));
        }
    }
    all
}

/// What does not fit into one command.
fn of_sizes() -> Vec<(Value, String)> {
    let words: Vec<String> = (0..62).map(|n| format!("w{n}")).collect();
    let args: Vec<&str> = words.iter().map(String::as_str).collect();
    let long = "v".repeat(12_288);
    let mut all = vec![
        (
            keyword("cookie", &args),
            "too_big: the command has 67 words and HAProxy reads 64".to_owned(),
        ),
        (
            map("map_set", "/a", &long),
            format!(
                "too_big: the command has {} bytes and at most 12288 are sent on one line",
                "set map maps/path.map /a ".len() + long.len() + 1
            ),
        ),
        (
            map("map_add", "/a", &long),
            format!(
                "too_big: a line of the payload has {} bytes and at most 12288 are possible",
                "/a ".len() + long.len() + 1
            ),
        ),
        (
            map("map_add", "/a", &"v".repeat(12_250)),
            format!(
                "too_big: the command with its payload has {} bytes and this HAProxy takes 12288",
                "add map maps/path.map <<E_O_F\n/a \nE_O_F\n".len() + 12_250
            ),
        ),
    ];
    all.push((
        keyword("cookie", &["x".repeat(12_288).as_str()]),
        format!(
            "too_big: the command has {} bytes and at most 12288 are sent on one line",
            "add server b/new 127.0.0.1:80 cookie \n".len() + 12_288
        ),
    ));
    all
}

/// Content that is on disk and cannot be sent.
fn of_files() -> Vec<(&'static str, Vec<u8>, Value, String)> {
    let (first, second) = (certs::first(), certs::second());
    let both = "invalid: the file must hold a certificate and its private key";
    let with = |kind: &str, path: &str| op(kind, json!({"path": path}));
    let pem = "certs/a.pem";
    let cert = |bytes: Vec<u8>, words: &str| (pem, bytes, with("cert_new", pem), words.to_owned());
    let long = format!("/a {}\n", "v".repeat(12_288));
    let many = first.cert.repeat(40);
    vec![
        cert(Vec::new(), both),
        cert(first.cert.clone().into_bytes(), both),
        cert(first.key.clone().into_bytes(), both),
        (
            "ca/a.pem",
            first.key.clone().into_bytes(),
            with("ca_new", "ca/a.pem"),
            "invalid: the file holds no certificate".to_owned(),
        ),
        (
            pem,
            format!("{}{many}", second.pem()).into_bytes(),
            with("cert_set", pem),
            String::new(),
        ),
        (
            "maps/b.map",
            b"/a b\n/c \0d\n".to_vec(),
            with("map_replace", "maps/b.map"),
            "invalid: line 2 of the map file holds a NUL byte".to_owned(),
        ),
        (
            "maps/b.map",
            format!("/a b\n\n{long}").into_bytes(),
            with("map_replace", "maps/b.map"),
            "invalid: line 3 of the map file is longer than 12287 bytes".to_owned(),
        ),
    ]
}

#[test]
fn ops_that_break_a_rule_are_not_sent() {
    for version in Version::ALL {
        let mut site = Site::start(version);
        for (bad, output) in of_fields() {
            site.refuses(&bad, &output);
        }
        let unset = server("server_enable", json!({"health": true, "server": "new"}));
        let output = "invalid: health checks of b/new cannot be enabled, it was added without the keyword check";
        let plain = add(json!({}));
        let ops = [plain, unset];
        site.haproxy.clear_commands();
        let answer = site.apply("auto", &ops).succeed(&site.agent, "reload");
        assert_eq!(answer["op_results"][1]["output"], output);
    }
}

#[test]
fn ops_that_the_version_lacks_are_not_sent() {
    for version in Version::ALL {
        let mut site = Site::start(version);
        for (bad, output) in of_versions(version) {
            site.refuses(&bad, &output);
        }
    }
}

#[test]
fn ops_that_do_not_fit_are_not_sent() {
    for version in Version::ALL {
        let mut site = Site::start(version);
        for (bad, output) in of_sizes() {
            site.refuses(&bad, &output);
        }
        for (path, bytes, bad, output) in of_files() {
            let before = site.files.insert(path, bytes);
            let output = match output.as_str() {
                "" => {
                    let chain = certs::second().cert.len() + 40 * certs::first().cert.len();
                    format!(
                        "too_big: the certificate has {chain} bytes and 12213 fit into one command"
                    )
                }
                words => words.to_owned(),
            };
            site.refuses(&bad, &output);
            match before {
                Some(bytes) => site.files.insert(path, bytes),
                None => site.files.remove(path),
            };
        }
        let gone = op("map_replace", json!({"path": "maps/gone.map"}));
        let output = "invalid: maps/gone.map is not among the files of the set";
        site.refuses(&gone, output);
    }
}

/// A thousand servers and a hundred backends may wait to go, and not one more.
#[test]
fn deletes_above_the_cap_are_not_sent() {
    let full = "queue_full: too many deletes are waiting for their sessions to end";
    let mut site = Site::start(Version::V3_4);
    let named = |n: usize| format!("x{n}");
    for some in 0..2 {
        let adds: Vec<Value> = (some * 500..(some + 1) * 500)
            .map(|n| {
                add(json!({}))
                    .as_object()
                    .cloned()
                    .map(|mut fields| {
                        fields["server"] = json!(named(n));
                        Value::Object(fields)
                    })
                    .unwrap()
            })
            .collect();
        site.apply("auto", &adds).succeed(&site.agent, "runtime");
    }
    for n in 0..1000 {
        site.haproxy.set_connections("b", &named(n), 1);
    }
    let del = |name: &str| server("server_del", json!({"server": name}));
    let dels: Vec<Value> = (0..1000).map(|n| del(&named(n))).collect();
    let answer = site.apply("auto", &dels).succeed(&site.agent, "runtime");
    let results = answer["op_results"].as_array().unwrap();
    assert!(results.iter().all(|result| result["ok"] == true));
    let waiting = |site: &Site, kind: &str| {
        let state = site.agent.state_with("?plan=0");
        let of_kind = state["pending_deletes"][format!("{kind}s")]
            .as_array()
            .unwrap()
            .len();
        let name = format!("haptic_agent_pending_deletes{{kind=\"{kind}\"}}");
        let sample = site.agent.sample(&name);
        assert!((sample - of_kind as f64).abs() < 0.5, "{sample} {of_kind}");
        of_kind
    };
    assert_eq!(waiting(&site, "server"), 1000);
    // The same once more is none more.
    site.apply("auto", &dels[..100])
        .succeed(&site.agent, "runtime");
    assert_eq!(waiting(&site, "server"), 1000);
    site.refuses(&del("s1"), full);
    assert_eq!(waiting(&site, "server"), 0, "the reload took them");
    let superseded = "haptic_agent_deferred_deletes_total{kind=\"server\",outcome=\"superseded\"}";
    assert!((site.agent.sample(superseded) - 1000.0).abs() < 0.5);

    let of = |kind: &str, name: &str| {
        op(
            kind,
            json!({"backend": name, "profile": "tmpl", "mode": "http"}),
        )
    };
    let names: Vec<String> = (0..101).map(|n| format!("y{n}")).collect();
    let adds: Vec<Value> = names.iter().map(|name| of("backend_add", name)).collect();
    let answer = site.apply("auto", &adds).send(&site.agent).json();
    assert_eq!(answer["mode"], "runtime", "{answer:#}");
    for name in &names {
        site.haproxy.set_streams(name, 1);
    }
    let dels: Vec<Value> = names.iter().map(|name| of("backend_del", name)).collect();
    site.apply("auto", &dels[..100])
        .succeed(&site.agent, "runtime");
    assert_eq!(waiting(&site, "backend"), 100);
    site.refuses(&dels[100], full);
    assert_eq!(waiting(&site, "backend"), 0);
}
