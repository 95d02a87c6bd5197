//! What every operation of the store needs: the file system, its mounts, how
//! durable things must be, and the counters of what should never happen.
//!
//! The wrappers here only turn a system error into a [`StoreError`] that names the
//! path; they add no call of their own.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{Op, StoreError};
use super::fs::{Attrs, FileKind, FileOut, Fs, Stat, split};
use super::mounts::{Mounts, PRIVATE_DIR_MODE};

/// What has to survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// A power loss: content is synced before it is named by a state, each touched
    /// directory once after its changes.
    Full,
    /// The agent's death only: nothing is synced. For tmpfs and emptyDir, where a lost
    /// node loses the volume too.
    Process,
}

impl Durability {
    /// Whether to sync at all.
    #[must_use]
    pub fn syncs(self) -> bool {
        match self {
            Self::Full => true,
            Self::Process => false,
        }
    }
}

/// Counts of detours, for metrics and the invariant `mount_probe_found_every_mount`.
#[derive(Debug, Default)]
pub struct Counters {
    cross_device: AtomicU64,
    copied_backups: AtomicU64,
    link_warned: AtomicBool,
    owner_warned: AtomicBool,
}

impl Counters {
    /// Renames and links that crossed a device and became copies. Must stay zero.
    #[must_use]
    pub fn cross_device(&self) -> u64 {
        self.cross_device.load(Ordering::Relaxed)
    }

    /// Backups that are copies because links are refused. Not an error, only slower.
    #[must_use]
    pub fn copied_backups(&self) -> u64 {
        self.copied_backups.load(Ordering::Relaxed)
    }

    pub(super) fn crossed(&self, path: &str) {
        self.cross_device.fetch_add(1, Ordering::Relaxed);
        log::warn!(path; "a rename or link crossed a mount and became a copy");
    }

    pub(super) fn owner_refused(&self, path: &str) {
        if !self.owner_warned.swap(true, Ordering::Relaxed) {
            log::warn!(path; "the agent may not set the owner and group that the replaced file had");
        }
    }

    pub(super) fn link_refused(&self, path: &str, error: &io::Error) {
        self.copied_backups.fetch_add(1, Ordering::Relaxed);
        if !self.link_warned.swap(true, Ordering::Relaxed) {
            log::warn!(path, error:%; "hard links are refused here; backups are copies from now on");
        }
    }
}

/// The store's context; cheap to clone, all clones share the counters.
#[derive(Debug, Clone)]
pub struct Store {
    fs: Arc<dyn Fs>,
    mounts: Arc<Mounts>,
    durability: Durability,
    counters: Arc<Counters>,
    /// Working directories whose own name was synced in this process's life.
    anchored: Arc<Mutex<BTreeSet<String>>>,
}

impl Store {
    /// A store over `fs`.
    #[must_use]
    pub fn new(fs: Arc<dyn Fs>, mounts: Mounts, durability: Durability) -> Self {
        Self {
            fs,
            mounts: Arc::new(mounts),
            durability,
            counters: Arc::new(Counters::default()),
            anchored: Arc::new(Mutex::new(BTreeSet::new())),
        }
    }

    /// The file system.
    #[must_use]
    pub fn fs(&self) -> &Arc<dyn Fs> {
        &self.fs
    }

