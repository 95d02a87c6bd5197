//! Mounts below the base, in a mount namespace of the test's own. Needs root.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use haptic_agent::store::disk::DiskFs;
use haptic_agent::store::mounts::Mounts;
use haptic_agent::store::prepare::PrepareError;
use haptic_agent::store::restore::restore;
use haptic_agent::store::{Durability, Store};

use super::{Failed, Session, files, inside, left_over, path, rerun, store_on};

const NAMESPACE: [&str; 4] = ["unshare", "--mount", "--propagation", "private"];

fn mount(args: &[&str], target: &Path) {
    let status = Command::new("mount")
        .args(args)
        .arg(target)
        .status()
        .unwrap();
    assert!(status.success(), "mount {args:?}");
}

/// A base with a map directory on a tmpfs, one bind-mounted from the same file
/// system, a stacked mount, a name with a space, and a bind-mounted single file.
fn mounted_base(dir: &Path) {
    for name in [
        "base/general/deep",
        "base/maps",
        "base/a b",
        "base/plain",
        "elsewhere",
    ] {
        std::fs::create_dir_all(dir.join(name)).unwrap();
    }
    std::fs::write(dir.join("base/haproxy.cfg"), "old").unwrap();
    std::fs::write(dir.join("file"), "file").unwrap();
    std::fs::write(dir.join("base/single"), "").unwrap();
    let base = dir.join("base");
    mount(&["-t", "tmpfs", "tmpfs"], &base.join("general"));
    mount(&["-t", "tmpfs", "tmpfs"], &base.join("general"));
    std::fs::create_dir(base.join("general/deep")).unwrap();
    let elsewhere = dir.join("elsewhere");
    mount(&["--bind", elsewhere.to_str().unwrap()], &base.join("maps"));
    mount(&["-t", "tmpfs", "tmpfs"], &base.join("a b"));
    let file = dir.join("file");
    mount(&["--bind", file.to_str().unwrap()], &base.join("single"));
}

const WRITES: [(&str, &[u8]); 5] = [
    ("haproxy.cfg", b"new"),
    ("general/deep/x", b"general"),
    ("maps/host.map", b"map"),
    ("a b/c", b"spaced"),
    ("plain/y", b"plain"),
];

