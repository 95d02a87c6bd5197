//! Each step alone: cut or failed at any call, then run again in the same life, without
//! the sweep of a start in between.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::install::{Intent, install, prune, replay};
use crate::store::journal::{Change, Entry, Journal, Kind, back_up, clear, plan_entries};
use crate::store::model::{LoseUnsynced, ModelFs};
use crate::store::mounts::Mounts;
use crate::store::prepare::{Prepared, prepare};
use crate::store::restore::restore;
use crate::store::stage::{StageRequest, StagedFile};
use crate::store::{Durability, Store, StoreError};
use crate::wire::digest::ContentHash;
use crate::wire::path::ManifestPath;

use super::shapes::{CONFIG, manifest_path};

/// A scene with two mounts, a change, a creation in a new directory, and a removal.
struct Scene {
    fs: ModelFs,
    store: Store,
    writes: Vec<StagedFile>,
    planned: BTreeMap<ManifestPath, Entry>,
    intent: Intent,
}

fn store(fs: &ModelFs) -> Store {
    let mounts = Mounts::from_lists(["general"], [""; 0]);
    Store::new(fs.shared(), mounts, Durability::Full)
}

impl Scene {
    fn new() -> Self {
        let fs = ModelFs::new();
        fs.mount("general");
        for (path, bytes) in [
            ("haproxy.cfg", "old"),
            ("general/a", "old a"),
            ("maps/gone.map", "old map"),
        ] {
            fs.put(path, bytes.as_bytes(), 0o640, 7, 8);
        }
        let store = store(&fs);
        let mut request = StageRequest::new(&store, "r").unwrap();
        let writes: Vec<StagedFile> = [
            ("haproxy.cfg", "new"),
            ("general/a", "new a"),
            ("certs/x/site.pem", "key"),
        ]
        .into_iter()
        .map(|(path, bytes)| {
            request
                .stage_bytes(&manifest_path(path), 0o640, bytes.as_bytes())
                .unwrap()
        })
        .collect();
        request.seal().unwrap();
        request.leave();
        let removals = [manifest_path("maps/gone.map")];
        let prepared = prepare(&store, &writes, &removals, &BTreeSet::new()).unwrap();
        let changes = writes.iter().map(|file| (&file.path, false));
        let changes = changes.chain(removals.iter().map(|path| (path, true)));
        let planned = plan_entries(
            &Journal::default(),
            changes.map(|(path, removal)| Change {
                path,
                exists: prepared.existing.contains_key(path),
                removal,
                was_owned: None,
                hash: None,
            }),
            store.mounts(),
            &mut 0,
        );
        let intent = Intent::new(&writes, &removals, &prepared, CONFIG);
        Self {
            fs,
            store,
            writes,
            planned,
            intent,
        }
    }

    fn journal(&self) -> Journal {
        Journal {
            entries: self.planned.clone(),
        }
    }

    fn backed_up() -> Self {
        let scene = Self::new();
        back_up(&scene.store, &scene.planned).unwrap();
        scene
    }

    fn installed() -> Self {
        let scene = Self::backed_up();
        install(&scene.store, &scene.intent).unwrap();
        scene
    }
}

/// Runs `step` stopped after every mutation and failed at every call, then again, and
/// demands the end that an undisturbed run has.
fn again_after_every_cut(scene: fn() -> Scene, step: fn(&Scene) -> Result<(), StoreError>) {
    let whole = scene();
    let (calls, mutations) = (whole.fs.calls(), whole.fs.mutations());
    step(&whole).unwrap();
    let want = (whole.fs.snapshot(), whole.fs.hidden());
    let mutations = whole.fs.mutations() - mutations;
    let calls = whole.fs.calls() - calls;
    assert!(mutations > 2);
    for n in 0..mutations {
        let cut = scene();
        cut.fs.stop_after(n);
        step(&cut).unwrap_err();
        cut.fs.heal();
        step(&cut).unwrap();
        assert_eq!((cut.fs.snapshot(), cut.fs.hidden()), want, "cut after {n}");
        // A kill in between forgets which directories are known to be durable.
        let cut = scene();
        cut.fs.stop_after(n);
        step(&cut).unwrap_err();
        let fs = cut.fs.crash(LoseUnsynced::Nothing);
        let next = Scene {
            store: store(&fs),
            fs,
            ..scene()
        };
        step(&next).unwrap();
        let durable = next.fs.crash(LoseUnsynced::All).snapshot();
        assert_eq!(durable, want.0, "killed after {n}, then power lost");
        assert_eq!(
            (next.fs.snapshot(), next.fs.hidden()),
            want,
            "killed after {n}"
        );
    }
    for n in 1..=calls {
        let failed = scene();
        failed.fs.fail_at(n, libc::EIO);
        let _ = step(&failed);
        failed.fs.heal();
        step(&failed).unwrap();
        assert_eq!((failed.fs.snapshot(), failed.fs.hidden()), want, "call {n}");
    }
}

