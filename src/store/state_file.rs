//! The caller's state: one JSON object, written whole and never in place; beside it a
//! small phase file for the steps in between.
//!
//! A file that does not parse, or whose `format` this version does not know, is moved
//! aside, never deleted and never overwritten, and the caller starts without it; a
//! file that cannot be *read* is an error instead, because starting without a state
//! that is there would forget a baseline.
//!
//! The phase file costs one small write, whatever the number of files, and is
//! not synced: after a power loss an *older* phase of the same transaction, or none,
//! may be found. What must not be lost in that way is written with
//! [`StateFile::save_phase_synced`] or with the state.

use std::io::{self, Read as _, Write as _};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::context::Store;
use super::error::{Op, StoreError};
use super::fs::{FileKind, split};

/// The largest state that is read: the journal and intent of 4096 paths take about 4 MiB.
pub const MAX_STATE_BYTES: u64 = 64 * 1024 * 1024;

/// The largest phase file that is read: a thousand deferred deletes with the longest names
/// take two thirds of it.
const MAX_PHASE_BYTES: u64 = 1024 * 1024;

/// Mode of the agent's own files.
const FILE_MODE: u32 = 0o600;

/// A state that can be kept in a [`StateFile`].
pub trait Stored: Serialize + DeserializeOwned {
    /// The value of the field `format`, which the JSON object must have at its top.
    const FORMAT: u32;

    /// The number of the transaction that the state is of. A phase file of another
    /// transaction is ignored, so it must rise with every one.
    fn txn(&self) -> u64;
}

/// What a start found.
#[derive(Debug, PartialEq, Eq)]
pub enum Loaded<T, P> {
    /// No state: a new base directory.
    Absent,
    /// A state, and the phase noted since for the same transaction.
    Found(T, Option<P>),
    /// A state that this version cannot use. The agent starts without one.
    Unusable {
        /// Why, for the log.
        reason: String,
        /// Where the file is now, relative to the base.
        moved_to: String,
    },
}

/// The state file and its phase file.
#[derive(Debug, Clone)]
pub struct StateFile {
    store: Store,
    path: String,
}

#[derive(Deserialize)]
struct Head {
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct PhaseRecord<P> {
    txn: u64,
    phase: P,
}

impl StateFile {
    /// A state file at `path`, relative to the base, in a directory that exists.
    pub fn new(store: &Store, path: impl Into<String>) -> Self {
        Self {
            store: store.clone(),
            path: path.into(),
        }
    }

    /// The names that the state occupies beside its own: phase, temporaries, the one moved aside.
    #[must_use]
    pub fn companions(&self) -> [String; 4] {
        [
            self.phase_path(),
            temporary(&self.path),
            temporary(&self.phase_path()),
            format!("{}.bad", self.path),
        ]
    }

    /// Removes what a write that was cut has left, and, where there is no state, the phase
    /// of one that is gone: its transaction's number may come again.
    pub fn tidy(&self, has_state: bool) {
        let phase = self.phase_path();
        remove_quietly(&self.store, &temporary(&self.path));
        remove_quietly(&self.store, &temporary(&phase));
        if !has_state {
            remove_quietly(&self.store, &phase);
        }
    }

