//! Ops on the running worker: no reload, and one when they cannot be.

use crate::support::agent::{Apply, Setup, tree};
use crate::support::haproxy::{Haproxy, Version, minimal, preamble};
use crate::support::wait;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

fn with_map(base: &Path) -> String {
    format!(
        "{}frontend front\n    bind unix@{}/front.sock\n    http-request return status 200 content-type text/plain lf-string %[path,map(maps/path.map,none)]\nbackend be\n    server s1 127.0.0.1:1\n",
        preamble(base),
        base.display()
    )
}

struct Site {
    haproxy: Haproxy,
    agent: crate::support::agent::Agent,
    config: String,
    base: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

/// A HAProxy whose applied plan `p1` has one map.
fn site(version: Version, setup: impl FnOnce(Setup) -> Setup) -> Site {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    std::fs::create_dir(&base).unwrap();
    let haproxy = Haproxy::start(version, &base, &minimal(&base));
    let agent = setup(Setup::new(&base)).start();
    let config = with_map(&base);
    Apply::new("p1", 1, 1)
        .file("haproxy.cfg", config.as_bytes())
        .file("maps/path.map", b"/a one\n")
        .on(&agent.state())
        .succeed(&agent, "reload");
    Site {
        haproxy,
        agent,
        config,
        base,
        _dir: dir,
    }
}

impl Site {
    fn change(&self, plan: &str, map: &[u8], ops: &Value) -> Apply {
        Apply::new(plan, 1, 2)
            .mode("auto")
            .held("haproxy.cfg", self.config.as_bytes())
            .file("maps/path.map", map)
            .on(&self.agent.state())
            .edit(|manifest| manifest["ops"] = ops.clone())
    }

