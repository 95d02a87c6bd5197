//! What lands on disk, and which way an apply goes.

use super::kit::{Rig, leftovers, photos};
use crate::support::agent::{Apply, tree};
use crate::support::haproxy::Version;
use crate::support::wait;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Duration;

/// Changed, added and deleted files, byte for byte; what is not in the set goes, what the
/// agent did not put there stays.
#[test]
fn the_set_is_the_whole_truth_for_files_of_the_agent() {
    for version in [Version::V3_0, Version::V3_4] {
        let rig = Rig::new(version);
        fs::create_dir_all(rig.base.join("general/made")).unwrap();
        fs::write(rig.base.join("general/foreign"), "mine").unwrap();
        let odd: Vec<u8> = (0..=255).cycle().take(70_000).collect();
        let config = rig.config("one");
        let first = Apply::new("p1", 1, 1)
            .file("haproxy.cfg", config.as_bytes())
            .file("maps/a.map", b"a 1\n")
            .file("maps/b.map", b"")
            .file("general/odd.bin", &odd)
            .file("general/made/x", b"x")
            .file("deep/er/and/deeper/still", b"no newline at the end")
            .on(&rig.agent.state());
        first.succeed(&rig.agent, "reload");
        let before = photos(&rig.base);
        let second = Apply::new("p2", 1, 2)
            .file("haproxy.cfg", rig.config("two").as_bytes())
            .file("maps/a.map", b"a 1\r\nb 2")
            .held("maps/b.map", b"")
            .held("general/odd.bin", &odd)
            .file("maps/c.map", b"c 3\n")
            .on(&rig.agent.state());
        second.succeed(&rig.agent, "reload");
        let after = tree(&rig.base);
        let names: Vec<&str> = after.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "general/foreign",
                "general/odd.bin",
                "haproxy.cfg",
                "maps/a.map",
                "maps/b.map",
                "maps/c.map"
            ],
            "{version}"
        );
        assert_eq!(after["maps/a.map"], b"a 1\r\nb 2");
        assert_eq!(after["maps/b.map"], b"");
        assert_eq!(after["maps/c.map"], b"c 3\n");
        assert_eq!(after["general/odd.bin"], odd);
        assert_eq!(after["general/foreign"], b"mine");
        assert_eq!(rig.word(), "two");
        // What did not change was not touched.
        let now = photos(&rig.base);
        for held in ["maps/b.map", "general/odd.bin", "general/foreign"] {
            assert_eq!(now[held], before[held], "{version} {held}");
        }
        // Directories that the agent made went with their last file; others stay.
        assert!(!rig.base.join("deep").exists(), "{version}");
        assert!(rig.base.join("general/made").is_dir(), "{version}");
        assert_eq!(leftovers(&rig.base), [""; 0]);
    }
}

#[test]
fn modes_are_by_kind_and_a_replaced_file_keeps_what_it_has() {
    let rig = Rig::new(Version::V3_4);
    let config = rig.base.join("haproxy.cfg");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o604)).unwrap();
    std::os::unix::fs::chown(&config, Some(65534), Some(65533)).unwrap();
    let first = rig
        .first()
        .file("ssl/site.pem", b"-")
        .file("general/x", b"-");
    first.succeed(&rig.agent, "reload");
    let photos = photos(&rig.base);
    let mode = |path: &str| photos[path].mode & 0o7777;
    assert_eq!(mode("haproxy.cfg"), 0o604);
    assert_eq!(photos["haproxy.cfg"].owner, (65534, 65533));
    assert_eq!(mode("maps/host.map"), 0o644);
    assert_eq!(mode("general/x"), 0o644);
    assert_eq!(mode("ssl/site.pem"), 0o640);
    let dir = fs::metadata(rig.base.join("ssl")).unwrap();
    assert_eq!(dir.mode() & 0o7777, 0o755);
}