    /// Reads the state. What stands there and is no state, a directory or a FIFO
    /// included, is moved aside.
    ///
    /// # Errors
    /// It is there and cannot be read, or cannot be moved aside.
    pub fn load<T: Stored, P: DeserializeOwned>(&self) -> Result<Loaded<T, P>, StoreError> {
        match self.store.stat(&self.path)? {
            Some(stat) if stat.kind != FileKind::File => {
                return self.set_aside(format!("it is {}", stat.kind));
            }
            Some(_) | None => {}
        }
        let bytes = match read_bounded(&self.store, &self.path, MAX_STATE_BYTES) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Loaded::Absent),
            Err(StoreError::TooLarge { limit, .. }) => {
                return self.set_aside(format!("it is larger than {limit} bytes"));
            }
            Err(error) => return Err(error),
        };
        match parse::<T>(&bytes) {
            Ok(state) => {
                let phase = self.load_phase(state.txn())?;
                Ok(Loaded::Found(state, phase))
            }
            Err(reason) => self.set_aside(reason),
        }
    }

    /// Writes the whole state: a temporary, synced with full durability, renamed.
    ///
    /// # Errors
    /// The disk's; the old state is then still there, or, if the last sync failed, perhaps the new one.
    pub fn save<T: Stored>(&self, state: &T) -> Result<(), StoreError> {
        let bytes = encode(&self.path, state)?;
        replace_file(
            &self.store,
            &self.path,
            &bytes,
            self.store.durability().syncs(),
        )
    }

    /// Notes a phase of transaction `txn` without any sync.
    ///
    /// # Errors
    /// The disk's; the phase noted before is then still there.
    pub fn save_phase<P: Serialize>(&self, txn: u64, phase: &P) -> Result<(), StoreError> {
        self.write_phase(txn, phase, false)
    }

    /// Notes a phase that a power loss must not take back, with full durability.
    ///
    /// # Errors
    /// The disk's.
    pub fn save_phase_synced<P: Serialize>(&self, txn: u64, phase: &P) -> Result<(), StoreError> {
        self.write_phase(txn, phase, self.store.durability().syncs())
    }

    fn write_phase<P: Serialize>(&self, txn: u64, phase: &P, sync: bool) -> Result<(), StoreError> {
        let path = self.phase_path();
        let bytes = encode(&path, &PhaseRecord { txn, phase })?;
        replace_file(&self.store, &path, &bytes, sync)
    }

    /// Only a whole record of this very transaction counts; a torn one is one that was
    /// never noted.
    fn load_phase<P: DeserializeOwned>(&self, txn: u64) -> Result<Option<P>, StoreError> {
        let path = self.phase_path();
        let bytes = match read_bounded(&self.store, &path, MAX_PHASE_BYTES) {
            Ok(Some(bytes)) => bytes,
            Ok(None) | Err(StoreError::TooLarge { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        match serde_json::from_slice::<PhaseRecord<P>>(&bytes) {
            Ok(record) if record.txn == txn => Ok(Some(record.phase)),
            Ok(_) => Ok(None),
            Err(error) => {
                log::info!(path, error:%; "a torn phase file is ignored");
                Ok(None)
            }
        }
    }

    fn phase_path(&self) -> String {
        format!("{}.phase", self.path)
    }

    fn set_aside<T, P>(&self, reason: String) -> Result<Loaded<T, P>, StoreError> {
        let moved_to = format!("{}.bad", self.path);
        self.store
            .fs()
            .rename(&self.path, &moved_to)
            .map_err(|e| StoreError::io(Op::Rename, &moved_to, e))?;
        self.store.sync_dirs([split(&self.path).0])?;
        Ok(Loaded::Unusable { reason, moved_to })
    }
}

fn parse<T: Stored>(bytes: &[u8]) -> Result<T, String> {
    let head: Head =
        serde_json::from_slice(bytes).map_err(|e| format!("it does not parse: {e}"))?;
    if head.format != T::FORMAT {
        return Err(format!(
            "its format is {} and this version knows {}",
            head.format,
            T::FORMAT
        ));
    }
    serde_json::from_slice(bytes).map_err(|e| format!("it does not parse: {e}"))
}

fn encode<T: Serialize>(path: &str, value: &T) -> Result<Vec<u8>, StoreError> {
    let invalid = |e| StoreError::io(Op::Write, path, io::Error::other(e));
    let mut bytes = serde_json::to_vec(value).map_err(invalid)?;
    bytes.push(b'\n');
    Ok(bytes)
}

pub(super) fn temporary(path: &str) -> String {
    format!("{path}.tmp")
}

/// Reads a regular file of at most `limit` bytes; `None` if there is no such name.
pub(super) fn read_bounded(
    store: &Store,
    path: &str,
    limit: u64,
) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(stat) = store.stat(path)? else {
        return Ok(None);
    };
    if stat.kind != FileKind::File {
        let what = io::Error::other(format!("it is {}", stat.kind));
        return Err(StoreError::io(Op::Read, path, what));
    }
    let mut bytes = Vec::new();
    store
        .open(path)?
        .take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| StoreError::io(Op::Read, path, e))?;
    if bytes.len() as u64 > limit {
        return Err(StoreError::TooLarge {
            path: path.to_owned(),
            limit,
        });
    }
    Ok(Some(bytes))
}

/// Replaces a file of the agent's own by a temporary beside it, which is removed if
/// anything fails.
pub(super) fn replace_file(
    store: &Store,
    path: &str,
    bytes: &[u8],
    sync: bool,
) -> Result<(), StoreError> {
    let temporary = temporary(path);
    let done = write_file(store, &temporary, bytes, sync).and_then(|()| {
        store
            .fs()
            .rename(&temporary, path)
            .map_err(|e| StoreError::io(Op::Rename, path, e))
    });
    if done.is_err() {
        let _ = store.fs().unlink(&temporary);
        return done;
    }
    if sync {
        store.sync_dirs([split(path).0])?;
    }
    Ok(())
}

/// Removes a file of the agent's own that is of no use; one that stays does no harm.
pub(super) fn remove_quietly(store: &Store, path: &str) {
    if let Err(error) = store.unlink_if_there(path) {
        log::warn!(path, error:%; "a left-over cannot be removed");
    }
}

fn write_file(store: &Store, path: &str, bytes: &[u8], sync: bool) -> Result<(), StoreError> {
    let mut file = match store.create(path, FILE_MODE) {
        Err(error) if error.errno() == Some(libc::EEXIST) => {
            store.unlink_if_there(path)?;
            store.create(path, FILE_MODE)?
        }
        done => done?,
    };
    file.write_all(bytes)
        .map_err(|e| StoreError::io(Op::Write, path, e))?;
    if sync {
        file.sync().map_err(|e| StoreError::io(Op::Sync, path, e))?;
    }
    Ok(())
}
