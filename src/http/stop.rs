//! The request to stop, seen by everything that waits.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys::Wake;

/// A flag, and a descriptor that stays readable once the flag is up.
#[derive(Debug)]
pub(super) struct StopSignal {
    raised: AtomicBool,
    wake: Wake,
}

impl StopSignal {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            raised: AtomicBool::new(false),
            wake: Wake::new()?,
        })
    }

    pub(super) fn raise(&self) {
        self.raised.store(true, Ordering::SeqCst);
        self.wake.wake();
    }

    pub(super) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }
}

impl AsFd for StopSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Stops a [`Server`](super::Server) from any thread.
#[derive(Clone)]
pub struct Stopper {
    signal: Arc<StopSignal>,
}

impl Stopper {
    pub(super) fn new(signal: Arc<StopSignal>) -> Self {
        Self { signal }
    }

    /// Asks the server to stop and returns at once. The server closes its listener
    /// first, ends connections without a request, and lets the others finish within
    /// their grace. A second call changes nothing.
    pub fn stop(&self) {
        self.signal.raise();
    }

    /// Whether [`stop`](Self::stop) was called.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.signal.is_raised()
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopper")
            .field("stopped", &self.is_stopped())
            .finish()
    }
}
