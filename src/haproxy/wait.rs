//! Deadlines, and the one place of this layer that waits without a socket.
//!
//! Every wait ends by a [`Deadline`]; there is no way to wait for ever.

use crate::clock::{Clock, SystemClock};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// First pause between two looks: a worker is there within milliseconds of its verdict.
pub const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Longest pause between two looks: late enough to cost nothing, early enough to go unnoticed.
pub const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// What no deadline exceeds: a caller that asks for more is cut to a day.
const FURTHEST: Duration = Duration::from_secs(86_400);

/// The instant at which a wait ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// `timeout` from now, at most a day.
    #[must_use]
    pub fn after(timeout: Duration) -> Self {
        Self::from(SystemClock.now(), timeout)
    }

    /// `timeout` after `start`, at most a day.
    #[must_use]
    pub fn from(start: Instant, timeout: Duration) -> Self {
        Self(start + timeout.min(FURTHEST))
    }

    /// The earlier one of this and `timeout` from now.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        self.min(Self::after(timeout))
    }

    /// What is left; `None` once it has passed, so that a zero never reaches a
    /// socket option, where it would mean "for ever".
    #[must_use]
    pub fn remaining(self) -> Option<Duration> {
        self.0
            .checked_duration_since(SystemClock.now())
            .filter(|left| !left.is_zero())
    }

    /// Whether it has passed.
    #[must_use]
    pub fn passed(self) -> bool {
        self.remaining().is_none()
    }
}

/// Pauses that double from [`FIRST_PAUSE`] to [`LONGEST_PAUSE`].
#[derive(Debug, Clone)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST_PAUSE }
    }
}

impl Backoff {
    /// Waits for the next pause or what is left until the deadline. False when the
    /// deadline has passed; nobody should look again then.
    pub fn pause(&mut self, deadline: Deadline) -> bool {
        let Some(left) = deadline.remaining() else {
            return false;
        };
        pause(self.next.min(left));
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        !deadline.passed()
    }
}

/// Waits `time`, or a little less when the system wakes it early; never longer than
/// [`LONGEST_PAUSE`].
pub(crate) fn pause(time: Duration) {
    let nobody = Condvar::new();
    let lock = Mutex::new(());
    let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
    let _woken = nobody.wait_timeout(held, time.min(LONGEST_PAUSE));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passed_deadline_leaves_nothing() {
        let now = SystemClock.now();
        assert_eq!(Deadline::from(now, Duration::ZERO).remaining(), None);
        assert!(Deadline::after(Duration::ZERO).passed());
        assert!(!Deadline::after(Duration::MAX).passed());
    }

    #[test]
    fn the_earlier_deadline_counts() {
        let near = Deadline::after(Duration::from_secs(1));
        assert_eq!(near.within(Duration::from_secs(100)), near);
        assert!(near.within(Duration::ZERO) < near);
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_stop_at_the_deadline() {
        let mut backoff = Backoff::default();
        let far = Deadline::after(Duration::from_secs(60));
        for _ in 0..6 {
            assert!(backoff.pause(far));
        }
        assert_eq!(backoff.next, LONGEST_PAUSE);
        assert!(!backoff.pause(Deadline::after(Duration::ZERO)));
        assert!(!backoff.pause(Deadline::after(Duration::from_millis(2))));
    }
}
