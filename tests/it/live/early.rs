//! Early releases of HAProxy die, spin or forget when they are talked to in some ways.
//! The agent talks to none of them like that: every byte of it passes a tap that knows the
//! rules, beside real HAProxys and beside models that call themselves by such a release.

use super::modelled::{CA, CERT, MAP, Site, server};
use super::random;
use super::rig::Live;
use super::world::{PATHS, op};
use crate::support::agent::Setup;
use crate::support::certs;
use crate::support::haproxy::Version;
use crate::support::tap::Tap;
use crate::support::wait;
use haptic_agent::testkit::fake_haproxy::Fault;
use serde_json::{Value, json};
use std::time::Duration;

/// The first of each branch, some in between, and branches that are not run here.
const RELEASES: [(Version, &str); 8] = [
    (Version::V3_0, "3.0.0"),
    (Version::V3_0, "3.0.10-1"),
    (Version::V3_0, "3.1.17"),
    (Version::V3_2, "3.2.0"),
    (Version::V3_2, "3.2.21"),
    (Version::V3_2, "3.3.13"),
    (Version::V3_4, "3.4.0"),
    (Version::V3_4, "3.4.3"),
];

fn backend(kind: &str) -> Value {
    let fields = json!({"backend": "x", "profile": "tmpl", "mode": "http"});
    op(kind, fields)
}

/// Ops of every sort, and the files that go with them.
fn all_sorts(site: &mut Site, version: Version) -> Vec<Value> {
    let rows: String = (0..3000)
        .map(|n| format!("/path/{n} some value of {n}; \\ and \"more\"\n"))
        .collect();
    site.files.insert(MAP, rows.into_bytes());
    let chain = certs::second().cert.repeat(12);
    let pem = format!("{}\n\n{chain}", certs::second().pem());
    site.files.insert(CERT, pem.into_bytes());
    site.files
        .insert("certs/new.pem", certs::first().pem().into_bytes());
    let map = |kind: &str, key: &str, value: &str| {
        op(kind, json!({"path": MAP, "key": key, "value": value}))
    };
    let address = |last: u8| json!({"address": format!("127.0.0.{last}"), "port": 81});
    let mut ops = vec![
        map("map_add", "/b", "two words; and \\ more"),
        map("map_add", "/c", ""),
        map("map_set", "/a", "uno"),
        map("map_del", "/b", ""),
        op("map_replace", json!({"path": MAP})),
        server(
            "server_add",
            "n1",
            json!({"address": "::1", "port": 80,
            "keywords": [{"name": "check"}, {"name": "weight", "args": ["3"]}]}),
        ),
        server("server_enable", "n1", json!({"health": true})),
        server("server_set_addr", "s1", address(7)),
        server("server_set_addr", "s1", address(8)),
        server("server_set_weight", "s1", json!({"weight": 7})),
        server("server_set_state", "s1", json!({"state": "drain"})),
        server("server_set_state", "s1", json!({"state": "ready"})),
        op("cert_set", json!({"path": CERT})),
        op("cert_new", json!({"path": "certs/new.pem"})),
        server("server_disable", "s2", json!({})),
        server("wait_srv_removable", "s2", json!({"timeout_ms": 500})),
        server("server_del", "s2", json!({})),
    ];
    ops.extend((0..600).map(|n| server("server_set_weight", "s1", json!({"weight": n % 200}))));
    if version == Version::V3_4 {
        ops.push(backend("backend_add"));
        ops.push(backend("backend_publish"));
        ops.push(backend("backend_unpublish"));
        ops.push(backend("backend_del"));
    }
    ops
}

/// An agent that reaches the worker through a tap.
fn tapped(setup: Setup, tap: &mut Option<Tap>) -> Setup {
    let base = &setup.base;
    *tap = Some(Tap::start(
        &base.join("tap.sock"),
        &base.join("worker.sock"),
    ));
    setup.with("--worker-socket", "tap.sock")
}

