//! What a reader, a disk or a broken state file could do to everybody else.

use super::kit::{Rig, SOON};
use crate::support::agent::{AUTHORIZATION, Apply, get, tree};
use crate::support::haproxy::Version;
use crate::support::wait;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::net::UnixListener;

/// 70 abandoned `verify=1` requests once took health and readiness down for as long as a
/// reload hung.
#[test]
fn readers_that_leave_do_not_take_the_probes_down() {
    let rig = Rig::applied(Version::V3_4);
    // A master that takes the reload and never answers.
    let master = rig.base.join("master.sock");
    std::fs::rename(&master, rig.base.join("master.away")).unwrap();
    let _silent = UnixListener::bind(&master).unwrap();
    let apply = rig.next("p2", "two").request();
    let mut applying = TcpStream::connect(rig.agent.api()).unwrap();
    applying.write_all(&apply).unwrap();
    wait::until("the apply is under way", SOON, || {
        rig.agent
            .log()
            .contains("\"msg\":\"reloading\"")
            .then_some(())
    });
    let request = format!(
        "GET /v1/state?verify=1 HTTP/1.1\r\nHost: a\r\nAuthorization: {AUTHORIZATION}\r\n\r\n"
    );
    let readers: Vec<TcpStream> = (0..70)
        .filter_map(|_| {
            let mut reader = TcpStream::connect(rig.agent.api()).ok()?;
            reader.write_all(request.as_bytes()).ok()?;
            Some(reader)
        })
        .collect();
    wait::until("health answers beside the readers", SOON, || {
        (get(rig.agent.api(), "/healthz", None).status == 200).then_some(())
    });
    drop(readers);
    wait::until("their connections are gone", SOON, || {
        (rig.agent.sample("haptic_agent_connections") <= 3.0).then_some(())
    });
    assert_eq!(get(rig.agent.api(), "/readyz", None).status, 200);
}

/// The background thread once died alone: alive, never ready, nothing restarted it.
#[test]
fn numbers_at_their_end_in_the_state_do_not_stop_the_agent() {
    let mut rig = Rig::applied(Version::V3_4);
    rig.agent.kill();
    let path = rig.base.join(".haptic-agent.json");
    let mut state: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for field in ["txn", "generation", "next_backup"] {
        state[field] = u64::MAX.into();
    }
    std::fs::write(&path, state.to_string()).unwrap();
    rig.restart_agent();
    rig.next("p2", "two").succeed(&rig.agent, "reload");
}

/// Somebody cleans up: the agent's own directories go while it runs, backups with them.
/// Applies make them anew, and a rollback that finds no backup says so and claims nothing.
#[test]
fn its_own_directories_may_be_taken_away() {
    let rig = Rig::applied(Version::V3_4);
    let clean = || {
        for own in [".haptic-lkg", ".haptic-tmp"] {
            let _ = std::fs::remove_dir_all(rig.base.join(own));
        }
    };
    let without_map = |apply: Apply| {
        apply.edit(|manifest| {
            let files = manifest["files"].as_array_mut().unwrap();
            files.retain(|file| file["path"] != "maps/host.map");
        })
    };
    let map = |plan: &str, bytes: &[u8]| {
        without_map(rig.next(plan, "one"))
            .file("maps/host.map", bytes)
            .mode("auto")
    };
    clean();
    map("p2", b"b.example be_b\n").succeed(&rig.agent, "file_only");
    // The map's last known good version goes.
    clean();
    let bad = format!("{}    frobnicate\n", rig.config("two"));
    let nack = without_map(rig.raw("bad", bad.as_bytes()))
        .held("maps/host.map", b"b.example be_b\n")
        .fail(&rig.agent, "reload");
    assert_eq!(nack["rollback"]["performed"], true, "{nack:#}");
    let state = rig.agent.state_with("?verify=1");
    for id in ["applied_plan_id", "lkg_plan_id"] {
        assert_eq!(state[id], "", "{id}: {state:#}");
    }
    assert_eq!(state["running_plan_id"], "p1", "{state:#}");
    let tree = tree(&rig.base);
    assert_eq!(tree["haproxy.cfg"], rig.config("one").as_bytes());
    assert_eq!(tree["maps/host.map"], b"b.example be_b\n");
    assert_eq!(rig.word(), "one");
    clean();
    let full = map("p3", b"c.example be_c\n").mode("reload");
    full.succeed(&rig.agent, "reload");
    assert_eq!(rig.agent.state()["lkg_plan_id"], "p3");
    assert_eq!(super::kit::leftovers(&rig.base), [""; 0]);
}
