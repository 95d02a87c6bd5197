//! The shapes of apply that are enumerated, and what the tree must be after each set.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::model::{ModelFs, Seen};
use crate::store::mounts::Mounts;
use crate::wire::path::ManifestPath;

pub(super) const CONFIG: &str = "haproxy.cfg";

/// Set 0 is what stood there before.
pub(super) const FIRST_SET: usize = 1;

type Set = &'static [(&'static str, &'static str)];

/// How a run ends after its last set.
pub(super) enum End {
    /// The journal stays.
    Keep,
    /// The last set becomes the known good one.
    Commit,
    /// The known good set is restored.
    Abort,
}

pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) sets: Vec<Set>,
    pub(super) end: End,
    /// Those paths of set 0 that the agent owns; the others are bootstrap files.
    pub(super) owned_at_first: &'static [&'static str],
    /// Mounts of the scene.
    real_mounts: &'static [&'static str],
    /// Mounts as the store knows them.
    pub(super) mounts: Mounts,
    links_refused: Option<i32>,
}

const BOTH: Set = &[
    ("haproxy.cfg", "old config"),
    ("maps/host.map", "old map"),
    ("general/500.http", "old page"),
];

pub(super) fn shapes() -> Vec<Shape> {
    let plain = |name, sets: &[Set], end| Shape {
        name,
        sets: sets.to_vec(),
        end,
        owned_at_first: &["haproxy.cfg", "maps/host.map", "general/500.http"],
        real_mounts: &["general"],
        mounts: Mounts::from_lists(["general"], [""; 0]),
        links_refused: None,
    };
    let change: Set = &[
        ("haproxy.cfg", "new config"),
        ("maps/host.map", "new map"),
        ("general/500.http", "new page"),
    ];
    let delete: Set = &[("haproxy.cfg", "new config")];
    let mixed: Set = &[
        ("haproxy.cfg", "mixed config"),
        ("certs/a/b/site.pem", "a key"),
        ("general/deep/x", "x"),
        ("maps/other.map", "m"),
    ];
    let moved: Set = &[
        ("haproxy.cfg", "third config"),
        ("certs/a/c/site.pem", "another key"),
        ("maps/host.map", "third map"),
        ("general/500.http", "old page"),
    ];
    vec![
        Shape {
            owned_at_first: &[],
            ..plain(
                "first apply",
                &[&[("haproxy.cfg", "boot")], change],
                End::Keep,
            )
        },
        plain("change, two mounts", &[BOTH, change], End::Commit),
        plain("change, restored", &[BOTH, change], End::Abort),
        plain("delete", &[BOTH, delete], End::Keep),
        plain("delete, restored", &[BOTH, delete], End::Abort),
        plain("mixed", &[BOTH, mixed], End::Commit),
        plain("mixed, restored", &[BOTH, mixed], End::Abort),
        plain("three sets, restored", &[BOTH, mixed, moved], End::Abort),
        plain("there and back", &[BOTH, delete, BOTH], End::Commit),
        Shape {
            links_refused: Some(libc::EPERM),
            ..plain("no links, restored", &[BOTH, mixed], End::Abort)
        },
        Shape {
            mounts: Mounts::default(),
            ..plain("unknown mount", &[BOTH, mixed], End::Keep)
        },
        Shape {
            mounts: Mounts::default(),
            ..plain("unknown mount, restored", &[BOTH, mixed, moved], End::Abort)
        },
    ]
}

impl Shape {
    /// The tree before the first apply.
    pub(super) fn scene(&self) -> ModelFs {
        let fs = ModelFs::new();
        fs.short_writes(700);
        for mount in self.real_mounts {
            fs.mount(mount);
        }
        for (path, seen) in self.expected(&[0]) {
            fs.put(&path, &seen.bytes, seen.mode, seen.uid, seen.gid);
        }
        fs.refuse_links(self.links_refused);
        fs
    }

    pub(super) fn paths(&self, plan: usize) -> impl Iterator<Item = ManifestPath> + '_ {
        self.sets[plan].iter().map(|(path, _)| manifest_path(path))
    }

    /// What has to be written to get from one set to the other.
    pub(super) fn changed(&self, from: usize, to: usize) -> Vec<(ManifestPath, &'static [u8])> {
        let held: BTreeMap<_, _> = self.sets[from].iter().copied().collect();
        self.sets[to]
            .iter()
            .filter(|(path, bytes)| held.get(path) != Some(bytes))
            .map(|(path, bytes)| (manifest_path(path), bytes.as_bytes()))
            .collect()
    }

    pub(super) fn removed(&self, from: usize, to: usize) -> Vec<ManifestPath> {
        let wanted: BTreeSet<_> = self.paths(to).collect();
        self.paths(from)
            .filter(|path| !wanted.contains(path))
            .collect()
    }

    /// Every visible file once the last of some sets is applied. A path that never left since
    /// set 0 keeps its owner and mode, any other one is new.
    pub(super) fn expected(&self, history: &[usize]) -> BTreeMap<String, Seen> {
        let mut files = BTreeMap::from([(
            "foreign/readme".to_owned(),
            Seen {
                bytes: b"not ours".to_vec(),
                mode: 0o600,
                uid: 3,
                gid: 3,
            },
        )]);
        let plan = history.last().copied().unwrap_or(0);
        for (path, bytes) in self.sets[plan] {
            let has = |set: &usize| self.sets[*set].iter().any(|(p, _)| p == path);
            let stayed = history.iter().all(has);
            let (mode, uid, gid) = if stayed { (0o640, 7, 8) } else { (0o644, 0, 0) };
            let seen = Seen {
                bytes: bytes.as_bytes().to_vec(),
                mode,
                uid,
                gid,
            };
            files.insert((*path).to_owned(), seen);
        }
        files
    }

    /// Every visible directory: those that were there, and those that files need.
    pub(super) fn expected_dirs(&self, history: &[usize]) -> BTreeSet<String> {
        let files = self.expected(history).into_keys();
        let first = self.expected(&[0]).into_keys();
        let mut dirs: BTreeSet<String> = files
            .chain(first)
            .flat_map(|path| {
                let path = manifest_path(&path);
                path.ancestors().map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        dirs.extend(self.real_mounts.iter().map(|dir| (*dir).to_owned()));
        dirs
    }
}

pub(super) fn manifest_path(path: &str) -> ManifestPath {
    ManifestPath::parse(path).expect("the shapes have good paths")
}