    fn rows(&self) -> String {
        self.haproxy.ask("show map maps/path.map").unwrap()
    }
}

#[test]
fn an_op_changes_the_worker_and_the_file_without_a_reload() {
    for version in Version::ALL {
        let site = site(version, |setup| setup);
        let before = site.haproxy.worker_pid();
        let ops = json!([
            {"kind": "map_set", "path": "maps/path.map", "key": "/a", "value": "two"},
            {"kind": "map_add", "path": "maps/path.map", "key": "/b", "value": "x y; z"},
        ]);
        let apply = site.change("p2", b"/a two\n/b x y; z\n", &ops);
        let answer = apply.succeed(&site.agent, "runtime");
        assert_eq!(site.haproxy.worker_pid(), before, "{version}");
        let results = answer["op_results"].as_array().unwrap();
        assert!(
            results.iter().all(|r| r["ok"] == true),
            "{version} {results:?}"
        );
        let rows = site.rows();
        assert!(
            rows.contains("/a two\n") && rows.contains("/b x y; z\n"),
            "{version} {rows}"
        );
        assert_eq!(tree(&site.base)["maps/path.map"], b"/a two\n/b x y; z\n");
        let state = site.agent.state();
        assert_eq!(state["applied_plan_id"], "p2");
        assert_eq!(state["worker_ops_plan_id"], "p2");
        assert_eq!(state["running_plan_id"], "p1");
        assert_eq!(state["lkg_plan_id"], "p1");
    }
}

#[test]
fn a_refused_op_is_blamed_and_the_files_are_reloaded() {
    for version in Version::ALL {
        let site = site(version, |setup| setup);
        let before = site.haproxy.worker_pid();
        let ops = json!([
            {"kind": "map_set", "path": "maps/path.map", "key": "/a", "value": "two"},
            {"kind": "server_set_weight", "backend": "be", "server": "nobody", "weight": 5},
            {"kind": "map_set", "path": "maps/path.map", "key": "/a", "value": "three"},
        ]);
        let apply = site.change("p2", b"/a three\n", &ops);
        let answer = apply.succeed(&site.agent, "reload");
        assert_ne!(site.haproxy.worker_pid(), before, "{version}");
        let results = &answer["op_results"];
        assert_eq!(results[1]["ok"], false);
        assert_eq!(results[1]["output"], "No such server.", "{version}");
        assert!(site.rows().contains("/a three\n"));
        assert_eq!(site.agent.state()["running_plan_id"], "p2");
        let errors = "haptic_agent_op_errors_total{kind=\"server_set_weight\"}";
        assert!(site.agent.sample(errors) >= 1.0);
    }
}

#[test]
fn a_batch_that_does_not_compile_sends_nothing() {
    let site = site(Version::V3_4, |setup| setup);
    let ops = json!([
        {"kind": "map_set", "path": "maps/path.map", "key": "/a", "value": "two"},
        {"kind": "map_set", "path": "maps/path.map", "key": "a;b", "value": "x"},
    ]);
    let answer = site
        .change("p2", b"/a two\n", &ops)
        .succeed(&site.agent, "reload");
    assert_eq!(answer["op_results"][0]["ok"], false);
    assert!(
        answer["op_results"][1]["output"]
            .as_str()
            .unwrap()
            .starts_with("invalid: ")
    );
    assert_eq!(site.agent.state()["invariant_violation"], "ops_executable");
}

#[test]
fn in_place_ops_run_while_a_reload_waits() {
    for version in [Version::V3_0, Version::V3_4] {
        let site = site(version, |setup| setup.with("--reload-interval-min", "60s"));
        let before = site.haproxy.worker_pid();
        let op = json!([{"kind": "map_set", "path": "maps/path.map", "key": "/a", "value": "two"}]);
        let apply = site
            .change("p2", b"/a two\n", &json!([]))
            .mode("reload")
            .edit(|manifest| {
                manifest["in_place_ops"] = op.clone();
                manifest["expected_worker_ops_plan_id"] = "p1".into();
                manifest["worker_ops_plan_id"] = "p2-in-place".into();
            });
        let answer = apply.succeed(&site.agent, "scheduled");
        assert_eq!(answer["worker_ops_plan_id"], "p2-in-place");
        assert!(site.rows().contains("/a two\n"));
        assert_eq!(site.haproxy.worker_pid(), before);

        let stale = site
            .change("p3", b"/a three\n", &json!([]))
            .edit(|manifest| {
                manifest["in_place_ops"] = op.clone();
                manifest["expected_worker_ops_plan_id"] = "p1".into();
                manifest["worker_ops_plan_id"] = "p3".into();
            })
            .send(&site.agent);
        assert_eq!(stale.status, 409);
        assert_eq!(stale.json()["reason"], "worker_ops_mismatch");

        let refused = site
            .change("p3", b"/a three\n", &json!([]))
            .edit(|manifest| {
                manifest["in_place_ops"] =
                    json!([{"kind": "map_set", "path": "maps/path.map", "key": "/no", "value": "x"}]);
                manifest["expected_worker_ops_plan_id"] = "p2-in-place".into();
                manifest["worker_ops_plan_id"] = "p3".into();
            })
            .succeed(&site.agent, "scheduled");
        assert_eq!(refused["error"]["stage"], "in_place");
        assert_eq!(refused["applied_plan_id"], "");
        assert_eq!(
            site.haproxy.worker_pid(),
            before,
            "{version}: no second reload"
        );
    }
}

#[test]
fn a_deleted_server_goes_beside_the_applies_and_the_state_shows_it() {
    for version in Version::ALL {
        let site = site(version, |setup| setup);
        let before = site.haproxy.worker_pid();
        let smaller = site.config.replace("    server s1 127.0.0.1:1\n", "");
        let ops = json!([
            {"kind": "server_disable", "backend": "be", "server": "s1"},
            {"kind": "wait_srv_removable", "backend": "be", "server": "s1", "timeout_ms": 5000},
            {"kind": "server_del", "backend": "be", "server": "s1"},
        ]);
        let answer = Apply::new("p2", 1, 2)
            .mode("auto")
            .file("haproxy.cfg", smaller.as_bytes())
            .held("maps/path.map", b"/a one\n")
            .on(&site.agent.state())
            .edit(|manifest| manifest["ops"] = ops)
            .succeed(&site.agent, "runtime");
        let results = answer["op_results"].as_array().unwrap();
        assert!(
            results.iter().all(|r| r["ok"] == true),
            "{version} {results:?}"
        );
        wait::until(
            "the server is gone and nothing waits",
            Duration::from_secs(10),
            || {
                let rows = site.haproxy.ask("show servers state be").unwrap();
                let state = site.agent.state();
                let waiting = state["pending_deletes"]["servers"]
                    .as_array()
                    .unwrap()
                    .len();
                (!rows.contains(" s1 ") && waiting == 0).then_some(())
            },
        );
        assert_eq!(site.haproxy.worker_pid(), before, "{version}");
        let done = "haptic_agent_deferred_deletes_total{kind=\"server\",outcome=\"done\"}";
        assert!(site.agent.sample(done) >= 1.0);
    }
}

/// A server that other parts of the configuration point to cannot go before a reload. Its
/// delete is given up at once; that it is still there is known, and no reason to reload.
#[test]
fn a_delete_that_was_given_up_is_no_difference() {
    for version in Version::ALL {
        let site = site(version, |setup| setup);
        let pinned = format!(
            "{}    server s2 127.0.0.1:2\n    use-server s2 if FALSE\n",
            site.config
        );
        let base = |plan: &str, config: &str| {
            Apply::new(plan, 1, 2)
                .mode("auto")
                .file("haproxy.cfg", config.as_bytes())
                .held("maps/path.map", b"/a one\n")
                .on(&site.agent.state())
        };
        base("p2", &pinned)
            .mode("reload")
            .succeed(&site.agent, "reload");
        let before = site.haproxy.worker_pid();
        let del = json!([{"kind": "server_del", "backend": "be", "server": "s2"}]);
        let answer = base("p3", &site.config)
            .edit(|manifest| manifest["ops"] = del)
            .succeed(&site.agent, "runtime");
        assert_eq!(answer["op_results"][0]["ok"], true, "{version}");
        wait::until("the worker is looked at", Duration::from_secs(10), || {
            let log = site.agent.log();
            log.contains("looked at what the batch changed")
                .then_some(())
        });
        let abandoned =
            "haptic_agent_deferred_deletes_total{kind=\"server\",outcome=\"abandoned\"}";
        assert!(site.agent.sample(abandoned) >= 1.0, "{version}");
        assert!(site.agent.sample("haptic_runtime_map_divergence_total") < 1.0);
        let state = site.agent.state();
        assert_eq!(state["worker_ops_plan_id"], "p3", "{version}");
        assert_eq!(state["pending_deletes"]["servers"], json!([]));
        assert_eq!(site.haproxy.worker_pid(), before, "{version}");
        let rows = site.haproxy.ask("show servers state be").unwrap();
        assert!(rows.contains(" s2 "), "{rows}");
        // Wanted again it makes way first, cannot, and is reloaded.
        let add = json!([{"kind": "server_add", "backend": "be", "server": "s2",
            "address": "127.0.0.1", "port": 2}]);
        let answer = base("p4", &pinned)
            .edit(|manifest| manifest["ops"] = add)
            .succeed(&site.agent, "reload");
        let words = answer["op_results"][0]["output"].as_str().unwrap();
        assert!(words.contains("other configuration elements"), "{words}");
        assert_ne!(site.haproxy.worker_pid(), before, "{version}");
    }
}

#[test]
fn a_worker_out_of_step_with_its_file_is_counted_and_reloaded() {
    for version in [Version::V3_0, Version::V3_4] {
        let site = site(version, |setup| setup);
        let before = site.haproxy.worker_pid();
        let ops = json!([
            {"kind": "map_set", "path": "maps/path.map", "key": "/a", "value": "not what the file says"
                .replace(' ', "-")},
        ]);
        let answer = site
            .change("p2", b"/a two\n", &ops)
            .succeed(&site.agent, "runtime");
        assert_eq!(answer["worker_ops_plan_id"], "p2");
        wait::until(
            "the worker is reloaded and holds the file",
            Duration::from_secs(10),
            || {
                let state = site.agent.state();
                (state["running_plan_id"] == "p2" && site.rows().contains("/a two\n")).then_some(())
            },
        );
        assert_ne!(site.haproxy.worker_pid(), before, "{version}");
        assert!(site.agent.sample("haptic_runtime_map_divergence_total") >= 1.0);
    }
}

/// The highest that the resident memory of a process was since `clear` said so.
fn highest_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let words = line.unwrap().split_whitespace();
    words.rev().nth(1).unwrap().parse().unwrap()
}

