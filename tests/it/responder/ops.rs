//! Agent and responder in one process, and rows that are added at runtime with an agent
//! check that asks this very process.

use super::kit::{PATIENCE, Store, ask};
use crate::support::agent::{self, Agent, Apply, Setup};
use crate::support::haproxy::{Haproxy, Version, minimal};
use crate::support::traffic::Backend;
use crate::support::wait;
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};

/// Where a daemon answers checks.
pub(super) fn checks(agent: &Agent) -> SocketAddr {
    let records = agent.records();
    let record = records.iter().find(|r| r["listener"] == "checks").unwrap();
    record["address"].as_str().unwrap().parse().unwrap()
}

fn field(haproxy: &Haproxy, server: &str, place: usize) -> Option<String> {
    let dump = haproxy.ask("show servers state b").ok()?;
    let row = dump
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|row| row.get(3) == Some(&server))?;
    Some(row[place - 1].to_owned())
}

/// An added row serves at once, follows the store, survives a health failure, and can be
/// removed although the responder answers ready all the time.
#[test]
fn rows_added_at_runtime_ask_and_can_be_removed() {
    for version in Version::ALL {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("h");
        std::fs::create_dir(&base).unwrap();
        let store = Store::new();
        let server = Backend::start("s");
        let config = format!(
            "{}backend b\n    balance roundrobin\n    server s1 {} weight 100\n",
            minimal(&base),
            server.address()
        );
        let haproxy = Haproxy::start(version, &base, &config);
        let mut setup = Setup::new(&base).with("--check-listen", "127.0.0.1:0");
        let kv = store.path().to_str().unwrap().to_owned();
        setup
            .environment
            .push(("HAPTIC_RESPONDER_KV_DIR".into(), kv));
        let agent = setup.start();
        let checks = checks(&agent);
        let set = |apply: Apply| apply.file("haproxy.cfg", config.as_bytes());
        set(Apply::new("p1", 1, 1)).succeed(&agent, "reload");

        let args = |words: &[&str]| json!(words);
        let keywords = json!([
            {"name": "weight", "args": args(&["100"])},
            {"name": "check"}, {"name": "inter", "args": args(&["200ms"])},
            {"name": "fall", "args": args(&["1"])}, {"name": "rise", "args": args(&["1"])},
            {"name": "agent-check"},
            {"name": "agent-addr", "args": args(&["127.0.0.1"])},
            {"name": "agent-port", "args": args(&[&checks.port().to_string()])},
            {"name": "agent-inter", "args": args(&["100ms"])},
            {"name": "agent-send", "args": args(&["b/n1 canary"])},
        ]);
        let ops = json!([
            {"kind": "server_add", "backend": "b", "server": "n1",
             "address": "127.0.0.1", "port": server.address().port(), "keywords": keywords},
            {"kind": "server_enable", "backend": "b", "server": "n1", "health": true},
        ]);
        let held = |apply: Apply, ops: Value| {
            apply
                .on(&agent.state())
                .held("haproxy.cfg", config.as_bytes())
                .mode("auto")
                .edit(|manifest| manifest["ops"] = ops)
        };
        let reply = held(Apply::new("p2", 1, 2), ops).send(&agent);
        let answer = reply.json();
        assert_eq!(answer["ok"], true, "{version}: {answer:#}");
        if answer["mode"] != "runtime" {
            panic!("{version}: {answer:#}");
        }
        let await_field = |what: &str, place: usize, want: &str| {
            wait::until_ok(what, PATIENCE, || match field(&haproxy, "n1", place) {
                Some(value) if value == want => Ok(()),
                other => Err(format!("{version}: {other:?}")),
            });
        };
        await_field("in service", 7, "0");
        await_field("running", 6, "2");
        wait::until("it asks", PATIENCE, || {
            let rows = agent::get(agent.metrics_address(), "/-/coverage", None).json();
            let rows = rows["rows"].as_array()?.clone();
            rows.iter().any(|row| row["row"] == "b/n1").then_some(())
        });
        store.set("canary", "drain");
        await_field("drained by the group", 7, "8");
        store.unset("canary");
        await_field("in service again", 7, "0");
        await_field("still running", 6, "2");

        let ops = json!([
            {"kind": "server_disable", "backend": "b", "server": "n1"},
            {"kind": "server_del", "backend": "b", "server": "n1"},
        ]);
        let reply = held(Apply::new("p3", 1, 3), ops).send(&agent);
        let answer = reply.json();
        assert_eq!(
            (&answer["ok"], &answer["mode"]),
            (&true.into(), &"runtime".into()),
            "{version}: {answer:#}"
        );
        wait::until("the row is gone", PATIENCE, || {
            field(&haproxy, "n1", 4).is_none().then_some(())
        });
        assert_eq!(ask(checks, "b/s1\n"), "ready 100%\n");
    }
}

/// The apply side lives whatever becomes of the store: ready and applying while Consul
/// is away beyond the deadline, silent to checks, one exposition for both.
#[test]
fn the_daemon_does_not_depend_on_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("h");
    std::fs::create_dir(&base).unwrap();
    let config = minimal(&base);
    let haproxy = Haproxy::start(Version::V3_4, &base, &config);
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut setup = Setup::new(&base).with("--check-listen", "127.0.0.1:0");
    for (name, value) in [
        ("HAPTIC_RESPONDER_CONSUL_ADDR", nobody.to_string()),
        ("HAPTIC_RESPONDER_SYNC_DEADLINE", "300ms".to_owned()),
    ] {
        setup.environment.push((name.to_owned(), value));
    }
    let mut agent = setup.start();
    let checks = checks(&agent);
    wait::until("the deadline is logged", PATIENCE, || {
        let late = "the responder's store could not be read in time";
        agent.log().contains(late).then_some(())
    });
    assert_eq!(ask(checks, "web/s1\n"), "", "silent without a copy");
    let apply = Apply::new("p1", 1, 1).file("haproxy.cfg", config.as_bytes());
    apply.succeed(&agent, "reload");
    let get = |path: &str| agent::get(agent.metrics_address(), path, None);
    assert_eq!(get("/-/readiness").status, 503);
    assert_eq!(get("/-/liveness").status, 200);
    let text = get("/metrics").text();
    for name in [
        "haptic_agent_ready 1",
        "haptic_responder_kv_synced 0",
        "haptic_responder_silent_total{reason=\"unsynced\"} 1",
    ] {
        assert!(text.lines().any(|line| line == name), "{name} in\n{text}");
    }
    let mut families: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let count = families.len();
    families.sort_unstable();
    families.dedup();
    assert_eq!(families.len(), count, "no family is there twice");
    assert_eq!(agent.terminate().code(), Some(0));
    drop(haproxy);
}
