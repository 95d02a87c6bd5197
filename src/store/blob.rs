//! The opaque plan blob of the applied plan, kept for whoever asks the agent's state.
//!
//! The state names the blob's SHA-256; a file with other bytes is no blob. So a crash
//! between writing the one and the other costs the blob and never lies.

use crate::wire::digest::ContentHash;
use crate::wire::limits::MAX_PLAN_BLOB_BYTES;

use super::context::Store;
use super::error::{Op, StoreError};
use super::fs::split;
use super::stage::StagedBlob;
use super::state_file::{read_bounded, remove_quietly};

/// The blob's file.
#[derive(Debug, Clone)]
pub struct BlobFile {
    store: Store,
    path: String,
}

impl BlobFile {
    /// A blob at `path`, relative to the base, in a directory that exists.
    pub fn new(store: &Store, path: impl Into<String>) -> Self {
        Self {
            store: store.clone(),
            path: path.into(),
        }
    }

    /// Replaces the blob by one that was received and sealed.
    ///
    /// # Errors
    /// The disk's; if it was the rename, the old blob is still there.
    pub fn adopt(&self, blob: StagedBlob) -> Result<(), StoreError> {
        self.store
            .fs()
            .rename(&blob.staged, &self.path)
            .map_err(|e| StoreError::io(Op::Rename, &self.path, e))?;
        blob.finish();
        self.store.sync_dirs([split(&self.path).0])
    }

    /// The blob, if the file holds the bytes that `sha256` is of.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn read(&self, sha256: &[u8; 32]) -> Result<Option<Vec<u8>>, StoreError> {
        match read_bounded(&self.store, &self.path, MAX_PLAN_BLOB_BYTES) {
            Ok(bytes) => Ok(bytes.filter(|bytes| ContentHash::of(bytes).sha256 == *sha256)),
            Err(StoreError::TooLarge { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a blob of that size is there.
    #[must_use]
    pub fn has(&self, size: u64) -> bool {
        let stat = self.store.fs().stat(&self.path);
        stat.is_ok_and(|stat| stat.is_some_and(|stat| stat.size == size))
    }

    /// Removes the blob if no state names it: its commit was cut before the state was saved.
    pub fn tidy(&self, named: bool) {
        if !named {
            remove_quietly(&self.store, &self.path);
        }
    }

    /// Removes the blob, because the applied plan came without one.
    ///
    /// # Errors
    /// The disk's.
    pub fn remove(&self) -> Result<(), StoreError> {
        self.store.unlink_if_there(&self.path)
    }
}
