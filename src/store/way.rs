//! Making way where a name changes between file and directory.
//!
//! A rename replaces a file by a file and nothing else. Where a set has a file under the
//! name of a directory that an earlier set filled, or files below what was a file, the
//! old ones go first: these few names are missing for a moment, which no order of system
//! calls can avoid. Only what the agent itself put there goes; a directory that somebody
//! else made, or put something into, is refused before anything is touched.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::wire::path::ManifestPath;

use super::context::{Store, is_absent};
use super::error::{Op, StoreError};
use super::fs::{FileKind, join};
use super::journal::Journal;

/// What goes before the first rename.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// Files.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub files: BTreeSet<ManifestPath>,
    /// Directories that are empty then, what lies in them first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dirs: Vec<String>,
}

impl Way {
    /// Whether nothing is in the way.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.files.is_empty() && self.dirs.is_empty()
    }

    /// Removes it. Can be cut and run again, also when what needed the way is in place.
    pub(super) fn make(&self, store: &Store) -> Result<(), StoreError> {
        for path in &self.files {
            // A directory there is what the file made way for.
            store.unlink_unless_dir(path.as_str())?;
        }
        self.dirs.iter().try_for_each(|dir| remove_dir(store, dir))
    }
}

/// What stands in a directory and must stay.
pub(super) struct Blocked(pub(super) String);

/// Adds to `way` that the directory `dir` goes. It must hold nothing but files of
/// `removals` and directories of `own_dirs`.
pub(super) fn through(
    store: &Store,
    dir: &str,
    removals: &BTreeSet<&str>,
    own_dirs: &BTreeSet<String>,
    way: &mut Way,
) -> Result<Result<(), Blocked>, StoreError> {
    let entries = store
        .fs()
        .list(dir)
        .map_err(|error| StoreError::io(Op::List, dir, error))?;
    for entry in entries {
        let path = join(dir, &entry.name);
        match entry.kind {
            FileKind::File if removals.contains(path.as_str()) => {
                if let Ok(path) = ManifestPath::parse(path.as_str()) {
                    way.files.insert(path);
                }
            }
            // No deeper than manifest paths are, because the agent made it for one.
            FileKind::Dir if own_dirs.contains(&path) => {
                if let Err(blocked) = through(store, &path, removals, own_dirs, way)? {
                    return Ok(Err(blocked));
                }
            }
            FileKind::File
            | FileKind::Dir
            | FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::Other => return Ok(Err(Blocked(path))),
        }
    }
    way.dirs.push(dir.to_owned());
    Ok(Ok(()))
}

/// What a restore of the journal has to remove first: files that it will remove anyway
/// and that stand where a directory was, or the other way round.
pub(super) fn back(store: &Store, journal: &Journal) -> Result<Way, StoreError> {
    let mut way = Way::default();
    let mut dirs = BTreeSet::new();
    for (path, entry) in &journal.entries {
        if entry.backup().is_some() {
            continue;
        }
        let below = path.ancestors().find(|dir| {
            let entry = journal.entries.get(*dir);
            entry.is_some_and(|entry| entry.backup().is_some())
        });
        if let Some(was_file) = below {
            // What is a file again already has nothing below it.
            if store
                .stat(was_file)?
                .is_some_and(|stat| stat.kind == FileKind::Dir)
            {
                way.files.insert(path.clone());
                let inside = path
                    .ancestors()
                    .take_while(|dir| dir.len() >= was_file.len());
                dirs.extend(inside.map(str::to_owned));
            }
        }
        if journal.has_backup_below(path.as_str()) {
            way.files.insert(path.clone());
        }
    }
    way.dirs = dirs.into_iter().rev().collect();
    Ok(way)
}

/// A file there is what the directory made way for.
fn remove_dir(store: &Store, dir: &str) -> Result<(), StoreError> {
    match store.fs().rmdir(dir) {
        Ok(()) => Ok(()),
        Err(error) if is_absent(&error) => Ok(()),
        Err(error) => Err(StoreError::io(Op::Rmdir, dir, error)),
    }
}
