//! Ops on the running worker while a reload waits: fenced by what the worker holds, known
//! by a plan id of their own, and never the reason for a second reload.

use super::rig::{Live, SOON};
use super::world::{Admin, DEFAULT, HOSTS, PATHS, STEADY, Server, op};
use crate::support::agent::Apply;
use crate::support::haproxy::Version;
use crate::support::traffic::get_port;
use crate::support::wait;
use serde_json::{Value, json};
use std::thread;

/// Long enough for what has to happen while a reload waits.
const INTERVAL: &str = "6s";
const RELOADS: &str = "haptic_agent_reloads_total{result=\"ok\"}";

/// The apply that wants a reload and has something for the meantime.
fn with(apply: Apply, ops: &[Value], expected: &str, then: &str) -> Apply {
    apply.edit(|manifest| {
        manifest["in_place_ops"] = json!(ops);
        manifest["expected_worker_ops_plan_id"] = json!(expected);
        manifest["worker_ops_plan_id"] = json!(then);
    })
}

impl Live {
    fn paced(version: Version) -> Self {
        Self::with(version, |setup| {
            setup.with("--reload-interval-min", INTERVAL)
        })
    }

    /// The reload that waits has happened, and it was one.
    fn fired(&mut self, before: f64, what: &str) {
        let last = self.agent.state_with("?plan=0");
        wait::until(what, SOON, || {
            let state = self.agent.state_with("?plan=0");
            let waits = state.get("reload_pending_at").is_some();
            let loaded = self.agent.sample(RELOADS) > before + 0.5;
            (!waits && loaded).then_some(())
        });
        let count = self.agent.sample(RELOADS) - before;
        assert!((count - 1.0).abs() < 0.5, "{what}: {count} reloads");
        assert_eq!(
            self.agent.state_with("?plan=0")["generation"],
            last["generation"]
        );
        self.world.reloaded();
    }
}

#[test]
fn they_have_a_fence_and_a_plan_of_their_own() {
    for version in Version::ALL {
        let mut live = Live::paced(version);
        let load = live.load();
        let (before, reloads) = (live.identity(), live.agent.sample(RELOADS));
        let first = live.agent.state_with("?plan=0")["applied_plan_id"].clone();
        let first = first.as_str().unwrap().to_owned();
        // What the files have and the worker gets only by the reload.
        live.world.map_add(PATHS, "/map/later", "later");
        let server = Server {
            weight: 3,
            ..live.to(1)
        };
        let world = &mut live.world;
        let mut ops = vec![
            world.map_add(PATHS, "/map/now", "now"),
            world.map_set(PATHS, "/map/a", "changed"),
            world.server_add("b", "n1", server),
            world.server_enable("b", "n1"),
            world.server_set_state("b", "s1", Admin::Maint),
            world.cert_set(DEFAULT, 2),
        ];
        if version == Version::V3_4 {
            let one = super::world::Servers::from([(
                "one".to_owned(),
                Server::to(live.upstreams[2].address()).ready(),
            )]);
            ops.extend(world.backend_comes("x", &one));
        }
        let apply = live.apply("reload", &[]);
        let answer = with(apply, &ops, &first, "meantime").succeed(&live.agent, "scheduled");
        assert_eq!(answer["worker_ops_plan_id"], "meantime", "{version}");
        assert_eq!(answer["running_plan_id"], first.as_str(), "{version}");
        assert!(answer.get("error").is_none(), "{version}: {answer:#}");
        let results = answer["op_results"].as_array().unwrap();
        assert_eq!(results.len(), ops.len(), "{version}");
        assert!(
            results.iter().all(|result| result["ok"] == true),
            "{version}"
        );
        assert_eq!(live.identity(), before, "{version}");
        let http = live.world.http;
        let word = |path: &str| get_port(http, "any", path).unwrap().body;
        assert_eq!(word("/map/now"), "now", "{version}");
        assert_eq!(word("/map/a"), "changed", "{version}");
        assert_eq!(word("/map/later"), "none", "{version}");
        assert_eq!(get_port(live.world.http, "b", "/").unwrap().body, "u1");
        if version == Version::V3_4 {
            assert_eq!(get_port(live.world.http, "x", "/").unwrap().body, "u2");
        }

        // The fence is the worker's plan, whatever the set is.
        let op = live.world.map_set(PATHS, "/map/now", "soon");
        for stale in [first.as_str(), "another"] {
            let apply = live.apply("auto", &[]);
            let refused = with(apply, std::slice::from_ref(&op), stale, "x").send(&live.agent);
            assert_eq!(refused.status, 409, "{version}");
            let refused = refused.json();
            assert_eq!(refused["reason"], "worker_ops_mismatch", "{version}");
            assert_eq!(refused["worker_ops_plan_id"], "meantime", "{version}");
        }
        assert_eq!(word("/map/now"), "now", "{version}");
        // The ops of a set that joins what waits are not sent; those for the meantime are.
        let skipped = live.world.map_add(PATHS, "/map/skipped", "skipped");
        let apply = live.apply("auto", &[skipped]);
        let answer = with(apply, &[op], "meantime", "meantime 2").succeed(&live.agent, "scheduled");
        assert_eq!(
            answer["op_results"].as_array().unwrap().len(),
            1,
            "{version}"
        );
        assert_eq!(answer["worker_ops_plan_id"], "meantime 2", "{version}");
        assert_eq!(word("/map/now"), "soon", "{version}");
        assert_eq!(word("/map/skipped"), "none", "{version}");
        assert_eq!(live.identity(), before, "{version}");

        live.fired(reloads, "what waited is loaded");
        live.agrees("the reload has come");
        live.serves("the reload has come", true);
        assert_eq!(load.stop().failed, 0, "{version}");
    }
}