/// FR-020, FR-046: what is the same is no change, whatever order it comes in.
#[test]
fn an_identical_set_is_a_noop_and_one_file_more_is_file_only() {
    for version in [Version::V3_0, Version::V3_4] {
        let rig = Rig::applied(version);
        let before = rig.snapshot();
        for round in 0..5 {
            let mut again = rig.next(&format!("n{round}"), "one").mode("auto");
            again.manifest["files"].as_array_mut().unwrap().reverse();
            again.succeed(&rig.agent, "noop");
        }
        let after = rig.snapshot();
        assert_eq!(after.files, before.files);
        assert_eq!(after.worker, before.worker);
        assert_eq!(after.state["generation"], 6);
        assert_eq!(after.state["applied_plan_id"], "n4");
        assert_eq!(after.state["worker_ops_plan_id"], "n4");
        assert_eq!(after.state["running_plan_id"], "p1");

        let more = rig
            .next("p2", "one")
            .mode("auto")
            .file("general/new.http", b"new");
        let answer = more.succeed(&rig.agent, "file_only");
        assert_eq!(answer.get("reload"), None, "{answer:#}");
        assert_eq!(rig.haproxy.worker_pid(), before.worker);
        assert_eq!(tree(&rig.base)["general/new.http"], b"new");
        assert_eq!(rig.agent.state()["lkg_plan_id"], "p1");
        // And less is file_only as well.
        rig.next("p3", "one")
            .mode("auto")
            .succeed(&rig.agent, "file_only");
        assert!(!tree(&rig.base).contains_key("general/new.http"));
    }
}

/// Mode `auto` on an unknown baseline, and ops of a kind nobody knows, end in a reload.
#[test]
fn what_is_not_known_falls_back_to_a_reload() {
    let rig = Rig::new(Version::V3_4);
    rig.first().mode("auto").succeed(&rig.agent, "reload");
    let odd = rig.next("p2", "one").mode("auto").edit(|m| {
        m["ops"] = serde_json::json!([{"kind": "server_rename", "backend": "x"}]);
    });
    let answer = odd.succeed(&rig.agent, "reload");
    assert_eq!(answer["op_results"][0]["kind"], "server_rename");
    assert_eq!(answer["op_results"][0]["ok"], false);
    let state = rig.agent.state();
    assert_eq!(state["invariant_violation"], "ops_executable");
    assert_eq!(
        rig.agent
            .sample("haptic_agent_invariant_violations_total{name=\"ops_executable\"}"),
        1.0
    );
}

/// The limits of one apply, all at once.
#[test]
fn four_thousand_files_and_a_blob_fit_one_apply() {
    let rig = Rig::new(Version::V3_4);
    let config = rig.config("one");
    let name = |at: usize| format!("maps/{}/{at}.map", at % 16);
    let line = |at: usize| format!("host-{at}.example be_{at}\n").repeat(5);
    let mut first = Apply::new("p1", 1, 1)
        .file("haproxy.cfg", config.as_bytes())
        .on(&rig.agent.state());
    let mut held = Apply::new("p2", 1, 2)
        .mode("auto")
        .held("haproxy.cfg", config.as_bytes());
    for at in 0..4095 {
        first = first.file(&name(at), line(at).as_bytes());
        held = held.held(&name(at), line(at).as_bytes());
    }
    let blob = vec![b'p'; 8 * 1024 * 1024];
    first.blob(&blob).succeed(&rig.agent, "reload");
    let tree_now = tree(&rig.base);
    assert_eq!(tree_now.len(), 4096);
    for at in [0, 1, 17, 4094] {
        assert_eq!(tree_now[&name(at)], line(at).as_bytes());
    }
    let state = rig.agent.state_with("?verify=1");
    assert_eq!(state["applied_plan_id"], "p1");
    assert_eq!(state["files"].as_object().unwrap().len(), 4096);
    assert_eq!(state["applied_plan"].as_str().unwrap().len(), 11_184_812);
    held.on(&state).succeed(&rig.agent, "noop");
    // All of it goes at once.
    let last = Apply::new("p3", 1, 3)
        .held("haproxy.cfg", config.as_bytes())
        .on(&rig.agent.state());
    last.succeed(&rig.agent, "reload");
    assert_eq!(tree(&rig.base).len(), 1);
    assert!(!rig.base.join("maps").exists());
    // Thousands of inodes to drop take their time on some file systems.
    wait::until("no backup is left", Duration::from_secs(120), || {
        leftovers(&rig.base).is_empty().then_some(())
    });
}
