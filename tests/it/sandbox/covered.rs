//! Something is mounted over the base directory while the agent runs, or another
//! directory takes its name: HAProxy goes by the name, and the agent must not claim what
//! only its own, hidden directory holds.

use super::scene::{Dirs, Mounted, VERSIONS, namespaces};
use crate::support::agent::{Apply, tree};
use crate::support::haproxy::Version;
use crate::support::wait;
use std::time::Duration;

/// How long anything that has to happen may take on a loaded machine.
const SOON: Duration = Duration::from_secs(20);

/// The base directory is a mount of its own, so that its name can be taken from it.
const OWN: &str = "mount -t tmpfs -o size=8m,mode=755 tmpfs \"$1\"";

fn start(version: Version) -> Mounted {
    Mounted::start(version, Dirs::new(), (OWN, &[]), |setup| {
        setup.with("--reload-interval-min", "0s")
    })
}

fn set(scene: &Mounted, plan: &str, seq: u64) -> Apply {
    let config = scene.dirs.config(&format!("    # {plan}\n"));
    Apply::new(plan, 1, seq)
        .file("haproxy.cfg", config.as_bytes())
        .file("maps/host.map", plan.as_bytes())
}

fn sh(scene: &Mounted, script: &str) {
    let base = scene.dirs.base.display();
    assert!(scene.space.sh(&format!("base={base}\n{script}"), None));
}

#[test]
fn a_base_directory_that_is_covered_is_not_claimed() {
    if !namespaces() {
        return;
    }
    for version in VERSIONS {
        let scene = start(version);
        let agent = &scene.agent;
        let state = agent.state();
        let state = set(&scene, "p1", 1).on(&state).succeed(agent, "reload");
        let worker = scene.haproxy.worker_pid();

        // What lies on top has the same files, so HAProxy would load it without a word.
        sh(
            &scene,
            "mkdir $base.copy && cp -a $base/. $base.copy && mount -t tmpfs tmpfs $base && cp -a $base.copy/. $base",
        );
        let reply = set(&scene, "p2", 2).on(&state).send(agent);
        let answer = reply.json();
        assert_eq!(answer["ok"], false, "{version}: {answer:#}");
        assert_eq!(answer["error"]["stage"], "backup", "{version}");
        let words = answer["error"]["message"].as_str().unwrap();
        assert!(words.contains("restart the agent"), "{version}: {words}");
        let state = agent.state_with("?verify=1");
        assert_eq!(state["applied_plan_id"], "", "{version}: {state:#}");
        assert_eq!(state["running_plan_id"], "p1", "{version}: {state:#}");
        assert_eq!(scene.haproxy.worker_pid(), worker, "{version}");
        assert_eq!(tree(&scene.base)["maps/host.map"], b"p1", "{version}");

        // Its name leads to it again: the next full set is taken.
        sh(&scene, "umount $base");
        assert_eq!(tree(&scene.base)["maps/host.map"], b"p1", "{version}");
        set(&scene, "p3", 3)
            .on(&agent.state())
            .succeed(agent, "reload");
        assert_eq!(tree(&scene.base)["maps/host.map"], b"p3", "{version}");
        assert_ne!(scene.haproxy.worker_pid(), worker, "{version}");
    }
}

/// Nobody applies anything: the background look says it.
#[test]
fn a_base_directory_that_is_covered_is_noticed_without_an_apply() {
    if !namespaces() {
        return;
    }
    let scene = start(Version::V3_4);
    let agent = &scene.agent;
    set(&scene, "p1", 1)
        .on(&agent.state())
        .succeed(agent, "reload");
    sh(&scene, "mount -t tmpfs tmpfs $base");
    let state = wait::until("it is noticed", SOON, || {
        let state = agent.state_with("?plan=0");
        (state["applied_plan_id"] == "").then_some(state)
    });
    let reason = state["degraded"]["reason"].as_str().unwrap();
    assert!(reason.contains("restart the agent"), "{reason}");
}
