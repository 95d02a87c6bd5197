//! Whether the directory is the store: there, marked, and the one that it was.

use super::dir::{put, store};
use super::kit::{self, Watched};
use haptic_agent::responder::kv::dir::store::{MARK, Store};
use haptic_agent::responder::kv::{DirConfig, Hold, ReadResult, Source, SyncWait, WhenMissing};
use haptic_agent::responder::value::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

/// A watcher that makes what is missing.
fn making(path: &Path) -> Watched {
    Watched::start(Source::Dir(DirConfig {
        missing: WhenMissing::Make,
        ..kit::dir(path)
    }))
}

/// The volume that has the store may be mounted late, or not at all: what is not there is
/// not made, and not taken for a store without overrides.
#[test]
fn a_directory_that_does_not_exist_is_waited_for() {
    let volume = tempfile::tempdir().unwrap();
    let path = volume.path().join("kv");
    let watched = Watched::dir(&path);
    watched.until_held(Hold::Directory);
    watched.until_more(ReadResult::Hold, 5);
    let trouble = watched.snapshot().trouble.unwrap();
    assert!(trouble.contains("mount it"), "{trouble}");
    assert!(!watched.snapshot().synced && watched.cell.load().is_none());
    assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0);
    // What it says to do for a new one is enough.
    let order = trouble
        .split_once("only for a new, empty store: ")
        .unwrap()
        .1;
    let made = std::process::Command::new("sh")
        .args(["-c", order])
        .status();
    assert!(made.unwrap().success(), "{order}");
    let watched = watched.synced();
    assert!(watched.copy().is_empty());
    // And the volume that comes back has its keys, also in the next life.
    put(&path, "canary", "drain");
    watched.until_value("canary", Some(Value::Drain));
    drop(watched);
    let away = volume.path().join("away");
    fs::rename(&path, &away).unwrap();
    let watched = Watched::dir(&path);
    watched.until_held(Hold::Directory);
    fs::rename(&away, &path).unwrap();
    let watched = watched.synced();
    assert_eq!(watched.value("canary"), Some(Value::Drain));
}

#[test]
fn a_directory_that_does_not_exist_is_made_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kv");
    let watched = making(&path).synced();
    assert!(watched.copy().is_empty());
    assert_eq!(fs::read_to_string(path.join(MARK)).unwrap(), "1\n");
    let names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["kv"], "nothing is left beside it");
    // Later it is never made again.
    fs::rename(&path, dir.path().join("away")).unwrap();
    watched.until_held(Hold::Directory);
    watched.until_more(ReadResult::Hold, 5);
    assert!(!path.exists());
}

#[test]
fn a_directory_that_cannot_be_made_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let watched = making(&dir.path().join("no/kv"));
    watched.until("it says why", |now| {
        let trouble = now.trouble.as_deref().unwrap_or_default();
        !now.synced && (trouble.contains("cannot be made") || trouble.contains("no directory"))
    });
}

#[test]
fn an_unmarked_directory_is_no_store() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("canary"), "drain").unwrap();
    let watched = Watched::dir(dir.path());
    watched.until_held(Hold::Directory);
    assert_eq!(
        watched.status.wait_synced(Some(Duration::ZERO)),
        SyncWait::Late
    );
    assert!(watched.cell.load().is_none());
    let trouble = watched.snapshot().trouble.unwrap();
    assert!(trouble.contains("echo 1 >"), "{trouble}");
    fs::write(dir.path().join(MARK), "1\n").unwrap();
    watched.until("synced", |now| now.synced && now.hold.is_none());
    watched.until_value("canary", Some(Value::Drain));
}

/// An unmounted volume shows the empty directory below it, and a rename shows nothing.
#[test]
fn a_store_that_goes_away_leaves_the_copy() {
    let (dir, path) = store();
    put(&path, "web/s1", "drain");
    let watched = Watched::dir(&path).synced();
    let away = dir.path().join("away");
    for unmounted in [false, true] {
        fs::rename(&path, &away).unwrap();
        if unmounted {
            fs::create_dir(&path).unwrap();
        }
        watched.until_held(Hold::Directory);
        watched.until_more(ReadResult::Hold, 5);
        assert_eq!(watched.value("web/s1"), Some(Value::Drain));
        if unmounted {
            fs::remove_dir(&path).unwrap();
        }
        fs::rename(&away, &path).unwrap();
        watched.until("followed again", |now| now.hold.is_none());
    }
    fs::write(path.join(MARK), "2\n").unwrap();
    watched.until_held(Hold::Directory);
    assert!(watched.snapshot().trouble.unwrap().contains("format"));
    assert_eq!(watched.value("web/s1"), Some(Value::Drain));
}

/// The same disk, and another directory with a mark: a bind mount that was swapped. What it
/// lacks is not deleted; a store that was put back whole is followed.
#[test]
fn another_directory_is_believed_only_if_it_has_every_override() {
    let (dir, path) = store();
    put(&path, "web/s1", "drain");
    put(&path, "torn", "up");
    let watched = Watched::dir(&path).synced();
    let other = dir.path().join("other");
    Store::make(&other).unwrap();
    put(&other, "canary", "maint");
    let first = dir.path().join("first");
    fs::rename(&path, &first).unwrap();
    fs::rename(&other, &path).unwrap();
    watched.until_held(Hold::Directory);
    watched.until("says what is wrong", |now| {
        let trouble = now.trouble.as_deref().unwrap_or_default();
        trouble.contains("another directory than before") && trouble.contains("web/s1")
    });
    watched.until_more(ReadResult::Hold, 3);
    assert_eq!(watched.value("web/s1"), Some(Value::Drain));
    assert_eq!(watched.value("canary"), None);
    // The first one is back.
    fs::rename(&path, &other).unwrap();
    fs::rename(&first, &path).unwrap();
    watched.until("followed again", |now| now.hold.is_none());
    // Put back whole from elsewhere, with something new; then a delete is a delete.
    put(&other, "web/s1", "drain");
    fs::rename(&path, &first).unwrap();
    fs::rename(&other, &path).unwrap();
    watched.until_value("canary", Some(Value::Maint));
    assert_eq!(watched.snapshot().hold, None);
    assert!(Store::open(&path).unwrap().delete("web/s1").unwrap());
    watched.until_value("web/s1", None);
}

#[test]
fn another_device_is_another_store() {
    let (dir, path) = store();
    put(&path, "web/s1", "drain");
    let watched = Watched::dir(&path).synced();
    // /dev/shm is a file system of its own wherever these tests run.
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    let elsewhere = other.path().join("kv");
    Store::make(&elsewhere).unwrap();
    assert_ne!(
        Store::open(&elsewhere).unwrap().device(),
        Store::open(&path).unwrap().device(),
        "this machine has one file system only"
    );
    fs::rename(&path, dir.path().join("away")).unwrap();
    symlink(&elsewhere, &path).unwrap();
    watched.until_held(Hold::Directory);
    watched.until("says what to do", |now| {
        now.trouble
            .as_deref()
            .is_some_and(|t| t.contains("another device"))
    });
    watched.until_more(ReadResult::Hold, 3);
    assert_eq!(watched.value("web/s1"), Some(Value::Drain));
}
