//! HAProxy does not come up, or cannot be seen, when the agent starts: nobody is locked out,
//! and a set that no worker has ever loaded is not what keeps HAProxy down.

use super::kit::{Rig, SOON};
use crate::support::agent::{Apply, get, tree};
use crate::support::haproxy::{Haproxy, Version};
use crate::support::wait;
use serde_json::Value;
use std::fs;
use std::time::Duration;

/// Longer than everything that the agent waits for.
const LONG: Duration = Duration::from_secs(120);

/// Lines that no HAProxy starts with.
fn bad(rig: &Rig) -> String {
    format!("{}    frobnicate\n", rig.config("bad"))
}

/// HAProxy and the agent end; the agent alone comes back.
fn only_the_agent_comes_back(rig: &mut Rig) {
    rig.haproxy.kill();
    rig.agent.kill();
    for socket in ["master.sock", "worker.sock"] {
        let _ = fs::remove_file(rig.base.join(socket));
    }
    rig.agent = rig.setup.spawn();
}

fn start_haproxy(rig: &mut Rig) {
    let version = rig.haproxy.version();
    let config = fs::read_to_string(rig.base.join("haproxy.cfg")).unwrap();
    rig.haproxy = Haproxy::start(version, &rig.base, &config);
}

/// Waits for the state; until applies are taken it is held back.
fn state(rig: &Rig) -> Value {
    wait::until("the state is told", LONG, || {
        let authorization = Some(crate::support::agent::AUTHORIZATION);
        let reply = get(rig.agent.api(), "/v1/state?plan=0", authorization);
        (reply.status == 200).then(|| reply.json())
    })
}

/// A node reboots over a set that was only written: `file_only`, because the controller
/// said that no command is needed. HAProxy cannot start with it.
#[test]
fn a_set_that_was_never_loaded_goes_back_when_haproxy_does_not_come_up() {
    let mut rig = Rig::applied(Version::V3_4);
    let good = tree(&rig.base);
    rig.raw("p2", bad(&rig).as_bytes())
        .mode("auto")
        .succeed(&rig.agent, "file_only");
    only_the_agent_comes_back(&mut rig);
    let early = get(rig.agent.api(), "/readyz", None);
    assert_eq!(
        (early.status, early.text().trim_end()),
        (503, "initialising")
    );
    wait::until_ok("the refusal says what is waited for", SOON, || {
        let apply = Apply::new("x", 1, 9).file("haproxy.cfg", b"x");
        let refused = apply.send(&rig.agent);
        assert_eq!(refused.status, 503);
        let why = refused.text();
        match why.contains("waits for HAProxy: worker socket") {
            true => Ok(()),
            false => Err(why),
        }
    });
    wait::until("the last known good set is back", LONG, || {
        (tree(&rig.base) == good).then_some(())
    });
    // The files first, then what is said of them.
    let told = rig.until_state("nothing is claimed", |told| told["applied_plan_id"] == "");
    assert_eq!(told["lkg_plan_id"], "p1", "{told:#}");
    let reason = told["degraded"]["reason"].as_str().unwrap();
    assert!(reason.contains("did not come up"), "{reason}");
    start_haproxy(&mut rig);
    rig.agent.wait_ready();
    assert_eq!(rig.word(), "one");
    rig.next("p3", "three").succeed(&rig.agent, "reload");
}

