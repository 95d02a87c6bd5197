//! A second of the calendar as it is stored: above all the end of an override.
//!
//! An end is written with the value, in one piece: in Consul as the flags of the key, in a
//! directory as a line of the file. So it outlives its writer, it can neither be lost
//! nor be left behind by a later write, and every responder acts on it alone. The price
//! is that each one does so by its own wall clock: a clock that is ahead ends the
//! override early by as much, one that is behind ends it late.

use crate::clock::UnixNanos;
use std::fmt;

/// Marks flags that are ours; the bytes spell `HAP`. Flags of any other tool are left
/// alone and mean no end.
const MAGIC: u64 = 0x48_4150;
/// Bits below the mark: seconds for 34 865 years.
const SECONDS_BITS: u32 = 40;
/// The last second that has a four-digit year, 9999-12-31T23:59:59Z.
const LAST: u64 = 253_402_300_799;
const DAY: u64 = 86_400;

/// Whole seconds since the Unix epoch, in a year of four digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// This second; `None` beyond the year 9999.
    #[must_use]
    pub fn at(seconds: u64) -> Option<Self> {
        (seconds <= LAST).then_some(Self(seconds))
    }

    /// Seconds since the epoch.
    #[must_use]
    pub fn seconds(self) -> u64 {
        self.0
    }

    /// The second that `now` is in; before 1970 it is 1970.
    #[must_use]
    pub fn of(now: UnixNanos) -> Self {
        let seconds = now.0.div_euclid(1_000_000_000);
        Self(u64::try_from(seconds).unwrap_or(0).min(LAST))
    }

    /// Whether it has come.
    #[must_use]
    pub fn has_come(self, now: UnixNanos) -> bool {
        now.0 >= i128::from(self.0) * 1_000_000_000
    }

    /// Whole seconds that are left, or, negative, that have passed since.
    #[must_use]
    pub fn left(self, now: UnixNanos) -> i64 {
        let left = i128::from(self.0) - now.0.div_euclid(1_000_000_000);
        i64::try_from(left).unwrap_or(i64::MIN)
    }

    /// As the flags of a key in Consul.
    #[must_use]
    pub fn to_flags(self) -> u64 {
        (MAGIC << SECONDS_BITS) | self.0
    }

    /// The end that these flags carry, if they are ours.
    #[must_use]
    pub fn of_flags(flags: u64) -> Option<Self> {
        if flags >> SECONDS_BITS != MAGIC {
            return None;
        }
        Self::at(flags & ((1 << SECONDS_BITS) - 1))
    }

    /// Reads `2026-01-02T03:04:05Z`; no other form, no fraction, no offset.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: &[u8; 20] = text.as_bytes().try_into().ok()?;
        let shape = b"0000-00-00T00:00:00Z";
        let same = |(byte, shape): (&u8, &u8)| match shape {
            b'0' => byte.is_ascii_digit(),
            other => byte == other,
        };
        if !bytes.iter().zip(shape).all(same) {
            return None;
        }
        let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        if year < 1970 || !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        if day == 0 || day > days_in(year, month) {
            return None;
        }
        let years: u64 = (1970..year).map(|y| if leap(y) { 366 } else { 365 }).sum();
        let months: u64 = (1..month).map(|m| days_in(year, m)).sum();
        let days = years + months + day - 1;
        Self::at(days * DAY + hour * 3600 + minute * 60 + second)
    }
}

impl fmt::Display for Stamp {
    /// `2026-01-02T03:04:05Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = UnixNanos(i128::from(self.0) * 1_000_000_000).rfc3339();
        f.write_str(text.get(..19).unwrap_or_default())?;
        f.write_str("Z")
    }
}

fn leap(year: u64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_ends_read_and_print() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (LAST, "9999-12-31T23:59:59Z"),
        ];
        for (seconds, text) in table {
            let end = Stamp::at(seconds).unwrap();
            assert_eq!(end.to_string(), text);
            assert_eq!(Stamp::parse(text), Some(end));
        }
        assert_eq!(Stamp::at(LAST + 1), None);
    }

    #[test]
    fn what_is_no_end() {
        for text in [
            "",
            "2026-01-02",
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:05+00:00",
            "2026-01-02 03:04:05Z",
            "2026-01-02T03:04:05.5Z",
            "2026-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:60Z",
            "1969-12-31T23:59:59Z",
            "+026-01-01T00:00:00Z",
        ] {
            assert_eq!(Stamp::parse(text), None, "{text}");
        }
    }

    #[test]
    fn foreign_flags_are_no_end() {
        for flags in [
            0,
            1,
            42,
            1_790_000_000,
            u64::MAX,
            0x48_4150,
            0x48_4151 << 40,
        ] {
            assert_eq!(Stamp::of_flags(flags), None, "{flags:#x}");
        }
        let far = (MAGIC << SECONDS_BITS) | (LAST + 1);
        assert_eq!(Stamp::of_flags(far), None);
    }

    #[test]
    fn an_end_comes_at_its_second() {
        let end = Stamp::at(100).unwrap();
        assert!(!end.has_come(UnixNanos(99_999_999_999)));
        assert!(end.has_come(UnixNanos(100_000_000_000)));
        assert!(!end.has_come(UnixNanos(-1)));
        assert_eq!(end.left(UnixNanos(40_000_000_000)), 60);
        assert_eq!(end.left(UnixNanos(160_000_000_000)), -60);
    }

    proptest! {
        #[test]
        fn every_end_survives_both_spellings(seconds in 0..=LAST) {
            let end = Stamp::at(seconds).unwrap();
            prop_assert_eq!(Stamp::of_flags(end.to_flags()), Some(end));
            prop_assert_eq!(Stamp::parse(&end.to_string()), Some(end));
        }
    }
}
