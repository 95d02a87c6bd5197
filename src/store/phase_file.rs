//! How far the transaction of the saved state has come: one line a step, appended.
//!
//! A note costs one small write, whatever the number of files. It is not synced: after a
//! power loss an *older* phase of the same transaction, or none, may be found. Nothing is
//! ever rewritten in place; the file is begun anew by a rename, in every life and when it
//! has grown, and a line that is cut is one that was never noted.

use std::fmt;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::context::Store;
use super::error::{Op, StoreError};
use super::fs::{FileKind, FileOut};
use super::state_file::{encode, read_bounded, replace_and_keep};

/// The longest file that is appended to; some fifty applies.
const MAX_APPENDED_BYTES: u64 = 16 * 1024;

/// The largest phase file that is read: a thousand deferred deletes with the longest names
/// take two thirds of it.
const MAX_PHASE_BYTES: u64 = 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct Line<P> {
    txn: u64,
    phase: P,
}

/// The file, and the end of it that this life writes to.
pub(super) struct PhaseFile {
    store: Store,
    path: String,
    end: Mutex<Option<End>>,
}

struct End {
    file: Box<dyn FileOut>,
    bytes: u64,
}

impl fmt::Debug for PhaseFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PhaseFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl PhaseFile {
    /// A file at `path`, relative to the base, in a directory that exists. Nothing is
    /// touched before the first note.
    pub(super) fn new(store: &Store, path: String) -> Self {
        Self {
            store: store.clone(),
            path,
            end: Mutex::default(),
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Appends a phase of transaction `txn`.
    ///
    /// # Errors
    /// The disk's; what was noted before is then still there. Behind a line that was cut
    /// nothing is appended: the next note begins the file anew.
    pub(super) fn note<P: Serialize>(&self, txn: u64, phase: &P) -> Result<(), StoreError> {
        let line = encode(&self.path, &Line { txn, phase })?;
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let next = match end.take() {
            Some(mut end) if end.bytes < MAX_APPENDED_BYTES => {
                end.file
                    .write_all(&line)
                    .map_err(|e| StoreError::io(Op::Write, &self.path, e))?;
                End {
                    bytes: end.bytes + line.len() as u64,
                    ..end
                }
            }
            Some(_) | None => End {
                file: replace_and_keep(&self.store, &self.path, &line, false)?,
                bytes: line.len() as u64,
            },
        };
        *end = Some(next);
        Ok(())
    }

    /// The last phase noted for this very transaction. What stands there and is no file has
    /// none.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub(super) fn last_of<P: DeserializeOwned>(&self, txn: u64) -> Result<Option<P>, StoreError> {
        match self.store.stat(&self.path)? {
            Some(stat) if stat.kind != FileKind::File => {
                log::error!(path = self.path, what:% = stat.kind; "the phase file is none; what it may have said is lost");
                return Ok(None);
            }
            Some(_) | None => {}
        }
        let bytes = match read_bounded(&self.store, &self.path, MAX_PHASE_BYTES) {
            Ok(Some(bytes)) => bytes,
            Ok(None) | Err(StoreError::TooLarge { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        for line in lines.rev().filter(|line| line.ends_with(b"\n")) {
            match serde_json::from_slice::<Line<P>>(line) {
                Ok(line) if line.txn == txn => return Ok(Some(line.phase)),
                Ok(_) => {}
                Err(error) => log::info!(path = self.path, error:%; "a torn phase is ignored"),
            }
        }
        Ok(None)
    }
}