/// The same, and the controller sends what mends it before that: it is taken although the
/// agent is not ready, and is what HAProxy starts with.
#[test]
fn what_mends_it_is_taken_before_haproxy_is_there() {
    let mut rig = Rig::applied(Version::V3_0);
    rig.raw("p2", bad(&rig).as_bytes())
        .mode("auto")
        .succeed(&rig.agent, "file_only");
    only_the_agent_comes_back(&mut rig);
    let told = state(&rig);
    assert_eq!(get(rig.agent.api(), "/readyz", None).status, 503);
    assert_eq!(told["applied_plan_id"], "p2", "disk holds it: {told:#}");
    let mended = rig.config("mended");
    let apply = Apply::new("p3", 1, 3)
        .file("haproxy.cfg", mended.as_bytes())
        .held("maps/host.map", b"a.example be_a\n")
        .on(&told);
    let nack = apply.fail(&rig.agent, "reload");
    let message = nack["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("HAProxy is not running"), "{message}");
    assert_eq!(tree(&rig.base)["haproxy.cfg"], mended.as_bytes());
    start_haproxy(&mut rig);
    rig.agent.wait_ready();
    assert_eq!(rig.word(), "mended");
    rig.next("p4", "four").succeed(&rig.agent, "reload");
}

/// A set without the worker's socket, and a restart of the agent: the next complete set
/// still goes in through the master's.
#[test]
fn a_worker_that_cannot_be_seen_locks_nobody_out() {
    let mut rig = Rig::applied(Version::V3_4);
    let config = rig.config("blind");
    let line = config
        .lines()
        .find(|line| line.contains("worker.sock"))
        .unwrap();
    let blind = config.replace(&format!("{line}\n"), "");
    let nack = rig.raw("p2", blind.as_bytes()).send(&rig.agent).json();
    assert_eq!(nack["ok"], false, "{nack:#}");
    rig.agent.kill();
    rig.agent = rig.setup.spawn();
    let told = state(&rig);
    let apply = Apply::new("p3", 1, 3)
        .file("haproxy.cfg", rig.config("seen").as_bytes())
        .file("maps/host.map", b"a.example be_a\n")
        .on(&told);
    apply.succeed(&rig.agent, "reload");
    assert_eq!(rig.word(), "seen");
    rig.agent.wait_ready();
    assert_eq!(rig.agent.state()["running_plan_id"], "p3");
}

/// A worker that does not list what it has loaded is still a worker.
#[test]
fn a_worker_that_lists_nothing_locks_nobody_out() {
    let mut rig = Rig::applied(Version::V3_2);
    let config = rig.config("operator");
    assert!(config.contains("level admin"));
    let operator = config.replace("level admin", "level user");
    let answer = rig.raw("p2", operator.as_bytes()).send(&rig.agent).json();
    assert_eq!(answer["mode"], "reload", "{answer:#}");
    rig.agent.kill();
    rig.agent = rig.setup.spawn();
    wait::until("it is ready", LONG, || {
        (get(rig.agent.api(), "/readyz", None).status == 200).then_some(())
    });
    let told = rig.agent.state();
    let reason = told["degraded"]["reason"].as_str().unwrap();
    assert!(reason.contains("listings"), "{reason}");
    rig.next("p3", "three").succeed(&rig.agent, "reload");
    assert_eq!(rig.agent.state().get("degraded"), None);
}

/// What the operator calls things is in his encoding, not in ours.
#[test]
fn a_description_in_another_encoding_is_no_other_program() {
    for version in Version::ALL {
        let mut rig = Rig::applied(version);
        let config = rig.config("latin");
        let (head, rest) = config.split_once("global\n").unwrap();
        let latin = [
            head.as_bytes(),
            b"global\n    description \"Z\xfcrich edge\"\n",
            rest.as_bytes(),
        ]
        .concat();
        rig.raw("p2", &latin).succeed(&rig.agent, "reload");
        assert_eq!(rig.word(), "latin", "{version}");
        rig.agent.kill();
        rig.restart_agent();
        assert_eq!(rig.agent.state()["running_plan_id"], "p2");
    }
}

/// Somebody writes a file of the set while HAProxy reads it. What the worker has is not
/// what was sent, and nobody says so.
#[test]
fn a_file_that_is_written_during_the_reload_is_not_claimed() {
    for version in Version::ALL {
        let rig = Rig::applied(version);
        let map = rig.base.join("maps/host.map");
        let script = format!(
            "local f = io.open({:?}, 'w')\nf:write('k foreign\\n')\nf:close()\n",
            map.display().to_string()
        );
        let config =
            rig.config("two")
                .replacen("global\n", "global\n    lua-load general/writes.lua\n", 1);
        let apply = rig
            .raw("p2", config.as_bytes())
            .file("general/writes.lua", script.as_bytes());
        let nack = apply.fail(&rig.agent, "reload");
        let message = nack["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("changed maps/host.map"),
            "{version}: {message}"
        );
        assert_eq!(fs::read(&map).unwrap(), b"k foreign\n");
        let told = rig.agent.state();
        for of in ["applied_plan_id", "running_plan_id", "worker_ops_plan_id"] {
            assert_eq!(told[of], "", "{version}: {told:#}");
        }
        let again = rig
            .next("p3", "three")
            .edit(|manifest| {
                manifest["files"]
                    .as_array_mut()
                    .unwrap()
                    .retain(|file| file["path"] != "maps/host.map");
            })
            .file("maps/host.map", b"a.example be_a\n");
        again.succeed(&rig.agent, "reload");
        rig.until_state("it is known again", |told| told["running_plan_id"] == "p3");
    }
}
