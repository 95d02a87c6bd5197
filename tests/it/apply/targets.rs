//! Targets that are no regular files, and directories that lead elsewhere.

use super::kit::{Rig, photos};
use crate::support::agent::tree;
use crate::support::haproxy::Version;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;

/// Refused before anything is written, by name, and everything is as it was.
fn refused(rig: &Rig, path: &str, words: &str) {
    let before = photos(&rig.base);
    let word = rig.word();
    let worker = rig.haproxy.worker_pid();
    let apply = rig
        .next("p2", "two")
        .file("maps/also.map", b"k v\n")
        .file(path, b"content\n");
    let nack = apply.fail(&rig.agent, "backup");
    let message = nack["error"]["message"].as_str().unwrap();
    assert!(
        message.contains(path) && message.contains(words),
        "{path}: {message}"
    );
    assert!(nack.get("rollback").is_none(), "{nack:#}");
    assert_eq!(photos(&rig.base), before, "{path}");
    assert_eq!(rig.word(), word);
    assert_eq!(rig.haproxy.worker_pid(), worker);
    assert_eq!(super::kit::leftovers(&rig.base), [""; 0], "{path}");
}

#[test]
fn only_regular_files_are_replaced() {
    let rig = Rig::applied(Version::V3_4);
    let general = rig.base.join("general");
    fs::create_dir(&general).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("precious"), "precious").unwrap();

    let fifo = general.join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    refused(&rig, "general/fifo", "fifo");
    fs::create_dir(general.join("dir")).unwrap();
    refused(&rig, "general/dir", "directory");
    let _socket = UnixListener::bind(general.join("sock")).unwrap();
    refused(&rig, "general/sock", "socket");
    symlink(elsewhere.path().join("precious"), general.join("link")).unwrap();
    refused(&rig, "general/link", "symbolic link");
    symlink("nowhere", general.join("dangling")).unwrap();
    refused(&rig, "general/dangling", "symbolic link");
    // On the way to the target.
    symlink(elsewhere.path(), rig.base.join("linked")).unwrap();
    refused(&rig, "linked/new", "linked");
    refused(&rig, "linked/precious", "linked");
    symlink("maps", rig.base.join("alias")).unwrap();
    refused(&rig, "alias/host.map", "alias");
    refused(&rig, "general/fifo/below", "general/fifo");
    fs::write(general.join("file"), "a file").unwrap();
    refused(&rig, "general/file/below", "general/file");

    assert_eq!(
        fs::read(elsewhere.path().join("precious")).unwrap(),
        b"precious"
    );
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
    rig.next("p2", "two").succeed(&rig.agent, "reload");
}

/// A directory that becomes a symbolic link after the agent filled it is not followed for
/// removals either.
#[test]
fn a_removal_does_not_follow_a_directory_that_was_swapped() {
    let rig = Rig::applied(Version::V3_4);
    rig.next("p2", "two")
        .file("general/x", b"of the agent")
        .succeed(&rig.agent, "reload");
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("x"), "precious").unwrap();
    fs::rename(rig.base.join("general"), rig.base.join("moved")).unwrap();
    symlink(elsewhere.path(), rig.base.join("general")).unwrap();
    let state = rig.agent.state_with("?verify=1");
    assert_eq!(state["applied_plan_id"], "", "{state:#}");
    let without = rig.next("p3", "three");
    let reply = without.send(&rig.agent);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(fs::read(elsewhere.path().join("x")).unwrap(), b"precious");
    assert_eq!(fs::read(rig.base.join("moved/x")).unwrap(), b"of the agent");
    if reply.json()["ok"] == false {
        assert_eq!(reply.json()["error"]["stage"], "backup", "{}", reply.text());
        fs::remove_file(rig.base.join("general")).unwrap();
        rig.next("p3", "three").succeed(&rig.agent, "reload");
    }
    assert_eq!(rig.word(), "three");
}

