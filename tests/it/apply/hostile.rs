//! What a reader, a disk or a broken state file could do to everybody else.

use super::kit::{Rig, SOON};
use crate::support::agent::{AUTHORIZATION, get};
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
