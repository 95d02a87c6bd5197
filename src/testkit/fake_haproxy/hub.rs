//! What the fake's threads share: the worker that serves, the reload hook, the faults.
//!
//! Two locks, never held at once: the hub's for a look or a change, a worker's for one
//! command on its model. None is held over a socket or while the hook runs.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::{Clock as _, SystemClock};

use super::faults::{Fault, ReloadFault};
use super::model::{Model, Version};

/// Connections that one worker serves at a time; more are taken and wait.
pub(super) const MAX_SERVED: usize = 10;

/// How often a thread that waits looks whether the fake ends.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// How often a listener is looked at; a connect waits in its queue meanwhile.
pub(super) const ACCEPT_EVERY: Duration = Duration::from_micros(500);

type Hook = dyn Fn(&Model) -> Result<Model, String> + Send + Sync;

/// One worker process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// Microseconds since the Unix epoch.
    pub(super) started: u64,
    pub(super) stopping: AtomicBool,
    model: Mutex<Model>,
}

impl Process {
    pub(super) fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}

/// What a reload came to.
pub(super) enum Reloaded {
    Loaded { new: u32, old: u32 },
    Refused { tried: u32, words: String },
}

pub(super) struct Hub {
    pub(super) version: Version,
    pub(super) full_version: String,
    pub(super) stats_timeout: Duration,
    pub(super) master_pid: u32,
    hook: Box<Hook>,
    inner: Mutex<Inner>,
    changed: Condvar,
    next_pid: AtomicU32,
    stop: AtomicBool,
    dead: AtomicBool,
    pub(super) reloading: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    current: Arc<Process>,
    former: Vec<u32>,
    reloads: u32,
    failed: u32,
    served: usize,
    commands: Vec<String>,
    master_commands: Vec<String>,
    faults: Vec<(String, Fault)>,
    reload_faults: VecDeque<ReloadFault>,
    released: u64,
    /// Moves when every open connection has to end.
    epoch: u64,
}

/// A served connection's place.
#[derive(Debug)]
pub(super) struct Place<'a>(&'a Hub);

