//! Memory stays flat whatever is uploaded. The figures of the release build are
//! `make bench`'s; this is the bound that no build may pass.

use crate::support::agent::{AUTHORIZATION, Agent, Apply, Setup};
use crate::support::haproxy::{Haproxy, Version, minimal};
use serde_json::json;
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;

const MIB: usize = 1024 * 1024;
/// Most of a debug build's memory is its own text.
const IDLE_KIB: u64 = 16 * 1024;
/// What 64 MiB of parts may add.
const MORE_KIB: u64 = 8 * 1024;

fn kib(agent: &Agent, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn sixty_files_and_a_blob_pass_through_and_leave_nothing_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    fs::create_dir(&base).unwrap();
    let _haproxy = Haproxy::start(Version::V3_4, &base, &minimal(&base));
    let agent = Setup::new(&base).start();
    let idle = kib(&agent, "VmHWM");
    assert!(idle < IDLE_KIB, "{idle} KiB idle");
    let mut config = minimal(&base).into_bytes();
    while config.len() < 4 * MIB {
        config.extend_from_slice(b"# a line that only makes the file larger\n");
    }
    let mut apply = Apply::new("p1", 1, 1)
        .blob(&vec![b'b'; 8 * MIB])
        .file("haproxy.cfg", &config);
    for n in 0..50u8 {
        apply = apply.file(&format!("general/{n}"), &vec![n; MIB]);
    }
    apply.on(&agent.state()).succeed(&agent, "reload");
    let highest = kib(&agent, "VmHWM");
    assert!(
        highest < idle + MORE_KIB,
        "{highest} KiB at most, {idle} KiB before"
    );
    assert_eq!(agent.state_with("?plan=0")["applied_plan_stored"], true);
}

/// A few bytes an item in the manifest must not become a few hundred in memory.
#[test]
fn a_list_of_a_million_items_is_refused_without_being_kept() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    fs::create_dir(&base).unwrap();
    let _haproxy = Haproxy::start(Version::V3_4, &base, &minimal(&base));
    let agent = Setup::new(&base).start();
    let state = agent.state();
    let idle = kib(&agent, "VmHWM");
    let item = json!({});
    for list in ["ops", "in_place_ops", "files"] {
        let apply = Apply::new("p1", 1, 1)
            .file("haproxy.cfg", minimal(&base).as_bytes())
            .on(&state)
            .edit(|manifest| manifest[list] = vec![item.clone(); 2_500_000].into());
        let reply = apply.send(&agent);
        assert_eq!(reply.status, 400, "{list}");
        assert_eq!(reply.json()["stage"], "manifest", "{list}");
    }
    let highest = kib(&agent, "VmHWM");
    let manifests = 2 * 8 * 1024;
    assert!(
        highest < idle + MORE_KIB + manifests,
        "{highest} KiB at most, {idle} KiB before"
    );
}

/// Each answer with the plan is eight megabytes and more: readers that do not read must
/// not hold one each, and nobody else may wait for them.
#[test]
fn readers_of_the_plan_that_do_not_read_hold_neither_memory_nor_the_agent() {
    const READERS: usize = 60;
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    fs::create_dir(&base).unwrap();
    let _haproxy = Haproxy::start(Version::V3_4, &base, &minimal(&base));
    let agent = Setup::new(&base).start();
    Apply::new("p1", 1, 1)
        .blob(&vec![b'b'; 8 * MIB])
        .file("haproxy.cfg", minimal(&base).as_bytes())
        .on(&agent.state_with("?plan=0"))
        .succeed(&agent, "reload");
    let before = kib(&agent, "VmHWM");
    let mut readers: Vec<TcpStream> = Vec::new();
    for _ in 0..READERS {
        let mut reader = TcpStream::connect(agent.api()).unwrap();
        write!(
            reader,
            "GET /v1/state HTTP/1.1\r\nHost: agent\r\nAuthorization: {AUTHORIZATION}\r\n\r\n"
        )
        .unwrap();
        readers.push(reader);
    }
    for _ in 0..20 {
        assert_eq!(agent.state_with("?plan=0")["applied_plan_id"], "p1");
    }
    let after = kib(&agent, "VmHWM");
    // One answer in base64, and its making.
    assert!(
        after < before + 40 * 1024,
        "{after} KiB with {READERS} readers, {before} KiB before"
    );
}