    /// The mounts below the base, as found at start.
    #[must_use]
    pub fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    /// What has to survive.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Counts of detours since the start.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn stat(&self, path: &str) -> Result<Option<Stat>, StoreError> {
        self.fs
            .stat(path)
            .map_err(|e| StoreError::io(Op::Stat, path, e))
    }

    /// Checks that who goes by the base directory's name finds the directory that is worked
    /// in.
    ///
    /// # Errors
    /// [`StoreError::Covered`].
    pub fn require_in_place(&self) -> Result<(), StoreError> {
        match self.fs.is_in_place() {
            true => Ok(()),
            false => Err(StoreError::Covered),
        }
    }

    /// Whether a regular file is there.
    ///
    /// # Errors
    /// The disk's; that something above it is no directory is an answer.
    pub fn has_file(&self, path: &str) -> Result<bool, StoreError> {
        match self.fs.stat(path) {
            Ok(stat) => Ok(stat.is_some_and(|stat| stat.kind == FileKind::File)),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(StoreError::io(Op::Stat, path, error)),
        }
    }

    pub(super) fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, StoreError> {
        self.fs
            .open(path)
            .map_err(|e| StoreError::io(Op::Read, path, e))
    }

    pub(super) fn create(&self, path: &str, mode: u32) -> Result<Box<dyn FileOut>, StoreError> {
        self.fs
            .create(path, mode)
            .map_err(|e| StoreError::io(Op::Create, path, e))
    }

    pub(super) fn set_attrs(&self, path: &str, attrs: Attrs) -> Result<(), StoreError> {
        self.fs
            .set_attrs(path, attrs)
            .map_err(|e| StoreError::io(Op::Attrs, path, e))
    }

    /// Syncs a file if the durability asks for it.
    pub(super) fn sync_file(&self, path: &str) -> Result<(), StoreError> {
        if !self.durability.syncs() {
            return Ok(());
        }
        self.fs
            .sync_file(path)
            .map_err(|e| StoreError::io(Op::Sync, path, e))
    }

    /// Syncs many files if the durability asks for it.
    pub(super) fn sync_files(&self, paths: &[String]) -> Result<(), StoreError> {
        if !self.durability.syncs() {
            return Ok(());
        }
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        self.fs.sync_files(&paths).map_err(|(n, error)| {
            StoreError::io(Op::Sync, paths.get(n).copied().unwrap_or_default(), error)
        })
    }

    /// Syncs directories, each once, if the durability asks for it. One that is gone
    /// has no names to lose and is skipped.
    pub(super) fn sync_dirs<'a>(
        &self,
        dirs: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), StoreError> {
        if !self.durability.syncs() {
            return Ok(());
        }
        for dir in dirs {
            match self.fs.sync_dir(dir) {
                Ok(()) => {}
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(StoreError::io(Op::Sync, dir, error)),
            }
        }
        Ok(())
    }

    /// Removes a file; one that is not there is removed already.
    pub(super) fn unlink_if_there(&self, path: &str) -> Result<(), StoreError> {
        match self.fs.unlink(path) {
            Ok(()) => Ok(()),
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) => Err(StoreError::io(Op::Unlink, path, error)),
        }
    }

    /// The same where a directory may stand there by now, which is not the file and stays.
    pub(super) fn unlink_unless_dir(&self, path: &str) -> Result<(), StoreError> {
        match self.unlink_if_there(path) {
            Err(error) if error.errno() == Some(libc::EISDIR) => Ok(()),
            done => done,
        }
    }

    /// Makes a directory unless it is there; true if it was made now.
    pub(super) fn mkdir_if_missing(&self, path: &str, mode: u32) -> Result<bool, StoreError> {
        match self.fs.mkdir(path, mode) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            Err(error) => Err(StoreError::io(Op::Mkdir, path, error)),
        }
    }
}

impl Store {
    /// Makes one of the agent's working directories unless it is there, and makes sure,
    /// once in a process's life, that its name survives: an earlier life may have made it
    /// and been killed before its sync.
    pub(super) fn anchor(&self, dir: &str) -> Result<(), StoreError> {
        let made = self.mkdir_if_missing(dir, PRIVATE_DIR_MODE)?;
        let known = |set: &Mutex<BTreeSet<String>>| {
            set.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(dir)
        };
        if !made && known(&self.anchored) {
            return Ok(());
        }
        self.sync_dirs([split(dir).0])?;
        self.anchored
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(dir.to_owned());
        Ok(())
    }
}

/// The name is not there, nor can it be.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
}
