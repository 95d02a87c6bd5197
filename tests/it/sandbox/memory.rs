//! Memory stays flat whatever is uploaded. The figures of the release build are
//! `make bench`'s; this is the bound that no build may pass.

use crate::support::agent::{Agent, Apply, Setup};
use crate::support::haproxy::{Haproxy, Version, minimal};
use std::fs;

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