#[test]
fn no_byte_breaks_a_rule_of_an_early_release() {
    for (version, release) in RELEASES {
        let mut tap = None;
        let mut site = Site::with(version, Some(release), |setup| tapped(setup, &mut tap));
        let tap = tap.unwrap();
        // Busy for a while, so that its delete is asked for again and again.
        site.haproxy.set_connections("b", "s2", 1);
        let ops = all_sorts(&mut site, version);
        let apply = site.apply("auto", &ops);
        let answer = apply.send(&site.agent).json();
        assert_eq!(answer["mode"], "runtime", "{release}: {answer:#}");
        for _ in 0..10 {
            site.agent.state_with("?verify=1");
        }
        site.haproxy.set_connections("b", "s2", 0);
        wait::until("nothing waits", Duration::from_secs(20), || {
            let state = site.agent.state_with("?verify=1&plan=0");
            (state["pending_deletes"]["servers"] == json!([])).then_some(())
        });
        let commands = tap.commands();
        for sent in [
            "add map @",
            "set ssl cert",
            "del server b/s2",
            "set server b/s1 addr",
            "show ssl cert",
            "show map",
        ] {
            let seen = commands.iter().any(|command| command.starts_with(sent));
            assert!(seen, "{release}: {sent}");
        }
        assert!(tap.broken().is_empty(), "{release}: {:#?}", tap.broken());
    }
}

/// The same beside the real ones, through whole sequences of applies.
#[test]
fn no_byte_to_a_real_worker_breaks_a_rule() {
    for version in Version::ALL {
        let mut tap = None;
        let mut live = Live::with(version, |setup| tapped(setup, &mut tap));
        let tap = tap.unwrap();
        for seed in 7001..7003 {
            random::sequence(&mut live, seed);
        }
        let rows = (0..3000).map(|n| (format!("/map/{n}"), "a value; of \\ \"words\"".to_owned()));
        let replace = live.world.map_replace(PATHS, rows.collect());
        live.apply("auto", &[replace])
            .succeed(&live.agent, "runtime");
        live.agrees("a large map through the tap");
        let commands = tap.commands();
        for sent in ["add map @", "del server", "set ssl cert", "set server"] {
            let seen = commands.iter().any(|command| command.starts_with(sent));
            assert!(seen, "{version}: {sent}");
        }
        assert!(tap.broken().is_empty(), "{version}: {:#?}", tap.broken());
    }
}

/// Before 3.2 a changed CA makes later certificate changes void, or ends the worker.
#[test]
fn a_ca_changes_only_where_certificates_do_not_suffer() {
    for (version, release) in RELEASES {
        let mut site = Site::with(version, Some(release), |setup| setup);
        let bundle = format!("{}{}", certs::first().cert, certs::second().cert);
        site.files.insert(CA, bundle.into_bytes());
        site.haproxy.clear_commands();
        let set = op("ca_set", json!({"path": CA}));
        let answer = site.apply("auto", &[set]).send(&site.agent).json();
        let sent = site.haproxy.commands();
        let sent = sent
            .iter()
            .any(|command| command.starts_with("set ssl ca-file"));
        let old = release.starts_with("3.0") || release.starts_with("3.1");
        let mode = if old { "reload" } else { "runtime" };
        assert_eq!((&answer["mode"], sent), (&json!(mode), !old), "{release}");
        assert_eq!(answer["ok"], true, "{release}");
    }
}

