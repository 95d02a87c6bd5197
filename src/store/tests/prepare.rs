//! What is refused before anything is written, and what a replaced file keeps.

use super::{path, store};
use crate::store::Store;
use crate::store::fs::FileKind;
use crate::store::install::{Intent, install};
use crate::store::model::ModelFs;
use crate::store::mounts::Mounts;
use crate::store::prepare::{PrepareError, Prepared, Refusal, prepare};
use crate::store::stage::{StageRequest, StagedFile};
use crate::wire::path::ManifestPath;
use std::collections::BTreeSet;

fn staged(store: &Store, paths: &[&str]) -> Vec<StagedFile> {
    let mut request = StageRequest::new(store, "r").unwrap();
    let files = paths
        .iter()
        .map(|p| request.stage_bytes(&path(p), 0o644, b"new").unwrap())
        .collect();
    request.leave();
    files
}

fn refusal(fs: &ModelFs, target: &str) -> Refusal {
    let store = store(fs);
    let files = staged(&store, &["ok", target]);
    let before = fs.snapshot();
    let by_write = prepare(&store, &files, &[], &BTreeSet::new()).unwrap_err();
    assert_eq!(fs.snapshot(), before);
    let PrepareError::Refused(by_write) = by_write else {
        unreachable!("{by_write}");
    };
    let by_removal = prepare(&store, &[], &[path(target)], &BTreeSet::new()).unwrap_err();
    assert_eq!(by_removal.to_string(), by_write.to_string());
    assert_eq!(by_write.path(), target);
    by_write
}

#[test]
fn what_a_rename_cannot_replace_honestly_is_refused_by_name() {
    for kind in [
        FileKind::Symlink,
        FileKind::Fifo,
        FileKind::Socket,
        FileKind::Other,
    ] {
        let fs = ModelFs::new();
        fs.put_special("maps/x", kind);
        let refusal = refusal(&fs, "maps/x");
        assert!(matches!(refusal, Refusal::NotAFile { kind: k, .. } if k == kind));
        assert!(refusal.to_string().contains(&kind.to_string()));
    }
    let fs = ModelFs::new();
    fs.put_dir("maps", 0o755, 0);
    assert!(matches!(
        refusal(&fs, "maps"),
        Refusal::NotAFile {
            kind: FileKind::Dir,
            ..
        }
    ));
}

#[test]
fn a_parent_that_is_no_directory_is_named() {
    for (kind, words) in [
        (FileKind::File, "a regular file"),
        (FileKind::Symlink, "a symbolic link"),
    ] {
        let fs = ModelFs::new();
        fs.put_special("a/b", kind);
        // Staging needs no target directory.
        let refusal = refusal(&fs, "a/b/c/d");
        let text = refusal.to_string();
        assert!(
            text.starts_with(&format!("a/b/c/d cannot be written because a/b is {words}")),
            "{text}"
        );
    }
}

#[test]
fn a_mount_point_is_refused_whether_it_was_there_at_the_start_or_came_later() {
    let fs = ModelFs::new();
    fs.put("haproxy.cfg", b"old", 0o644, 0, 0);
    let early = store(&fs);
    fs.bind_file("haproxy.cfg");
    let files = staged(&early, &["haproxy.cfg"]);
    let error = prepare(&early, &files, &[], &BTreeSet::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "haproxy.cfg is a mount point, so it cannot be replaced by rename; mount its directory instead"
    );
    let known = Mounts::from_lists([""; 0], ["haproxy.cfg"]);
    assert!(known.is_mount_point(&path("haproxy.cfg")));
    let found = Mounts::find(&fs, &["haproxy.cfg".to_owned()]).unwrap();
    assert_eq!(found, known);
}

fn run(fs: &ModelFs, paths: &[&str]) -> Prepared {
    let store = store(fs);
    let files = staged(&store, paths);
    let prepared = prepare(&store, &files, &[], &BTreeSet::new()).unwrap();
    let intent = Intent::new(&files, &[], &prepared, "haproxy.cfg");
    install(&store, &intent).unwrap();
    prepared
}

#[test]
fn a_replaced_file_keeps_owner_group_and_mode_and_a_new_one_does_not_need_any() {
    let fs = ModelFs::new();
    fs.put("site.pem", b"old", 0o4640, 99, 100);
    let prepared = run(&fs, &["site.pem", "new/deep/er/x"]);
    assert_eq!(prepared.missing_dirs, ["new", "new/deep", "new/deep/er"]);
    let existing: Vec<&ManifestPath> = prepared.existing.keys().collect();
    assert_eq!(existing, [&path("site.pem")]);
    let seen = fs.snapshot();
    let kept = &seen["site.pem"];
    assert_eq!((kept.mode, kept.uid, kept.gid), (0o640, 99, 100));
    let new = &seen["new/deep/er/x"];
    assert_eq!((new.mode, new.uid, new.gid), (0o644, 0, 0));
}

#[test]
fn a_set_gid_directory_hands_its_group_down_through_directories_still_to_be_made() {
    let fs = ModelFs::new();
    fs.put_dir("maps", 0o2775, 42);
    run(&fs, &["maps/a", "maps/x/y/b", "c"]);
    let seen = fs.snapshot();
    assert_eq!(seen["maps/a"].gid, 42);
    assert_eq!(seen["maps/x/y/b"].gid, 42);
    assert_eq!(seen["c"].gid, 0);
}

#[test]
fn an_agent_that_may_not_give_files_away_still_keeps_the_mode() {
    let fs = ModelFs::new();
    fs.put("a", b"old", 0o600, 99, 100);
    fs.refuse_chown(true);
    run(&fs, &["a"]);
    let seen = &fs.snapshot()["a"];
    assert_eq!((seen.mode, seen.uid), (0o600, 0));
}

/// A directory of ours, with a foreign file or directory in it or with files that stay.
#[test]
fn a_directory_makes_way_only_if_all_of_it_is_the_agents() {
    let own = BTreeSet::from(["d".to_owned(), "d/e".to_owned()]);
    let removals = [path("d/f"), path("d/e/g")];
    let scene = || {
        let fs = ModelFs::new();
        fs.put("d/f", b"f", 0o644, 0, 0);
        fs.put("d/e/g", b"g", 0o644, 0, 0);
        fs
    };
    let look = |fs: &ModelFs, own: &BTreeSet<String>, removals: &[ManifestPath]| {
        let store = store(fs);
        let files = staged(&store, &["d"]);
        prepare(&store, &files, removals, own)
    };
    let prepared = look(&scene(), &own, &removals).unwrap();
    assert_eq!(prepared.way.dirs, ["d/e", "d"]);
    assert_eq!(prepared.way.files, removals.iter().cloned().collect());
    let refused = |fs: &ModelFs, own: &BTreeSet<String>, removals: &[ManifestPath]| match look(
        fs, own, removals,
    )
    .unwrap_err()
    {
        PrepareError::Refused(refusal) => refusal.to_string(),
        error @ PrepareError::Store(_) => unreachable!("{error}"),
    };
    let words = "d is a directory, and d/f in it is not the agent's; move that out of the way, then push again";
    assert_eq!(refused(&scene(), &own, &removals[1..]), words);
    let fs = scene();
    fs.put_dir("d/foreign", 0o755, 0);
    assert!(refused(&fs, &own, &removals).contains("d/foreign in it"));
    let fs = scene();
    fs.put_special("d/e/pipe", FileKind::Fifo);
    assert!(refused(&fs, &own, &removals).contains("d/e/pipe in it"));
    let not_ours = BTreeSet::new();
    assert!(refused(&scene(), &not_ours, &removals).contains("replaces only regular files"));
}
