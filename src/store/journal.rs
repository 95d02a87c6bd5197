//! The journal of the last known good file set: per path that changed since, how to
//! get its old version back.
//!
//! The first entry of a path wins: however often a path changes, its entry tells how
//! it looked when the set was last known good. Nothing is copied for that: the old
//! inode gets a second name in its mount's backup directory before the rename that
//! would drop it. Work is split so that the caller can persist in between:
//! [`plan_entries`] is pure, [`back_up`] makes the links and can be cut and rerun
//! anywhere, [`crate::store::restore`] puts everything back, and [`clear`] deletes
//! backups once the caller has saved a state that no longer names them.
//!
//! The journal refuses to know when a set is good, and never deletes what a saved
//! state may still name.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::wire::digest::{ContentHash, Digest, DigestKind};
use crate::wire::path::ManifestPath;

use super::context::Store;
use super::error::StoreError;
use super::fs::{join, split};
use super::mounts::{Mounts, lkg_dir};
use super::transfer::{double, move_file};

/// Every path that changed since the last known good set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// By path; a path that is not here is as it was.
    pub entries: BTreeMap<ManifestPath, Entry>,
}

/// How one path looked when the set was last known good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What became of it first, and where its old version is.
    #[serde(flatten)]
    pub kind: Kind,
    /// Whether the agent owned it then, and which digest it was spoken of with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was_owned: Option<DigestKind>,
    /// The old version's bytes, if they had been hashed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<KnownHash>,
}

/// What the first change did. A backup is a path relative to the base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Kind {
    /// The file was replaced.
    Modified {
        /// The old version.
        backup: String,
    },
    /// There was no file: a tombstone, restored by removing what is there.
    Created,
    /// The file was removed.
    Deleted {
        /// The old version.
        backup: String,
    },
}

impl Entry {
    /// The old version's path, relative to the base, if there was one.
    #[must_use]
    pub fn backup(&self) -> Option<&str> {
        match &self.kind {
            Kind::Modified { backup } | Kind::Deleted { backup } => Some(backup),
            Kind::Created => None,
        }
    }
}

/// A [`ContentHash`] as the state file spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownHash {
    /// Always SHA-256.
    sha256: Digest,
    /// Always XXH64.
    xxh64: Digest,
    /// Bytes.
    size: u64,
}

impl From<ContentHash> for KnownHash {
    fn from(hash: ContentHash) -> Self {
        Self {
            sha256: Digest::Sha256(hash.sha256),
            xxh64: Digest::Xxh64(hash.xxh64),
            size: hash.size,
        }
    }
}

impl KnownHash {
    /// The hash in working form. `None` if a hand-edited state swapped the digests.
    #[must_use]
    pub fn content(&self) -> Option<ContentHash> {
        match (self.sha256, self.xxh64) {
            (Digest::Sha256(sha256), Digest::Xxh64(xxh64)) => Some(ContentHash {
                sha256,
                xxh64,
                size: self.size,
            }),
            (Digest::Sha256(_), Digest::Sha256(_)) | (Digest::Xxh64(_), _) => None,
        }
    }

    /// Whether `hash` is of the same bytes.
    #[must_use]
    pub fn is(&self, hash: &ContentHash) -> bool {
        self.sha256 == Digest::Sha256(hash.sha256)
    }
}

/// One path that an apply is about to change. A path that becomes owned without being
/// written is a change too: without an entry a restore could not give it up again.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The path.
    pub path: &'a ManifestPath,
    /// Whether a file is there now.
    pub exists: bool,
    /// Whether it is to be removed rather than written.
    pub removal: bool,
    /// Whether the agent owns it now, and which digest it is spoken of with.
    pub was_owned: Option<DigestKind>,
    /// Its bytes now, if known.
    pub hash: Option<ContentHash>,
}

