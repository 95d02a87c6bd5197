//! The watcher: keeps the copy of the store up to date, in a thread of its own.
//!
//! It never guesses. A reply that is not wholly understood, or that lacks what the copy
//! has without a reason to believe it, leaves the copy as it is. Nothing is written to
//! disk: after a restart the store is read anew, and until then there is no copy.

pub mod consul;
pub mod dir;
mod keeper;
mod shrink;
pub mod status;

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::copy::CopyCell;
use super::value::{InvalidValue, Value};
use crate::clock::Clock;
use crate::http::client::Cancel;

use keeper::Keeper;

pub use consul::config::{ConsulConfig, ConsulConfigError, ConsulPace, ConsulServer};
pub use consul::token::{Token, TokenError};
pub use dir::{DirConfig, DirPace, WhenMissing};
pub use status::{ErrorKind, Hold, KvSnapshot, KvStatus, Names, ReadResult, SyncWait};

/// Whether stored percentages are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Weights {
    /// `N%` sets a weight.
    #[default]
    Set,
    /// Weights belong to others; `N%` is an invalid value.
    Keep,
}

impl Weights {
    /// Reads a stored value under this rule.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`]: the key counts as absent then.
    pub fn parse(self, stored: &[u8]) -> Result<Value, InvalidValue> {
        match (self, Value::parse(stored)?) {
            (Self::Keep, Value::Weight(_)) => Err(InvalidValue::WeightsKept),
            (Self::Keep | Self::Set, value) => Ok(value),
        }
    }
}

/// Which store is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A prefix in Consul.
    Consul(ConsulConfig),
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

/// Why a watcher does not start.
#[derive(Debug)]
pub enum WatchError {
    /// The token file gives no token.
    Token(TokenError),
    /// The system gives no thread.
    Thread(io::Error),
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(error) => error.fmt(f),
            Self::Thread(_) => write!(f, "no thread can be started to watch the store"),
        }
    }
}

impl Error for WatchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Token(error) => error.source(),
            Self::Thread(error) => Some(error),
        }
    }
}

/// A running watcher; it ends when this is dropped.
#[derive(Debug)]
pub struct Watcher {
    stop: Arc<Stop>,
    cancel: Cancel,
    thread: Option<JoinHandle<()>>,
}

/// Starts the watcher's thread. The first copy is awaited with
/// [`KvStatus::wait_synced`].
///
/// # Errors
///
/// [`WatchError`]; that the store cannot be reached is none, the status says so.
pub fn watch(
    config: WatchConfig,
    cell: Arc<CopyCell>,
    status: Arc<KvStatus>,
) -> Result<Watcher, WatchError> {
    let stop = Arc::new(Stop::default());
    let cancel = Cancel::new();
    let WatchConfig {
        source,
        weights,
        clock,
    } = config;
    let work: Box<dyn FnOnce() + Send> = match source {
        Source::Consul(consul) => {
            let store = format!("{}/v1/kv/{}/", consul.server.origin, consul.prefix);
            let keeper = Keeper::new(cell, status.clone(), clock.clone(), store);
            let (stop, cancel) = (stop.clone(), cancel.clone());
            let watch = consul::Watch::new(consul, weights, clock, stop, cancel, keeper)
                .map_err(WatchError::Token)?;
            Box::new(move || watch.run())
        }
        Source::Dir(dir) => {
            let store = dir.path.display().to_string();
            let keeper = Keeper::new(cell, status.clone(), clock.clone(), store);
            let watch = dir::Watch::new(dir, weights, clock, stop.clone(), keeper);
            Box::new(move || watch.run())
        }
    };
    let ended = Ended(status);
    let thread = thread::Builder::new()
        .name("kv-watch".to_owned())
        .spawn(move || {
            let _told_even_after_a_panic = ended;
            work();
        })
        .map_err(WatchError::Thread)?;
    Ok(Watcher {
        stop,
        cancel,
        thread: Some(thread),
    })
}

/// Says that the watcher has ended, however it did.
struct Ended(Arc<KvStatus>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.stopped();
    }
}

impl Watcher {
    /// Ends the watcher within milliseconds, a waiting query included, and waits for
    /// its thread. A second call changes nothing.
    pub fn stop(&mut self) {
        self.stop.raise();
        self.cancel.cancel();
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

    /// Waits for `time`; true when the stop came.
    fn pause(&self, time: Duration) -> bool {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = self
            .changed
            .wait_timeout_while(raised, time, |raised| !*raised);
        *woken.unwrap_or_else(PoisonError::into_inner).0
    }
}
