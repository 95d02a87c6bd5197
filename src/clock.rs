//! The only place that asks for the time.
//!
//! Deadlines and durations use the monotonic clock, wire timestamps and what must
//! survive a restart use the wall clock; a test can hand in its own. Nothing here
//! sleeps: waiting belongs to whoever owns a bound and a wake-up.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the Unix epoch, as the wall clock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixNanos(pub i128);

/// A source of time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Monotonic time, for deadlines and durations.
    fn now(&self) -> Instant;
    /// Wall-clock time, for timestamps and what outlives the process.
    fn wall(&self) -> UnixNanos;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> UnixNanos {
        let nanos = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i128::try_from(since.as_nanos()).unwrap_or(i128::MAX),
            Err(before) => -i128::try_from(before.duration().as_nanos()).unwrap_or(i128::MAX),
        };
        UnixNanos(nanos)
    }
}

/// The machine's clocks, shared.
#[must_use]
pub fn system() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

impl UnixNanos {
    /// This instant plus `by`.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i128::try_from(by.as_nanos()).unwrap_or(i128::MAX)),
        )
    }

    /// RFC 3339 in UTC with all nine digits of the fraction, `2026-01-02T03:04:05.000000006Z`.
    #[must_use]
    pub fn rfc3339(self) -> String {
        let nanos = self.0.rem_euclid(1_000_000_000);
        let seconds = self.0.div_euclid(1_000_000_000);
        let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        format!(
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{nanos:09}Z",
            of_day / 3600,
            of_day / 60 % 60,
            of_day % 60
        )
    }
}

/// The civil date of a day number since 1970-01-01, in the proleptic Gregorian
/// calendar: years are counted from March, so that the leap day comes last.
fn civil(days: i128) -> (i128, i128, i128) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + i128::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants_print_as_rfc_3339() {
        let table = [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400_000_000_001, "2000-02-29T00:00:00.000000001Z"),
            (1_709_251_199_999_999_999, "2024-02-29T23:59:59.999999999Z"),
            (1_709_251_200_000_000_000, "2024-03-01T00:00:00.000000000Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000000000Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
        ];
        for (nanos, text) in table {
            assert_eq!(UnixNanos(nanos).rfc3339(), text);
        }
    }
}
