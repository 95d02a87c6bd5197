//! The JSON of every answer, key by key and type by type, and as golden files.
//!
//! The golden files are `fixtures/wire/*.json` with what differs from run to run
//! replaced by its type. `UPDATE_GOLDEN=1 cargo test --test it contract::shapes`
//! writes them anew; the difference is then for a reader to judge.

use super::kit::assert_json;
use crate::apply::kit::Rig;
use crate::support::agent::{AUTHORIZATION, get};
use crate::support::haproxy::Version;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// Asserts that `value` has exactly the keys of `always`, maybe those of `sometimes`,
/// each of the named type.
fn shape(what: &str, value: &Value, always: &[(&str, &str)], sometimes: &[(&str, &str)]) {
    let object = value
        .as_object()
        .unwrap_or_else(|| panic!("{what} is no object: {value}"));
    for (key, kind) in always {
        let found = object
            .get(*key)
            .unwrap_or_else(|| panic!("{what} lacks {key}: {value:#}"));
        typed(&format!("{what}.{key}"), found, kind);
    }
    for (key, found) in object {
        if always.iter().any(|(name, _)| name == key) {
            continue;
        }
        let kind = sometimes.iter().find(|(name, _)| name == key);
        let (_, kind) = kind
            .unwrap_or_else(|| panic!("{what} has {key}, which the contract does not: {value:#}"));
        typed(&format!("{what}.{key}"), found, kind);
    }
}

fn typed(what: &str, value: &Value, kind: &str) {
    let fits = match kind {
        "string" => value.is_string(),
        "bool" => value.is_boolean(),
        "int" => value.is_u64() || value.is_i64(),
        "uint" => value.is_u64(),
        "strings" => value
            .as_array()
            .is_some_and(|list| list.iter().all(Value::is_string)),
        "list" => value.is_array(),
        "object" => value.is_object(),
        "time" => value.as_str().is_some_and(|text| is_utc(text, false)),
        "nanos" => value.as_str().is_some_and(|text| is_utc(text, true)),
        other => panic!("no such kind: {other}"),
    };
    assert!(fits, "{what} is no {kind}: {value}");
}

/// `2006-01-02T15:04:05[.fraction]Z`, with nine digits if `nanos`.
fn is_utc(text: &str, nanos: bool) -> bool {
    let Some(text) = text.strip_suffix('Z') else {
        return false;
    };
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let pattern = seconds
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c });
    let digits = fraction.chars().all(|c| c.is_ascii_digit());
    pattern.eq("0000-00-00T00:00:00".chars()) && digits && (!nanos || fraction.len() == 9)
}

fn is_token(what: &str, value: &Value) {
    shape(
        what,
        value,
        &[("leader_epoch", "uint"), ("render_seq", "uint")],
        &[],
    );
}

fn is_haproxy(what: &str, value: &Value) {
    let always = [
        ("version", "string"),
        ("full_version", "string"),
        ("worker_pid", "uint"),
        ("worker_start_time_unix_micros", "uint"),
    ];
    shape(what, value, &always, &[]);
}

fn is_inventory(what: &str, value: &Value) {
    let always = [
        ("generation", "uint"),
        ("maps", "strings"),
        ("acl_files", "strings"),
        ("certs", "strings"),
        ("ca_files", "strings"),
        ("crl_files", "strings"),
        ("crt_lists", "strings"),
    ];
    shape(what, value, &always, &[]);
}