/// The entries that `changes` add to `journal`; paths that have one are skipped, and so
/// is the removal of a file that is not there. `next_backup` counts backup names and must
/// never run backwards, over restarts too: a backup's name is never used twice.
pub fn plan_entries<'a>(
    journal: &Journal,
    changes: impl IntoIterator<Item = Change<'a>>,
    mounts: &Mounts,
    next_backup: &mut u64,
) -> BTreeMap<ManifestPath, Entry> {
    let mut planned = BTreeMap::new();
    for change in changes {
        if journal.entries.contains_key(change.path) || planned.contains_key(change.path) {
            continue;
        }
        let kind = match (change.exists, change.removal) {
            (false, true) => continue,
            (false, false) => Kind::Created,
            (true, removal) => {
                let backup = join(
                    &lkg_dir(mounts.mount_of(change.path)),
                    &next_backup.to_string(),
                );
                *next_backup = next_backup.wrapping_add(1);
                if removal {
                    Kind::Deleted { backup }
                } else {
                    Kind::Modified { backup }
                }
            }
        };
        let entry = Entry {
            kind,
            was_owned: change.was_owned,
            hash: change
                .exists
                .then_some(change.hash)
                .flatten()
                .map(Into::into),
        };
        planned.insert(change.path.clone(), entry);
    }
    planned
}

/// Takes the backups that `entries` name. The targets must be as they were when the
/// entries were planned; once this returns the backups survive what the durability asks for.
/// It can be cut anywhere and run again with the same entries.
///
/// # Errors
/// The disk's. Backups taken so far stay; the caller drops the entries and either
/// removes them ([`clear`]) or leaves them to the sweep.
pub fn back_up(store: &Store, entries: &BTreeMap<ManifestPath, Entry>) -> Result<(), StoreError> {
    let mut dirs = BTreeSet::new();
    for (path, entry) in entries {
        let Some(backup) = entry.backup() else {
            continue;
        };
        let (dir, _) = split(backup);
        if dirs.insert(dir) {
            store.anchor(dir)?;
        }
        back_up_one(store, path.as_str(), backup)?;
        if entry.was_owned.is_none() {
            sync_foreign(store, backup)?;
        }
    }
    store.sync_dirs(dirs)
}

fn back_up_one(store: &Store, path: &str, backup: &str) -> Result<(), StoreError> {
    match double(store, path, backup) {
        Err(error) if error.errno() == Some(libc::EEXIST) => {}
        done => return done,
    }
    // An earlier run got here, or an orphan has the name that the sweep could not
    // remove. Nothing has replaced the target yet, so the target is the truth.
    if let (Some(target), Some(there)) = (store.stat(path)?, store.stat(backup)?) {
        if target.same_inode(&there) {
            return Ok(());
        }
    }
    let fresh = format!("{backup}.new");
    store.unlink_if_there(&fresh)?;
    double(store, path, &fresh)?;
    move_file(store, &fresh, backup)
}

/// Bytes that the agent did not write were perhaps never synced by whoever did.
fn sync_foreign(store: &Store, backup: &str) -> Result<(), StoreError> {
    match store.sync_file(backup) {
        Err(error) if matches!(error.errno(), Some(libc::EACCES | libc::EPERM)) => Ok(()),
        done => done,
    }
}

impl Journal {
    /// Adds planned entries; a path that has one keeps it.
    pub fn add(&mut self, planned: BTreeMap<ManifestPath, Entry>) {
        for (path, entry) in planned {
            self.entries.entry(path).or_insert(entry);
        }
    }

    /// Whether a restore brings back a file below `dir`.
    #[must_use]
    pub fn has_backup_below(&self, dir: &str) -> bool {
        let inside = format!("{dir}/");
        let from = (
            std::ops::Bound::Included(inside.as_str()),
            std::ops::Bound::Unbounded,
        );
        self.entries
            .range::<str, _>(from)
            .take_while(|(path, _): &(&ManifestPath, _)| path.as_str().starts_with(&inside))
            .any(|(_, entry)| entry.backup().is_some())
    }

    /// Every backup that the journal names, for the sweep.
    pub fn backups(&self) -> impl Iterator<Item = &str> {
        self.entries.values().filter_map(Entry::backup)
    }

    /// Turns the owned paths into those of the last known good set.
    pub fn restore_ownership(&self, owned: &mut BTreeMap<ManifestPath, DigestKind>) {
        for (path, entry) in &self.entries {
            match entry.was_owned {
                Some(kind) => {
                    owned.insert(path.clone(), kind);
                }
                None => {
                    owned.remove(path);
                }
            }
        }
    }
}

/// Deletes every backup of a journal that no saved state names any more. Every one is
/// tried; one that stays is an orphan and swept at the next start.
///
/// # Errors
/// The first that the disk reported.
pub fn clear(store: &Store, journal: &Journal) -> Result<(), StoreError> {
    let mut first = Ok(());
    for backup in journal.backups() {
        first = first.and(store.unlink_if_there(backup));
    }
    first
}
