//! The opaque plan blob of the applied plan, kept for whoever asks the agent's state.
//!
//! The state names the blob's SHA-256; a file with other bytes is no blob. So a crash
//! between writing the one and the other costs the blob and never lies.

use crate::wire::digest::ContentHash;
use crate::wire::limits::MAX_PLAN_BLOB_BYTES;

use super::context::Store;
use super::error::StoreError;
use super::state_file::{read_bounded, remove_quietly, replace_file, temporary};

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

    /// Replaces the blob and returns its SHA-256, for the state.
    ///
    /// # Errors
    /// The disk's; the old blob is then still there.
    pub fn replace(&self, bytes: &[u8]) -> Result<[u8; 32], StoreError> {
        replace_file(
            &self.store,
            &self.path,
            bytes,
            self.store.durability().syncs(),
        )?;
        Ok(ContentHash::of(bytes).sha256)
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

    /// Removes what a write that was cut has left, and the blob itself if no state names it.
    pub fn tidy(&self, named: bool) {
        remove_quietly(&self.store, &temporary(&self.path));
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
