//! Putting the last known good set back.
//!
//! Every file of the journal is re-made from its backup under a name of ours and
//! renamed into place, so a target never vanishes and is never half written; the
//! configuration comes after the files it may name, and files that did not exist
//! then are removed last, or first where they stand in the way. What cannot be put back
//! keeps nothing else from going back: above all not the configuration. A backup stays
//! until the caller has saved its state, so this can be cut at any call, by a kill or a
//! power loss, and run again.
//!
//! Owner and mode come back with the inode (or with the copy, where links are
//! refused). The module refuses to judge content: whoever restored looks at the tree
//! afterwards.

use std::collections::BTreeSet;

use crate::wire::path::ManifestPath;

use super::context::Store;
use super::error::StoreError;
use super::install::{make_dirs, missing_dirs};
use super::journal::{Entry, Journal};
use super::transfer::{double, move_file};
use super::tree::hash_file;
use super::way::{self, Way};

/// What a restore did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// Paths that hold their old version again, or are gone again.
    pub paths: Vec<ManifestPath>,
    /// Directories that had to be made anew because the set's last file had left them:
    /// the agent's own, from now on.
    pub dirs_made: Vec<String>,
}

/// Puts every path of the journal back. `config` is the configuration's path.
///
/// # Errors
/// The disk's, the first one; run it again once the cause is gone. Files that did not
/// exist then are removed only when all others are back.
/// [`StoreError::BackupLost`] comes after everything else was put back.
pub fn restore(store: &Store, journal: &Journal, config: &str) -> Result<Restored, StoreError> {
    way::back(store, journal)?.make(store)?;
    let mut done = Restored {
        dirs_made: missing_dirs(
            store,
            journal
                .entries
                .iter()
                .filter(|(_, entry)| entry.backup().is_some())
                .map(|(path, _)| path),
            &Way::default(),
        )?,
        ..Restored::default()
    };
    make_dirs(store, &done.dirs_made)?;
    // Every directory above, not only those made now: an earlier run may have made one
    // and been cut before its name was synced.
    let mut touched = BTreeSet::from([""]);
    let mut lost = Vec::new();
    let mut failed = None;

    let config_last = |path: &ManifestPath| path.as_str() == config;
    let mut order: Vec<(&ManifestPath, &Entry)> = journal.entries.iter().collect();
    order.sort_by_key(|(path, entry)| (entry.backup().is_none(), config_last(path)));
    for (path, entry) in order {
        match entry.backup() {
            Some(backup) => match put_back(store, path.as_str(), backup, entry) {
                Ok(true) => {}
                Ok(false) => {
                    lost.push(path.as_str().to_owned());
                    continue;
                }
                Err(error) => {
                    failed.get_or_insert(error);
                    continue;
                }
            },
            None if failed.is_some() => break,
            None => store.unlink_unless_dir(path.as_str())?,
        }
        touched.extend(path.ancestors());
        done.paths.push(path.clone());
    }
    store.sync_dirs(touched)?;
    if let Some(error) = failed {
        return Err(error);
    }
    if lost.is_empty() {
        Ok(done)
    } else {
        lost.sort();
        Err(StoreError::BackupLost { paths: lost })
    }
}

/// False if neither the backup nor the target has the old bytes.
fn put_back(store: &Store, path: &str, backup: &str, entry: &Entry) -> Result<bool, StoreError> {
    let Some(old) = store.stat(backup)? else {
        return holds(store, path, entry);
    };
    if let Some(now) = store.stat(path)? {
        let same_attrs = (now.mode, now.uid, now.gid) == (old.mode, old.uid, old.gid);
        // A backup that is a copy never shares the target's inode; a target that cannot be
        // replaced may well be as it was.
        if now.same_inode(&old) || (same_attrs && holds(store, path, entry)?) {
            return Ok(true);
        }
    }
    let second = format!("{backup}.put");
    store.unlink_if_there(&second)?;
    double(store, backup, &second)?;
    move_file(store, &second, path)?;
    Ok(true)
}

fn holds(store: &Store, path: &str, entry: &Entry) -> Result<bool, StoreError> {
    let Some(known) = &entry.hash else {
        return Ok(false);
    };
    Ok(hash_file(store.fs().as_ref(), path)?.is_some_and(|now| known.is(&now)))
}
