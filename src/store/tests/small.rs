//! Mounts, the sweep, the observed tree.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};

use super::{path, store};
use crate::clock::UnixNanos;
use crate::store::fs::FileKind;
use crate::store::fs::Fs as _;
use crate::store::model::ModelFs;
use crate::store::mounts::Mounts;
use crate::store::sweep::{Swept, sweep};
use crate::store::tree::Tree;
use crate::wire::digest::{ContentHash, hex};
use crate::wire::path::ManifestPath;

/// Long after everything the model did.
const LATER: UnixNanos = UnixNanos(10_000_000_000_000);

#[test]
fn mounts_are_what_the_tree_shows_not_what_a_list_says() {
    let fs = ModelFs::new();
    fs.mount("general");
    fs.bind("general/deep");
    fs.bind("maps");
    fs.put_dir("plain", 0o755, 0);
    fs.put("file", b"", 0o644, 0, 0);
    fs.bind_file("file");
    let listed = ["plain", "gone", "general", "file", "gone/deeper"].map(str::to_owned);
    let mounts = Mounts::find(&fs, &listed).unwrap();
    let want = Mounts::from_lists(["general", "general/deep", "maps"], ["file"]);
    assert_eq!(mounts, want);
}

#[test]
fn a_sweep_removes_what_the_state_does_not_name_and_nothing_else() {
    let fs = ModelFs::new();
    fs.mount("general");
    for file in [
        "haproxy.cfg",
        "maps/x.map",
        ".haptic-agent.json",
        ".other/.haptic-tmp/x",
        ".haptic-lkg/1",
        ".haptic-lkg/2",
        ".haptic-lkg/2.put",
        ".haptic-tmp/r1/0",
        ".haptic-tmp/r2/0",
        ".haptic-tmp/stray",
        "general/.haptic-tmp/r1/1",
        "general/.haptic-lkg/3",
        "general/.haptic-copy",
        // A mount that is none today.
        "maps/.haptic-lkg/9",
    ] {
        fs.put(file, b"x", 0o600, 0, 0);
    }
    let keep: BTreeSet<String> = [".haptic-lkg/2", ".haptic-tmp/r2/0", "general/.haptic-lkg/3"]
        .map(str::to_owned)
        .into();
    let store = store(&fs);
    let swept = sweep(&store, &keep);
    assert_eq!(
        swept,
        Swept {
            removed: 7,
            stuck: 0
        }
    );
    let left: Vec<String> = fs.hidden().into_keys().collect();
    assert_eq!(
        left,
        [
            ".haptic-agent.json",
            ".haptic-lkg/2",
            ".haptic-tmp/r2/0",
            ".other/.haptic-tmp/x",
            "general/.haptic-lkg/3",
        ]
    );
    assert_eq!(fs.snapshot().len(), 2);
    assert!(!fs.dirs().contains(&".haptic-tmp/r1".to_owned()));
    assert_eq!(sweep(&store, &keep), Swept::default());
    fs.put(".haptic-tmp/r3/0", b"x", 0o600, 0, 0);
    fs.fail_from(1, libc::EROFS);
    assert_eq!(sweep(&store, &keep).stuck, 1);
}

/// What `DESIGN.md` says of the fold, by the letter.
fn documented_fold<'a>(sorted: impl IntoIterator<Item = (&'a str, &'a str)>) -> [u8; 32] {
    let (mut whole, mut chunk) = (Sha256::new(), String::new());
    for (name, bytes) in sorted {
        let sha = hex(&ContentHash::of(bytes.as_bytes()).sha256);
        chunk += &format!("{name} {sha}\n");
        if twox_hash::XxHash64::oneshot(0, name.as_bytes()) % 64 == 0 {
            whole.update(Sha256::digest(std::mem::take(&mut chunk)));
        }
    }
    if !chunk.is_empty() {
        whole.update(Sha256::digest(chunk));
    }
    whole.finalize().into()
}

#[test]
fn the_fold_of_many_files_is_the_documented_one() {
    let fs = ModelFs::new();
    let names: Vec<String> = (100..900).map(|n| format!("maps/{n}")).collect();
    for name in &names {
        fs.put(name, b"same", 0o644, 0, 0);
    }
    let paths: Vec<ManifestPath> = names.iter().rev().map(|name| path(name)).collect();
    let tree = Tree::observe(&fs, &paths, LATER).unwrap();
    let want = documented_fold(names.iter().map(|name| (name.as_str(), "same")));
    assert_eq!(tree.fold(), want);
}

#[test]
fn the_fold_is_the_documented_one() {
    let fs = ModelFs::new();
    fs.put("b", b"two", 0o644, 0, 0);
    fs.put("a/z", b"one", 0o644, 0, 0);
    fs.put("a-b", b"three", 0o644, 0, 0);
    fs.put_special("fifo", FileKind::Fifo);
    fs.put_special("link", FileKind::Symlink);
    let paths = [
        "b",
        "a/z",
        "a-b",
        "absent",
        "fifo",
        "link",
        "link/below",
        "b/below",
    ]
    .map(path);
    let tree = Tree::observe(&fs, &paths, LATER).unwrap();
    let want = documented_fold([("a-b", "three"), ("a/z", "one"), ("b", "two")]);
    assert_eq!(tree.fold(), want);
    let none: [ManifestPath; 0] = [];
    let empty = Tree::observe(&fs, &none, LATER).unwrap();
    assert_eq!(empty.fold(), <[u8; 32]>::from(Sha256::digest(b"")));
}

