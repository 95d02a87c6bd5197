//! A certificate that HAProxy refuses by command and by reload: disk goes back to the last
//! known good set, and what commands had brought before goes on being served.

use super::rig::Live;
use super::world::{DEFAULT, made};
use crate::support::agent::{Apply, tree};
use crate::support::haproxy::Version;
use serde_json::json;

#[test]
fn a_refused_certificate_takes_nothing_from_the_worker() {
    for version in Version::ALL {
        let mut live = Live::start(version);
        let good = live.world.files();
        let renewed = live.world.cert_set(DEFAULT, 1);
        live.apply("auto", std::slice::from_ref(&renewed))
            .succeed(&live.agent, "runtime");
        live.agrees("renewed");
        let worker = live.identity();

        let mixed = format!("{}{}", made(2).material.cert, made(3).material.key);
        let state = live.agent.state_with("?plan=0");
        let mut next = Apply::new("mixed", 1, 99).mode("auto");
        for (path, bytes) in &live.world.files() {
            next = match path.as_str() {
                DEFAULT => next.file(path, mixed.as_bytes()),
                _ => next.held(path, bytes),
            };
        }
        let next = next
            .on(&state)
            .edit(|manifest| manifest["ops"] = json!([renewed]));
        let nack = next.fail(&live.agent, "reload");
        assert_eq!(nack["op_results"][0]["ok"], false, "{nack:#}");
        assert_eq!(nack["rollback"]["performed"], true, "{nack:#}");
        assert_eq!(nack["rollback"]["reloaded"], false, "{nack:#}");

        assert_eq!(live.identity(), worker, "{version}");
        assert_eq!(
            live.world.seen(&live.haproxy),
            live.world.view(),
            "{version}"
        );
        live.serves("the renewed one", true);
        assert!(tree(&live.world.base) == good, "{version}");
        let state = live.agent.state();
        assert_eq!(state["applied_plan_id"], "", "{state:#}");
        assert_eq!(state["running_plan_id"], "p1", "{state:#}");
        assert_eq!(state["worker_ops_plan_id"], "p2", "{state:#}");
        // Nothing is left open in the worker's transaction.
        live.forget_sent();
        live.apply("reload", &[]).succeed(&live.agent, "reload");
        live.agrees("a full set");
    }
}