impl Hub {
    pub(super) fn new(
        version: Version,
        full_version: String,
        stats_timeout: Duration,
        hook: Box<Hook>,
        model: Model,
    ) -> Self {
        let first = 4000 + u32::from(std::process::id().to_be_bytes()[3]);
        let hub = Self {
            version,
            full_version,
            stats_timeout,
            master_pid: first,
            hook,
            next_pid: AtomicU32::new(first + 1),
            stop: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            reloading: AtomicBool::new(false),
            changed: Condvar::new(),
            inner: Mutex::new(Inner {
                current: Arc::new(Process {
                    pid: 0,
                    started: 0,
                    stopping: AtomicBool::new(true),
                    model: Mutex::default(),
                }),
                former: Vec::new(),
                reloads: 0,
                failed: 0,
                served: 0,
                commands: Vec::new(),
                master_commands: Vec::new(),
                faults: Vec::new(),
                reload_faults: VecDeque::new(),
                released: 0,
                epoch: 0,
            }),
        };
        let process = hub.process(model, 0);
        hub.lock().current = process;
        hub
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new worker that started after `before`, in microseconds.
    fn process(&self, model: Model, before: u64) -> Arc<Process> {
        let now = u64::try_from(SystemClock.wall().0 / 1000).unwrap_or_default();
        Arc::new(Process {
            pid: self.next_pid.fetch_add(1, Ordering::SeqCst),
            started: now.max(before + 1),
            stopping: AtomicBool::new(false),
            model: Mutex::new(model),
        })
    }

    pub(super) fn current(&self) -> Arc<Process> {
        Arc::clone(&self.lock().current)
    }

    /// Reads the files as the hook has them, and puts a new worker in place.
    pub(super) fn reload(&self, keep_worker: bool) -> Reloaded {
        let old = self.current();
        // A copy: the hook may ask the fake itself.
        let held = old.model().clone();
        let model = match (self.hook)(&held) {
            Ok(model) => model,
            Err(words) => {
                let tried = self.next_pid.fetch_add(1, Ordering::SeqCst);
                let inner = &mut *self.lock();
                inner.reloads += 1;
                inner.failed = match self.version {
                    Version::V3_0 => inner.failed + 1,
                    Version::V3_2 | Version::V3_4 => 1,
                };
                return Reloaded::Refused { tried, words };
            }
        };
        if keep_worker {
            return Reloaded::Loaded {
                new: old.pid,
                old: old.pid,
            };
        }
        let new = self.process(model, old.started);
        let inner = &mut *self.lock();
        inner.reloads += 1;
        inner.failed = 0;
        inner.former = vec![old.pid];
        old.stopping.store(true, Ordering::SeqCst);
        inner.current = Arc::clone(&new);
        Reloaded::Loaded {
            new: new.pid,
            old: old.pid,
        }
    }

    /// Another worker out of nowhere; connections to the old one end.
    pub(super) fn replace_worker(&self, model: Option<Model>) {
        let old = self.current();
        let model = model.unwrap_or_else(|| old.model().clone());
        let new = self.process(model, old.started);
        let inner = &mut *self.lock();
        old.stopping.store(true, Ordering::SeqCst);
        inner.current = new;
        inner.epoch += 1;
    }

    /// Reloads, failed ones, and the workers that left.
    pub(super) fn counts(&self) -> (u32, u32, Vec<u32>) {
        let inner = self.lock();
        (inner.reloads, inner.failed, inner.former.clone())
    }

    pub(super) fn note(&self, command: &str) {
        self.lock().commands.push(command.to_owned());
    }

    pub(super) fn note_master(&self, command: &str) {
        self.lock().master_commands.push(command.to_owned());
    }

    pub(super) fn commands(&self) -> Vec<String> {
        self.lock().commands.clone()
    }

    pub(super) fn master_commands(&self) -> Vec<String> {
        self.lock().master_commands.clone()
    }

    pub(super) fn clear_commands(&self) {
        let mut inner = self.lock();
        inner.commands.clear();
        inner.master_commands.clear();
    }

    pub(super) fn inject(&self, prefix: &str, fault: Fault) {
        self.lock().faults.push((prefix.to_owned(), fault));
    }

    /// The oldest fault whose words the command begins with.
    pub(super) fn fault(&self, command: &str) -> Option<Fault> {
        let inner = &mut *self.lock();
        let hit = |(prefix, _): &(String, Fault)| {
            let rest = command.strip_prefix(prefix.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '/']))
        };
        let at = inner.faults.iter().position(hit)?;
        Some(inner.faults.remove(at).1)
    }

    pub(super) fn clear_faults(&self) {
        let mut inner = self.lock();
        inner.faults.clear();
        inner.reload_faults.clear();
    }

    pub(super) fn inject_reload(&self, fault: ReloadFault) {
        self.lock().reload_faults.push_back(fault);
    }

    pub(super) fn reload_fault(&self) -> Option<ReloadFault> {
        self.lock().reload_faults.pop_front()
    }

    /// Waits until [`Hub::release`] is called; false if the fake ends first.
    pub(super) fn hang(&self) -> bool {
        let mut inner = self.lock();
        let before = inner.released;
        while inner.released == before {
            if self.ends() {
                return false;
            }
            inner = self.tick(inner);
        }
        true
    }

    pub(super) fn release(&self) {
        self.lock().released += 1;
        self.changed.notify_all();
    }

    /// Waits; false if the fake ends first.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let end = SystemClock.now() + time;
        let mut inner = self.lock();
        loop {
            let left = end.saturating_duration_since(SystemClock.now());
            if left.is_zero() || self.ends() {
                return !self.ends();
            }
            inner = self
                .changed
                .wait_timeout(inner, left.min(TICK))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn tick<'a>(&'a self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        self.changed
            .wait_timeout(inner, TICK)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// A place among the served connections, waited for; `None` if the fake ends first.
    pub(super) fn place(&self) -> Option<Place<'_>> {
        let mut inner = self.lock();
        while inner.served >= MAX_SERVED {
            if self.ends() {
                return None;
            }
            inner = self.tick(inner);
        }
        inner.served += 1;
        Some(Place(self))
    }

    pub(super) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// The process is gone, or the fake is being dropped.
    pub(super) fn ends(&self) -> bool {
        self.stop.load(Ordering::SeqCst) || self.dead.load(Ordering::SeqCst)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.changed.notify_all();
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    pub(super) fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.lock().epoch += 1;
        self.changed.notify_all();
    }

    /// A new master with a new worker.
    pub(super) fn revive(&self, model: Model) {
        let before = self.current().started;
        let process = self.process(model, before);
        let inner = &mut *self.lock();
        inner.current = process;
        inner.former.clear();
        inner.reloads = 0;
        inner.failed = 0;
        self.dead.store(false, Ordering::SeqCst);
    }

    pub(super) fn now(&self) -> Instant {
        SystemClock.now()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.served = inner.served.saturating_sub(1);
        drop(inner);
        self.0.changed.notify_all();
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
