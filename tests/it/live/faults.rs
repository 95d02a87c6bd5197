//! Every command that an op sends meets every way of getting no answer, or a wrong one. No
//! op claims what it does not know, the one that it happened to is named, nothing hangs,
//! and the files are what the worker holds in the end.

use super::modelled::{CA, CERT, IDLE, LIST, MAP, Site, server};
use super::world::op;
use crate::support::certs;
use crate::support::haproxy::Version;
use haptic_agent::testkit::fake_haproxy::Fault;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Far below the patience for one command.
const SOON: Duration = Duration::from_secs(8);

fn backend(kind: &str) -> Value {
    op(
        kind,
        json!({"backend": "x", "profile": "tmpl", "mode": "http", "timeout_ms": 50}),
    )
}

/// A command, and a batch that sends it, with the place of the op that does.
type Case = (&'static str, Vec<Value>, usize);

fn cases(version: Version) -> Vec<Case> {
    let map = |kind: &str, key: &str| op(kind, json!({"path": MAP, "key": key, "value": "v"}));
    let path = |kind: &str, path: &str| op(kind, json!({"path": path}));
    let row = |kind: &str, cert: &str| {
        op(
            kind,
            json!({"path": LIST, "cert": cert, "sni_filters": ["x.example"]}),
        )
    };
    let add = || {
        let fields = json!({"address": "127.0.0.1", "port": 80, "keywords": [{"name": "check"}]});
        server("server_add", "new", fields)
    };
    let first = || server("server_set_weight", "s2", json!({"weight": 2}));
    let last = || map("map_add", "/last");
    let plain = |command: &'static str, op: Value| (command, vec![first(), op, last()], 1);
    let state = |state: &str| server("server_set_state", "s1", json!({"state": state}));
    let mut all = vec![
        plain("set map", map("map_set", "/a")),
        plain("add map", map("map_add", "/b")),
        plain("del map", map("map_del", "/a")),
        plain("prepare map", path("map_replace", MAP)),
        plain("add map", path("map_replace", MAP)),
        plain("commit map", path("map_replace", MAP)),
        plain("add server", add()),
        plain("enable server", server("server_enable", "s1", json!({}))),
        plain("disable agent", server("server_disable", "s1", json!({}))),
        plain("disable server", server("server_disable", "s1", json!({}))),
        plain(
            "set server b/s1 addr",
            server("server_set_addr", "s1", json!({"address": "127.0.0.9"})),
        ),
        plain(
            "show servers state",
            server("server_set_addr", "s1", json!({"address": "127.0.0.9"})),
        ),
        plain(
            "set server b/s1 weight",
            server("server_set_weight", "s1", json!({"weight": 9})),
        ),
        plain("set server b/s1 state", state("drain")),
        plain("enable agent", state("ready")),
        plain("set server b/s1 agent", state("ready")),
        plain(
            "shutdown sessions",
            server("shutdown_sessions", "s1", json!({})),
        ),
        plain("disable server", server("server_del", "s1", json!({}))),
        plain("new ssl cert", path("cert_new", "certs/new.pem")),
        plain("set ssl cert", path("cert_new", "certs/new.pem")),
        plain("commit ssl cert", path("cert_new", "certs/new.pem")),
        plain("set ssl cert", path("cert_set", CERT)),
        plain("commit ssl cert", path("cert_set", CERT)),
        plain("new ssl ca-file", path("ca_new", "ca/new.pem")),
        plain("set ssl ca-file", path("ca_new", "ca/new.pem")),
        plain("commit ssl ca-file", path("ca_new", "ca/new.pem")),
        plain("show ssl cert", row("crtlist_add", CERT)),
        plain("add ssl crt-list", row("crtlist_add", CERT)),
        plain("show ssl crt-list", row("crtlist_del", IDLE)),
        plain("show ssl cert", row("crtlist_del", IDLE)),
        (
            "enable health",
            vec![
                add(),
                server("server_enable", "new", json!({"health": true})),
                last(),
            ],
            1,
        ),
        (
            "wait",
            vec![
                server("server_disable", "s1", json!({})),
                server("wait_srv_removable", "s1", json!({"timeout_ms": 50})),
                last(),
            ],
            1,
        ),
        (
            "del server",
            vec![
                first(),
                server("server_del", "s1", json!({})),
                server(
                    "server_add",
                    "s1",
                    json!({"address": "127.0.0.1", "port": 80}),
                ),
            ],
            1,
        ),
    ];
    if version != Version::V3_0 {
        all.push(plain("set ssl ca-file", path("ca_set", CA)));
        all.push(plain("commit ssl ca-file", path("ca_set", CA)));
    }
    if version == Version::V3_4 {
        let all_of = || vec![backend("backend_add"), backend("backend_publish")];
        all.push(plain("add backend", backend("backend_add")));
        all.push(("publish backend", [all_of(), vec![last()]].concat(), 1));
        for kind in ["backend_unpublish", "backend_del"] {
            let batch = [all_of(), vec![backend(kind), last()]].concat();
            all.push(("unpublish backend", batch, 2));
        }
    }
    all
}

/// All of them on the newest; the framing of the others differs in what is cut.
fn faults(version: Version) -> Vec<Fault> {
    let mut all = vec![Fault::CloseBefore, Fault::Cut(1), Fault::AnotherWorker];
    if version == Version::V3_4 {
        all.push(Fault::CloseAfter);
        all.push(Fault::Cut(2));
        for words in [
            "[6]: Unknown command: 'x', but maybe one of the following ones",
            "[6]: Done, no error and Success!",
            "a\n\n> b",
        ] {
            all.push(Fault::Answer(words.to_owned()));
        }
    }
    all
}

#[test]
fn no_op_claims_what_it_does_not_know() {
    for version in Version::ALL {
        let mut site = Site::start(version);
        site.files
            .insert("certs/new.pem", certs::second().pem().into_bytes());
        site.files
            .insert("ca/new.pem", certs::second().cert.clone().into_bytes());
        site.apply("reload", &[]).succeed(&site.agent, "reload");
        for (command, ops, at) in cases(version) {
            for fault in faults(version) {
                // A listing is not judged by its words.
                if command.starts_with("show ") && matches!(fault, Fault::Answer(_)) {
                    continue;
                }
                let case = format!("{version}, {command}, {fault:?}");
                // What is under way when an op is refused is real.
                let refused = matches!(fault, Fault::Answer(_));
                // An address is looked at when all the others are done.
                let refused = refused || command == "show servers state";
                // A delete that still waits would talk to the worker as well.
                site.haproxy.clear_commands();
                site.haproxy.inject(command, fault);
                let began = Instant::now();
                let answer = site.apply("auto", &ops).send(&site.agent).json();
                assert!(began.elapsed() < SOON, "{case}: {:?}", began.elapsed());
                let told = format!("{case}: {answer:#}");
                assert_eq!(
                    (&answer["ok"], &answer["mode"]),
                    (&json!(true), &json!("reload")),
                    "{told}"
                );
                let results = answer["op_results"].as_array().unwrap();
                assert_eq!(results.len(), ops.len(), "{told}");
                for (n, result) in results.iter().enumerate() {
                    let real = n < at || (n > at && refused);
                    assert!(real || result["ok"] == false, "op {n} of {told}");
                }
                let named = results[at]["output"].as_str().unwrap_or_default();
                assert!(!named.is_empty() && named != "not_run", "{told}");
                assert_eq!(
                    answer["running_plan_id"], answer["applied_plan_id"],
                    "{told}"
                );
                site.haproxy.clear_faults();
            }
        }
    }
}

/// Nothing is sent where no session can be had, and the first op says why.
#[test]
fn without_a_session_the_files_are_reloaded_and_the_reason_is_told() {
    for version in Version::ALL {
        let mut site = Site::start(version);
        site.apply("reload", &[]).succeed(&site.agent, "reload");
        let value = |value: &str| json!({"path": MAP, "key": "/a", "value": value});
        let ops = [op("map_set", value("x")), op("map_set", value("y"))];
        // The background look may meet one of the faults.
        let told = (0..5).find_map(|_| {
            for _ in 0..2 {
                site.haproxy.inject("show info float", Fault::CloseBefore);
            }
            let answer = site.apply("auto", &ops).send(&site.agent).json();
            site.haproxy.clear_faults();
            assert_eq!(answer["ok"], true, "{version}: {answer:#}");
            (answer["mode"] == "reload").then_some(answer)
        });
        let told = told.unwrap();
        let output = |op: usize| told["op_results"][op]["output"].as_str().unwrap();
        assert!(output(0).starts_with("not_run: "), "{version}: {told:#}");
        assert!(
            output(0).contains("closed the session"),
            "{version}: {told:#}"
        );
        assert_eq!(output(1), "not_run", "{version}: {told:#}");
    }
}

/// The same batches get through where the answers are only slow in coming.
#[test]
fn ops_wait_for_answers_that_come_in_pieces() {
    for version in Version::ALL {
        for (command, mut ops, _) in cases(version) {
            let mut site = Site::start(version);
            site.files
                .insert("certs/new.pem", certs::second().pem().into_bytes());
            site.files
                .insert("ca/new.pem", certs::second().cert.clone().into_bytes());
            // What the batch makes of the map is not what the file says.
            ops.retain(|op| op["path"] != MAP || op["kind"] == "map_replace");
            for words in ["prompt", "show info float", "show cli level", command] {
                site.haproxy.inject(words, Fault::Bytewise);
            }
            site.haproxy.inject(command, Fault::Late(100));
            let case = format!("{version}, {command}");
            if ops.is_empty() {
                continue;
            }
            let answer = site.apply("auto", &ops).send(&site.agent).json();
            assert_eq!(answer["mode"], "runtime", "{case}: {answer:#}");
        }
    }
}
