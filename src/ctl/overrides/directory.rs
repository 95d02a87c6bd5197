//! A directory as a store to write: under its lock, what was read is compared with what
//! is there, then replaced by rename. Tools that do not take the lock are not kept out.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::store::{Change, Listed, StoreError, Stored, Version};
use crate::haproxy::Deadline;
use crate::haproxy::wait::Backoff;
use crate::responder::kv::Weights;
use crate::responder::kv::dir::store::{Found, Lock, Store};
use crate::responder::limits::MOST_KV_KEYS;
use crate::responder::note;

/// How long another writer is waited for. It holds the lock for one write.
const LOCK: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    store: Store,
}

impl Directory {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let store = Store::open(path).map_err(StoreError::Directory)?;
        Ok(Self {
            path: path.to_path_buf(),
            store,
        })
    }

    pub(super) fn get(&self, key: &str) -> Result<Option<Stored>, StoreError> {
        let unreadable =
            |what: String| StoreError::Read(format!("{key} in {} {what}", self.path.display()));
        match self.store.read(key) {
            Ok(Found::Nothing) => Ok(None),
            Ok(Found::File { bytes, modified }) => {
                let mut file = note::read_file(&bytes, Weights::Set);
                if file.note.at.is_none() {
                    file.note.at = Some(crate::responder::stamp::Stamp::of(modified));
                }
                Ok(Some(Stored {
                    entry: file.entry,
                    note: file.note,
                    version: Version::Content(bytes),
                }))
            }
            Ok(Found::Other(what)) => Err(unreadable(format!(
                "is {what}: a key is a regular file, so remove it"
            ))),
            Err(error) => Err(unreadable(format!("cannot be read: {error}"))),
        }
    }

    pub(super) fn list(&self) -> Result<Listed, StoreError> {
        let listing = self.store.list(MOST_KV_KEYS);
        let listing = listing.map_err(StoreError::Directory)?;
        let foreign = listing.foreign.iter();
        let mut all = Listed {
            ignored: foreign
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect(),
            ..Listed::default()
        };
        for key in listing.keys {
            match self.get(&key) {
                Ok(Some(stored)) => all.keys.push((key, stored)),
                // One that went away meanwhile is not there.
                Ok(None) => {}
                Err(error) => all.unreadable.push((key, error.to_string())),
            }
        }
        Ok(all)
    }

    pub(super) fn put(
        &self,
        key: &str,
        change: &Change,
        before: Option<&Version>,
    ) -> Result<(), StoreError> {
        let _alone = self.lock()?;
        self.unchanged(key, before)?;
        let bytes = note::write_file(change.value, change.until, &change.note);
        self.store.put(key, &bytes).map_err(StoreError::Put)
    }

    pub(super) fn delete(&self, key: &str, before: &Version) -> Result<(), StoreError> {
        let _alone = self.lock()?;
        self.unchanged(key, Some(before))?;
        self.store.delete(key).map_err(StoreError::Put)?;
        Ok(())
    }

    fn unchanged(&self, key: &str, before: Option<&Version>) -> Result<(), StoreError> {
        let now = self.get(key)?;
        if now.as_ref().map(|stored| &stored.version) == before {
            Ok(())
        } else {
            Err(StoreError::Changed)
        }
    }

    fn lock(&self) -> Result<Lock, StoreError> {
        let deadline = Deadline::after(LOCK);
        let mut backoff = Backoff::default();
        loop {
            match self.store.try_lock() {
                Ok(Some(lock)) => return Ok(lock),
                Ok(None) if backoff.pause(deadline) => {}
                Ok(None) => return Err(StoreError::Busy),
                Err(error) => {
                    let path = self.path.display();
                    return Err(StoreError::Read(format!(
                        "{path} cannot be locked: {error}"
                    )));
                }
            }
        }
    }
}
