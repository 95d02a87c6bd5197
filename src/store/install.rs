//! Replacing the tree's files: look at every target first, then rename, then remove,
//! then sync.
//!
//! [`prepare`] touches no target and refuses by name what a rename could not replace
//! honestly (a mount point, a symbolic link, a socket, a directory that is not the
//! agent's to remove). [`install`] is
//! the only place where targets change on the way forward; everything that it will do
//! is in an [`Intent`], which the caller persists first, so [`replay`] can finish it
//! after a crash at any call, or say that it cannot before it has touched anything.
//! The configuration is renamed after the files that it may name; removals come last,
//! but for what stands in the way ([`super::way`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::wire::digest::Digest;
use crate::wire::path::ManifestPath;

use super::context::{Store, is_absent};
use super::error::{Op, StoreError};
use super::fs::{Attrs, FileKind, Stat, split};
use super::stage::StagedFile;
use super::transfer::{move_file, move_file_again, set_attrs_as_allowed};
use super::tree::hash_file;
use super::way::{self, Blocked, Way};

/// Mode of directories that a manifest path needs: HAProxy's user must get through.
const DIR_MODE: u32 = 0o755;

const SET_GID: u32 = 0o2000;

/// Why a path cannot be replaced or removed. `Display` tells the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The path is a mount point.
    MountPoint {
        /// The path.
        path: String,
    },
    /// Something that is not a regular file stands there.
    NotAFile {
        /// The path.
        path: String,
        /// What stands there.
        kind: FileKind,
    },
    /// A directory stands there that the agent made, and something else than its own files
    /// is in it.
    DirectoryInUse {
        /// The path.
        path: String,
        /// What is in it, as a path.
        holds: String,
    },
    /// A directory of the path is something else.
    NotADirectory {
        /// The path.
        path: String,
        /// The component that should be a directory, as a path.
        dir: String,
        /// What stands there.
        kind: FileKind,
    },
}

impl Refusal {
    /// The manifest path that is refused.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::MountPoint { path }
            | Self::NotAFile { path, .. }
            | Self::DirectoryInUse { path, .. }
            | Self::NotADirectory { path, .. } => path,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MountPoint { path } => write!(
                f,
                "{path} is a mount point, so it cannot be replaced by rename; mount its directory instead"
            ),
            Self::NotAFile { path, kind } => write!(
                f,
                "{path} is {kind}, and the agent replaces only regular files; move it out of the way"
            ),
            Self::DirectoryInUse { path, holds } => write!(
                f,
                "{path} is a directory, and {holds} in it is not the agent's; move that out of the way, then push again"
            ),
            Self::NotADirectory { path, dir, kind } => write!(
                f,
                "{path} cannot be written because {dir} is {kind} where a directory is needed, and not the agent's; move it out of the way, then push again"
            ),
        }
    }
}

/// Why [`prepare`] did not.
#[derive(Debug)]
pub enum PrepareError {
    /// A target must not be touched.
    Refused(Refusal),
    /// The disk failed.
    Store(StoreError),
}

impl fmt::Display for PrepareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PrepareError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(_) => None,
            Self::Store(error) => error.source(),
        }
    }
}

impl From<StoreError> for PrepareError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What was found at the targets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Targets that exist, all of them regular files.
    pub existing: BTreeMap<ManifestPath, Stat>,
    /// Directories that must be made, parents first. Persist them as the agent's own
    /// before [`install`] makes them, so that they can be pruned one day.
    pub missing_dirs: Vec<String>,
    /// What goes before that.
    pub way: Way,
}

/// Looks at every target, then gives each staged file the owner, group and mode that
/// its target has, as far as the agent may; a new file takes the group of a set-gid
/// directory. Nothing but staged files is changed. `own_dirs` are the directories that the
/// agent made: one of them makes way for a file if nothing else is in it.
///
/// # Errors
/// The first refusal, or the disk's.
pub fn prepare(
    store: &Store,
    writes: &[StagedFile],
    removals: &[ManifestPath],
    own_dirs: &BTreeSet<String>,
) -> Result<Prepared, PrepareError> {
    let mut look = Look::new(store, removals, own_dirs)?;
    let mut prepared = Prepared::default();
    for file in writes {
        if let Some(stat) = look.target(&file.path, true)? {
            prepared.existing.insert(file.path.clone(), stat);
        }
    }
    for path in removals {
        if let Some(stat) = look.target(path, false)? {
            prepared.existing.insert(path.clone(), stat);
        }
    }
    for file in writes {
        let inherited = look.group_for(file.path.parent());
        carry_over(store, file, prepared.existing.get(&file.path), inherited)?;
    }
    prepared.way = look.way;
    let paths = writes.iter().map(|file| &file.path);
    prepared.missing_dirs = missing_dirs(store, paths, &prepared.way)?;
    Ok(prepared)
}

