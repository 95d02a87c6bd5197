//! Readiness, and the bound on uploads.
//!
//! Ready means that this agent accepts applies; it is set once and never taken back,
//! whatever becomes of an apply. A readiness that followed outcomes would take the
//! repair path away exactly when an operator needs it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Uploads under way at one time. Each may hold a whole set in the staging
/// directories, so this bounds the disk that strangers' requests can fill.
pub const MAX_UPLOADS: usize = 4;

/// The two counters that a request meets before its manifest.
#[derive(Debug, Default)]
pub struct Gate {
    ready: AtomicBool,
    uploads: AtomicUsize,
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
    pub fn open(&self) {
        self.ready.store(true, Ordering::Release);
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
