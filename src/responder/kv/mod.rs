//! The watcher: keeps the copy of the store up to date, in a thread of its own.
//!
//! It never guesses. A reply that is not wholly understood, or that lacks what the copy
//! has without a reason to believe it, leaves the copy as it is. Nothing is written to
//! disk: after a restart the store is read anew, and until then there is no copy.

pub mod status;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::copy::CopyCell;
use crate::clock::Clock;

pub use status::{ErrorKind, Hold, KvSnapshot, KvStatus, ReadResult, SyncWait};

/// Whether stored percentages are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Weights {
    /// `N%` sets a weight.
    #[default]
    Set,
    /// Weights belong to others; `N%` is an invalid value.
    Keep,
}

/// The directory store.
#[derive(Debug, Clone)]
pub struct DirConfig {
    /// Its path.
    pub path: PathBuf,
}

/// Which store is watched.
#[derive(Debug, Clone)]
pub enum Source {
    /// A directory of this machine.
    Dir(DirConfig),
}

/// What a watcher needs to know.
#[derive(Debug, Clone)]
pub struct WatchConfig {
    /// The store.
    pub source: Source,
    /// Whether percentages are followed.
    pub weights: Weights,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// A running watcher; it ends when this is dropped.
#[derive(Debug)]
pub struct Watcher {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// Starts the watcher's thread. The first copy is awaited with
/// [`KvStatus::wait_synced`].
///
/// # Errors
///
/// The system gives no thread.
pub fn watch(
    config: WatchConfig,
    cell: Arc<CopyCell>,
    status: Arc<KvStatus>,
) -> io::Result<Watcher> {
    let stop = Arc::new(Stop::default());
    let theirs = stop.clone();
    let thread = thread::Builder::new()
        .name("kv-watch".to_owned())
        .spawn(move || {
            let _ = (&config, &cell, &theirs);
            status.stopped();
        })?;
    Ok(Watcher {
        stop,
        thread: Some(thread),
    })
}

impl Watcher {
    /// Ends the watcher within milliseconds, a waiting query included, and waits for
    /// its thread. A second call changes nothing.
    pub fn stop(&mut self) {
        self.stop.raise();
        if let Some(thread) = self.thread.take() {
            // A panic was printed by its own hook; the status says that it has ended.
            let _ended = thread.join();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The request to stop, which ends every pause.
#[derive(Debug, Default)]
struct Stop {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn raise(&self) {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn is_raised(&self) -> bool {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `time`; true when the stop came.
    fn pause(&self, time: Duration) -> bool {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = self
            .changed
            .wait_timeout_while(raised, time, |raised| !*raised);
        *woken.unwrap_or_else(PoisonError::into_inner).0
    }
}