fn is_result(what: &str, value: &Value) {
    let always = [
        ("plan_id", "string"),
        ("ok", "bool"),
        ("mode", "string"),
        ("applied_plan_id", "string"),
        ("running_plan_id", "string"),
        ("worker_ops_plan_id", "string"),
        ("applied_token", "object"),
        ("lkg_plan_id", "string"),
        ("haproxy", "object"),
        ("at", "time"),
        ("timing", "object"),
    ];
    let sometimes = [
        ("op_results", "list"),
        ("reload", "object"),
        ("rollback", "object"),
        ("error", "object"),
        ("runtime_inventory", "object"),
        // Beyond the contract's list: a success whose record could not be saved.
        ("unsaved", "string"),
    ];
    shape(what, value, &always, &sometimes);
    is_token(&format!("{what}.applied_token"), &value["applied_token"]);
    is_haproxy(&format!("{what}.haproxy"), &value["haproxy"]);
    let legs = [
        "stage_ms",
        "admit_ms",
        "write_ms",
        "ops_ms",
        "finish_ms",
        "total_ms",
    ];
    shape(
        &format!("{what}.timing"),
        &value["timing"],
        &legs.map(|leg| (leg, "uint")),
        &[],
    );
    if let Some(results) = value.get("op_results") {
        assert!(
            !results.as_array().unwrap().is_empty(),
            "{what}: an empty list is left out"
        );
        for result in results.as_array().unwrap() {
            shape(
                "op_result",
                result,
                &[("kind", "string"), ("ok", "bool")],
                &[("output", "string")],
            );
        }
    }
    if let Some(reload) = value.get("reload") {
        let sometimes = [
            ("worker_pid", "uint"),
            ("took_ms", "uint"),
            ("output", "string"),
            ("scheduled_at", "nanos"),
        ];
        shape(
            &format!("{what}.reload"),
            reload,
            &[("performed", "bool"), ("ok", "bool")],
            &sometimes,
        );
    }
    if let Some(rollback) = value.get("rollback") {
        shape(
            "rollback",
            rollback,
            &[("performed", "bool"), ("reloaded", "bool")],
            &[],
        );
    }
    if let Some(error) = value.get("error") {
        shape(
            "error",
            error,
            &[("stage", "string"), ("message", "string")],
            &[],
        );
    }
    if let Some(inventory) = value.get("runtime_inventory") {
        is_inventory("runtime_inventory", inventory);
    }
    if value["ok"] == false {
        assert_eq!(value["mode"], "rejected", "{what}");
        assert!(value.get("error").is_some(), "{what}: {value:#}");
    }
}

fn is_state(value: &Value) {
    let always = [
        ("api_version", "uint"),
        ("agent_version", "string"),
        ("plan_schema_version", "int"),
        ("agent_ops", "strings"),
        ("features", "strings"),
        ("haproxy", "object"),
        ("generation", "uint"),
        ("applied_plan_id", "string"),
        ("running_plan_id", "string"),
        ("worker_ops_plan_id", "string"),
        ("applied_token", "object"),
        ("lkg_plan_id", "string"),
        ("reserved_paths", "strings"),
        ("applied_plan_stored", "bool"),
        ("files", "object"),
        ("runtime_inventory", "object"),
        ("pending_deletes", "object"),
    ];
    let sometimes = [
        // Beyond the contract's list: whether the worker answers, since when, else why not.
        ("worker", "object"),
        // Beyond the contract's list: for whoever writes HAProxy's configuration.
        ("worker_socket", "string"),
        // Beyond the contract's list: what stands in the place of an owned file.
        ("in_the_way", "object"),
        ("applied_plan", "string"),
        ("reload_pending_at", "nanos"),
        ("last_apply", "object"),
        ("invariant_violation", "string"),
        // Beyond the contract's list: why disk and worker may differ from what was asked.
        ("degraded", "object"),
        // And why the state could not be saved.
        ("unsaved", "object"),
    ];
    shape("state", value, &always, &sometimes);
    assert_eq!(value["api_version"], 1);
    assert_eq!(value["agent_ops"].as_array().unwrap().len(), 24);
    is_token("applied_token", &value["applied_token"]);
    is_haproxy("haproxy", &value["haproxy"]);
    let worker = [("answers", "bool"), ("since", "nanos")];
    shape("worker", &value["worker"], &worker, &[("reason", "string")]);
    let silent = value["worker"]["answers"] == false;
    assert_eq!(silent, value["worker"].get("reason").is_some(), "{value:#}");
    is_inventory("runtime_inventory", &value["runtime_inventory"]);
    let deletes = [("servers", "strings"), ("backends", "strings")];
    shape("pending_deletes", &value["pending_deletes"], &deletes, &[]);
    for (path, file) in value["files"].as_object().unwrap() {
        shape(path, file, &[("digest", "string"), ("size", "uint")], &[]);
    }
    if let Some(last) = value.get("last_apply") {
        is_result("last_apply", last);
    }
}

