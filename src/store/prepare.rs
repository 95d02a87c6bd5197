//! The look at every target before any of them changes.
//!
//! [`prepare`] touches no target and refuses by name what a rename could not replace
//! honestly: a mount point, a symbolic link, a socket, a directory that is not the agent's
//! to remove. Owner, group and mode are carried over to the staged files here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use crate::wire::path::ManifestPath;

use super::context::Store;
use super::error::StoreError;
use super::fs::{Attrs, FileKind, Stat};
use super::install::missing_dirs;
use super::stage::StagedFile;
use super::transfer::set_attrs_as_allowed;
use super::way::{self, Blocked, Way};

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
    /// before [`install`](super::install::install) makes them, so that they can be pruned one day.
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