/// The directories seen so far, each looked at once.
struct Look<'a> {
    store: &'a Store,
    removals: BTreeSet<&'a str>,
    own_dirs: &'a BTreeSet<String>,
    dirs: HashMap<String, SeenDir>,
    way: Way,
}

#[derive(Clone, Copy)]
struct SeenDir {
    /// `None` if it has to be made.
    stat: Option<Stat>,
    /// The group that a set-gid directory hands down, through directories still to be made.
    group: Option<u32>,
}

impl<'a> Look<'a> {
    fn new(
        store: &'a Store,
        removals: &'a [ManifestPath],
        own_dirs: &'a BTreeSet<String>,
    ) -> Result<Self, StoreError> {
        let stat = store.stat("")?;
        let base = SeenDir {
            stat,
            group: stat.and_then(handed_down),
        };
        Ok(Self {
            store,
            removals: removals.iter().map(ManifestPath::as_str).collect(),
            own_dirs,
            dirs: HashMap::from([(String::new(), base)]),
            way: Way::default(),
        })
    }

    fn target(&mut self, path: &ManifestPath, write: bool) -> Result<Option<Stat>, PrepareError> {
        let parent = self.parent(path)?;
        let mount_point = || {
            PrepareError::Refused(Refusal::MountPoint {
                path: path.as_str().to_owned(),
            })
        };
        if self.store.mounts().is_mount_point(path) {
            return Err(mount_point());
        }
        let Some(parent) = parent.stat else {
            return Ok(None);
        };
        let Some(stat) = self.store.stat(path.as_str())? else {
            return Ok(None);
        };
        let other_mount = matches!((stat.mount_id, parent.mount_id), (Some(a), Some(b)) if a != b);
        if other_mount {
            return Err(mount_point());
        }
        if stat.kind == FileKind::File {
            return Ok(Some(stat));
        }
        if write && stat.kind == FileKind::Dir && self.own_dirs.contains(path.as_str()) {
            let (store, dir) = (self.store, path.as_str());
            let passed = way::through(store, dir, &self.removals, self.own_dirs, &mut self.way)?;
            match passed {
                Ok(()) => Ok(None),
                Err(Blocked(holds)) => Err(PrepareError::Refused(Refusal::DirectoryInUse {
                    path: path.as_str().to_owned(),
                    holds,
                })),
            }
        } else {
            Err(PrepareError::Refused(Refusal::NotAFile {
                path: path.as_str().to_owned(),
                kind: stat.kind,
            }))
        }
    }

    /// Walks down to the path's directory, so that the first component that is no
    /// directory is the one named.
    fn parent(&mut self, path: &ManifestPath) -> Result<SeenDir, PrepareError> {
        if let Some(seen) = self.dirs.get(path.parent()) {
            return Ok(*seen);
        }
        let mut above = self.dirs.get("").copied().unwrap_or(SeenDir {
            stat: None,
            group: None,
        });
        let mut down: Vec<&str> = path.ancestors().collect();
        down.reverse();
        for dir in down {
            if let Some(seen) = self.dirs.get(dir) {
                above = *seen;
                continue;
            }
            let mut stat = match above.stat {
                Some(_) => self.store.stat(dir)?,
                None => None,
            };
            let is_file = stat.is_some_and(|stat| stat.kind == FileKind::File);
            if let Some(file) = self.removals.get(dir).filter(|_| is_file) {
                if let Ok(file) = ManifestPath::parse(*file) {
                    self.way.files.insert(file);
                    stat = None;
                }
            }
            if let Some(stat) = stat.filter(|stat| stat.kind != FileKind::Dir) {
                return Err(PrepareError::Refused(Refusal::NotADirectory {
                    path: path.as_str().to_owned(),
                    dir: dir.to_owned(),
                    kind: stat.kind,
                }));
            }
            above = SeenDir {
                stat,
                group: stat.map_or(above.group, handed_down),
            };
            self.dirs.insert(dir.to_owned(), above);
        }
        Ok(above)
    }

