//! What `--durability` costs in calls, counted by strace.

use super::scene::skip;
use crate::support::agent::{Apply, Setup};
use crate::support::haproxy::{Haproxy, Version, minimal};
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

const SYNCS: &str = "fsync,fdatasync,sync,syncfs,sync_file_range";

/// How often each call of [`SYNCS`] was made from the start through three applies: one
/// that brings 21 files, one that changes one, one that is refused and undone.
fn calls(durability: &str) -> BTreeMap<String, usize> {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    fs::create_dir(&base).unwrap();
    let _haproxy = Haproxy::start(Version::V3_4, &base, &minimal(&base));
    let trace = dir.path().join("trace");
    let setup = Setup::new(&base).with("--durability", durability);
    let plain = setup.command();
    let mut command = Command::new("strace");
    // The tracer is a grandchild, so that what is started here is the agent.
    command.args(["-D", "-f", "-qq", "-e", &format!("trace={SYNCS}"), "-o"]);
    command.arg(&trace);
    command.arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap());
    }
    command.stdin(Stdio::null());
    let mut agent = setup.spawn_as(command);
    agent.wait_ready();
    let set = |plan: &str, seq: u64, word: &str, config: &str| {
        let mut apply = Apply::new(plan, 1, seq).blob(b"opaque");
        for n in 0..19 {
            apply = apply.file(&format!("maps/{n}.map"), b"a b\n");
        }
        apply
            .file("maps/word.map", word.as_bytes())
            .file("haproxy.cfg", config.as_bytes())
    };
    let config = minimal(&base);
    let state = set("p1", 1, "one\n", &config)
        .on(&agent.state())
        .succeed(&agent, "reload");
    let state = set("p2", 2, "two\n", &config)
        .mode("auto")
        .on(&state)
        .succeed(&agent, "file_only");
    set("p3", 3, "three\n", &format!("{config}nonsense\n"))
        .on(&state)
        .fail(&agent, "reload");
    assert!(agent.terminate().success());
    let text = fs::read_to_string(&trace).unwrap();
    let mut calls = BTreeMap::new();
    for line in text.lines() {
        // `pid  name(arguments…`; a resumed call was counted when it began.
        let call = line.split_whitespace().nth(1).unwrap_or_default();
        if let Some((name, _)) = call.split_once('(') {
            *calls.entry(name.to_owned()).or_insert(0) += 1;
        }
    }
    calls
}

#[test]
fn process_durability_syncs_nothing_and_full_syncs_what_it_stages() {
    let found = Command::new("strace").arg("-V").output();
    if found.is_err() {
        let _ = skip("strace counts the calls of this test; install it");
        return;
    }
    assert_eq!(calls("process"), BTreeMap::new());
    let full = calls("full");
    let of = |name: &str| full.get(name).copied().unwrap_or(0);
    // Three times 21 files and a blob.
    assert_eq!(of("sync_file_range"), 66, "{full:?}");
    assert!(of("fsync") > 66, "{full:?}");
    // Beside the parts: a handful of directories and states an apply, whatever the
    // number of files.
    assert!(of("fsync") < 66 + 75, "{full:?}");
    assert_eq!(of("sync") + of("syncfs"), 0, "{full:?}");
}
