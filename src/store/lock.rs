//! One agent for one base directory.
//!
//! Two agents would each believe in their own baseline and overwrite each other's
//! tree, so the second one must not start. The lock is the kernel's (`flock`): it
//! ends with the process, however that ends, and a file left behind means nothing.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};

use super::disk::DiskFs;
use super::error::{Op, StoreError};
use super::fs::Fs as _;

/// The lock's file, in the base directory.
pub const LOCK_FILE: &str = ".haptic-agent.lock";

/// Tries that a lock file which is replaced under our hands is worth.
const MAX_TRIES: usize = 8;

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct BaseLock {
    _file: File,
}

/// Why the base directory is not ours.
#[derive(Debug)]
pub enum LockError {
    /// Another agent runs there.
    Held {
        /// Its process id, as it wrote it itself; of its own pid namespace.
        pid: Option<u32>,
    },
    /// The disk refused.
    Store(StoreError),
}

impl std::fmt::Display for LockError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Held { pid: Some(pid) } => write!(
                f,
                "another agent (process {pid} in its own pid namespace) runs on this base directory; stop it or use another --base-dir"
            ),
            Self::Held { pid: None } => write!(
                f,
                "another agent runs on this base directory; stop it or use another --base-dir"
            ),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Held { .. } => None,
            Self::Store(error) => error.source(),
        }
    }
}

impl BaseLock {
    /// Takes the lock without waiting.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn acquire(disk: &DiskFs) -> Result<Self, LockError> {
        let failed = |error| LockError::Store(StoreError::io(Op::Lock, LOCK_FILE, error));
        for _ in 0..MAX_TRIES {
            let Some(mut file) = disk.try_lock(LOCK_FILE).map_err(failed)? else {
                return Err(LockError::Held { pid: holder(disk) });
            };
            // Whoever removed the file between our open and our lock left us alone with an
            // inode that the next agent will not see.
            if !is_still_there(disk, &file).map_err(failed)? {
                continue;
            }
            let note = file
                .set_len(0)
                .and_then(|()| file.rewind())
                .and_then(|()| writeln!(file, "{}", std::process::id()));
            if let Err(error) = note {
                log::debug!(error:%; "the lock file does not say who holds it");
            }
            return Ok(Self { _file: file });
        }
        Err(LockError::Held { pid: None })
    }
}

fn is_still_there(disk: &DiskFs, file: &File) -> std::io::Result<bool> {
    let locked = rustix::fs::fstat(file)?;
    let named = disk.stat(LOCK_FILE)?;
    Ok(named.is_some_and(|stat| stat.ino == locked.st_ino))
}

fn holder(disk: &DiskFs) -> Option<u32> {
    let mut text = String::new();
    disk.open(LOCK_FILE)
        .ok()?
        .take(32)
        .read_to_string(&mut text)
        .ok()?;
    text.trim().parse().ok()
}
