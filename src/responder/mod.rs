//! The agent-check responder: the desired admin state of every server, from memory.
//!
//! HAProxy asks about each server on a short interval and is told the whole wanted state
//! each time. Three promises: an answer depends on nothing but the copy of the store; the
//! store is the only state, so nothing is persisted here; and it never guesses: in doubt
//! it repeats the last copy, and without one it says nothing, which changes nothing at
//! HAProxy.
//!
//! | module | job |
//! |---|---|
//! | [`serve`], `parting` | the sockets: threads in accept, a line in, a line out, the close |
//! | [`mod@line`], [`answer`] | pure: bytes to keys, keys and a copy to a reply |
//! | [`value`], [`key`], [`stamp`] | what the store may say, and how keys are spelled |
//! | [`copy`], [`kv`] | the copy, and the watcher that replaces it |
//! | [`coverage`], [`confirm`] | who asks, and what HAProxy made of the answers |
//! | [`monitor`], [`metrics`] | what people and scrapers see of all that |
//! | [`limits`] | all bounds, with reasons |
//!
//! Locks: the copy's, a coverage shard's, the watcher status's, the last look's, that of
//! the turns of looks. None is
//! held while another is taken, nor over anything that waits.

pub mod answer;
pub mod confirm;
pub mod copy;
pub mod coverage;
pub mod key;
pub mod kv;
pub mod limits;
pub mod line;
pub mod metrics;
pub mod monitor;
pub mod note;
mod parting;
pub mod serve;
pub mod stamp;
pub mod stop;
pub mod value;

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock::Clock;
use crate::haproxy::WorkerSocket;
use crate::http::ListenAddr;
use crate::log::RateLimit;

use confirm::Confirm;
use copy::CopyCell;
use coverage::{Coverage, Transition};
use kv::{KvStatus, Source, SyncWait, WatchConfig, WatchError, Watcher, Weights};
use limits::MAX_WAITING_TRANSITIONS;
use metrics::Metrics;
use monitor::{Monitor, Place};
use serve::{Answering, CheckListener, Note, Serving};

/// What a responder needs to know.
#[derive(Debug)]
pub struct Settings {
    /// Where agent checks are answered.
    pub listen: ListenAddr,
    /// Where the wanted state comes from.
    pub source: Source,
    /// Whether replies carry weights.
    pub weights: Weights,
    /// The worker's stats socket, for coverage.
    pub haproxy_socket: Option<PathBuf>,
    /// How often that one is asked; [`limits::LOOK_INTERVAL`] but in tests.
    pub look_every: Duration,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// A running responder; it stops when this is dropped.
#[derive(Debug)]
pub struct Responder {
    address: SocketAddr,
    status: Arc<KvStatus>,
    monitor: Arc<Monitor>,
    serving: Serving,
    watcher: Watcher,
    confirm: Option<Arc<Confirm>>,
    notes: SyncSender<Note>,
    threads: Vec<JoinHandle<()>>,
}

impl Responder {
    /// Listens and starts to read the store. Until that has succeeded once, checks are
    /// closed without a byte.
    ///
    /// # Errors
    /// The address cannot be had, or no thread.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        let clock = settings.clock;
        let listener =
            CheckListener::bind(&settings.listen).map_err(|source| StartError::Listen {
                address: settings.listen,
                source,
            })?;
        let address = listener.local_addr();
        let cell = Arc::new(CopyCell::new());
        let status = Arc::new(KvStatus::new(Arc::clone(&clock)));
        let metrics = Arc::new(Metrics::default());
        let coverage = Arc::new(Coverage::new(clock.now()));
        let (notes, waiting) = sync_channel(MAX_WAITING_TRANSITIONS);
        let mut threads = vec![spawn("check-log", {
            let clock = Arc::clone(&clock);
            move || write_notes(&waiting, &*clock)
        })?];
        let confirm = settings.haproxy_socket.map(|path| {
            Arc::new(Confirm::new(
                WorkerSocket::new(path),
                Arc::clone(&coverage),
                Arc::clone(&metrics),
                settings.weights,
                Arc::clone(&clock),
            ))
        });
        if let Some(confirm) = confirm.clone() {
            let look_every = settings.look_every;
            threads.push(spawn("check-look", move || confirm.run(look_every))?);
        }
        let marker = match &settings.source {
            Source::Consul(consul) => consul.marker.clone(),
            Source::Dir(_) => None,
        };
        let place = Place::of(&settings.source);
        let watch = WatchConfig {
            source: settings.source,
            weights: settings.weights,
            clock: Arc::clone(&clock),
        };
        let watcher =
            kv::watch(watch, Arc::clone(&cell), Arc::clone(&status)).map_err(StartError::Watch)?;
        let serving = listener
            .serve(Answering {
                cell: Arc::clone(&cell),
                weights: settings.weights,
                metrics: Arc::clone(&metrics),
                coverage: Arc::clone(&coverage),
                notes: notes.clone(),
                clock: Arc::clone(&clock),
            })
            .map_err(StartError::Thread)?;
        let monitor = Arc::new(Monitor {
            metrics,
            status: Arc::clone(&status),
            cell,
            coverage,
            confirm: confirm.clone(),
            health: serving.health(),
            place,
            marker,
            clock,
        });
        log::info!(listener = "checks", address:% = address; "listening");
        Ok(Self {
            address,
            status,
            monitor,
            serving,
            watcher,
            confirm,
            notes,
            threads,
        })
    }

