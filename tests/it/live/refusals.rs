//! Each refusal that an op can meet, through whole applies: the words of whoever refused,
//! at the right op of a hundred; the desired set is reloaded and the apply succeeded.

use super::rig::Live;
use super::world::{DEFAULT, HOSTS, LIST, PATHS, World, made, op};
use crate::support::haproxy::Version;
use crate::support::slow::Slow;
use serde_json::{Value, json};
use std::net::SocketAddr;

/// How many ops the batches have, and which of them is refused.
const OPS: usize = 100;
const AT: usize = 50;
/// The key that all the others change.
const KEY: &str = "/map/a";

/// What is to be read at the refused op.
enum Words {
    /// These, whole.
    Are(String),
    /// These in front of what depends on a version or a path.
    Start(&'static str),
}

/// An op that is refused.
struct Case {
    op: Value,
    /// What must stand in front of it in the batch for it to be refused.
    front: Vec<Value>,
    /// The same behind it.
    behind: Vec<Value>,
    /// A change of the files that goes with it.
    change: fn(&mut World),
    words: Words,
}

impl Case {
    fn new(op: Value, words: &str) -> Self {
        Self {
            op,
            front: Vec::new(),
            behind: Vec::new(),
            change: |_| (),
            words: Words::Are(words.to_owned()),
        }
    }

    fn starting(op: Value, words: &'static str) -> Self {
        Self {
            words: Words::Start(words),
            ..Self::new(op, "")
        }
    }

    fn front(self, op: Value) -> Self {
        Self {
            front: vec![op],
            ..self
        }
    }

    fn behind(self, op: Value) -> Self {
        Self {
            behind: vec![op],
            ..self
        }
    }