#[test]
fn backing_up_again() {
    again_after_every_cut(Scene::new, |scene| back_up(&scene.store, &scene.planned));
}

#[test]
fn backing_up_again_where_links_are_refused() {
    let refused = || {
        let scene = Scene::new();
        scene.fs.refuse_links(Some(libc::EOPNOTSUPP));
        scene
    };
    again_after_every_cut(refused, |scene| back_up(&scene.store, &scene.planned));
}

#[test]
fn replaying_again() {
    again_after_every_cut(Scene::backed_up, |scene| {
        replay(&scene.store, &scene.intent)
    });
}

#[test]
fn replaying_an_installation_that_was_cut_anywhere() {
    let whole = Scene::installed();
    for n in 0.. {
        let cut = Scene::backed_up();
        cut.fs.stop_after(n);
        let done = install(&cut.store, &cut.intent);
        cut.fs.heal();
        replay(&cut.store, &cut.intent).unwrap();
        assert_eq!(cut.fs.snapshot(), whole.fs.snapshot());
        assert_eq!(cut.fs.hidden(), whole.fs.hidden());
        if done.is_ok() {
            return;
        }
    }
}

#[test]
fn restoring_again() {
    again_after_every_cut(Scene::installed, |scene| {
        restore(&scene.store, &scene.journal(), CONFIG).map(|_| ())
    });
}

#[test]
fn restoring_again_into_directories_that_were_pruned() {
    let pruned = || {
        let fs = ModelFs::new();
        fs.put("certs/a/b/site.pem", b"key", 0o640, 7, 8);
        let mut scene = Scene::new();
        let store = store(&fs);
        let gone = manifest_path("certs/a/b/site.pem");
        let change = Change {
            path: &gone,
            exists: true,
            removal: true,
            was_owned: None,
            hash: None,
        };
        let planned = plan_entries(&Journal::default(), [change], store.mounts(), &mut 0);
        back_up(&store, &planned).unwrap();
        install(
            &store,
            &Intent::new(
                &[],
                std::slice::from_ref(&gone),
                &Prepared::default(),
                CONFIG,
            ),
        )
        .unwrap();
        let dirs = ["certs", "certs/a", "certs/a/b"];
        assert_eq!(prune(&store, dirs).unwrap(), dirs);
        scene.planned = planned;
        Scene { fs, store, ..scene }
    };
    let scene = pruned();
    let restored = restore(&scene.store, &scene.journal(), CONFIG).unwrap();
    assert_eq!(restored.dirs_made, ["certs", "certs/a", "certs/a/b"]);
    again_after_every_cut(pruned, |scene| {
        restore(&scene.store, &scene.journal(), CONFIG).map(|_| ())
    });
}

#[test]
fn restoring_again_where_links_are_refused() {
    let refused = || {
        let scene = Scene::new();
        scene.fs.refuse_links(Some(libc::EMLINK));
        back_up(&scene.store, &scene.planned).unwrap();
        install(&scene.store, &scene.intent).unwrap();
        scene
    };
    again_after_every_cut(refused, |scene| {
        restore(&scene.store, &scene.journal(), CONFIG).map(|_| ())
    });
}

#[test]
fn clearing_again() {
    let restored = || {
        let scene = Scene::installed();
        restore(&scene.store, &scene.journal(), CONFIG).unwrap();
        scene
    };
    again_after_every_cut(restored, |scene| {
        clear(&scene.store, &scene.journal())?;
        prune(&scene.store, ["certs", "certs/x"]).map(|_| ())
    });
    let scene = restored();
    clear(&scene.store, &scene.journal()).unwrap();
    assert_eq!(scene.fs.hidden(), BTreeMap::new());
}

#[test]
fn the_configuration_goes_last_and_removals_after_it_on_both_ways() {
    let scene = Scene::backed_up();
    scene.fs.start_trace();
    install(&scene.store, &scene.intent).unwrap();
    let forward = scene.fs.trace();
    assert_eq!(
        forward,
        [
            "rename .haptic-tmp/r/2 certs/x/site.pem",
            "rename general/.haptic-tmp/r/1 general/a",
            "rename .haptic-tmp/r/0 haproxy.cfg",
            "unlink maps/gone.map",
            "sync ",
            "sync certs",
            "sync certs/x",
            "sync general",
            "sync maps",
        ]
    );
    scene.fs.start_trace();
    restore(&scene.store, &scene.journal(), CONFIG).unwrap();
    let back: Vec<String> = scene
        .fs
        .trace()
        .into_iter()
        .filter(|call| !call.starts_with("link"))
        .collect();
    assert_eq!(
        back[..4],
        [
            "rename general/.haptic-lkg/1.put general/a",
            "rename .haptic-lkg/2.put maps/gone.map",
            "rename .haptic-lkg/0.put haproxy.cfg",
            "unlink certs/x/site.pem",
        ]
    );
    // A name is renamed over, never removed first.
    assert!(
        back.iter()
            .filter(|call| call.starts_with("unlink"))
            .count()
            == 1
    );
}