/// Starts the measurement of [`highest_kib`] anew.
fn clear_highest(pid: u32) -> u64 {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    highest_kib(pid)
}

#[test]
fn a_huge_map_is_compared_in_little_memory() {
    const ENTRIES: usize = 200_000;
    const ROOM_KIB: u64 = 6 * 1024;
    let site = site(Version::V3_4, |setup| setup);
    let entry = |n: usize| {
        format!("/some/longer/path/of/a/site/{n:06} backend-{n:06} with some words behind it\n")
    };
    let all: String = (0..ENTRIES).map(entry).collect();
    let reload = site.change("p2", all.as_bytes(), &json!([])).mode("reload");
    reload.succeed(&site.agent, "reload");
    let pid = site.agent.pid();
    let seen = || {
        let log = site.agent.log();
        log.matches("\"looked at what the batch changed\"").count()
    };
    // In order but for one entry, then wholly out of order: the map is sorted the other
    // way round on disk, which changes nothing for lookups.
    let reversed: String = (0..ENTRIES).rev().map(entry).collect();
    for (plan, file) in [("p3", all), ("p4", reversed)] {
        let file = file.replace("/000007 backend-000007 with", "/000007 other with");
        let key = "/some/longer/path/of/a/site/000007";
        let ops = json!([
            {"kind": "map_del", "path": "maps/path.map", "key": key},
            {"kind": "map_add", "path": "maps/path.map", "key": key,
             "value": "other with some words behind it"},
        ]);
        let (before, looks) = (clear_highest(pid), seen());
        let answer = site
            .change(plan, file.as_bytes(), &ops)
            .succeed(&site.agent, "runtime");
        assert_eq!(answer["op_results"][0]["ok"], true);
        wait::until("the look is over", Duration::from_secs(30), || {
            (seen() > looks).then_some(())
        });
        let after = highest_kib(pid);
        println!("{plan}: {before} KiB before, {after} KiB at most");
        assert!(after < before + ROOM_KIB, "{plan}: {before} then {after}");
        assert_eq!(site.agent.state()["running_plan_id"], "p2");
        assert!(site.agent.sample("haptic_runtime_map_divergence_total") < 1.0);
    }
    // A difference in the middle of it is found.
    let ops = json!([{"kind": "map_set", "path": "maps/path.map",
        "key": "/some/longer/path/of/a/site/100000", "value": "astray"}]);
    let file: String = (0..ENTRIES).map(entry).collect();
    site.change("p5", file.as_bytes(), &ops)
        .succeed(&site.agent, "runtime");
    wait::until("the worker is repaired", Duration::from_secs(30), || {
        (site.agent.state()["running_plan_id"] == "p5").then_some(())
    });
    assert!(site.agent.sample("haptic_runtime_map_divergence_total") >= 1.0);
}
