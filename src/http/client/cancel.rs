//! Ending an exchange from another thread.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::error::Error;
use super::stream::Stream;

/// Ends every exchange that was started with it or a clone of it, and all later ones:
/// it is used once. A blocked read or write returns at once with
/// [`Error::Cancelled`].
#[derive(Clone, Default)]
pub struct Cancel {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    cancelled: AtomicBool,
    /// As many as connections of this handle are open; each removes itself.
    streams: Mutex<Vec<Weak<Stream>>>,
    told: Condvar,
}

impl Cancel {
    /// A handle that nobody has cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Shuts all sockets down. What the peer makes of a request that it has read by now
    /// is unknown.
    pub fn cancel(&self) {
        // The flag comes first: whoever registers after the walk below sees it.
        self.shared.cancelled.store(true, Ordering::SeqCst);
        for stream in self.streams().drain(..) {
            if let Some(stream) = stream.upgrade() {
                stream.shut();
            }
        }
        self.shared.told.notify_all();
    }

    /// Waits for so long, or less if somebody cancels. Returns whether nobody did.
    #[must_use]
    pub fn pause(&self, time: Duration) -> bool {
        let until = super::after(time);
        let mut streams = self.streams();
        loop {
            if self.is_cancelled() {
                return false;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            streams = match self.shared.told.wait_timeout(streams, left) {
                Ok((streams, _)) => streams,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Whether it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancelled.load(Ordering::SeqCst)
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if self.is_cancelled() {
            Err(Error::Cancelled)
        } else {
            Ok(())
        }
    }

    /// Registers a socket until the guard is dropped.
    pub(super) fn watch(&self, stream: &Arc<Stream>) -> Result<Watch, Error> {
        let stream = Arc::downgrade(stream);
        self.streams().push(stream.clone());
        let watch = Watch {
            cancel: self.clone(),
            stream,
        };
        self.check()?;
        Ok(watch)
    }

    /// The list is whole after every step, so a panic elsewhere did not harm it.
    fn streams(&self) -> MutexGuard<'_, Vec<Weak<Stream>>> {
        self.shared
            .streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel")
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// A registered socket.
pub(super) struct Watch {
    cancel: Cancel,
    stream: Weak<Stream>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut streams = self.cancel.streams();
        if let Some(at) = streams.iter().position(|s| s.ptr_eq(&self.stream)) {
            streams.swap_remove(at);
        }
    }
}
