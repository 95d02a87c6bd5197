//! Replacing the tree's files: rename, then remove, then sync.
//!
//! Every target has been looked at before ([`super::prepare`]). [`install`] is
//! the only place where targets change on the way forward; everything that it will do
//! is in an [`Intent`], which the caller persists first, so [`replay`] can finish it
//! after a crash at any call, or say that it cannot before it has touched anything.
//! The configuration is renamed after the files that it may name; removals come last,
//! but for what stands in the way ([`super::way`]).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::wire::digest::Digest;
use crate::wire::path::ManifestPath;

use super::context::{Store, is_absent};
use super::error::{Op, StoreError};
use super::fs::{FileKind, split};
use super::prepare::Prepared;
use super::stage::StagedFile;
use super::transfer::{move_file, move_file_again};
use super::tree::hash_file;
use super::way::Way;

/// Mode of directories that a manifest path needs: HAProxy's user must get through.
const DIR_MODE: u32 = 0o755;

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
