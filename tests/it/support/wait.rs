//! The only way these tests wait: until a condition holds, and never for longer
//! than a bound.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Asks `look` until it answers `Some`. Panics with `what` when `timeout` is over.
pub(crate) fn until<T>(what: &str, timeout: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    match try_until(timeout, &mut look) {
        Some(seen) => seen,
        None => panic!("{what}: not seen within {timeout:?}"),
    }
}

/// Like [`until`], but `look` says what it saw instead, and the panic repeats it.
pub(crate) fn until_ok<T, E: Debug>(
    what: &str,
    timeout: Duration,
    mut look: impl FnMut() -> Result<T, E>,
) -> T {
    let mut last = None;
    let seen = try_until(timeout, &mut || match look() {
        Ok(value) => Some(value),
        Err(other) => {
            last = Some(other);
            None
        }
    });
    match seen {
        Some(value) => value,
        None => panic!("{what}: not seen within {timeout:?}; last: {last:?}"),
    }
}

/// Asks `look` until it answers `Some` or `timeout` is over; at least once.
pub(crate) fn try_until<T>(timeout: Duration, look: &mut dyn FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + timeout;
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::sleep(LOOK_EVERY);
    }
}
