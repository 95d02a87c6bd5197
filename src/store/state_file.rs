//! The caller's state: one JSON object, written whole and never in place; beside it the
//! phases noted since.
//!
//! A file that does not parse, or whose `format` this version does not know, is moved
//! aside, never deleted and never overwritten, and the caller starts without it; a
//! file that cannot be *read* is an error instead, because starting without a state
//! that is there would forget a baseline.
//!
//! The phase file is not synced: what must survive a power loss
//! is written with the state.

use std::io::{self, Read as _, Write as _};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::context::Store;
use super::error::{Op, StoreError};
use super::fs::{FileKind, FileOut, split};
use super::phase_file::PhaseFile;

/// The largest state that is read: the journal and intent of 4096 paths take about 4 MiB.
pub const MAX_STATE_BYTES: u64 = 64 * 1024 * 1024;

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
#[derive(Debug)]
pub struct StateFile {
    store: Store,
    path: String,
    phases: PhaseFile,
}

#[derive(Deserialize)]
struct Head {
    format: u32,
}

impl StateFile {
    /// A state file at `path`, relative to the base, in a directory that exists.
    pub fn new(store: &Store, path: impl Into<String>) -> Self {
        let path = path.into();
        Self {
            store: store.clone(),
            phases: PhaseFile::new(store, format!("{path}.phase")),
            path,
        }
    }

    /// The names that the state occupies beside its own: phase, temporaries, the one moved aside.
    #[must_use]
    pub fn companions(&self) -> [String; 4] {
        [
            self.phases.path().to_owned(),
            temporary(&self.path),
            temporary(self.phases.path()),
            format!("{}.bad", self.path),
        ]
    }

    /// Removes what a write that was cut has left, and, where there is no state, the phase
    /// of one that is gone: its transaction's number may come again.
    pub fn tidy(&self, has_state: bool) {
        let phase = self.phases.path();
        remove_quietly(&self.store, &temporary(&self.path));
        remove_quietly(&self.store, &temporary(phase));
        if !has_state {
            remove_quietly(&self.store, phase);
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
                return self.unusable(format!("it is {}", stat.kind));
            }
            Some(_) | None => {}
        }
        let bytes = match read_bounded(&self.store, &self.path, MAX_STATE_BYTES) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Loaded::Absent),
            Err(StoreError::TooLarge { limit, .. }) => {
                return self.unusable(format!("it is larger than {limit} bytes"));
            }
            Err(error) => return Err(error),
        };
        match parse::<T>(&bytes) {
            Ok(state) => {
                let phase = self.phases.last_of(state.txn())?;
                Ok(Loaded::Found(state, phase))
            }
            Err(reason) => self.unusable(reason),
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
        self.phases.note(txn, phase)
    }

    /// Moves the state aside; where it is now.
    ///
    /// # Errors
    /// The disk's; it is then where it was.
    pub fn set_aside(&self) -> Result<String, StoreError> {
        let moved_to = format!("{}.bad", self.path);
        self.store
            .fs()
            .rename(&self.path, &moved_to)
            .map_err(|e| StoreError::io(Op::Rename, &moved_to, e))?;
        self.store.sync_dirs([split(&self.path).0])?;
        Ok(moved_to)
    }

    fn unusable<T, P>(&self, reason: String) -> Result<Loaded<T, P>, StoreError> {
        let moved_to = self.set_aside()?;
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

pub(super) fn encode<T: Serialize>(path: &str, value: &T) -> Result<Vec<u8>, StoreError> {
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
    replace_and_keep(store, path, bytes, sync).map(drop)
}

/// The same; what is written to the result afterwards is appended.
pub(super) fn replace_and_keep(
    store: &Store,
    path: &str,
    bytes: &[u8],
    sync: bool,
) -> Result<Box<dyn FileOut>, StoreError> {
    let temporary = temporary(path);
    let done = write_file(store, &temporary, bytes, sync).and_then(|file| {
        store
            .fs()
            .rename(&temporary, path)
            .map_err(|e| StoreError::io(Op::Rename, path, e))?;
        Ok(file)
    });
    if done.is_err() {
        let _ = store.fs().unlink(&temporary);
        return done;
    }
    if sync {
        store.sync_dirs([split(path).0])?;
    }
    done
}

/// Removes a file of the agent's own that is of no use; one that stays does no harm.
pub(super) fn remove_quietly(store: &Store, path: &str) {
    if let Err(error) = store.unlink_if_there(path) {
        log::warn!(path, error:%; "a left-over cannot be removed");
    }
}

fn write_file(
    store: &Store,
    path: &str,
    bytes: &[u8],
    sync: bool,
) -> Result<Box<dyn FileOut>, StoreError> {
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
    Ok(file)
}
