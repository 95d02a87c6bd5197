//! The request to stop, which ends every pause of a background thread.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Raised once and for good.
#[derive(Debug, Default)]
pub(super) struct Stop {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub(super) fn raise(&self) {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    pub(super) fn is_raised(&self) -> bool {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `time`; true when the stop came.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = self
            .changed
            .wait_timeout_while(raised, time, |raised| !*raised);
        *woken.unwrap_or_else(PoisonError::into_inner).0
    }
}