    fn with(self, change: fn(&mut World)) -> Self {
        Self { change, ..self }
    }
}

fn server(kind: &str, backend: &str, name: &str, more: Value) -> Value {
    let mut fields = more;
    fields["backend"] = json!(backend);
    fields["server"] = json!(name);
    op(kind, fields)
}

fn add(backend: &str, name: &str) -> Value {
    server(
        "server_add",
        backend,
        name,
        json!({"address": "127.0.0.1", "port": 80}),
    )
}

fn add_with(keyword: &str, args: &[&str]) -> Value {
    let keywords = json!([
        {"name": "ssl"}, {"name": "verify", "args": ["none"]}, {"name": keyword, "args": args},
    ]);
    server(
        "server_add",
        "extra_b",
        "new",
        json!({"address": "127.0.0.1", "port": 80, "keywords": keywords}),
    )
}

fn map(kind: &str, path: &str, key: &str, value: &str) -> Value {
    op(kind, json!({"path": path, "key": key, "value": value}))
}

fn path(kind: &str, path: &str) -> Value {
    op(kind, json!({"path": path}))
}

fn row(kind: &str, list: &str, cert: &str, more: Value) -> Value {
    let mut fields = more;
    fields["path"] = json!(list);
    fields["cert"] = json!(cert);
    op(kind, fields)
}

fn backend(kind: &str, name: &str) -> Value {
    let fields = json!({"backend": name, "profile": "dynamic", "mode": "http"});
    op(kind, fields)
}

fn with_field(op: Value, field: &str, value: Value) -> Value {
    let mut op = op;
    op[field] = value;
    op
}

/// A batch with `bad` in its middle. What is in front of it runs whatever happens; what is
/// behind it waits for all answers first, and so is never sent.
fn hundred(case: &Case) -> Vec<Value> {
    let set = |n: usize| map("map_set", PATHS, KEY, &format!("v{n}"));
    let mut ops: Vec<Value> = (case.front.len()..AT).map(set).collect();
    ops.extend(case.front.clone());
    ops.push(case.op.clone());
    // Neighbours of one kind are sent together.
    if case.op["kind"] != "map_del" {
        ops.push(op("map_del", json!({"path": PATHS, "key": "/map/absent"})));
    }
    ops.extend(case.behind.clone());
    ops.extend((ops.len()..OPS).map(set));
    ops
}

fn output(result: &Value) -> &str {
    result["output"].as_str().unwrap_or_default()
}

impl Live {
    /// The apply of the case, and that it ended as it must.
    fn refuses(&mut self, case: &Case) {
        let what = format!("{}, {}", self.haproxy.version(), case.op);
        (case.change)(&mut self.world);
        self.world
            .maps
            .insert(PATHS, vec![(KEY.to_owned(), format!("v{}", OPS - 1))]);
        let kind = case.op["kind"].as_str().unwrap();
        let metric = format!("haptic_agent_op_errors_total{{kind=\"{kind}\"}}");
        let (before, errors) = (self.identity(), self.agent.sample(&metric));
        let ops = hundred(case);
        let reply = self.apply("auto", &ops).send(&self.agent);
        let answer = reply.json();
        let told = format!("{what}: {answer:#}");
        assert_eq!(answer["ok"], true, "{told}");
        assert_eq!(answer["mode"], "reload", "{told}");
        assert_eq!(answer["reload"]["ok"], true, "{told}");
        assert!(answer.get("error").is_none(), "{told}");
        let results = answer["op_results"].as_array().unwrap();
        assert_eq!(results.len(), OPS, "{told}");
        for (n, (result, sent)) in results.iter().zip(&ops).enumerate() {
            assert_eq!(result["kind"], sent["kind"], "{told}");
            assert_eq!(result["ok"], n < AT, "op {n} of {told}");
            match n {
                AT => {}
                n if n < AT => assert!(result.get("output").is_none(), "op {n} of {told}"),
                n => assert_eq!(output(result), "not_run", "op {n} of {told}"),
            }
        }
        let said = output(&results[AT]);
        match &case.words {
            Words::Are(words) => assert_eq!(said, words, "{what}"),
            Words::Start(words) => assert!(said.starts_with(words), "{what}: {said:?}"),
        }
        let more = self.agent.sample(&metric) - errors;
        assert!((more - 1.0).abs() < 0.5, "{what}: {more} errors counted");
        assert_ne!(self.identity(), before, "{what}");
        self.world.reloaded();
        self.agrees(&what);
    }
}

/// What the cases need beside the world: backends that take no servers, or whose servers
/// cannot go; lists and certificates whose names can be taken for each other.
fn furnish(world: &mut World, slow: SocketAddr) {
    let base = world.base.display().to_string();
    world.more_config = format!(
        "backend extra_b
    balance roundrobin
    server s1 127.0.0.1:1
    server s2 127.0.0.1:1 guid g1
    server unix /tmp/nobody.sock
backend extra_fixed
    balance source
    server s1 127.0.0.1:1
backend extra_pinned
    balance roundrobin
    use-server s1 if FALSE
    server s1 127.0.0.1:1
backend extra_slow
    balance roundrobin
    server s1 {slow}
backend extra_static
    balance roundrobin
backend extra_table
    balance roundrobin
    stick-table type ip size 10
frontend extra_tls
    bind unix@{base}/two.sock ssl crt-list lists/two.list
    bind unix@{base}/def.sock ssl crt-list lists/def.list
    use_backend extra_static if FALSE
    http-request set-var(txn.many) path,map(maps/many.map)
    http-request return status 200
"
    );
    world
        .maps
        .get_mut(HOSTS)
        .unwrap()
        .push(("slow".to_owned(), "extra_slow".to_owned()));
    let mixed = format!("{}{}", made(0).material.cert, made(1).material.key);
    let broken = made(0).material.pem().replacen("\nMII", "\n!!!", 1);
    let one = made(0).material.pem();
    for (path, text) in [
        ("certs/x/dup.pem", &*one),
        ("certs/y/dup.pem", &*made(1).material.pem()),
        ("certs/mixed.pem", &*mixed),
        ("certs/broken.pem", &*broken),
        ("certs/unknown.pem", &*one),
        ("maps/none.map", "a b\n"),
        ("maps/many.map", &*"dup x\n".repeat(70)),
        (
            "lists/two.list",
            "certs/y/dup.pem a.example\ncerts/x/dup.pem b.example\ncerts/x/dup.pem c.example\n",
        ),
        (
            "lists/def.list",
            "certs/x/dup.pem a.example\ncerts/y/dup.pem b.example\n",
        ),
    ] {
        let bytes = text.as_bytes().to_vec();
        world.more_files.insert(path.to_owned(), bytes);
    }
}

fn of_servers(version: Version) -> Vec<Case> {
    let gone = "No such server.";
    let fixed = match version {
        Version::V3_4 => {
            "Backend does not support dynamic servers : backend 'extra_fixed' uses a non dynamic load balancing method."
        }
        Version::V3_0 | Version::V3_2 => {
            "Backend must use a dynamic load balancing to support dynamic servers."
        }
    };
    let (failed, expired) = match version {
        Version::V3_4 => (
            "Failed. Only servers in maintenance mode can be deleted.",
            "Wait delay expired. Server still has connections attached to it, cannot remove it.",
        ),
        Version::V3_0 | Version::V3_2 => ("Failed.", "Wait delay expired."),
    };
    let of = |kind: &str, backend: &str, name: &str, more: Value| server(kind, backend, name, more);
    let wait = |backend: &str| {
        of(
            "wait_srv_removable",
            backend,
            "s1",
            json!({"timeout_ms": 50}),
        )
    };
    vec![
        Case::new(
            add("b", "s1"),
            "Already exists a server with the same name in backend.",
        ),
        Case::new(add("nowhere", "x"), "No such backend."),
        Case::new(add("extra_fixed", "x"), fixed),
        Case::new(add_with("frobnicate", &[]), "unknown keyword 'frobnicate'."),
        Case::new(add_with("ca-file", &["ca/none.pem"]), "'ca-file' : unable to load ca/none.pem."),
        Case::new(add_with("crt", &["certs/none.pem"]), "unable to stat SSL certificate 'certs/none.pem'."),
        Case::new(
            add_with("guid", &["g1"]),
            "'guid': duplicate entry with server extra_b/s2.",
        ),
        Case::new(of("server_enable", "b", "none", json!({})), gone),
        Case::new(of("server_enable", "nowhere", "s1", json!({})), "No such backend."),
        Case::new(
            of("server_enable", "b", "s1", json!({"health": true})),
            "Health check was not configured on this server, cannot enable.",
        ),
        Case::new(of("server_disable", "b", "none", json!({})), gone),
        Case::new(
            of("server_set_addr", "b", "none", json!({"address": "127.0.0.1"})),
            gone,
        ),
        Case::new(
            of("server_set_addr", "extra_b", "unix", json!({"address": "127.0.0.1"})),
            "Update for the current server address family is only supported through configuration file.",
        ),
        Case::new(
            of("server_set_weight", "b", "none", json!({"weight": 1})),
            gone,
        ),
        Case::new(
            of("server_set_weight", "extra_fixed", "s1", json!({"weight": 7})),
            "Backend is using a static LB algorithm and only accepts weights '0%' and '100%'.",
        ),
        Case::new(
            of("server_set_state", "b", "none", json!({"state": "ready"})),
            gone,
        ),
        Case::new(of("shutdown_sessions", "b", "none", json!({})), gone),
        Case::new(wait("extra_b"), failed),
        Case::new(wait("extra_slow"), expired)
            .front(server("server_disable", "extra_slow", "s1", json!({}))),
        Case::new(
            of("server_del", "extra_slow", "s1", json!({})),
            "Server still has connections attached to it, cannot remove it.",
        )
        .behind(add("extra_slow", "s1")),
        Case::new(
            of("server_del", "extra_pinned", "s1", json!({})),
            "This server cannot be removed at runtime due to other configuration elements pointing to it.",
        )
        .behind(add("extra_pinned", "s1")),
    ]
}

fn of_maps(version: Version) -> Vec<Case> {
    let unknown = "Unknown map identifier. Please use #<id> or <file>.";
    let none = "maps/none.map";
    let mut all = vec![
        Case::new(map("map_set", PATHS, "/map/none", "x"), "entry not found."),
        Case::new(map("map_set", none, "a", "x"), unknown),
        Case::new(map("map_add", none, "a", "x"), unknown),
        Case::new(op("map_del", json!({"path": none, "key": "a"})), unknown),
        Case::new(path("map_replace", none), unknown),
    ];
    // Before, one command removes every duplicate.
    if version == Version::V3_4 {
        let many = op("map_del", json!({"path": "maps/many.map", "key": "dup"}));
        let words = "after 64 deletes HAProxy still finds the key in the map";
        all.push(Case::new(many, words).with(|world| {
            world
                .more_files
                .insert("maps/many.map".to_owned(), b"kept x\n".to_vec());
        }));
    }
    all
}

fn of_certificates() -> Vec<Case> {
    let mixed = "inconsistencies between private key and certificate loaded 'certs/mixed.pem'.\nCan't commit certs/mixed.pem!";
    let option = json!({"options": [{"name": "frobnicate"}]});
    vec![
        Case::new(
            path("cert_set", "certs/unknown.pem"),
            "Can't replace a certificate which is not referenced by the configuration!\nCan't update certs/unknown.pem!",
        ),
        Case::new(path("cert_new", "certs/mixed.pem"), mixed),
        Case::new(
            path("cert_new", "certs/broken.pem"),
            "unable to load certificate from file 'certs/broken.pem': bad base64 decode.\nCan't load the payload\nCan't update certs/broken.pem!",
        ),
        Case::new(
            path("cert_new", DEFAULT),
            "Certificate 'certs/default.pem' already exists!",
        ),
        Case::new(
            path("ca_new", "ca/clients.pem"),
            "CA file 'ca/clients.pem' already exists!",
        ),
        Case::new(
            row("crtlist_add", LIST, DEFAULT, option),
            "Can't edit the crt-list: parsing [CLI:1]: unknown ssl keyword frobnicate",
        ),
        Case::new(
            row("crtlist_add", LIST, "certs/none.pem", json!({})),
            "HAProxy holds no certificate certs/none.pem",
        ),
        Case::new(
            row("crtlist_add", LIST, "dup.pem", json!({})),
            "several certificates of HAProxy could be dup.pem",
        ),
        Case::new(
            row("crtlist_add", "lists/none.list", DEFAULT, json!({})),
            "Can't edit the crt-list: crt-list 'lists/none.list' does not exist!",
        ),
        Case::new(
            row("crtlist_del", "lists/none.list", DEFAULT, json!({})),
            "didn't find the specified filename",
        ),
        Case::new(
            row("crtlist_del", "lists/two.list", "certs/x/dup.pem", json!({})),
            "the crt-list lists/two.list has 2 rows for certs/x/dup.pem and its file still names it",
        ),
        Case::starting(
            row("crtlist_del", "lists/def.list", "certs/x/dup.pem", json!({})),
            "Can't delete the entry: certificate 'certs/x/dup.pem' cannot be deleted, it is used as default certificate",
        )
        .with(|world| {
            let list = b"certs/y/dup.pem b.example\n".to_vec();
            world.more_files.insert("lists/def.list".to_owned(), list);
        }),
    ]
}

fn of_backends() -> Vec<Case> {
    let collision = |who: &str| {
        format!("Error during backend creation : name is already used by other proxy '{who}'.")
    };
    let new = || backend("backend_add", "new");
    let del = |name: &str, words: &'static str| {
        Case::new(backend("backend_del", name), words).behind(backend("backend_add", name))
    };
    vec![
        Case::new(backend("backend_add", "b"), &collision("backend b")),
        Case::new(
            backend("backend_add", "front"),
            &collision("frontend front"),
        ),
        Case::new(
            with_field(new(), "profile", json!("none")),
            "Cannot find default proxy 'none'.",
        ),
        Case::new(
            with_field(new(), "guid", json!("g1")),
            "Error during backend creation : GUID insertion : duplicate entry with server extra_b/s2.",
        ),
        Case::new(backend("backend_publish", "none"), "No such backend."),
        Case::new(backend("backend_unpublish", "none"), "No such backend."),
        Case::new(
            op(
                "wait_be_removable",
                json!({"backend": "extra_b", "timeout_ms": 50}),
            ),
            "Failed. Backend must be unpublished prior to its deletion.",
        ),
        del("extra_b", "Only a backend without server can be deleted."),
        del(
            "extra_static",
            "This proxy cannot be removed at runtime due to other configuration elements pointing to it.",
        ),
        del("extra_table", "Cannot remove a backend with stick-table."),
    ]
}