    /// Where agent checks are answered, with the port that the system chose if 0 was
    /// asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What can be seen of it; outlives it.
    #[must_use]
    pub fn monitor(&self) -> Arc<Monitor> {
        Arc::clone(&self.monitor)
    }

    /// The watcher's status, for instance to wait for the first copy.
    #[must_use]
    pub fn status(&self) -> Arc<KvStatus> {
        Arc::clone(&self.status)
    }

    /// Waits for the first copy, at most `timeout`; `None` waits until the end.
    #[must_use]
    pub fn wait_synced(&self, timeout: Option<Duration>) -> SyncWait {
        self.status.wait_synced(timeout)
    }

    /// Stops accepting, lets open connections finish and ends every thread. HAProxy is
    /// told nothing and keeps every state.
    pub fn stop(&mut self) {
        self.serving.stop();
        self.watcher.stop();
        if let Some(confirm) = &self.confirm {
            confirm.stop();
        }
        // A full channel means that the log hangs, and so would the wait for its thread.
        let drained = self.notes.try_send(Note::End).is_ok();
        for thread in self.threads.drain(..).rev() {
            if drained {
                let _ended = thread.join();
            }
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    let builder = thread::Builder::new().name(name.to_owned());
    builder.spawn(work).map_err(StartError::Thread)
}

/// Logs what the answering threads found worth it; they must not wait for the log.
fn write_notes(notes: &Receiver<Note>, clock: &dyn Clock) {
    static LIMIT: RateLimit = RateLimit::new();
    while let Ok(note) = notes.recv() {
        match note {
            Note::Told(Transition { row, from, to, key }) => {
                let row = String::from_utf8_lossy(&row);
                let key = key.map(|key| String::from_utf8_lossy(&key).into_owned());
                let key = key.as_deref().unwrap_or("");
                log::info!(row:% = row, from:% = from, to:% = to, key = key; "a row is told something else");
            }
            Note::AcceptFailed(error) => {
                if let Some(unsaid) = LIMIT.pass("accept", clock.now()) {
                    log::warn!(listener = "checks", error:% = error, unsaid = unsaid; "accept failed");
                }
            }
            Note::End => return,
        }
    }
}

/// Why a responder cannot start.
#[derive(Debug)]
pub enum StartError {
    /// The address cannot be listened at.
    Listen {
        /// The address.
        address: ListenAddr,
        /// Why.
        source: io::Error,
    },
    /// The store cannot be watched.
    Watch(WatchError),
    /// The system gives no thread.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, source } => {
                write!(f, "agent checks cannot be answered at {address}")?;
                match source.kind() {
                    io::ErrorKind::AddrInUse => f.write_str(
                        "; another process listens there, stop it or choose another port",
                    ),
                    io::ErrorKind::PermissionDenied => f.write_str(
                        "; ports below 1024 need CAP_NET_BIND_SERVICE, choose a higher one",
                    ),
                    io::ErrorKind::AddrNotAvailable => {
                        f.write_str("; this machine does not have that address")
                    }
                    _ => Ok(()),
                }
            }
            Self::Watch(error) => error.fmt(f),
            Self::Thread(_) => f.write_str(
                "the system gives no thread for the responder; raise the limit of threads",
            ),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Watch(error) => error.source(),
            Self::Listen { source, .. } | Self::Thread(source) => Some(source),
        }
    }
}