    fn group_for(&self, dir: &str) -> Option<u32> {
        self.dirs.get(dir).and_then(|seen| seen.group)
    }
}

fn handed_down(dir: Stat) -> Option<u32> {
    (dir.mode & SET_GID != 0).then_some(dir.gid)
}

fn carry_over(
    store: &Store,
    file: &StagedFile,
    replaced: Option<&Stat>,
    inherited: Option<u32>,
) -> Result<(), StoreError> {
    let Some(now) = store.stat(&file.staged)? else {
        return Err(StoreError::StagedLost {
            paths: vec![file.path.as_str().to_owned()],
        });
    };
    let (mode, uid, gid) = match replaced {
        Some(old) => (old.mode & 0o777, old.uid, old.gid),
        None => (file.mode & 0o777, now.uid, inherited.unwrap_or(now.gid)),
    };
    let attrs = Attrs {
        mode: (mode != now.mode & 0o777).then_some(mode),
        uid: (uid != now.uid).then_some(uid),
        gid: (gid != now.gid).then_some(gid),
        sync: store.durability().syncs(),
    };
    if attrs.mode.is_none() && attrs.uid.is_none() && attrs.gid.is_none() {
        return Ok(());
    }
    set_attrs_as_allowed(store, &file.staged, attrs)
}

/// Everything that [`install`] will do, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// What is in the way.
    #[serde(default, skip_serializing_if = "Way::is_clear")]
    pub way: Way,
    /// Directories to make, parents first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dirs: Vec<String>,
    /// Files to rename, by path, the configuration last.
    pub files: Vec<IntentFile>,
    /// Files to remove, after the renames.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removals: Vec<ManifestPath>,
}

/// One rename of an [`Intent`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentFile {
    /// The target.
    pub path: ManifestPath,
    /// The staged file, relative to the base.
    pub staged: String,
    /// SHA-256 of its bytes.
    pub sha256: Digest,
}

impl Intent {
    /// The files that it puts in place.
    pub fn targets(&self) -> impl Iterator<Item = &ManifestPath> {
        self.files.iter().map(|file| &file.path)
    }

    /// The intent that moves `writes` and removes `removals`; `config` is the
    /// configuration's path.
    #[must_use]
    pub fn new(
        writes: &[StagedFile],
        removals: &[ManifestPath],
        prepared: &Prepared,
        config: &str,
    ) -> Self {
        let mut files: Vec<IntentFile> = writes
            .iter()
            .map(|file| IntentFile {
                path: file.path.clone(),
                staged: file.staged.clone(),
                sha256: Digest::Sha256(file.hash.sha256),
            })
            .collect();
        files.sort_by(|a, b| {
            let key = |file: &IntentFile| file.path.as_str() == config;
            (key(a), &a.path).cmp(&(key(b), &b.path))
        });
        let in_way = &prepared.way.files;
        let rest = removals.iter().filter(|path| !in_way.contains(*path));
        let mut removals: Vec<ManifestPath> = rest.cloned().collect();
        removals.sort();
        Self {
            way: prepared.way.clone(),
            dirs: prepared.missing_dirs.clone(),
            files,
            removals,
        }
    }

    /// Every staged file that the intent names, for the sweep.
    pub fn staged(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.staged.as_str())
    }

    fn touched(&self) -> BTreeSet<&str> {
        let files = self.files.iter().map(|file| file.path.parent());
        let removals = self.removals.iter().map(ManifestPath::parent);
        let dirs = self.dirs.iter().chain(&self.way.dirs);
        let dirs = dirs.map(|dir| split(dir).0);
        let way = self.way.files.iter().map(ManifestPath::parent);
        files.chain(removals).chain(dirs).chain(way).collect()
    }
}

/// Carries an intent out for the first time.
///
/// # Errors
/// The disk's, at the first. The tree is then partly new: the caller restores the
/// journal, or replays later.
pub fn install(store: &Store, intent: &Intent) -> Result<(), StoreError> {
    intent.way.make(store)?;
    make_dirs(store, &intent.dirs)?;
    for file in &intent.files {
        move_file(store, &file.staged, file.path.as_str())?;
    }
    remove(store, &intent.removals)?;
    store.sync_dirs(intent.touched())
}

