//! The state file in every condition that a disk can leave it in.

use super::kit::{Rig, SOON, leftovers, photos};
use crate::support::agent::{get, tree};
use crate::support::haproxy::Version;
use crate::support::wait;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

const STATE: &str = ".haptic-agent.json";

/// From a good state file to one that is not.
type Spoil = Box<dyn Fn(&[u8]) -> Vec<u8>>;

/// An agent that waited for somebody to clear its own name away would never be ready.
#[test]
fn what_stands_in_the_place_of_the_state_and_is_no_file_is_set_aside() {
    type Put<'a> = &'a dyn Fn(&Path);
    let put: [(&str, Put<'_>); 3] = [
        ("a directory", &|path| fs::create_dir(path).unwrap()),
        ("a FIFO", &|path| {
            let made = Command::new("mkfifo").arg(path).status().unwrap();
            assert!(made.success());
        }),
        ("a symbolic link", &|path| {
            std::os::unix::fs::symlink("/etc/hostname", path).unwrap();
        }),
    ];
    for (what, put) in put {
        let mut rig = Rig::applied(Version::V3_4);
        let path = rig.base.join(STATE);
        rig.agent.kill();
        fs::remove_file(&path).unwrap();
        put(&path);
        let there = fs::symlink_metadata(&path).unwrap().ino();
        rig.restart_agent();
        assert_eq!(rig.agent.state()["applied_plan_id"], "", "{what}");
        let aside = rig.base.join(format!("{STATE}.bad"));
        assert_eq!(fs::symlink_metadata(aside).unwrap().ino(), there, "{what}");
        assert!(rig.agent.log().contains(what), "{what}");
        let mut full = rig.next("full", "again");
        let name = "maps/host.map".to_owned();
        full.parts
            .push((name.clone(), Some(name), b"a.example be_a\n".to_vec()));
        full.succeed(&rig.agent, "reload");
    }
}

#[test]
fn a_state_that_cannot_be_used_is_set_aside() {
    let spoil: Vec<(&str, Spoil)> = vec![
        ("empty", Box::new(|_| Vec::new())),
        ("half", Box::new(|old| old[..old.len() / 2].to_vec())),
        (
            "one byte short",
            Box::new(|old| old[..old.len() - 2].to_vec()),
        ),
        ("binary", Box::new(|_| vec![0xff; 4096])),
        ("another document", Box::new(|_| b"{}\n".to_vec())),
        ("null", Box::new(|_| b"null".to_vec())),
        (
            "newer",
            Box::new(|old| {
                let mut state: serde_json::Value = serde_json::from_slice(old).unwrap();
                state["format"] = 4_000_000_000u32.into();
                state.to_string().into_bytes()
            }),
        ),
        (
            "a field of another type",
            Box::new(|old| {
                let mut state: serde_json::Value = serde_json::from_slice(old).unwrap();
                state["generation"] = "seven".into();
                state.to_string().into_bytes()
            }),
        ),
    ];
    let mut rig = Rig::applied(Version::V3_4);
    let path = rig.base.join(STATE);
    for (round, (what, spoil)) in spoil.iter().enumerate() {
        // Something to lose: a backup of the set before.
        let word = format!("w{round}");
        rig.next(&word, &word).succeed(&rig.agent, "reload");
        let map = rig
            .next("files", &word)
            .mode("auto")
            .file("maps/more.map", b"k v\n");
        map.succeed(&rig.agent, "file_only");
        let before = photos(&rig.base);
        rig.agent.kill();
        let spoilt = spoil(&fs::read(&path).unwrap());
        fs::write(&path, &spoilt).unwrap();
        rig.restart_agent();
        let state = rig.agent.state();
        for id in [
            "applied_plan_id",
            "running_plan_id",
            "worker_ops_plan_id",
            "lkg_plan_id",
        ] {
            assert_eq!(state[id], "", "{what} {id}");
        }
        assert_eq!(state["generation"], 0, "{what}");
        assert_eq!(photos(&rig.base), before, "{what}");
        assert_eq!(rig.word(), word, "{what}");
        let aside = fs::read(rig.base.join(format!("{STATE}.bad"))).unwrap();
        assert_eq!(aside, spoilt, "{what}: kept for whoever wants to look");
        assert_eq!(
            rig.agent.sample("haptic_agent_state_file_resets_total"),
            1.0
        );
        assert!(rig.agent.log().contains("set aside"), "{what}");
        assert_eq!(leftovers(&rig.base), [""; 0], "{what}");
        // A full set puts everything right; what nobody owns any more stays.
        let full = rig.next("full", &word);
        let mut full = full;
        let name = "maps/host.map".to_owned();
        full.parts
            .push((name.clone(), Some(name), b"a.example be_a\n".to_vec()));
        full.succeed(&rig.agent, "reload");
        assert!(tree(&rig.base).contains_key("maps/more.map"), "{what}");
        fs::remove_file(rig.base.join("maps/more.map")).unwrap();
    }
}

/// A torn or foreign phase file is one that was never written.
#[test]
fn a_spoilt_phase_file_is_ignored() {
    let mut rig = Rig::applied(Version::V3_4);
    let before = photos(&rig.base);
    for content in [&b""[..], b"{", b"\xff\xff", b"{\"txn\":1,\"phase\":{}}"] {
        rig.agent.kill();
        fs::write(rig.base.join(format!("{STATE}.phase")), content).unwrap();
        rig.restart_agent();
        let state = rig.agent.state();
        assert_eq!(state["applied_plan_id"], "p1");
        assert_eq!(state["running_plan_id"], "p1");
        assert_eq!(photos(&rig.base), before);
    }
}

/// A state that is there and may not be read is not one that is not there: the agent
/// waits, says why, and goes on where it was once it may.
#[test]
fn a_state_that_may_not_be_read_is_waited_for() {
    let mut rig = Rig::applied(Version::V3_4);
    rig.agent.kill();
    // The agent's user owns the tree, and the state is somebody else's.
    let parent = rig.base.parent().unwrap().to_path_buf();
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o755)).unwrap();
    for path in [
        "",
        "haproxy.cfg",
        "maps",
        "maps/host.map",
        ".haptic-tmp",
        ".haptic-lkg",
    ] {
        let path = rig.base.join(path);
        if path.exists() {
            chown(&path, Some(65534), Some(65534)).unwrap();
        }
    }
    for entry in fs::read_dir(&rig.base).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with(STATE) {
            chown(&path, Some(65534), Some(65534)).unwrap();
        }
    }
    for socket in ["master.sock", "worker.sock"] {
        let path = rig.base.join(socket);
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    }
    let mut command = rig.setup.command();
    command.uid(65534).gid(65534);
    rig.agent = rig.setup.spawn_as(command);
    wait::until("it says what it waits for", SOON, || {
        let log = rig.agent.log();
        (log.contains("cannot start yet") && log.contains(STATE)).then_some(())
    });
    assert_eq!(get(rig.agent.api(), "/healthz", None).status, 200);
    assert_eq!(get(rig.agent.api(), "/readyz", None).status, 503);
    assert!(rig.base.join(STATE).exists(), "it was not set aside");
    chown(rig.base.join(STATE), Some(65534), Some(65534)).unwrap();
    rig.agent.wait_ready();
    let state = rig.agent.state();
    assert_eq!(state["applied_plan_id"], "p1");
    assert_eq!(state["running_plan_id"], "p1");
}

/// One base directory has one agent: a second one ends, says why, and disturbs nothing.
#[test]
fn a_second_agent_on_the_same_base_ends() {
    let rig = Rig::applied(Version::V3_4);
    let before = photos(&rig.base);
    let second = rig.setup.command().output().unwrap();
    assert!(!second.status.success());
    let said = [second.stdout, second.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("another"), "{said}");
    assert_eq!(photos(&rig.base), before);
    rig.next("p2", "two").succeed(&rig.agent, "reload");
}