/// FR-006: removal is for what the agent put there, also when a foreign file stands in a
/// directory of its own, and a foreign file that was listed once is the agent's then.
#[test]
fn only_what_the_agent_put_there_is_removed() {
    let rig = Rig::applied(Version::V3_4);
    fs::write(rig.base.join("maps/foreign.map"), "f f\n").unwrap();
    fs::create_dir(rig.base.join("lonely")).unwrap();
    fs::write(rig.base.join("maps/taken.map"), "before\n").unwrap();
    let apply = rig
        .next("p2", "two")
        .file("maps/taken.map", b"after\n")
        .file("lonely/x", b"x")
        .file("own/x", b"x");
    apply.succeed(&rig.agent, "reload");
    fs::write(rig.base.join("own/foreign"), "f").unwrap();
    rig.next("p3", "three").succeed(&rig.agent, "reload");
    let tree = tree(&rig.base);
    assert_eq!(tree["maps/foreign.map"], b"f f\n");
    assert_eq!(tree["own/foreign"], b"f");
    assert!(!tree.contains_key("maps/taken.map"));
    assert!(!tree.contains_key("own/x") && !tree.contains_key("lonely/x"));
    assert!(rig.base.join("lonely").is_dir(), "it was there before");
    // The directory goes once it is empty and a set leaves it.
    fs::remove_file(rig.base.join("own/foreign")).unwrap();
    rig.next("p4", "four").succeed(&rig.agent, "reload");
    assert!(!rig.base.join("own").exists());
}

/// A set without the main configuration would end HAProxy: refused, by name.
#[test]
fn a_set_needs_its_main_configuration() {
    let rig = Rig::applied(Version::V3_4);
    let before = photos(&rig.base);
    for mode in ["auto", "reload"] {
        let mut apply = rig.next("p2", "one").mode(mode);
        apply.manifest["files"].as_array_mut().unwrap().remove(0);
        apply.parts.clear();
        let nack = apply.fail(&rig.agent, "backup");
        let message = nack["error"]["message"].as_str().unwrap();
        assert!(message.contains("haproxy.cfg"), "{message}");
        assert_eq!(photos(&rig.base), before);
    }
    // Also the empty set, and also the first apply ever: what stands there is not removed.
    let mut empty = rig.next("p2", "one");
    empty.manifest["files"] = serde_json::json!([]);
    empty.parts.clear();
    empty.fail(&rig.agent, "backup");
    assert_eq!(photos(&rig.base), before);
}

/// A file that becomes a directory, and the other way round, in one set each; refused, the
/// old one is back.
#[test]
fn a_path_changes_between_file_and_directory_in_one_set() {
    let rig = Rig::applied(Version::V3_4);
    let bad = |plan| rig.raw(plan, b"nonsense\n");
    rig.next("p2", "two")
        .file("general/x", b"file")
        .succeed(&rig.agent, "reload");
    let before = photos(&rig.base);
    bad("bad1")
        .file("general/x/y/z", b"below")
        .fail(&rig.agent, "reload");
    assert_eq!(photos(&rig.base), before);
    rig.next("p3", "three")
        .file("general/x/y/z", b"below")
        .file("general/x/w", b"beside")
        .succeed(&rig.agent, "reload");
    assert_eq!(tree(&rig.base)["general/x/y/z"], b"below");
    let before = photos(&rig.base);
    bad("bad2")
        .file("general/x", b"again")
        .fail(&rig.agent, "reload");
    assert_eq!(photos(&rig.base), before);
    // What is not the agent's does not go with it.
    let foreign = rig.base.join("general/x/y/mine");
    fs::write(&foreign, "mine").unwrap();
    refused(
        &rig,
        "general/x",
        "general/x/y/mine in it is not the agent's",
    );
    fs::remove_file(&foreign).unwrap();
    rig.next("p4", "four")
        .file("general/x", b"again")
        .succeed(&rig.agent, "reload");
    assert_eq!(tree(&rig.base)["general/x"], b"again");
    assert_eq!(rig.word(), "four");
}

/// What is refused before anything was touched costs no baseline: the next apply builds on
/// it, and once disk and worker hold what was asked for the state is as good as new.
#[test]
fn a_refusal_that_touched_nothing_leaves_the_baseline() {
    let rig = Rig::applied(Version::V3_4);
    fs::create_dir_all(rig.base.join("general/dir")).unwrap();
    rig.next("p2", "one")
        .mode("auto")
        .file("general/dir", b"file")
        .fail(&rig.agent, "backup");
    let state = rig.agent.state();
    for id in ["applied_plan_id", "running_plan_id", "worker_ops_plan_id"] {
        assert_eq!(state[id], "p1", "{state:#}");
    }
    assert!(state["degraded"]["reason"].is_string(), "{state:#}");
    let worker = rig.haproxy.worker_pid();
    rig.next("p3", "one")
        .mode("auto")
        .file("general/other", b"file")
        .succeed(&rig.agent, "file_only");
    let state = rig.agent.state();
    assert_eq!(state["applied_plan_id"], "p3");
    assert_eq!(state.get("degraded"), None, "{state:#}");
    assert_eq!(rig.haproxy.worker_pid(), worker);
}
