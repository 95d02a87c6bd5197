//! What the fake's threads share, under one lock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{Clock as _, SystemClock};
use crate::wire::digest::Digest;
use crate::wire::manifest::{Manifest, ReservedPaths};
use crate::wire::result::ApplyResult;

use super::apply::Run;
use super::base64::base64;
use super::judge::Judge;
use super::knobs::Knobs;
use super::pod::{Fold, Pod};
use super::record::Applied;
use super::relay::Lines;
use super::serve::TICK;

/// The pair that requests have to carry.
#[derive(Debug)]
pub(super) struct Credentials {
    pub(super) username: String,
    pub(super) password: String,
    pub(super) token: String,
}

impl Credentials {
    pub(super) fn new(username: &str, password: &str) -> Self {
        Self {
            token: base64(format!("{username}:{password}").as_bytes()),
            username: username.to_owned(),
            password: password.to_owned(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) credentials: Credentials,
    pub(super) reserved: ReservedPaths,
    pub(super) judge: Judge,
    pub(super) lines: Lines,
    pub(super) uploads: AtomicUsize,
    stop: AtomicBool,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) pod: Pod,
    pub(super) knobs: Knobs,
    pub(super) applies: Vec<Applied>,
    pub(super) state_reads: usize,
}

impl Inner {
    /// A remembered refusal of the set as the manifest declares it. Only SHA-256 digests
    /// are believed before the content is there.
    pub(super) fn declared_bad(&mut self, manifest: &Manifest) -> Option<ApplyResult> {
        let mut set = Fold::new();
        for file in &manifest.files {
            match file.digest {
                Digest::Sha256(bytes) => set.insert(file.path.clone(), bytes),
                Digest::Xxh64(_) => return None,
            };
        }
        self.pod.known_bad(&set, &manifest.plan_id)
    }
}

impl Shared {
    pub(super) fn new(
        credentials: Credentials,
        reserved: ReservedPaths,
        judge: Judge,
        lines: Lines,
        pod: Pod,
    ) -> Self {
        Self {
            credentials,
            reserved,
            judge,
            lines,
            uploads: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                pod,
                knobs: Knobs::default(),
                applies: Vec::new(),
                state_reads: 0,
            }),
            changed: Condvar::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whoever waits that something changed.
    pub(super) fn ring(&self) {
        self.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        // Under the lock, so that nobody is between its look and its wait.
        let inner = self.lock();
        self.stop.store(true, Ordering::SeqCst);
        drop(inner);
        self.ring();
    }

    pub(super) fn stops(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Waits until `ready`; false if the fake ends first.
    pub(super) fn wait_until(&self, ready: impl Fn(&Inner) -> bool) -> bool {
        let mut inner = self.lock();
        while !ready(&inner) {
            if self.stops() {
                return false;
            }
            inner = self.tick(inner, TICK);
        }
        true
    }

    /// Waits for so long; false if the fake ends first.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let end = SystemClock.now() + time;
        let mut inner = self.lock();
        loop {
            let left = end.saturating_duration_since(SystemClock.now());
            if left.is_zero() || self.stops() {
                return !self.stops();
            }
            inner = self.tick(inner, left);
        }
    }

    /// Runs reloads when their time has come, until the fake ends.
    pub(super) fn keep(&self) {
        let mut guard = self.lock();
        while !self.stops() {
            let fires = guard.pod.pending.as_ref().and_then(|pending| pending.fires);
            let left = fires.map(|at| at.saturating_duration_since(SystemClock.now()));
            if left.is_some_and(|left| left.is_zero()) {
                self.run(&mut guard).fire();
                continue;
            }
            guard = match left {
                Some(left) => self.tick(guard, left),
                None => self
                    .changed
                    .wait(guard)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    pub(super) fn run<'a>(&'a self, inner: &'a mut Inner) -> Run<'a> {
        Run {
            pod: &mut inner.pod,
            knobs: &mut inner.knobs,
            judge: &self.judge,
        }
    }

    fn tick<'a>(&'a self, guard: MutexGuard<'a, Inner>, time: Duration) -> MutexGuard<'a, Inner> {
        self.changed
            .wait_timeout(guard, time)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}