/// Finishes an intent that was persisted and perhaps begun. Can be cut and run again.
///
/// # Errors
/// [`StoreError::StagedLost`] before anything was touched, if for some file neither
/// the staged name nor the target holds the right bytes. Otherwise the disk's.
pub fn replay(store: &Store, intent: &Intent) -> Result<(), StoreError> {
    let mut waiting = Vec::new();
    let mut lost = Vec::new();
    for file in &intent.files {
        let holds = |path: &str| -> Result<bool, StoreError> {
            let hash = hash_file(store.fs().as_ref(), path)?;
            Ok(hash.is_some_and(|hash| hash.matches(&file.sha256)))
        };
        if let Some(stat) = store
            .stat(&file.staged)?
            .filter(|s| s.kind == FileKind::File)
        {
            if holds(&file.staged)? {
                waiting.push((file, stat));
                continue;
            }
        }
        if !holds(file.path.as_str())? {
            lost.push(file.path.as_str().to_owned());
        }
    }
    if !lost.is_empty() {
        lost.sort();
        return Err(StoreError::StagedLost { paths: lost });
    }
    intent.way.make(store)?;
    make_dirs(store, &intent.dirs)?;
    for (file, stat) in waiting {
        move_file_again(store, &file.staged, &stat, file.path.as_str())?;
    }
    // A directory at such a name is there because a restore whose note was lost had begun to
    // put back what it held; what the fold then shows is for the caller to judge.
    for path in &intent.removals {
        store.unlink_unless_dir(path.as_str())?;
    }
    store.sync_dirs(intent.touched())
}

/// Removes files; one that is gone is done.
///
/// # Errors
/// The disk's, at the first.
pub fn remove(store: &Store, paths: &[ManifestPath]) -> Result<(), StoreError> {
    for path in paths {
        store.unlink_if_there(path.as_str())?;
    }
    Ok(())
}

/// Removes those of the agent's own directories that are empty, deepest first, and
/// returns the ones that are gone. A directory that is not empty or is a mount point stays.
///
/// # Errors
/// The disk's, at the first.
pub fn prune<'a>(
    store: &Store,
    own_dirs: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<String>, StoreError> {
    let mut dirs: Vec<&str> = own_dirs.into_iter().collect();
    dirs.sort_by_key(|dir| std::cmp::Reverse(dir.matches('/').count()));
    let mut gone = Vec::new();
    let mut touched = BTreeSet::new();
    for dir in dirs {
        match store.fs().rmdir(dir) {
            Ok(()) => {
                touched.insert(split(dir).0);
                gone.push(dir.to_owned());
            }
            Err(error) if is_absent(&error) => gone.push(dir.to_owned()),
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOTEMPTY | libc::EEXIST | libc::EBUSY)
                ) => {}
            Err(error) => return Err(StoreError::io(Op::Rmdir, dir, error)),
        }
    }
    store.sync_dirs(touched)?;
    gone.sort();
    Ok(gone)
}

/// The directories above `paths` that do not exist once `way` is made, parents first.
///
/// # Errors
/// The disk's.
pub fn missing_dirs<'a>(
    store: &Store,
    paths: impl IntoIterator<Item = &'a ManifestPath>,
    way: &Way,
) -> Result<Vec<String>, StoreError> {
    let mut seen = BTreeSet::new();
    let mut missing = BTreeSet::new();
    for path in paths {
        let in_way = path.ancestors().find(|dir| way.files.contains(*dir));
        for dir in path.ancestors() {
            if !seen.insert(dir) {
                break;
            }
            // Below what is still a file there is nothing to look at.
            let below_file = in_way.is_some_and(|file| dir.len() >= file.len());
            if !below_file && store.stat(dir)?.is_some() {
                break;
            }
            missing.insert(dir.to_owned());
        }
    }
    // A directory sorts before what lies in it.
    Ok(missing.into_iter().collect())
}

pub(super) fn make_dirs(store: &Store, dirs: &[String]) -> Result<(), StoreError> {
    for dir in dirs {
        store.mkdir_if_missing(dir, DIR_MODE)?;
    }
    Ok(())
}