#[test]
fn every_mount_is_found_and_no_rename_crosses_one() {
    if inside().is_none() {
        rerun(
            &NAMESPACE,
            "store::mounted::every_mount_is_found_and_no_rename_crosses_one",
            "1",
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    mounted_base(dir.path());
    let base = &dir.path().join("base");
    let store = store_on(base);
    let want = Mounts::from_lists(["general", "maps", "a b"], ["single"]);
    assert_eq!(*store.mounts(), want);
    // The mount list may say nothing at all, the tree still does.
    let fs = DiskFs::open(base).unwrap();
    let walked = Mounts::probe(&fs, Path::new("/nowhere")).unwrap();
    assert_eq!(
        walked.iter().collect::<Vec<_>>(),
        want.iter().collect::<Vec<_>>()
    );

    let before = files(base);
    let mut session = Session::new(store);
    session.apply(&WRITES, &[]).unwrap();
    session
        .apply(&[("maps/host.map", b"again")], &["general/deep/x", "a b/c"])
        .unwrap();
    restore(&session.store, &session.journal, "haproxy.cfg").unwrap();
    assert_eq!(files(base), before);
    assert_eq!(session.store.counters().cross_device(), 0);

    let failed = session.apply(&[("single", b"x")], &[]).unwrap_err();
    assert!(matches!(failed, Failed::Prepare(PrepareError::Refused(_))));
    assert!(failed.text().starts_with("single is a mount point"));
    let failed = session.apply(&[("general", b"x")], &[]).unwrap_err();
    assert!(failed.text().starts_with("general is a mount point"));
}

#[test]
fn a_mount_that_came_after_the_start_costs_a_counted_copy() {
    if inside().is_none() {
        rerun(
            &NAMESPACE,
            "store::mounted::a_mount_that_came_after_the_start_costs_a_counted_copy",
            "1",
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    mounted_base(dir.path());
    let base = &dir.path().join("base");
    let fs = Arc::new(DiskFs::open(base).unwrap());
    let before = files(base);
    let mut session = Session::new(Store::new(fs, Mounts::default(), Durability::Full));
    session.apply(&WRITES, &[]).unwrap();
    for (name, bytes) in WRITES {
        assert_eq!(std::fs::read(base.join(name)).unwrap(), bytes);
    }
    assert_eq!(session.store.counters().cross_device(), 3);
    // The single file came later too.
    let failed = session.apply(&[("single", b"x")], &[]).unwrap_err();
    assert!(
        failed.text().starts_with("single is a mount point"),
        "{}",
        failed.text()
    );
    restore(&session.store, &session.journal, "haproxy.cfg").unwrap();
    assert_eq!(files(base), before);
    haptic_agent::store::journal::clear(&session.store, &session.journal).unwrap();
    assert_eq!(left_over(base), [""; 0]);
}

#[test]
fn a_read_only_mount_refuses_only_what_lies_on_it() {
    if inside().is_none() {
        rerun(
            &NAMESPACE,
            "store::mounted::a_read_only_mount_refuses_only_what_lies_on_it",
            "1",
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path();
    std::fs::create_dir(base.join("ro")).unwrap();
    std::fs::write(base.join("haproxy.cfg"), "old").unwrap();
    mount(&["-t", "tmpfs", "-o", "ro", "tmpfs"], &base.join("ro"));
    let mut session = Session::new(store_on(base));
    session.apply(&[("haproxy.cfg", b"new")], &[]).unwrap();
    let before = files(base);
    let failed = session
        .apply(&[("haproxy.cfg", b"third"), ("ro/x", b"x")], &[])
        .unwrap_err();
    let text = failed.text();
    assert!(
        text.contains("ro/.haptic-tmp") && text.contains("mounted read-only"),
        "{text}"
    );
    assert_eq!(files(base), before);
    session.apply(&[("haproxy.cfg", b"fourth")], &[]).unwrap();
}

#[test]
fn a_full_file_system_refuses_and_works_again_once_there_is_room() {
    if inside().is_none() {
        rerun(
            &NAMESPACE,
            "store::mounted::a_full_file_system_refuses_and_works_again_once_there_is_room",
            "1",
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let base = &dir.path().join("base");
    std::fs::create_dir(base).unwrap();
    mount(&["-t", "tmpfs", "-o", "size=256k", "tmpfs"], base);
    let mut session = Session::new(store_on(base));
    session.apply(&[("haproxy.cfg", b"old")], &[]).unwrap();
    let before = files(base);
    let big = vec![b'x'; 300_000];
    let failed = session.apply(&[("maps/big", &big)], &[]).unwrap_err();
    assert!(
        failed.text().contains("the file system is full"),
        "{}",
        failed.text()
    );
    assert_eq!(files(base), before);
    session
        .apply(&[("maps/small", &big[..50_000])], &[])
        .unwrap();
}

#[test]
fn an_overlay_shows_no_false_mounts_and_links_work() {
    if inside().is_none() {
        rerun(
            &NAMESPACE,
            "store::mounted::an_overlay_shows_no_false_mounts_and_links_work",
            "1",
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let layers = dir.path();
    mount(&["-t", "tmpfs", "tmpfs"], layers);
    for name in ["lower/maps", "upper", "work", "merged"] {
        std::fs::create_dir_all(layers.join(name)).unwrap();
    }
    std::fs::write(layers.join("lower/haproxy.cfg"), "image").unwrap();
    std::fs::write(layers.join("lower/maps/x"), "image").unwrap();
    let at = layers.display();
    let options = format!("lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work");
    let base = &layers.join("merged");
    let mounted = Command::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &options])
        .arg(base)
        .status()
        .unwrap();
    if !mounted.success() {
        println!("skipped: no overlayfs here");
        return;
    }
    let store = store_on(base);
    assert_eq!(*store.mounts(), Mounts::default());
    assert!(!store.mounts().is_mount_point(&path("haproxy.cfg")));
    let before = files(base);
    let mut session = Session::new(store);
    session
        .apply(&[("haproxy.cfg", b"new"), ("maps/y", b"new")], &["maps/x"])
        .unwrap();
    restore(&session.store, &session.journal, "haproxy.cfg").unwrap();
    assert_eq!(files(base), before);
    assert_eq!(session.store.counters().cross_device(), 0);
    haptic_agent::store::journal::clear(&session.store, &session.journal).unwrap();
    assert_eq!(left_over(base), [""; 0]);
}
