//! Descriptors that run out while it answers.

use super::kit::{PATIENCE, ask};
use super::process::Respond;
use crate::support::wait;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

/// All descriptors gone: questions wait, errors are counted, nothing ends. Freed, the
/// next question is answered.
#[test]
fn descriptors_run_out_and_come_back() {
    let respond = Respond::on_directory().start();
    respond.wait_synced();
    assert_eq!(ask(respond.checks(), "web/s1\n"), "ready 100%\n");
    let pid = Pid::from_raw(i32::try_from(respond.pid()).unwrap()).unwrap();
    let limit = |most: u64| Rlimit {
        current: Some(most),
        maximum: Some(4096),
    };
    let before = prlimit(Some(pid), Resource::Nofile, limit(3)).unwrap();
    // The threads that are in accept have a descriptor in hand; each takes one
    // connection, and then there are none.
    let waiting: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(respond.checks()).unwrap();
            let _gone = stream.write_all(b"web/s1\n");
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    drop(waiting);
    prlimit(
        Some(pid),
        Resource::Nofile,
        limit(before.current.unwrap().min(4096)),
    )
    .unwrap();
    wait::until("a question is answered again", PATIENCE, || {
        (ask(respond.checks(), "web/s1\n") == "ready 100%\n").then_some(())
    });
    wait::until("the errors are shown", PATIENCE, || {
        (respond.sample("haptic_responder_accept_errors_total") > 0.0).then_some(())
    });
    let said = respond.log();
    assert!(said.contains("\"accept failed\""), "{said}");
    let lines = said.matches("\"accept failed\"").count();
    assert!(lines < 20, "{lines} lines about accept");
    assert_eq!(respond.get("/-/liveness").status, 200);
}
