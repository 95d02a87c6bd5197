//! The agents' timestamps as a person reads them: when, and how long ago.

use std::time::Duration;

use crate::clock::{Clock as _, SystemClock, UnixNanos};
use crate::format::calendar::days;

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;

/// `2026-01-02 03:04:05 UTC, 12 min ago`, by this machine's clock; the text as it is if
/// it is no timestamp of ours.
pub(super) fn moment(rfc3339: &str) -> String {
    match parse(rfc3339) {
        Some(at) => {
            let now = SystemClock.wall();
            format!("{}, {}", plain(rfc3339), relative(at, now))
        }
        None => super::words::clean(rfc3339),
    }
}

/// Whether the one is later than the other; not where one of them is no timestamp of ours.
pub(super) fn is_later(one: &str, other: &str) -> bool {
    matches!((parse(one), parse(other)), (Some(one), Some(other)) if one > other)
}

/// How long something has been running, from microseconds since the epoch.
pub(super) fn since_micros(micros: u64) -> Option<String> {
    if micros == 0 {
        return None;
    }
    let now = SystemClock.wall().0;
    let past = now - i128::from(micros) * 1000;
    match u64::try_from(past / SECOND).ok()? {
        0 => Some("less than a second".into()),
        past => Some(span(Duration::from_secs(past))),
    }
}

/// A time span in its two largest units.
pub(super) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{seconds} s"),
        60..3600 => match seconds % 60 {
            0 => format!("{} min", seconds / 60),
            rest => format!("{} min {rest} s", seconds / 60),
        },
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

fn relative(at: UnixNanos, now: UnixNanos) -> String {
    let past = now.0 - at.0;
    let whole = |nanos: i128| {
        let seconds = u64::try_from(nanos / SECOND).unwrap_or(u64::MAX);
        span(Duration::from_secs(seconds))
    };
    if past.abs() < SECOND {
        "now".into()
    } else if past > 0 {
        format!("{} ago", whole(past))
    } else {
        format!("in {}", whole(-past))
    }
}

/// Without its fraction, as people write it.
fn plain(rfc3339: &str) -> String {
    match (rfc3339.get(..10), rfc3339.get(11..19)) {
        (Some(date), Some(time)) => format!("{date} {time} UTC"),
        _ => rfc3339.to_owned(),
    }
}

/// Reads `2026-01-02T03:04:05[.123…]Z`.
fn parse(text: &str) -> Option<UnixNanos> {
    let bytes = text.as_bytes();
    let shaped = bytes.len() >= 20
        && [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')]
            .iter()
            .all(|(at, byte)| bytes.get(*at) == Some(byte));
    if !shaped {
        return None;
    }
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        let all = digits.bytes().all(|byte| byte.is_ascii_digit());
        all.then(|| digits.parse().ok()).flatten()
    };
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let real = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !real {
        return None;
    }
    let rest = text.get(19..)?.strip_suffix('Z')?;
    let nanos = match rest.strip_prefix('.') {
        None if rest.is_empty() => 0,
        Some(digits) if (1..=9).contains(&digits.len()) => {
            let value = number(20..20 + digits.len())?;
            let missing = u32::try_from(9 - digits.len()).ok()?;
            value * 10_i64.pow(missing)
        }
        Some(_) | None => return None,
    };
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(UnixNanos(i128::from(seconds) * SECOND + i128::from(nanos)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_clock_writes_is_read_back() {
        let table = [
            0,
            951_782_400_000_000_001,
            1_709_251_199_999_999_999,
            1_709_251_200_000_000_000,
            4_107_542_400_000_000_000,
            1_798_761_599_123_456_789,
        ];
        for nanos in table {
            let text = UnixNanos(nanos).rfc3339();
            assert_eq!(parse(&text), Some(UnixNanos(nanos)), "{text}");
        }
        assert_eq!(parse("1970-01-01T00:00:01Z"), Some(UnixNanos(SECOND)));
        assert_eq!(
            parse("1970-01-01T00:00:01.5Z"),
            Some(UnixNanos(SECOND * 3 / 2))
        );
    }

    #[test]
    fn what_is_no_timestamp_stays_as_it_is() {
        for text in [
            "",
            "soon",
            "2026-13-01T00:00:00Z",
            "2026-01-01T00:00:00+01:00",
            "2026-01-01T00:00:00.Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
            assert_eq!(moment(text), text);
        }
    }

    #[test]
    fn spans_have_two_units() {
        let table = [
            (0, "0 ms"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (3600, "1 h 0 min"),
            (90_000, "1 d 1 h"),
        ];
        for (seconds, text) in table {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
        let (at, later) = (UnixNanos(0), UnixNanos(SECOND * 90));
        assert_eq!(relative(at, later), "1 min 30 s ago");
        assert_eq!(relative(later, at), "in 1 min 30 s");
        assert_eq!(relative(at, at), "now");
    }
}
