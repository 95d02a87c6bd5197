//! Several mounts below one base directory.

use super::scene::{Dirs, Mounted, Namespace, VERSIONS, names, namespaces};
use crate::support::agent::{Apply, tree};
use crate::support::haproxy::Haproxy;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// `$1` base, `$2` what is bound to `maps`, `$3` what is bound read-only to `vendor`.
const THREE: &str = "mount --bind \"$2\" \"$1/maps\"
mount -t tmpfs -o size=8m,mode=755 tmpfs \"$1/general\"
mount --bind \"$3\" \"$1/vendor\"
mount -o remount,bind,ro \"$1/vendor\"";

fn start(version: crate::support::haproxy::Version) -> Mounted {
    let dirs = Dirs::new();
    for name in ["maps", "general", "vendor"] {
        fs::create_dir(dirs.base.join(name)).unwrap();
    }
    let (bound, vendor) = (
        dirs.root.path().join("bound"),
        dirs.root.path().join("theirs"),
    );
    fs::create_dir(&bound).unwrap();
    fs::create_dir(&vendor).unwrap();
    fs::write(vendor.join("blob"), b"not ours").unwrap();
    Mounted::start(version, dirs, (THREE, &[&bound, &vendor]), |setup| setup)
}

/// With mounts below the base directory.
impl Mounted {
    /// A configuration that needs a file of each mount.
    fn config(&self, word: &str) -> String {
        self.dirs.config(&format!(
            "    # {word}\n    http-request set-var(txn.x) str(a),map_str(maps/host.map)\n    errorfile 503 general/503.http\n"
        ))
    }

    fn backups(&self, mount: &str) -> Vec<Vec<u8>> {
        let dir = self.base.join(mount).join(".haptic-lkg");
        names(&dir)
            .iter()
            .map(|name| fs::read(dir.join(name)).unwrap())
            .collect()
    }

    /// Staging is empty, and both directories of a mount lie on it.
    fn check_mounts(&self) {
        for mount in ["", "maps", "general"] {
            let mount = self.base.join(mount);
            assert_eq!(names(&mount.join(".haptic-tmp")), [""; 0], "{mount:?}");
            for own in [".haptic-tmp", ".haptic-lkg"] {
                let (own, mount) = (fs::metadata(mount.join(own)), fs::metadata(&mount));
                assert_eq!(own.unwrap().dev(), mount.unwrap().dev());
            }
        }
        assert_eq!(names(&self.base.join("vendor")), ["blob"]);
        assert_eq!(
            self.agent.sample("haptic_agent_cross_device_copies_total"),
            0.0
        );
    }
}

const ERRORS: &[u8] = b"HTTP/1.0 503 No\r\nConnection: close\r\n\r\n";