#[test]
fn every_answer_has_its_keys_and_types() {
    for version in Version::ALL {
        let rig = Rig::with(version, |setup| setup.with("--reload-interval-min", "2s"));
        let state = rig.agent.state();
        is_state(&state);
        for absent in [
            "applied_plan",
            "reload_pending_at",
            "last_apply",
            "invariant_violation",
            "degraded",
        ] {
            assert_eq!(state.get(absent), None, "{version}: {state:#}");
        }
        let full = state["haproxy"]["full_version"].as_str().unwrap();
        assert!(full.starts_with(state["haproxy"]["version"].as_str().unwrap()));
        assert!(full.starts_with(version.branch()), "{full}");
        assert_eq!(state["haproxy"]["worker_pid"], rig.haproxy.worker_pid());

        let ack = rig.first().blob(b"{}").succeed(&rig.agent, "reload");
        is_result("ack", &ack);
        assert_eq!(ack["reload"]["performed"], true);
        for absent in ["op_results", "rollback", "error"] {
            assert_eq!(ack.get(absent), None, "{version}: {ack:#}");
        }
        assert_eq!(ack["reload"].get("scheduled_at"), None);
        let scheduled = rig.next("p2", "two").succeed(&rig.agent, "scheduled");
        is_result("scheduled", &scheduled);
        assert_eq!(scheduled["reload"]["performed"], false);
        let state = rig.agent.state();
        is_state(&state);
        assert_eq!(
            scheduled["reload"]["scheduled_at"],
            state["reload_pending_at"]
        );
        let state = rig.until_state("the reload has fired", |state| {
            state.get("reload_pending_at").is_none()
        });
        is_state(&state);
        is_result("fired", &state["last_apply"]);
        let nack = rig.raw("bad", b"nonsense\n");
        let nack = nack.succeed(&rig.agent, "scheduled");
        is_result("scheduled", &nack);
        let state = rig.until_state("the bad one was refused", |state| {
            state["last_apply"]["ok"] == false
        });
        is_state(&state);
        is_result("nack", &state["last_apply"]);
        assert_eq!(state["last_apply"]["error"]["stage"], "scheduled_reload");
    }
}

#[test]
fn times_are_told_in_whole_milliseconds_that_add_up() {
    let rig = Rig::applied(Version::V3_4);
    let answer = rig.next("p2", "two").succeed(&rig.agent, "reload");
    let timing = answer["timing"].as_object().unwrap();
    let total = timing["total_ms"].as_u64().unwrap();
    let legs: u64 = timing
        .iter()
        .filter(|(key, _)| *key != "total_ms")
        .map(|(_, ms)| ms.as_u64().unwrap())
        .sum();
    // Each leg is cut to whole milliseconds.
    assert!(legs <= total && total <= legs + 6, "{timing:?}");
    assert!(
        answer["reload"]["took_ms"].as_u64().unwrap() <= total,
        "{answer:#}"
    );
    assert!(timing["ops_ms"].as_u64().unwrap() >= answer["reload"]["took_ms"].as_u64().unwrap());
}

/// The inventory is told once, and again only when it is another one.
#[test]
fn the_inventory_comes_only_when_it_changed() {
    let rig = Rig::applied(Version::V3_4);
    let config = format!(
        "{}    http-request set-header x %[path,map(maps/host.map,-)]\n",
        rig.config("two")
    );
    let answer = rig
        .raw("p2", config.as_bytes())
        .succeed(&rig.agent, "reload");
    assert_eq!(
        answer["runtime_inventory"]["maps"],
        json!(["maps/host.map"]),
        "{answer:#}"
    );
    assert_eq!(
        answer["runtime_inventory"],
        rig.agent.state()["runtime_inventory"]
    );
    let config = format!("{config}# again\n");
    let answer = rig
        .raw("p3", config.as_bytes())
        .succeed(&rig.agent, "reload");
    assert_eq!(answer.get("runtime_inventory"), None, "{answer:#}");
    assert_eq!(
        rig.agent.state()["runtime_inventory"]["maps"],
        json!(["maps/host.map"])
    );
}

/// A scheduled reload brings a new inventory while nobody waits for an answer: the next
/// answer carries it.
#[test]
fn an_inventory_from_the_background_is_told_by_the_next_answer() {
    let rig = Rig::with(Version::V3_4, |setup| {
        setup.with("--reload-interval-min", "1s")
    });
    rig.first().succeed(&rig.agent, "reload");
    let config = format!(
        "{}    http-request set-header x %[path,map(maps/host.map,-)]\n",
        rig.config("two")
    );
    rig.raw("p2", config.as_bytes())
        .succeed(&rig.agent, "scheduled");
    rig.until_state("the reload fires", |state| state["running_plan_id"] == "p2");
    let next = || {
        rig.raw("p3", config.as_bytes())
            .mode("auto")
            .succeed(&rig.agent, "noop")
    };
    let answer = next();
    assert_eq!(
        answer["runtime_inventory"]["maps"],
        json!(["maps/host.map"]),
        "{answer:#}"
    );
    assert_eq!(next().get("runtime_inventory"), None);
}