#[test]
fn a_recheck_hashes_only_what_moved_and_names_what_changed() {
    let fs = ModelFs::new();
    let paths = ["a", "b", "c", "d"].map(path);
    for name in ["a", "b", "c"] {
        fs.put(name, b"old", 0o644, 0, 0);
    }
    let mut tree = Tree::observe(&fs, &paths, LATER).unwrap();
    let first = tree.fold();
    let before = fs.calls();
    assert_eq!(tree.recheck(&fs, LATER).unwrap(), []);
    assert_eq!(fs.calls() - before, 4, "one look a path");
    assert_eq!(tree.fold(), first);
    // Same bytes, other inode; same size, other bytes; gone; come.
    fs.put("a", b"old", 0o644, 0, 0);
    fs.scribble("b", b"new");
    fs.unlink_uncounted("c");
    fs.put("d", b"d", 0o644, 0, 0);
    let changed = tree.recheck(&fs, LATER).unwrap();
    assert_eq!(changed, ["b", "c", "d"].map(path));
    assert_eq!(
        tree.fold(),
        Tree::observe(&fs, &paths, LATER).unwrap().fold()
    );
    assert_ne!(tree.fold(), first);
    assert_eq!(tree.recheck(&fs, LATER).unwrap(), []);
    tree.forget(&path("d"));
    fs.unlink_uncounted("d");
    assert_eq!(tree.recheck(&fs, LATER).unwrap(), []);
    let of = |paths: &[ManifestPath]| Tree::observe(&fs, paths, LATER).unwrap().fold();
    assert_eq!(tree.fold(), of(&paths[..3]), "a kept fold goes with a path");
    tree.retain(|kept| kept.as_str() == "a");
    assert_eq!(tree.fold(), of(&paths[..1]));
    assert_eq!(tree.files().len(), 1);
    fs.scribble("a", b"new");
    tree.note(&fs, &paths[0], ContentHash::of(b"new"), None, LATER)
        .unwrap();
    assert_eq!(tree.fold(), of(&paths[..1]), "and with what was noted");
}

#[test]
fn a_file_that_is_too_fresh_is_hashed_again() {
    let fs = ModelFs::new();
    fs.put("a", b"old", 0o644, 0, 0);
    let now = UnixNanos(1_000_000_000);
    let mut tree = Tree::observe(&fs, &[path("a")], now).unwrap();
    // A change that leaves size and times as they were.
    fs.scribble_in_the_same_tick("a", b"new");
    assert_eq!(tree.recheck(&fs, now).unwrap(), [path("a")]);
    assert_eq!(tree.recheck(&fs, LATER).unwrap(), []);
    let before = fs.calls();
    tree.recheck(&fs, LATER).unwrap();
    assert_eq!(fs.calls() - before, 1, "by now it has rested");
}

#[test]
fn only_a_mark_that_the_file_bears_in_full_lets_it_rest_at_once() {
    let fs = ModelFs::new();
    fs.put("a", b"old", 0o644, 0, 0);
    let mtime = fs.stat("a").unwrap().unwrap().mtime;
    let now = UnixNanos(mtime);
    let looks = |mark: Option<i128>| {
        let mut tree = Tree::default();
        tree.note(&fs, &path("a"), ContentHash::of(b"old"), mark, now)
            .unwrap();
        let before = fs.calls();
        tree.recheck(&fs, now).unwrap();
        fs.calls() - before
    };
    let hashed = looks(None);
    assert!(hashed > 1);
    assert_eq!(looks(Some(mtime + 1)), hashed, "a time of somebody else");
    assert_eq!(looks(Some(mtime)), 1, "only the look itself");
}

#[test]
fn noted_content_is_believed_unless_the_size_says_otherwise() {
    let fs = ModelFs::new();
    fs.put("a", b"abc", 0o644, 0, 0);
    let mut tree = Tree::default();
    tree.note(&fs, &path("a"), ContentHash::of(b"abc"), None, LATER)
        .unwrap();
    assert_eq!(tree.get(&path("a")).unwrap().hash, ContentHash::of(b"abc"));
    tree.note(&fs, &path("a"), ContentHash::of(b"other"), None, LATER)
        .unwrap();
    assert_eq!(tree.get(&path("a")).unwrap().hash, ContentHash::of(b"abc"));
    tree.note(&fs, &path("b"), ContentHash::of(b"b"), None, LATER)
        .unwrap();
    assert_eq!(tree.files().len(), 1);
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_that_names_it() {
    let fs = ModelFs::new();
    fs.put("maps/a", b"abc", 0o644, 0, 0);
    fs.fail_at(2, libc::EACCES);
    let error = Tree::observe(&fs, &[path("maps/a")], LATER).unwrap_err();
    assert!(
        error.to_string().starts_with("cannot read maps/a: "),
        "{error}"
    );
}
