//! The agent: everything that the requests share, and the order of its locks.
//!
//! Locks, outermost first: the apply lock (`Agent::lock`), the view, the known-bad
//! cache. The apply lock is held over HAProxy's sockets and the disk, never over a
//! client's. The other two are held for a copy and never over I/O, so that a state can
//! be read and a stale controller refused while a reload takes its minute.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::cli::exit::{self, Exit};
use crate::clock::Clock;
use crate::haproxy::deletes::Policy;
use crate::metrics::Metrics;
use crate::store::Store;
use crate::store::blob::BlobFile;
use crate::store::journal::Journal;
use crate::store::state_file::StateFile;
use crate::wire::manifest::{FileKind, Manifest, Mode, ReservedPaths};
use crate::wire::path::ManifestPath;
use crate::wire::result::{ApplyResult, Conflict};

use super::ahead::Looked;
use super::gate::{Gate, UploadSlot};
use super::known_bad::{KnownBad, Lookup};
use super::port::Haproxy;
use super::tx::Tx;
use super::upload::Upload;
use super::view::View;

/// What an operator decides.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The main configuration file.
    pub config: ManifestPath,
    /// The shortest time between two reloads.
    pub reload_interval: Duration,
    /// Mode bits of a new file.
    pub file_mode: u32,
    /// Mode bits of a new certificate.
    pub secret_mode: u32,
    /// How deferred deletes end.
    pub deletes: Policy,
    /// Names below the base directory that no manifest may use.
    pub reserved: ReservedPaths,
    /// The worker's socket, for whoever has to name it in a configuration.
    pub worker_socket: Option<String>,
}

impl Settings {
    /// Mode bits of a file that is new.
    pub(super) fn mode_of(&self, kind: FileKind) -> u32 {
        match kind {
            FileKind::Cert => self.secret_mode,
            FileKind::Config
            | FileKind::Map
            | FileKind::Ca
            | FileKind::Crtlist
            | FileKind::General => self.file_mode,
        }
    }
}

/// The agent of one base directory.
#[derive(Debug)]
pub struct Agent {
    pub(super) settings: Settings,
    pub(super) store: Store,
    pub(super) state_file: StateFile,
    pub(super) blob: BlobFile,
    pub(super) haproxy: Arc<dyn Haproxy>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
    /// Readiness and upload places.
    pub gate: Gate,
    apply: Mutex<Tx>,
    view: Mutex<Arc<View>>,
    known_bad: Mutex<KnownBad>,
    /// Wall clock at the start, in nanoseconds.
    started: i128,
    next_request: AtomicU64,
    pub(super) alarm: Alarm,
    /// Backups that no saved record names any more.
    pub(super) discarded: Mutex<Vec<Journal>>,
    /// The background thread runs.
    pub(super) kept: AtomicBool,
}

/// Wakes the pacing thread: when a reload was scheduled, and when the process stops.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    pub(super) state: Mutex<AlarmState>,
    pub(super) rang: Condvar,
}

/// What the pacing thread waits for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AlarmState {
    /// Something changed that the thread has to look at.
    pub(super) look: bool,
    /// The process stops.
    pub(super) stop: bool,
}

/// Why an apply ends before its body is read.
#[derive(Debug)]
pub enum Early {
    /// The fence refused.
    Conflict(Box<Conflict>),
    /// HAProxy refused this very set within the last minute.
    KnownBad(Box<ApplyResult>),
}

impl Agent {
    /// An agent that has not looked at anything yet; [`Agent::start`] does.
    #[must_use]
    pub fn new(
        settings: Settings,
        store: Store,
        state_file: &str,
        blob_file: &str,
        haproxy: Arc<dyn Haproxy>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            settings,
            state_file: StateFile::new(&store, state_file),
            blob: BlobFile::new(&store, blob_file),
            store,
            haproxy,
            started: clock.wall().0,
            clock,
            metrics,
            gate: Gate::default(),
            apply: Mutex::default(),
            view: Mutex::default(),
            known_bad: Mutex::default(),
            next_request: AtomicU64::new(0),
            alarm: Alarm::default(),
            discarded: Mutex::default(),
            kept: AtomicBool::new(false),
        }
    }

    /// Names below the base directory that no manifest may use.
    #[must_use]
    pub fn reserved_paths(&self) -> &ReservedPaths {
        &self.settings.reserved
    }

    /// Fence and known-bad cache, before the body is read. The slot bounds uploads and
    /// is held until the answer. `looked` is what [`Agent::look_beside`] brought.
    ///
    /// # Errors
    /// What to answer at once; nothing was read or written.
    pub fn admit<'a>(
        &'a self,
        manifest: Manifest,
        slot: UploadSlot<'a>,
        looked: Option<Looked>,
    ) -> Result<Upload<'a>, Early> {
        let view = self.view();
        view.baseline.admit(&manifest).map_err(Early::Conflict)?;
        // A newer leader's epoch has to be saved first, which takes the apply lock: it is
        // told there.
        let newer = manifest.token.leader_epoch > view.baseline.highest_epoch;
        if manifest.mode != Mode::RevertLkg && !newer {
            let found = self.known_bad().lookup(&manifest, self.clock.now());
            match found {
                Lookup::Unknown => {}
                Lookup::Known(nack) => {
                    self.metrics.known_bad_hits.inc();
                    return Err(Early::KnownBad(Box::new(view.refresh(
                        &*self.clock,
                        *nack,
                        &manifest.plan_id,
                    ))));
                }
            }
        }
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        // With the start in it: a directory that an earlier life left and that could not be
        // swept must not be in the way.
        let name = format!("r{:x}-{request}", self.started);
        Ok(Upload::new(self, manifest, name, slot, looked))
    }

    /// The state as last published; never waits for an apply.
    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes what the transaction holds visible to readers and the metrics.
    pub(super) fn publish(&self, tx: &Tx) {
        let view = Arc::new(View::of(tx));
        self.metrics.generation.set(tx.record.generation);
        self.metrics
            .reload_pending
            .set(u64::from(tx.record.pending.is_some()));
        self.metrics
            .degraded
            .set(u64::from(tx.record.degraded.is_some()));
        let baseline = &view.baseline;
        let known = !baseline.applied_plan_id.is_empty();
        self.metrics.applied_known.set(u64::from(known));
        let current = known && baseline.worker_ops_plan_id == baseline.applied_plan_id;
        self.metrics.worker_current.set(u64::from(current));
        self.metrics.files.set(view.files.len() as u64);
        self.metrics
            .journal_entries
            .set(tx.record.journal.entries.len() as u64);
        self.metrics
            .cross_device_copies
            .set(self.store.counters().cross_device());
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = view;
    }

    pub(super) fn known_bad(&self) -> MutexGuard<'_, KnownBad> {
        self.known_bad
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The apply lock, if nobody holds it.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Tx>> {
        match self.apply.try_lock() {
            Ok(tx) => Some(tx),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => Some(self.lock()),
        }
    }

    /// The time, on the clock that [`Agent::try_verify`] compares with.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The apply lock. A thread that panicked while it held it left a transaction in the
    /// middle: only a restart, which recovers from disk, can tell what is there.
    pub(super) fn lock(&self) -> MutexGuard<'_, Tx> {
        match self.apply.lock() {
            Ok(tx) => tx,
            Err(_) => {
                log::error!(
                    "an apply broke off in the middle; stopping so that a restart recovers from disk"
                );
                exit::now(Exit::Broken)
            }
        }
    }
}
