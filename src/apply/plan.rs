//! From a manifest and the held tree to an immutable plan of steps.
//!
//! Pure: everything that needs a decision is decided here, so that carrying the plan
//! out makes no choices. The agent only ever falls back to the reload, it never
//! upgrades one to something cleverer: that choice is the controller's.

use std::collections::BTreeMap;

use crate::wire::digest::ContentHash;
use crate::wire::manifest::{FileKind, Manifest, Mode};
use crate::wire::path::ManifestPath;

use super::follow::Follow;
use super::owned::Owned;

/// A verified part in a staging directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedPart {
    /// Base-relative name of the staged file.
    pub staged: String,
    /// Of its bytes, hashed by the agent.
    pub hash: ContentHash,
}

/// One file to put in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Where to.
    pub path: ManifestPath,
    /// Where from, base-relative.
    pub staged: String,
    /// What it holds.
    pub hash: ContentHash,
    /// Decides the mode bits of a file that is new.
    pub kind: FileKind,
}

/// Why a reload is what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadWhy {
    /// The manifest's mode says so.
    Asked,
    /// The agent does not know what is applied.
    BaselineUnknown,
    /// The worker is not the one that the state names.
    WorkerUnknown,
    /// An op of unknown kind, or one that does not compile.
    OpsNotExecutable,
    /// The worker refused an op of the batch.
    OpRefused,
}

impl ReloadWhy {
    /// For the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked for by the controller",
            Self::BaselineUnknown => "the applied plan is unknown",
            Self::WorkerUnknown => "the worker is not the one that loaded the applied plan",
            Self::OpsNotExecutable => "an op of the batch is not executable",
            Self::OpRefused => "the worker refused an op of the batch",
        }
    }
}

/// How the set becomes active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A reload is pending: the files land and the reload, when it comes, loads them.
    JoinPending,
    /// Reload, or schedule one inside the pacing window.
    Reload(ReloadWhy),
    /// The files land and the ops run on the worker.
    Runtime,
    /// Files changed and no command is needed.
    FileOnly,
    /// Nothing to do.
    Noop,
}

/// What [`choose`] looks at beside the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// A reload waits for its time.
    pub reload_pending: bool,
    /// The applied plan's id is known.
    pub applied_known: bool,
    /// The worker is the one that the running plan was loaded by.
    pub worker_known: bool,
    /// Some path is written or removed.
    pub changes: bool,
    /// Every op is of a kind that the contract has.
    pub ops_known: bool,
}

/// Which way it goes: the first row that fits.
#[must_use]
pub fn choose(manifest: &Manifest, situation: Situation) -> Way {
    if situation.reload_pending {
        return Way::JoinPending;
    }
    if manifest.mode != Mode::Auto {
        return Way::Reload(ReloadWhy::Asked);
    }
    if !situation.applied_known {
        return Way::Reload(ReloadWhy::BaselineUnknown);
    }
    if !situation.ops_known {
        return Way::Reload(ReloadWhy::OpsNotExecutable);
    }
    if !situation.worker_known {
        return Way::Reload(ReloadWhy::WorkerUnknown);
    }
    if !manifest.ops.is_empty() {
        return Way::Runtime;
    }
    if situation.changes {
        Way::FileOnly
    } else {
        Way::Noop
    }
}

/// The steps on disk, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Sorted by path, the main configuration last.
    pub writes: Vec<Write>,
    /// Sorted by path; they follow the writes.
    pub deletes: Vec<ManifestPath>,
    /// What the agent owns afterwards, and how each file's digest is spoken of.
    pub owned: Owned,
}

impl Plan {
    /// Whether any path is written or removed.
    #[must_use]
    pub fn changes(&self) -> bool {
        !self.writes.is_empty() || !self.deletes.is_empty()
    }
}

