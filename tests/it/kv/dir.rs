//! The directory store, written by ours and by others.

use super::kit::{self, PATIENCE, Watched};
use crate::support::wait;
use haptic_agent::clock::{Clock as _, SystemClock};
use haptic_agent::responder::kv::dir::store::{DirError, Found, MARK, Store};
use haptic_agent::responder::kv::{DirConfig, Hold, ReadResult, Source, SyncWait};
use haptic_agent::responder::limits::MAX_KV_KEYS as MAX_FILES;
use haptic_agent::responder::stamp::Stamp;
use haptic_agent::responder::value::Value;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A directory to make stores in, and a store that exists.
pub(super) fn store() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kv");
    Store::make(&path).unwrap();
    (dir, path)
}

pub(super) fn put(path: &Path, key: &str, value: &str) {
    Store::open(path)
        .unwrap()
        .put(key, value.as_bytes())
        .unwrap();
}

fn delete(path: &Path, key: &str) {
    assert!(Store::open(path).unwrap().delete(key).unwrap());
}

#[test]
fn overrides_come_and_go() {
    let (_dir, path) = store();
    put(&path, "canary", "drain\n");
    let watched = Watched::dir(&path).synced();
    assert_eq!(watched.value("canary"), Some(Value::Drain));
    assert_eq!(watched.value("canary/x"), None);
    put(&path, "canary/x", "50%");
    watched.until_value("canary/x", Some(Value::Weight(50)));
    put(&path, "canary", "maint");
    watched.until_value("canary", Some(Value::Maint));
    delete(&path, "canary");
    watched.until_keys(&["canary/x"]);
    // The last one too: a directory that is empty and marked is believed.
    delete(&path, "canary/x");
    watched.until_keys(&[]);
    assert_eq!(watched.snapshot().hold, None);
}

#[test]
fn files_of_other_tools_count() {
    let (_dir, path) = store();
    fs::write(path.join("new"), "drain\n").unwrap();
    fs::rename(path.join("new"), path.join("web%2Fs1")).unwrap();
    let watched = Watched::dir(&path);
    watched.until("synced", |now| now.synced);
    watched.until_keys(&["web/s1"]);
    fs::remove_file(path.join("web%2Fs1")).unwrap();
    watched.until_keys(&[]);
}

/// A tool that writes in place shows an empty file first.
#[test]
fn a_file_that_is_being_written_keeps_its_value() {
    let (_dir, path) = store();
    put(&path, "web/s1", "drain");
    let watched = Watched::dir(&path).synced();
    for _ in 0..5 {
        let mut file = fs::File::create(path.join("web%2Fs1")).unwrap();
        watched.until_more(ReadResult::Same, 3);
        assert_eq!(watched.value("web/s1"), Some(Value::Drain));
        file.write_all(b"dr").unwrap();
        watched.until_more(ReadResult::Same, 3);
        assert_eq!(watched.value("web/s1"), Some(Value::Drain));
        file.write_all(b"ain\n").unwrap();
        drop(file);
        watched.until_more(ReadResult::Same, 2);
    }
    assert_eq!(watched.snapshot().reads(ReadResult::Changed), 1);
    // A new one is absent meanwhile, and one that stays invalid counts as that.
    let mut file = fs::File::create(path.join("web%2Fs2")).unwrap();
    watched.until_more(ReadResult::Same, 3);
    assert_eq!(watched.value("web/s2"), None);
    assert_eq!(watched.snapshot().invalid_values, 0);
    file.write_all(b"maint").unwrap();
    watched.until_value("web/s2", Some(Value::Maint));
    fs::write(path.join("web%2Fs1"), "up").unwrap();
    watched.until_value("web/s1", None);
    watched.until("invalid", |now| now.invalid_values == 1);
    let changed = watched.snapshot().reads(ReadResult::Changed);
    fs::write(path.join("web%2Fs1"), "").unwrap();
    watched.until("empty is another reason", |now| {
        now.reads(ReadResult::Changed) > changed
    });
    fs::write(path.join("web%2Fs1"), "ready").unwrap();
    watched.until_value("web/s1", Some(Value::Ready));
    assert_eq!(watched.snapshot().invalid_values, 0);
}

/// At the start there is no value to keep, so the first copy waits for the writer.
#[test]
fn the_first_copy_waits_for_a_file_that_is_being_written() {
    let (_dir, path) = store();
    let mut file = fs::File::create(path.join("web%2Fs1")).unwrap();
    let watched = Watched::dir(&path);
    watched.until("awaited", |now| {
        now.trouble
            .as_deref()
            .is_some_and(|t| t.contains("being written"))
    });
    assert!(!watched.snapshot().synced);
    file.write_all(b"drain").unwrap();
    let watched = watched.synced();
    assert_eq!(watched.value("web/s1"), Some(Value::Drain));
    // An old invalid file holds nobody up.
    drop(watched);
    let file = fs::File::create(path.join("web%2Fs1")).unwrap();
    let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    file.set_modified(hour_ago).unwrap();
    let watched = Watched::dir(&path).synced();
    assert_eq!(watched.value("web/s1"), None);
    assert_eq!(watched.snapshot().invalid_values, 1);
}