#[test]
fn files_of_three_mounts_change_and_come_back_and_never_leave_their_mount() {
    if !namespaces() {
        return;
    }
    for version in VERSIONS {
        let scene = start(version);
        let agent = &scene.agent;
        let config = scene.config("first");
        let first = Apply::new("p1", 1, 1)
            .file("maps/host.map", b"a one\n")
            .file("maps/old.map", b"old\n")
            .file("general/503.http", ERRORS)
            .file("general/deep/note", b"one")
            .file("haproxy.cfg", config.as_bytes());
        let state = first.on(&agent.state()).succeed(agent, "reload");
        let good = tree(&scene.base);
        assert_eq!(good["maps/host.map"], b"a one\n", "{version}");
        assert_eq!(good["general/deep/note"], b"one", "{version}");
        for mount in ["", "maps", "general"] {
            assert_eq!(scene.backups(mount), [b""; 0], "{version}");
        }

        // Changed, added and deleted without a reload: the old versions stay where they were.
        let second = Apply::new("p2", 1, 2)
            .file("maps/host.map", b"a two\n")
            .file("maps/new.map", b"new\n")
            .held("general/503.http", ERRORS)
            .file("general/deep/note", b"two")
            .held("haproxy.cfg", config.as_bytes())
            .mode("auto");
        second.on(&state).succeed(agent, "file_only");
        let mut kept = scene.backups("maps");
        kept.sort();
        assert_eq!(kept, [&b"a one\n"[..], b"old\n"], "{version}");
        assert_eq!(scene.backups("general"), [b"one"], "{version}");
        assert_eq!(scene.backups(""), [b""; 0], "{version}");
        scene.check_mounts();

        // Refused with files on all three: the last known good set is back, every byte.
        let before = scene.haproxy.worker_pid();
        let broken = format!("{config}nonsense\n");
        let third = Apply::new("p3", 1, 3)
            .file("maps/host.map", b"a three\n")
            .file("general/503.http", b"HTTP/1.0 503 Never\r\n\r\n")
            .file("haproxy.cfg", broken.as_bytes());
        let nack = third.on(&agent.state()).fail(agent, "reload");
        assert_eq!(nack["rollback"]["performed"], true, "{version}");
        assert_eq!(tree(&scene.base), good, "{version}");
        assert_eq!(scene.haproxy.worker_pid(), before, "{version}");
        scene.check_mounts();

        // A new baseline, changed without a reload, and reverted.
        let fourth = Apply::new("p4", 1, 4)
            .file("maps/host.map", b"a four\n")
            .file("general/503.http", ERRORS)
            .file("haproxy.cfg", scene.config("fourth").as_bytes());
        let state = fourth.on(&agent.state()).succeed(agent, "reload");
        let good = tree(&scene.base);
        let fifth = Apply::new("p5", 1, 5)
            .file("maps/host.map", b"a five\n")
            .file("general/more", b"five")
            .file("haproxy.cfg", scene.config("fifth").as_bytes())
            .mode("auto");
        fifth.on(&state).succeed(agent, "file_only");
        let mut revert = Apply::new("p5", 1, 6).mode("revert_lkg");
        revert.manifest["files"] = serde_json::Value::Null;
        let answer = revert.on(&agent.state()).succeed(agent, "reload");
        assert_eq!(answer["applied_plan_id"], "p4", "{version}");
        assert_eq!(tree(&scene.base), good, "{version}");
        scene.check_mounts();
        let state = agent.state();
        assert!(state.get("invariant_violation").is_none(), "{state:#}");
        drop(scene.space);
    }
}

#[test]
fn a_bind_mounted_file_is_refused_by_name_and_nothing_changes() {
    if !namespaces() {
        return;
    }
    for version in VERSIONS {
        let dirs = Dirs::new();
        fs::create_dir(dirs.base.join("maps")).unwrap();
        fs::write(dirs.base.join("maps/host.map"), b"below\n").unwrap();
        let mounted = dirs.root.path().join("mounted.map");
        fs::write(&mounted, b"mounted\n").unwrap();
        let script = "mount --bind \"$2\" \"$1/maps/host.map\"";
        let space = Namespace::new(script, &[&dirs.base, &mounted]);
        let base = space.seen(&dirs.base);
        fs::write(base.join("haproxy.cfg"), dirs.config("")).unwrap();
        let command = space.enter(&dirs.haproxy(version), None);
        let haproxy = Haproxy::start_as(version, &dirs.run, command);
        let setup = dirs.setup();
        let agent = setup.spawn_as(space.enter(&setup.command(), None));
        agent.wait_ready();
        let (before, worker) = (tree(&base), haproxy.worker_pid());
        let apply = Apply::new("p1", 1, 1)
            .file("maps/other.map", b"x\n")
            .file("maps/host.map", b"new\n")
            .file("haproxy.cfg", dirs.config("    # new\n").as_bytes());
        let nack = apply.on(&agent.state()).fail(&agent, "backup");
        let words = nack["error"]["message"].as_str().unwrap();
        assert_eq!(
            words,
            "maps/host.map is a mount point, so it cannot be replaced by rename; mount its directory instead"
        );
        assert_eq!(tree(&base), before, "{version}");
        assert_eq!(haproxy.worker_pid(), worker, "{version}");
        assert_eq!(names(&base.join(".haptic-tmp")), [""; 0]);
        // The rest of the set is welcome.
        let rest = Apply::new("p2", 1, 2)
            .file("maps/other.map", b"x\n")
            .file("haproxy.cfg", dirs.config("    # new\n").as_bytes());
        rest.on(&agent.state()).succeed(&agent, "reload");
        assert_eq!(read(&base, "maps/host.map"), b"mounted\n");
        assert_eq!(agent.sample("haptic_agent_cross_device_copies_total"), 0.0);
    }
}

fn read(base: &Path, path: &str) -> Vec<u8> {
    fs::read(base.join(path)).unwrap()
}