#[test]
fn both_names_left_by_a_power_loss_are_one_after_the_replay() {
    let scene = Scene::backed_up();
    // The rename took hold in the target's directory and not in the staging directory.
    scene.fs.unlink_uncounted("haproxy.cfg");
    scene
        .fs
        .link_uncounted(&scene.writes[0].staged, "haproxy.cfg");
    replay(&scene.store, &scene.intent).unwrap();
    assert_eq!(scene.fs.read("haproxy.cfg").unwrap(), b"new");
    assert_eq!(scene.fs.read(&scene.writes[0].staged), None);
}

#[test]
fn a_replay_that_cannot_finish_touches_nothing() {
    for damage in [true, false] {
        let scene = Scene::backed_up();
        if damage {
            scene.fs.scribble(&scene.writes[1].staged, b"torn");
        } else {
            scene.fs.unlink_uncounted(&scene.writes[1].staged);
        }
        let before = (scene.fs.snapshot(), scene.fs.hidden());
        let error = replay(&scene.store, &scene.intent).unwrap_err();
        let StoreError::StagedLost { paths } = error else {
            unreachable!("{error}");
        };
        assert_eq!(paths, ["general/a"]);
        assert_eq!((scene.fs.snapshot(), scene.fs.hidden()), before);
    }
}

#[test]
fn a_lost_backup_is_named_and_the_rest_comes_back() {
    let scene = Scene::installed();
    scene.fs.unlink_uncounted("general/.haptic-lkg/1");
    let error = restore(&scene.store, &scene.journal(), CONFIG).unwrap_err();
    assert!(error.to_string().contains("general/a"), "{error}");
    assert_eq!(scene.fs.read("haproxy.cfg").unwrap(), b"old");
    assert_eq!(scene.fs.read("maps/gone.map").unwrap(), b"old map");
    // Where the target holds the old bytes already, nothing is lost.
    let mut journal = scene.journal();
    let entry = journal.entries.get_mut("general/a").unwrap();
    entry.hash = Some(ContentHash::of(b"old a").into());
    scene.fs.scribble("general/a", b"old a");
    restore(&scene.store, &journal, CONFIG).unwrap();
}

#[test]
fn an_orphan_with_a_backup_s_name_is_replaced() {
    let scene = Scene::new();
    scene
        .fs
        .put(".haptic-lkg/0", b"from another life", 0o600, 0, 0);
    back_up(&scene.store, &scene.planned).unwrap();
    assert_eq!(scene.fs.read(".haptic-lkg/0").unwrap(), b"old");
}

#[test]
fn bytes_that_the_agent_did_not_write_are_synced_with_their_backup() {
    let scene = Scene::new();
    // Written by someone who did not sync.
    scene.fs.scribble_unsynced("general/a", b"boot");
    back_up(&scene.store, &scene.planned).unwrap();
    let after = scene.fs.crash(LoseUnsynced::All);
    assert_eq!(after.read("general/.haptic-lkg/1").unwrap(), b"boot");
}

#[test]
fn sealed_parts_survive_a_power_loss() {
    let scene = Scene::new();
    let after = scene.fs.crash(LoseUnsynced::All);
    for file in &scene.writes {
        let bytes = after.read(&file.staged).unwrap();
        assert_eq!(ContentHash::of(&bytes), file.hash);
    }
}

#[test]
fn the_first_entry_of_a_path_wins() {
    let scene = Scene::new();
    let path = manifest_path("haproxy.cfg");
    let change = Change {
        path: &path,
        exists: true,
        removal: true,
        was_owned: None,
        hash: None,
    };
    let mut next = 17;
    let journal = scene.journal();
    let second = plan_entries(&journal, [change], scene.store.mounts(), &mut next);
    assert_eq!((second.len(), next), (0, 17));
    let twice = plan_entries(
        &Journal::default(),
        [change, change],
        scene.store.mounts(),
        &mut next,
    );
    assert_eq!((twice.len(), next), (1, 18));
    let nothing = Change {
        exists: false,
        ..change
    };
    let none = plan_entries(
        &Journal::default(),
        [nothing],
        scene.store.mounts(),
        &mut next,
    );
    assert_eq!(none.len(), 0);
    assert!(matches!(&twice[&path].kind, Kind::Deleted { backup } if backup == ".haptic-lkg/17"));
}