#[test]
fn names_that_are_no_keys_are_counted_and_left_alone() {
    let (_dir, path) = store();
    for name in ["web%2fs1", "%zz", "with blank", ".hidden", ".tmp-1"] {
        fs::write(path.join(name), "drain").unwrap();
    }
    fs::create_dir(path.join("folder")).unwrap();
    symlink(path.join(".hidden"), path.join("link")).unwrap();
    put(&path, ".dot", "drain");
    put(&path, "UP low", "drain");
    let watched = Watched::dir(&path).synced();
    assert_eq!(watched.keys(), [".dot", "UP low"]);
    let now = watched.snapshot();
    assert_eq!(now.ignored.named, ["%zz", "web%2fs1", "with blank"]);
    // These are spelled as keys, and are said to be what they are.
    assert_eq!(now.unreadable.named, ["folder", "link"]);
    let told = now.unreadable.to_string();
    assert!(
        told.contains("folder (a directory), link (a symbolic link"),
        "{told}"
    );
}

/// What is there and cannot be read is no deletion.
#[test]
fn what_cannot_be_read_keeps_its_value() {
    let (_dir, path) = store();
    put(&path, "a", "drain");
    put(&path, "b", "drain");
    let watched = Watched::dir(&path).synced();
    for key in ["a", "b"] {
        fs::remove_file(path.join(key)).unwrap();
        // Between two looks it may have been seen as gone.
        watched.until_value(key, None);
        put(&path, key, "drain");
        watched.until_value(key, Some(Value::Drain));
    }
    let beside = path.join(".beside");
    symlink(path.join(".nowhere"), &beside).unwrap();
    fs::rename(&beside, path.join("a")).unwrap();
    watched.until("left out", |now| now.unreadable.named == ["a"]);
    assert_eq!(watched.value("a"), Some(Value::Drain));
    fs::remove_file(path.join("a")).unwrap();
    watched.until_value("a", None);
    assert_eq!(watched.value("b"), Some(Value::Drain));
}

/// At the pace that everybody has: whenever a key is written or deleted, and however the looks
/// happen to lie, it counts within a quarter of a second.
#[test]
fn a_change_is_noticed_within_a_quarter_of_a_second() {
    const CHANGES: u32 = 16;
    let (_dir, path) = store();
    for n in 0..200 {
        put(&path, &format!("web/s{n}"), "drain");
    }
    let watched = Watched::start(Source::Dir(DirConfig::new(path.clone()))).synced();
    let mut times: Vec<Duration> = (0..CHANGES)
        .map(|turn| {
            // From one look to the next in steps.
            std::thread::sleep(Duration::from_millis(u64::from(turn * 37 % 200)));
            let want = match turn % 2 {
                0 => Some(Value::Maint),
                _ => None,
            };
            let begin = SystemClock.now();
            match want {
                Some(_) => put(&path, "canary", "maint"),
                None => delete(&path, "canary"),
            }
            watched.until_value("canary", want);
            begin.elapsed()
        })
        .collect();
    times.sort_unstable();
    let late = times
        .iter()
        .filter(|time| **time > Duration::from_millis(250));
    let (late, most) = (late.count(), times[times.len() - 1]);
    println!(
        "change -> copy: median {:?}, most {most:?}",
        times[times.len() / 2]
    );
    // A machine that does other things may be late itself, but not most of the time.
    assert!(late <= times.len() / 4, "{times:?}");
    assert!(
        times[times.len() / 2] < Duration::from_millis(250),
        "{times:?}"
    );
}

/// How many keys there may be is a setting, and the refusal names it.
#[test]
fn the_number_of_files_is_a_setting() {
    let (_dir, path) = store();
    for n in 0..11 {
        put(&path, &format!("k{n}"), "drain");
    }
    let at_most = |max_keys| {
        Watched::start(Source::Dir(DirConfig {
            max_keys,
            ..kit::dir(&path)
        }))
    };
    let refused = at_most(10);
    refused.until_held(Hold::Directory);
    let trouble = refused.snapshot().trouble.unwrap();
    assert!(
        trouble.contains("--kv-max-keys") && trouble.contains("10 files"),
        "{trouble}"
    );
    assert_eq!(at_most(11).synced().copy().len(), 11);
}