/// What differs from run to run, as `<string>`, `<number>`.
fn mask(value: &Value) -> Value {
    const VOLATILE: [&str; 14] = [
        "worker_socket",
        "at",
        "agent_version",
        "version",
        "full_version",
        "worker_pid",
        "worker_start_time_unix_micros",
        "took_ms",
        "scheduled_at",
        "reload_pending_at",
        "output",
        "message",
        "since",
        "reason_text",
    ];
    match value {
        Value::Object(object) => Value::Object(
            object
                .iter()
                .map(|(key, value)| {
                    let timing = key.ends_with("_ms");
                    let masked = match value {
                        Value::String(_) if VOLATILE.contains(&key.as_str()) => json!("<string>"),
                        Value::Number(_) if timing || VOLATILE.contains(&key.as_str()) => {
                            json!("<number>")
                        }
                        other => mask(other),
                    };
                    (key.clone(), masked)
                })
                .collect::<Map<_, _>>(),
        ),
        Value::Array(list) => Value::Array(list.iter().map(mask).collect()),
        other => other.clone(),
    }
}

fn golden(name: &str, value: &Value) {
    let mut value = mask(value);
    // The configuration names the test's own directory.
    let config = value.pointer_mut("/files/haproxy.cfg");
    if let Some(config) = config {
        config["digest"] = json!("<string>");
        config["size"] = json!("<number>");
    }
    if let Some(reason) = value.pointer_mut("/degraded/reason") {
        *reason = json!("<string>");
    }
    let text = format!("{value:#}\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/wire")
        .join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        text,
        wanted,
        "{} differs; UPDATE_GOLDEN=1 cargo test --test it contract::shapes writes it anew",
        path.display()
    );
}

#[test]
fn the_golden_files_are_what_travels() {
    let rig = Rig::new(Version::V3_4);
    golden("state-empty.json", &rig.agent.state());
    let ack = rig.first().blob(b"{\"plan\":1}").send(&rig.agent);
    assert_json(&ack);
    golden("ack-reload.json", &ack.json());
    golden("state-applied.json", &rig.agent.state());
    let noop = rig
        .next("p1b", "one")
        .mode("auto")
        .succeed(&rig.agent, "noop");
    golden("ack-noop.json", &noop);
    let stale = rig
        .next("p2", "two")
        .edit(|m| m["expected_prev_plan_id"] = "p0".into());
    golden("conflict.json", &stale.send(&rig.agent).json());
    let missing = rig.next("p2", "two").held("maps/new.map", b"k v\n");
    golden("missing.json", &missing.send(&rig.agent).json());
    let refused = rig.next("p2", "two").edit(|m| m["plan_id"] = "".into());
    golden("refused.json", &refused.send(&rig.agent).json());
    let nack = rig.raw("bad", b"nonsense\n").fail(&rig.agent, "reload");
    golden("nack-reload.json", &nack);
    golden("state-after-nack.json", &rig.agent.state());
}

/// `plan=0` and `verify=1` in any order, and unknown words beside them.
#[test]
fn the_states_query_is_read_as_documented() {
    let rig = Rig::new(Version::V3_4);
    rig.first().blob(b"foo").succeed(&rig.agent, "reload");
    for (query, plan) in [
        ("", true),
        ("?verify=1", true),
        ("?plan=0", false),
        ("?verify=1&plan=0", false),
        ("?plan=0&verify=1", false),
        ("?plan=1", true),
        ("?other=2&plan=0", false),
        ("?verify=0", true),
    ] {
        let reply = get(
            rig.agent.api(),
            &format!("/v1/state{query}"),
            Some(AUTHORIZATION),
        );
        assert_eq!(reply.status, 200, "{query}");
        assert_json(&reply);
        let state = reply.json();
        is_state(&state);
        assert_eq!(state.get("applied_plan").is_some(), plan, "{query}");
        assert_eq!(state["applied_plan_id"], "p1", "{query}");
    }
    // A blob that something else wrote over is not handed out as the plan.
    fs::write(rig.base.join(".haptic-agent-plan.bin"), b"bar").unwrap();
    let state = rig.agent.state();
    assert_eq!(state.get("applied_plan"), None);
    assert_eq!(state["applied_plan_stored"], false);
}
