//! The request to stop, which ends every pause of a background thread.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Raised once and for good.
#[derive(Debug, Default)]
pub struct Stop {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Raises it; a second call changes nothing.
    pub fn raise(&self) {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Whether it is raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `time`; true when the stop came.
    #[must_use]
    pub fn pause(&self, time: Duration) -> bool {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = self
            .changed
            .wait_timeout_while(raised, time, |raised| !*raised);
        *woken.unwrap_or_else(PoisonError::into_inner).0
    }
}