/// On tmpfs and others a file that is replaced can be missing in a listing.
#[test]
fn a_storm_of_renames_deletes_nothing() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("kv");
    Store::make(&path).unwrap();
    for n in 0..200 {
        put(&path, &format!("k{n}"), "drain");
    }
    let watched = Watched::dir(&path).synced();
    let stop = AtomicBool::new(false);
    let changed = watched.snapshot().reads(ReadResult::Changed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 0_usize;
            let begin = SystemClock.now();
            while !stop.load(Ordering::SeqCst) && begin.elapsed() < PATIENCE {
                let beside = path.join(".beside");
                let value = if (turn / 200) % 2 == 0 {
                    "maint"
                } else {
                    "drain"
                };
                fs::write(&beside, value).unwrap();
                fs::rename(&beside, path.join(format!("k{}", turn % 200))).unwrap();
                turn += 1;
            }
        });
        let lost = wait::try_until(PATIENCE, &mut || {
            let copy = watched.copy();
            let now = watched.snapshot().reads(ReadResult::Changed);
            match copy.len() {
                200 if now < changed + 100 => None,
                200 => Some(false),
                _ => Some(true),
            }
        });
        stop.store(true, Ordering::SeqCst);
        assert_eq!(lost, Some(false), "a key was lost, or nothing was seen");
    });
    assert_eq!(watched.copy().invalid(), 0);
}

#[test]
fn too_many_files_are_none_at_the_start_and_change_nothing_later() {
    let (_dir, path) = store();
    for n in 0..MAX_FILES {
        fs::write(path.join(format!("k{n}")), "drain").unwrap();
    }
    let watched = Watched::dir(&path).synced();
    assert_eq!(watched.copy().len(), MAX_FILES);
    fs::write(path.join("one-more"), "drain").unwrap();
    watched.until_held(Hold::Directory);
    assert_eq!(watched.copy().len(), MAX_FILES);
    drop(watched);
    let watched = Watched::dir(&path);
    watched.until_held(Hold::Directory);
    assert!(watched.cell.load().is_none());
    assert!(watched.snapshot().trouble.unwrap().contains("16384"));
    fs::remove_file(path.join("one-more")).unwrap();
    assert_eq!(watched.status.wait_synced(Some(PATIENCE)), SyncWait::Synced);
}

#[test]
fn an_end_is_read_with_its_value_and_comes_by_itself() {
    let (_dir, path) = store();
    let now = Stamp::of(SystemClock.wall()).seconds();
    let soon = Stamp::at(now + 2).unwrap();
    put(&path, "a", &format!("drain\nuntil: {soon}\nby: alice\n"));
    put(
        &path,
        "b",
        &format!("drain\nuntil: {}\n", Stamp::at(now + 3600).unwrap()),
    );
    let watched = Watched::dir(&path).synced();
    assert_eq!(watched.value("a"), Some(Value::Drain));
    assert_eq!(watched.copy().get("a").unwrap().until(), Some(soon));
    watched.until_value("a", None);
    assert!(soon.has_come(SystemClock.wall()));
    assert_eq!(watched.value("b"), Some(Value::Drain));
    assert_eq!(watched.copy().get("a").unwrap().stored(), Ok(Value::Drain));
}

#[test]
fn a_watcher_stops_at_once() {
    let (_dir, path) = store();
    let mut config = kit::dir(&path);
    config.pace.every = Duration::from_secs(3600);
    let mut watched = Watched::start(Source::Dir(config)).synced();
    assert_eq!(watched.status.overdue(), Duration::ZERO);
    let begin = SystemClock.now();
    watched.watcher.stop();
    assert!(begin.elapsed() < Duration::from_secs(2));
}

#[test]
fn what_a_writer_leaves_behind() {
    let (_dir, path) = store();
    let kv = Store::open(&path).unwrap();
    let stale = path.join(".tmp-0011");
    fs::write(&stale, "x").unwrap();
    let two_hours = std::time::SystemTime::now() - Duration::from_secs(7200);
    fs::File::open(&stale)
        .unwrap()
        .set_modified(two_hours)
        .unwrap();
    fs::write(path.join(".tmp-young"), "x").unwrap();
    kv.put("a/b", b"drain\n").unwrap();
    let mut names: Vec<_> = fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [MARK, ".tmp-young", "a%2Fb"]);
    let Found::File { bytes, .. } = kv.read("a/b").unwrap() else {
        panic!("it is a file");
    };
    assert_eq!(bytes, b"drain\n");
    assert!(kv.delete("a/b").unwrap());
    assert!(!kv.delete("a/b").unwrap());
    assert!(matches!(kv.read("a/b").unwrap(), Found::Nothing));
    assert!(kv.put(&"x".repeat(300), b"drain").is_err());
}

#[test]
fn writers_of_ours_take_turns() {
    let (_dir, path) = store();
    let (one, two) = (Store::open(&path).unwrap(), Store::open(&path).unwrap());
    let held = one.try_lock().unwrap().expect("nobody has it");
    assert!(two.try_lock().unwrap().is_none());
    drop(held);
    assert!(two.try_lock().unwrap().is_some());
}

#[test]
fn making_is_done_once_even_by_many() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kv");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| Store::make(&path).unwrap());
        }
    });
    assert!(Store::open(&path).is_ok());
    put(&path, "a", "drain");
    Store::make(&path).unwrap();
    assert!(matches!(
        Store::open(&path).unwrap().read("a"),
        Ok(Found::File { .. })
    ));
    let left = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 1);
    assert!(matches!(
        Store::open(dir.path()),
        Err(DirError::Unmarked(_))
    ));
    wait::until("it stays readable", PATIENCE, || Store::open(&path).ok());
}