/// Builds the plan.
///
/// `held` answers with the agent's own hash of an owned file on disk, fastest in the
/// order of the paths; `staged` are this request's parts; `owned` is what the agent put
/// there so far, which the plan shares if it is to own the same.
///
/// # Errors
/// The paths, sorted, whose content was neither sent nor is held.
pub fn build(
    manifest: &Manifest,
    held: &mut dyn FnMut(&ManifestPath) -> Option<ContentHash>,
    staged: &BTreeMap<ManifestPath, StagedPart>,
    owned: &Owned,
    config: &ManifestPath,
) -> Result<Plan, Vec<ManifestPath>> {
    let mut plan = Plan::default();
    let mut missing = Vec::new();
    let mut before = Follow::new(&**owned);
    let (mut known, mut same) = (0, true);
    for file in &manifest.files {
        let was = before.get(&file.path);
        let on_disk = was.and_then(|_| held(&file.path));
        known += usize::from(was.is_some());
        same &= was == Some(&file.digest.kind());
        if let Some(part) = staged.get(&file.path) {
            // Compared by the agent's own SHA-256: an XXH64 twin is a change.
            if on_disk != Some(part.hash) {
                plan.writes.push(Write {
                    path: file.path.clone(),
                    staged: part.staged.clone(),
                    hash: part.hash,
                    kind: file.kind,
                });
            }
        } else if !on_disk.is_some_and(|hash| hash.size == file.size && hash.matches(&file.digest))
        {
            missing.push(file.path.clone());
        }
    }
    if !missing.is_empty() {
        missing.sort_unstable();
        return Err(missing);
    }
    plan.writes
        .sort_by(|a, b| (&a.path == config, &a.path).cmp(&(&b.path == config, &b.path)));
    plan.owned = if same && known == owned.len() {
        owned.clone()
    } else {
        let wanted = manifest.files.iter();
        wanted
            .map(|file| (file.path.clone(), file.digest.kind()))
            .collect()
    };
    if known < owned.len() {
        let mut wanted = Follow::new(&*plan.owned);
        let gone = owned.keys().filter(|path| wanted.get(path).is_none());
        plan.deletes = gone.cloned().collect();
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::digest::DigestKind;
    use crate::wire::manifest::{File, Token};
    use crate::wire::op::Op;

    fn path(text: &str) -> ManifestPath {
        ManifestPath::parse(text).unwrap()
    }

    fn file(name: &str, content: &[u8], kind: DigestKind) -> File {
        let hash = ContentHash::of(content);
        File {
            path: path(name),
            digest: hash.digest(kind),
            size: hash.size,
            kind: FileKind::General,
            reload_on_change: false,
        }
    }

    fn manifest(files: Vec<File>) -> Manifest {
        Manifest {
            plan_id: "p".into(),
            plan_schema_version: 0,
            token: Token::default(),
            expected_prev_plan_id: String::new(),
            expected_prev_token: Token::default(),
            expected_worker_ops_plan_id: None,
            worker_ops_plan_id: None,
            validated_plan_id: None,
            files,
            ops: Vec::new(),
            in_place_ops: Vec::new(),
            mode: Mode::Auto,
        }
    }

    fn plan(
        files: Vec<File>,
        held: &[(&str, &[u8])],
        sent: &[(&str, &[u8])],
        owned: &[&str],
    ) -> Result<Plan, Vec<ManifestPath>> {
        let held: BTreeMap<_, _> = held
            .iter()
            .map(|(name, bytes)| (path(name), ContentHash::of(bytes)))
            .collect();
        let staged = sent
            .iter()
            .map(|(name, bytes)| {
                let part = StagedPart {
                    staged: format!("s/{name}"),
                    hash: ContentHash::of(bytes),
                };
                (path(name), part)
            })
            .collect();
        let owned = owned
            .iter()
            .map(|name| (path(name), DigestKind::Sha256))
            .collect();
        build(
            &manifest(files),
            &mut |p| held.get(p).copied(),
            &staged,
            &owned,
            &path("haproxy.cfg"),
        )
    }

    #[test]
    fn the_config_is_written_last_and_the_rest_sorted() {
        use DigestKind::Sha256;
        let files = ["haproxy.cfg", "z.map", "a.map"]
            .map(|n| file(n, b"x", Sha256))
            .to_vec();
        let sent: [(&str, &[u8]); 3] = [("haproxy.cfg", b"x"), ("z.map", b"x"), ("a.map", b"x")];
        let plan = plan(files, &[], &sent, &["old.map", "a.map"]).unwrap();
        let order: Vec<_> = plan
            .writes
            .iter()
            .map(|write| write.path.as_str())
            .collect();
        assert_eq!(order, ["a.map", "z.map", "haproxy.cfg"]);
        assert_eq!(plan.deletes, [path("old.map")]);
    }

    #[test]
    fn held_content_needs_no_part_whichever_digest_names_it() {
        for kind in [DigestKind::Sha256, DigestKind::Xxh64] {
            let plan = plan(vec![file("a", b"x", kind)], &[("a", b"x")], &[], &["a"]).unwrap();
            assert!(!plan.changes());
            assert_eq!(plan.owned[&path("a")], kind);
        }
    }

    #[test]
    fn missing_content_is_named_sorted() {
        use DigestKind::Sha256;
        let files = ["z", "b", "a"].map(|n| file(n, b"new", Sha256)).to_vec();
        let refused = plan(files, &[("a", b"old"), ("z", b"new")], &[], &["a", "z"]);
        assert_eq!(refused.unwrap_err(), [path("a"), path("b")]);
    }

    #[test]
    fn a_part_that_equals_what_is_held_is_no_change() {
        let files = vec![file("a", b"x", DigestKind::Sha256)];
        assert!(
            !plan(files, &[("a", b"x")], &[("a", b"x")], &["a"])
                .unwrap()
                .changes()
        );
    }

    #[test]
    fn an_xxh64_twin_of_another_content_is_a_change() {
        let mut twin = ContentHash::of(b"held");
        twin.xxh64 = ContentHash::of(b"sent").xxh64;
        twin.size = 4;
        let staged = BTreeMap::from([(
            path("a"),
            StagedPart {
                staged: "s".into(),
                hash: ContentHash::of(b"sent"),
            },
        )]);
        let files = vec![file("a", b"sent", DigestKind::Xxh64)];
        let got = build(
            &manifest(files),
            &mut |_| Some(twin),
            &staged,
            &[(path("a"), DigestKind::Xxh64)].into_iter().collect(),
            &path("haproxy.cfg"),
        );
        assert_eq!(got.unwrap().writes.len(), 1);
    }

    #[test]
    fn which_way_it_goes() {
        let calm = Situation {
            reload_pending: false,
            applied_known: true,
            worker_known: true,
            changes: true,
            ops_known: true,
        };
        let auto = manifest(Vec::new());
        let reload = Manifest {
            mode: Mode::Reload,
            ..auto.clone()
        };
        let with_ops = Manifest {
            ops: vec![Op {
                kind: "map_set".into(),
                ..Op::default()
            }],
            ..auto.clone()
        };
        let table = [
            (&auto, calm, Way::FileOnly),
            (
                &auto,
                Situation {
                    changes: false,
                    ..calm
                },
                Way::Noop,
            ),
            (
                &reload,
                Situation {
                    changes: false,
                    ..calm
                },
                Way::Reload(ReloadWhy::Asked),
            ),
            (
                &reload,
                Situation {
                    reload_pending: true,
                    ..calm
                },
                Way::JoinPending,
            ),
            (
                &auto,
                Situation {
                    applied_known: false,
                    ..calm
                },
                Way::Reload(ReloadWhy::BaselineUnknown),
            ),
            (
                &auto,
                Situation {
                    worker_known: false,
                    changes: false,
                    ..calm
                },
                Way::Reload(ReloadWhy::WorkerUnknown),
            ),
            (&with_ops, calm, Way::Runtime),
            (
                &with_ops,
                Situation {
                    ops_known: false,
                    ..calm
                },
                Way::Reload(ReloadWhy::OpsNotExecutable),
            ),
        ];
        for (index, (manifest, situation, want)) in table.into_iter().enumerate() {
            assert_eq!(choose(manifest, situation), want, "row {index}");
        }
    }
}
