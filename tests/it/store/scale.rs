//! 4096 files: no loop may be quadratic. In memory, where the disk has no say, each step
//! has a bound far above what a slow machine needs and below what a quadratic loop
//! takes; on the disk the times are printed.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haptic_agent::clock::UnixNanos;
use haptic_agent::store::disk::DiskFs;
use haptic_agent::store::install::{Intent, install, replay};
use haptic_agent::store::journal::{Change, Journal, back_up, clear, plan_entries};
use haptic_agent::store::mounts::Mounts;
use haptic_agent::store::prepare::prepare;
use haptic_agent::store::restore::restore;
use haptic_agent::store::stage::StageRequest;
use haptic_agent::store::tree::Tree;
use haptic_agent::store::{Durability, Store};
use haptic_agent::wire::digest::DigestKind;
use haptic_agent::wire::path::ManifestPath;

use super::{files, path};

const COUNT: usize = 4096;

fn timed<T>(what: &str, bound: Duration, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    let took = start.elapsed();
    println!("{what}: {took:?}");
    assert!(took < bound, "{what}: {took:?}");
    result
}

fn whole_cycle(base: &Path, durability: Durability, bound: Duration, paths: &[ManifestPath]) {
    for name in paths {
        let at = base.join(name.as_str());
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, "old").unwrap();
    }
    // Files that have long been there are not in the way of a change by their own writeback.
    let synced = Command::new("sync").arg("-f").arg(base).status();
    assert!(synced.unwrap().success());
    let fs = Arc::new(DiskFs::open(base).unwrap());
    let store = Store::new(fs, Mounts::default(), durability);
    let content = vec![b'x'; 1000];
    let mut request = StageRequest::new(&store, "r").unwrap();
    let staged: Vec<_> = timed("stage", bound, || {
        let stage = |p| request.stage_bytes(p, 0o644, &content).unwrap();
        paths.iter().map(stage).collect()
    });
    timed("seal", bound, || request.seal().unwrap());
    let prepared = timed("prepare", bound, || {
        prepare(&store, &staged, &[], &BTreeSet::new()).unwrap()
    });
    let mut journal = Journal::default();
    let planned = timed("plan", bound, || {
        let changes = paths.iter().map(|path| Change {
            path,
            exists: prepared.existing.contains_key(path),
            removal: false,
            was_owned: Some(DigestKind::Sha256),
            hash: None,
        });
        plan_entries(&journal, changes, store.mounts(), &mut 0)
    });
    timed("back up", bound, || back_up(&store, &planned).unwrap());
    journal.add(planned);
    let intent = Intent::new(&staged, &[], &prepared, "haproxy.cfg");
    timed("install", bound, || install(&store, &intent).unwrap());
    request.finish();
    timed("replay of what is done", bound, || {
        replay(&store, &intent).unwrap()
    });
    let now = UnixNanos(i128::MAX);
    let fs = store.fs().as_ref();
    let mut tree = timed("observe", bound, || Tree::observe(fs, paths, now).unwrap());
    timed("recheck", bound, || {
        assert_eq!(tree.recheck(fs, now).unwrap(), [])
    });
    timed("fold", bound, || tree.fold());
    timed("restore", bound, || {
        restore(&store, &journal, "haproxy.cfg").unwrap()
    });
    timed("clear", bound, || clear(&store, &journal).unwrap());
    assert!(files(base).values().all(|bytes| bytes == b"old"));
}

#[test]
fn four_thousand_files_take_no_quadratic_time() {
    let paths: Vec<ManifestPath> = (0..COUNT)
        .map(|n| path(&format!("maps/{:02}/host-{n}.map", n % 16)))
        .collect();
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        println!("in memory, durability process, {COUNT} files");
        let dir = tempfile::tempdir_in(memory).unwrap();
        let bound = Duration::from_secs(10);
        whole_cycle(dir.path(), Durability::Process, bound, &paths);
    }
    println!("on disk, durability full, 512 files");
    let dir = tempfile::tempdir().unwrap();
    let bound = Duration::from_secs(120);
    whole_cycle(dir.path(), Durability::Full, bound, &paths[..512]);
}