fn refused_by(version: Version, cases: Vec<Case>) {
    let slow = Slow::start();
    let mut live = Live::start(version);
    furnish(&mut live.world, slow.address());
    live.apply("reload", &[]).succeed(&live.agent, "reload");
    live.world.reloaded();
    let load = live.load();
    // One that the worker of the moment has to wait for.
    let mut requests = Vec::new();
    for case in cases {
        if case.op["backend"] == "extra_slow" {
            requests.push(slow.request(live.world.http, "slow"));
        }
        live.refuses(&case);
    }
    let seen = load.stop();
    assert_eq!(seen.failed, 0, "{version}: {seen:?}");
    assert!(seen.good > 0);
    slow.let_go();
    for request in requests {
        let _ = request.join();
    }
}

#[test]
fn ops_on_servers_that_haproxy_refuses() {
    for version in Version::ALL {
        refused_by(version, of_servers(version));
    }
}

#[test]
fn ops_on_maps_that_haproxy_refuses() {
    for version in Version::ALL {
        refused_by(version, of_maps(version));
    }
}

#[test]
fn ops_on_certificates_that_haproxy_refuses() {
    for version in Version::ALL {
        refused_by(version, of_certificates());
    }
}

#[test]
fn ops_on_backends_that_haproxy_refuses() {
    refused_by(Version::V3_4, of_backends());
}

