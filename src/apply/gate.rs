//! Readiness, and the bound on uploads.
//!
//! Ready means that startup has finished; it is set once and never taken back, whatever
//! becomes of an apply. A readiness that followed outcomes would take the repair path
//! away exactly when an operator needs it. For the same reason applies are taken before
//! that where HAProxy does not come up: what they bring may be what it lacks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Uploads under way at one time. Each may hold a whole set in the staging
/// directories, so this bounds the disk that strangers' requests can fill.
pub const MAX_UPLOADS: usize = 4;

/// The two counters that a request meets before its manifest.
#[derive(Debug, Default)]
pub struct Gate {
    ready: AtomicBool,
    open: AtomicBool,
    uploads: AtomicUsize,
    /// What startup waits for.
    waits_for: Mutex<String>,
}

/// A place among the [`MAX_UPLOADS`]; given back when dropped.
#[derive(Debug)]
pub struct UploadSlot<'a>(&'a Gate);

impl Gate {
    /// Whether startup has finished.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Startup has finished. There is no way back.
    pub fn ready(&self) {
        self.ready.store(true, Ordering::Release);
        self.open();
    }

    /// Whether applies are taken and the state is told.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Applies are taken from now on, ready or not.
    pub(super) fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// Says what startup waits for.
    pub(super) fn waits_for(&self, what: &str) {
        let mut waits = self
            .waits_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        what.clone_into(&mut waits);
    }

    /// Why it is not ready yet.
    #[must_use]
    pub fn why_not_ready(&self) -> String {
        let waits = self
            .waits_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match waits.as_str() {
            "" => "the agent is still starting; see its log".to_owned(),
            what => format!("the agent is still starting and waits for HAProxy: {what}"),
        }
    }

    /// A place for one more upload, or `None` when all are taken.
    #[must_use]
    pub fn upload(&self) -> Option<UploadSlot<'_>> {
        let taken = self
            .uploads
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
                (taken < MAX_UPLOADS).then_some(taken + 1)
            });
        // Not `then_some`: a slot that is made and dropped gives back a place it never had.
        taken.is_ok().then(|| UploadSlot(self))
    }
}

impl Drop for UploadSlot<'_> {
    fn drop(&mut self) {
        self.0.uploads.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_bounded_and_come_back() {
        let gate = Gate::default();
        let slots: Vec<_> = (0..MAX_UPLOADS).map(|_| gate.upload().unwrap()).collect();
        assert!(gate.upload().is_none());
        drop(slots);
        assert!(gate.upload().is_some());
    }
}
