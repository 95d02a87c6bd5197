//! A base directory without room: refused, whole, and well again once there is some.

use super::scene::{Dirs, Namespace, VERSIONS, names, namespaces};
use crate::support::agent::{Agent, Apply, tree};
use crate::support::haproxy::{Haproxy, Version};
use crate::support::wait;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

const SMALL: &str = "mount -t tmpfs -o size=2m,mode=755 tmpfs \"$1\"";
const PAGE: usize = 4096;

struct Scene {
    agent: Agent,
    haproxy: Haproxy,
    _space: Namespace,
    dirs: Dirs,
    base: PathBuf,
}

impl Scene {
    fn start(version: Version) -> Self {
        let dirs = Dirs::new();
        let space = Namespace::new(SMALL, &[&dirs.base]);
        let base = space.seen(&dirs.base);
        fs::write(base.join("haproxy.cfg"), dirs.config("")).unwrap();
        let command = space.enter(&dirs.haproxy(version), None);
        let haproxy = Haproxy::start_as(version, &dirs.run, command);
        let setup = dirs.setup();
        let agent = setup.spawn_as(space.enter(&setup.command(), None));
        agent.wait_ready();
        Self {
            agent,
            haproxy,
            _space: space,
            dirs,
            base,
        }
    }

    /// The set: the configuration, 60 small files, and one of that size.
    fn set(&self, plan: &str, seq: u64, word: &str, size: usize) -> Apply {
        let mut apply = Apply::new(plan, 1, seq).file("big", &vec![b'x'; size]);
        for n in 0..60 {
            let path = format!("maps/a-name-that-takes-its-room-in-the-state-too-{n:02}.map");
            apply = apply.file(&path, format!("{n}\n").as_bytes());
        }
        apply
            .file("maps/word.map", word.as_bytes())
            .file("haproxy.cfg", self.dirs.config("").as_bytes())
    }

    /// Takes all the room but `pages` pages.
    fn fill(&self, pages: usize) {
        let mut file = File::create(self.filler()).unwrap();
        let page = [b'f'; PAGE];
        let mut written = 0;
        while file.write_all(&page).is_ok() {
            written += PAGE;
        }
        assert!(written > pages * PAGE, "there was no room left to leave");
        file.set_len((written - pages * PAGE) as u64).unwrap();
    }

    fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.base.join(".filler")
    }
}

#[test]
fn a_set_that_does_not_fit_is_refused_and_the_next_one_works() {
    if !namespaces() {
        return;
    }
    for version in VERSIONS {
        let scene = Scene::start(version);
        let agent = &scene.agent;
        let first = scene.set("p1", 1, "one\n", 1000);
        let state = first.on(&agent.state()).succeed(agent, "reload");
        let (good, worker) = (tree(&scene.base), scene.haproxy.worker_pid());

        // More than the whole file system, and then more than what is left of it.
        for (what, size) in [
            ("larger than all", 3 << 20),
            ("larger than the rest", 1 << 20),
        ] {
            if size == 1 << 20 {
                scene.fill(40);
            }
            let reply = scene.set("p2", 2, "two\n", size).on(&state).send(agent);
            assert_eq!(reply.status, 503, "{version} {what}: {}", reply.text());
            let answer = reply.json();
            assert_eq!(answer["stage"], "parts", "{version} {what}");
            let words = answer["message"].as_str().unwrap();
            assert!(words.contains("free space"), "{version} {what}: {words}");
            assert_eq!(tree(&scene.base), good, "{version} {what}");
            assert_eq!(scene.haproxy.worker_pid(), worker, "{version} {what}");
            assert_eq!(names(&scene.base.join(".haptic-tmp")), [""; 0], "{what}");
            assert_eq!(agent.state()["applied_plan_id"], "p1", "{version} {what}");
        }
        scene.free();
        let third = scene.set("p3", 3, "three\n", 2000);
        third.on(&agent.state()).succeed(agent, "reload");
        assert_eq!(tree(&scene.base)["maps/word.map"], b"three\n", "{version}");
    }
}

#[test]
fn without_room_for_the_state_nothing_is_changed() {
    if !namespaces() {
        return;
    }
    for version in VERSIONS {
        let scene = Scene::start(version);
        let agent = &scene.agent;
        let first = scene.set("p1", 1, "one\n", 1000);
        let state = first.on(&agent.state()).succeed(agent, "reload");
        let (good, worker) = (tree(&scene.base), scene.haproxy.worker_pid());
        let mut refused = scene.set("p2", 2, "two\n", 1000).on(&state);
        // Only the one small file that changed is sent: it fits, the state does not.
        refused.parts.retain(|part| part.0 == "maps/word.map");
        // What the first apply left goes after its answer, and must not make room later.
        let backups = scene.base.join(".haptic-lkg");
        wait::until("no backup is left", Duration::from_secs(20), || {
            names(&backups).is_empty().then_some(())
        });
        scene.fill(2);
        let nack = refused.mode("auto").fail(agent, "backup");
        let words = nack["error"]["message"].as_str().unwrap();
        assert!(words.contains(".haptic-agent.json"), "{version}: {words}");
        assert!(words.contains("free space"), "{version}: {words}");
        assert_eq!(tree(&scene.base), good, "{version}");
        assert_eq!(scene.haproxy.worker_pid(), worker, "{version}");
        assert_eq!(names(&scene.base.join(".haptic-tmp")), [""; 0], "{version}");
        // Alive, and it knows what it knew: nothing was touched.
        let state = agent.state();
        assert_eq!(state["applied_plan_id"], "p1", "{version}");
        assert_eq!(state["running_plan_id"], "p1", "{version}");
        assert!(state["degraded"]["reason"].is_string(), "{version}");
        assert_eq!(state["lkg_plan_id"], "p1", "{version}");
        scene.free();
        let third = scene.set("p3", 3, "three\n", 1000);
        third.on(&agent.state()).succeed(agent, "reload");
        assert_eq!(tree(&scene.base)["maps/word.map"], b"three\n", "{version}");
        assert_eq!(names(&scene.base.join(".haptic-lkg")), [""; 0], "{version}");
    }
}
