//! A base directory without room: refused, whole, and well again once there is some.

use super::scene::{Dirs, Mounted, VERSIONS, names, namespaces};
use crate::support::agent::{Apply, tree};
use crate::support::haproxy::Version;
use crate::support::wait;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

const SMALL: &str = "mount -t tmpfs -o size=2m,mode=755 tmpfs \"$1\"";
const PAGE: usize = 4096;
/// How long anything that has to happen may take on a loaded machine.
const SOON: Duration = Duration::from_secs(20);

fn start(version: Version) -> Mounted {
    Mounted::start(version, Dirs::new(), (SMALL, &[]), |setup| setup)
}

/// With a base directory that has little room.
impl Mounted {
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
        let scene = start(version);
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
        let scene = start(version);
        let agent = &scene.agent;
        let first = scene.set("p1", 1, "one\n", 1000);
        let state = first.on(&agent.state()).succeed(agent, "reload");
        let (good, worker) = (tree(&scene.base), scene.haproxy.worker_pid());
        let mut refused = scene.set("p2", 2, "two\n", 1000).on(&state);
        // Only the one small file that changed is sent: it fits, the state does not.
        refused.parts.retain(|part| part.0 == "maps/word.map");
        // What the first apply left goes after its answer, and must not make room later.
        let backups = scene.base.join(".haptic-lkg");
        wait::until("no backup is left", SOON, || {
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

/// The room ends while HAProxy reloads: what was loaded stays and is answered, the answer
/// and the state say that it is not saved, and a death in that moment is recovered.
#[test]
fn a_success_that_cannot_be_saved_says_so_and_survives_a_kill() {
    if !namespaces() {
        return;
    }
    for (version, dies) in [
        (Version::V3_0, true),
        (Version::V3_4, true),
        (Version::V3_4, false),
    ] {
        let mut scene = start(version);
        let first = scene.set("p1", 1, "one\n", 1000);
        let state = first
            .on(&scene.agent.state())
            .succeed(&scene.agent, "reload");
        let backups = scene.base.join(".haptic-lkg");
        wait::until("no backup is left", SOON, || {
            names(&backups).is_empty().then_some(())
        });
        let master = i32::try_from(scene.haproxy.master_pid()).unwrap();
        let master = Pid::from_raw(master).unwrap();
        kill_process(master, Signal::STOP).unwrap();
        let second = scene.set("p2", 2, "two\n", 1000).on(&state);
        let answer = thread::scope(|scope| {
            let sent = scope.spawn(|| second.send(&scene.agent));
            let note = scene.base.join(".haptic-agent.json.phase");
            wait::until("the set is written", SOON, || {
                let note = fs::read_to_string(&note).unwrap_or_default();
                // One line a step; those of the apply before stand above.
                let last = note.lines().last().unwrap_or_default();
                last.contains("\"written\"").then_some(())
            });
            scene.fill(0);
            kill_process(master, Signal::CONT).unwrap();
            sent.join().unwrap().json()
        });
        assert_eq!(answer["ok"], true, "{version}: {answer:#}");
        assert_eq!(answer["mode"], "reload", "{version}: {answer:#}");
        let words = answer["unsaved"].as_str().unwrap();
        assert!(words.contains("free space"), "{version}: {words}");
        let state = scene.agent.state();
        assert_eq!(state["running_plan_id"], "p2", "{version}");
        assert!(
            state["unsaved"]["reason"].is_string(),
            "{version}: {state:#}"
        );
        // Nothing can be built on what is not saved.
        let third = scene.set("p3", 3, "three\n", 1000).on(&state);
        let refused = third.send(&scene.agent);
        assert!([200, 503].contains(&refused.status), "{}", refused.text());
        assert_ne!(refused.json()["ok"], true, "{version}");
        if dies {
            scene.agent.kill();
            scene.free();
            let setup = scene.dirs.setup();
            scene.agent = setup.spawn_as(scene.space.enter(&setup.command(), None));
            scene.agent.wait_ready();
        } else {
            scene.free();
        }
        let state = wait::until("it is saved", SOON, || {
            let state = scene.agent.state();
            state.get("unsaved").is_none().then_some(state)
        });
        for id in ["applied_plan_id", "running_plan_id", "lkg_plan_id"] {
            assert_eq!(state[id], "p2", "{version} {id}: {state:#}");
        }
        assert_eq!(tree(&scene.base)["maps/word.map"], b"two\n", "{version}");
        scene
            .set("p4", 4, "four\n", 1000)
            .on(&state)
            .succeed(&scene.agent, "reload");
        assert_eq!(names(&backups), [""; 0], "{version}");
    }
}