/// The refusal of an op, and then of the files as well: the worker, which a part of the
/// batch has reached, gets the former set again.
#[test]
fn files_that_haproxy_refuses_as_well_are_taken_back() {
    for version in Version::ALL {
        let mut live = Live::start(version);
        let load = live.load();
        let former = live.world.clone();
        live.world
            .maps
            .insert(PATHS, vec![(KEY.to_owned(), "v99".to_owned())]);
        live.world.more_config = "backend extra_bad\n    frobnicate\n".to_owned();
        let case = Case::new(server("server_disable", "b", "none", json!({})), "");
        let ops = hundred(&case);
        let before = live.identity();
        let answer = live.apply("auto", &ops).send(&live.agent).json();
        let told = format!("{version}: {answer:#}");
        assert_eq!(
            (&answer["ok"], &answer["mode"]),
            (&json!(false), &json!("rejected")),
            "{told}"
        );
        assert_eq!(answer["error"]["stage"], "reload", "{told}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("frobnicate"), "{told}");
        let results = answer["op_results"].as_array().unwrap();
        for (n, result) in results.iter().enumerate() {
            assert_eq!(result["ok"], n < AT, "op {n} of {told}");
        }
        assert_eq!(results[AT]["output"], "No such server.", "{told}");
        let back = json!({"performed": true, "reloaded": true});
        assert_eq!(answer["rollback"], back, "{told}");
        assert_ne!(live.identity(), before, "{version}");
        live.world = former;
        live.forget_sent();
        let seen = live.world.seen(&live.haproxy);
        assert_eq!(seen, live.world.view(), "{version}");
        live.apply("reload", &[]).succeed(&live.agent, "reload");
        live.world.reloaded();
        live.agrees("taken back, and sent again");
        assert_eq!(load.stop().failed, 0, "{version}");
    }
}

/// On 3.0, once anybody has changed a CA, a certificate that is committed stays the old
/// one, whatever HAProxy says. A handshake shows the new one after the reload.
#[test]
fn a_certificate_that_stays_the_old_one_is_a_refusal() {
    for version in Version::ALL {
        let mut live = Live::start(version);
        let load = live.load();
        let bundle = format!("{}{}", made(1).material.cert, made(2).material.cert);
        let set = format!("set ssl ca-file {} <<\n{bundle}\n", super::world::CLIENTS);
        live.haproxy.ask(&set).unwrap();
        let commit = format!("commit ssl ca-file {}", super::world::CLIENTS);
        assert!(live.haproxy.ask(&commit).unwrap().contains("Success!"));
        let ops = [live.world.cert_set(DEFAULT, 3)];
        let old = version == Version::V3_0;
        let mode = if old { "reload" } else { "runtime" };
        let answer = live.apply("auto", &ops).succeed(&live.agent, mode);
        if old {
            let words = output(&answer["op_results"][0]);
            let start = "HAProxy committed certs/default.pem and updated nothing that uses it: ";
            assert!(words.starts_with(start), "{words}");
            live.world.reloaded();
        }
        live.serves_tls("the new certificate");
        live.apply("reload", &[]).succeed(&live.agent, "reload");
        live.world.reloaded();
        live.agrees("reloaded");
        live.serves("reloaded", true);
        assert_eq!(load.stop().failed, 0, "{version}");
    }
}