/// Early 3.2 never comes back from `set map` for a key of a version that was not
/// committed, and 3.0 changes that version: where one was left, the map is let alone until
/// a reload.
#[test]
fn a_map_with_an_abandoned_version_is_let_alone() {
    let faults = [
        Fault::Refuse("no room".to_owned()),
        Fault::CloseAfter,
        Fault::Cut(1),
    ];
    for (version, release) in RELEASES {
        for (fault, in_place) in faults.iter().zip([false, true, false]) {
            let case = format!("{release} {fault:?}");
            let mut site = Site::with(version, Some(release), |setup| {
                setup.with("--reload-interval-min", "60s")
            });
            site.files.insert(MAP, b"/a two\n".to_vec());
            let replace = op("map_replace", json!({"path": MAP}));
            site.haproxy.inject("add map", fault.clone());
            let ops = std::slice::from_ref(&replace);
            let mut apply = match in_place {
                false => site.apply("auto", ops),
                true => site.apply("reload", &[]),
            };
            if in_place {
                apply = apply.edit(|manifest| {
                    manifest["in_place_ops"] = json!(ops);
                    manifest["expected_worker_ops_plan_id"] = json!("p1");
                    manifest["worker_ops_plan_id"] = json!("p2");
                });
            }
            let answer = apply.succeed(&site.agent, "scheduled");
            assert_eq!(answer["op_results"][0]["ok"], false, "{case}");
            assert_eq!(answer["worker_ops_plan_id"], "", "{case}");
            site.haproxy.clear_commands();
            let set = op("map_set", json!({"path": MAP, "key": "/a", "value": "x"}));
            for expected in [json!(""), json!("p1"), json!("p2")] {
                let apply = site.apply("reload", &[]).edit(|manifest| {
                    manifest["in_place_ops"] = json!([set]);
                    manifest["expected_worker_ops_plan_id"] = expected.clone();
                    manifest["worker_ops_plan_id"] = json!("p9");
                });
                let reply = apply.send(&site.agent);
                assert_eq!(reply.status, 409, "{case} {expected}: {}", reply.text());
                assert_eq!(reply.json()["reason"], "worker_ops_mismatch", "{case}");
            }
            let skipped = site.apply("auto", &[set]).succeed(&site.agent, "scheduled");
            assert_eq!(skipped["op_results"][0]["ok"], false, "{case}");
            let commands = site.haproxy.commands();
            let touched = |command: &&String| {
                let words = ["set map", "del map", "add map", "commit map"];
                words.iter().any(|words| command.starts_with(words))
            };
            let touched: Vec<&String> = commands.iter().filter(touched).collect();
            assert!(touched.is_empty(), "{case}: {touched:?}");
        }
    }
}

/// The 3.4 master dies of a file that it cannot cut into words.
#[test]
fn a_master_is_not_told_to_load_what_it_dies_of() {
    for (version, release) in RELEASES {
        let mut site = Site::with(version, Some(release), |setup| setup);
        for text in ["frontend \"f\n", "global", "a\0b\n", ".if true\n"] {
            site.files.insert("haproxy.cfg", text.as_bytes().to_vec());
            let before = site.haproxy.reloads();
            let answer = site.apply("reload", &[]).send(&site.agent).json();
            let told = site.haproxy.reloads() > before;
            let dies = version == Version::V3_4;
            assert_eq!(told, !dies, "{release} {text:?}: {answer:#}");
            if dies {
                assert_eq!(answer["error"]["stage"], "reload", "{release} {text:?}");
                assert_eq!(answer["rollback"]["performed"], true, "{release} {text:?}");
            }
        }
    }
}

/// Early 3.0 changes whatever certificate is under way and names it in its answer.
#[test]
fn a_certificate_that_was_not_meant_is_put_back() {
    for (version, release) in RELEASES {
        let mut site = Site::with(version, Some(release), |setup| setup);
        let words = "Transaction updated for certificate certs/other.pem!";
        let fault = Fault::Answer(format!("[5]: {words}"));
        site.haproxy.inject("set ssl cert", fault);
        site.files.insert(CERT, certs::second().pem().into_bytes());
        site.haproxy.clear_commands();
        let set = op("cert_set", json!({"path": CERT}));
        let answer = site.apply("auto", &[set]).succeed(&site.agent, "reload");
        assert_eq!(answer["op_results"][0]["output"], words, "{release}");
        let commands = site.haproxy.commands();
        let sent = |words: &str| commands.iter().any(|command| command.starts_with(words));
        assert!(sent("abort ssl cert certs/other.pem"), "{commands:?}");
        assert!(!sent("commit ssl cert"), "{release}: {commands:?}");
    }
}