/// A batch of a hundred with a refusal in its middle: named, the baseline forgotten, and
/// the one reload that waited is the only one.
#[test]
fn a_refused_one_clears_the_baseline_and_nothing_else() {
    thread::scope(|scope| {
        for version in Version::ALL {
            scope.spawn(move || refused(version));
        }
    });
}

fn refused(version: Version) {
    let mut live = Live::paced(version);
    let load = live.load();
    let weight = json!({"backend": "b", "server": "none", "weight": 1});
    let unclean = json!({"path": PATHS, "key": "a b", "value": "x"});
    let cases = [
        (op("server_set_weight", weight), "No such server.", true),
        (
            op("map_set", unclean),
            "invalid: key is \"a b\" and must not hold blanks or control characters",
            false,
        ),
    ];
    for (n, (bad, words, sent)) in cases.into_iter().enumerate() {
        let (before, reloads) = (live.identity(), live.agent.sample(RELOADS));
        let held = live.agent.state_with("?plan=0")["worker_ops_plan_id"].clone();
        let set = |value: String| {
            let fields = json!({"path": PATHS, "key": "/map/a", "value": value});
            op("map_set", fields)
        };
        let mut ops: Vec<Value> = (0..100).map(|op| set(format!("v{n}-{op}"))).collect();
        ops[50] = bad.clone();
        ops[51] = op("map_del", json!({"path": PATHS, "key": "/map/absent"}));
        let word = |live: &Live| get_port(live.world.http, "any", "/map/a").unwrap().body;
        let was = word(&live);
        let last = format!("v{n}-99");
        live.world
            .maps
            .insert(PATHS, vec![("/map/a".to_owned(), last.clone())]);
        let apply = live.apply("reload", &[]);
        let apply = with(apply, &ops, held.as_str().unwrap(), "meantime");
        let answer = apply.send(&live.agent).json();
        let case = format!("{version} {bad}: {answer:#}");
        assert_eq!(answer["mode"], "scheduled", "{case}");
        assert_eq!(answer["error"]["stage"], "in_place", "{case}");
        let message = answer["error"]["message"].as_str().unwrap();
        let bare = words.trim_start_matches("invalid: ");
        assert!(message.contains(bare), "{case}");
        for (at, result) in answer["op_results"].as_array().unwrap().iter().enumerate() {
            assert_eq!(result["ok"], sent && at < 50, "{at} of {case}");
        }
        assert_eq!(answer["op_results"][50]["output"], words, "{case}");
        for cleared in ["applied_plan_id", "worker_ops_plan_id"] {
            assert_eq!(answer[cleared], "", "{case}");
        }
        assert_eq!(live.identity(), before, "{case}");
        let partly = format!("v{n}-49");
        assert_eq!(word(&live), if sent { partly } else { was }, "{case}");
        // Nobody knows what the worker holds: nothing more is taken for it.
        let again = live.apply("reload", &[]);
        let again = with(again, &[set("x".to_owned())], "", "x").send(&live.agent);
        assert_eq!(again.status, 409, "{case}");
        live.fired(reloads, "what waited is loaded");
        assert_eq!(word(&live), last, "{case}");
    }
    // And the next set is an ordinary one.
    let reloads = live.agent.sample(RELOADS);
    live.world.map_add(HOSTS, "again", STEADY);
    let apply = live.apply("reload", &[]);
    apply.succeed(&live.agent, "scheduled");
    live.fired(reloads, "the next set is loaded");
    live.agrees("the next set");
    assert_eq!(load.stop().failed, 0, "{version}");
}
