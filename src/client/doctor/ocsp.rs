//! How long an OCSP response is valid, read off its bytes.
//!
//! No DER reader: the one field that matters is `[0] EXPLICIT GeneralizedTime`, four fixed
//! bytes and fifteen digits, and nothing else in a response begins like it.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::format::calendar::days;

/// `[0]`, 17 bytes; GeneralizedTime, 15 bytes.
const NEXT_UPDATE: [u8; 4] = [0xA0, 0x11, 0x18, 0x0F];

const SECONDS_A_DAY: i64 = 86_400;

/// What HAProxy will make of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Validity {
    /// It is none, or cut.
    Broken,
    /// It has no end, which HAProxy does not take.
    Endless,
    /// It was valid until then.
    Over(String),
    Valid,
}

pub(super) fn validity(response: &[u8], now: SystemTime) -> Validity {
    if !is_sequence(response) {
        return Validity::Broken;
    }
    let at = response.windows(4).position(|four| four == NEXT_UPDATE);
    let Some(digits) = at.and_then(|at| response.get(at + 4..at + 18)) else {
        return Validity::Endless;
    };
    match moment(digits) {
        None => Validity::Broken,
        Some((seconds, words)) if is_past(seconds, now) => Validity::Over(words),
        Some(_) => Validity::Valid,
    }
}

/// The end, `YYYYMMDDhhmmss`, in words for people, if it has passed.
pub(super) fn passed(end: &str, now: SystemTime) -> Option<String> {
    let (seconds, words) = moment(end.as_bytes())?;
    is_past(seconds, now).then_some(words)
}

fn is_past(seconds: i64, now: SystemTime) -> bool {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).is_ok_and(|now| now > seconds)
}

/// One SEQUENCE and nothing behind it.
fn is_sequence(bytes: &[u8]) -> bool {
    let (length, rest) = match bytes {
        [0x30, short @ 0..=0x7F, rest @ ..] => (usize::from(*short), rest),
        [0x30, 0x81, one, rest @ ..] => (usize::from(*one), rest),
        [0x30, 0x82, high, low, rest @ ..] => {
            (usize::from(u16::from_be_bytes([*high, *low])), rest)
        }
        _ => return false,
    };
    length == rest.len()
}

/// `YYYYMMDDhhmmss` as seconds since the epoch, and for people.
fn moment(digits: &[u8]) -> Option<(i64, String)> {
    let text = std::str::from_utf8(digits).ok()?;
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    let of_day = hour * 3600 + minute * 60 + second;
    let words = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC");
    Some((days(year, month, day) * SECONDS_A_DAY + of_day, words))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn response(next_update: Option<&str>) -> Vec<u8> {
        let mut inner = vec![0x0A, 0x01, 0x00];
        inner.extend(b"\x18\x0F20260101000000Z");
        if let Some(time) = next_update {
            inner.extend(NEXT_UPDATE);
            inner.extend(time.as_bytes());
            inner.push(b'Z');
        }
        let mut whole = vec![0x30, u8::try_from(inner.len()).unwrap()];
        whole.extend(inner);
        whole
    }

    #[test]
    fn a_response_is_valid_until_its_next_update() {
        // 2026-01-11 00:00:00
        let now = UNIX_EPOCH + Duration::from_secs(1_768_089_600);
        let over = Validity::Over("2026-01-10 23:59 UTC".into());
        for (response, validity_of_it) in [
            (response(Some("20260110235959")), over),
            (response(Some("20260111000000")), Validity::Valid),
            (response(Some("20991231235959")), Validity::Valid),
            (response(Some("soon and later")), Validity::Broken),
            (response(None), Validity::Endless),
            (b"junk\n".to_vec(), Validity::Broken),
            (Vec::new(), Validity::Broken),
            (response(None)[..9].to_vec(), Validity::Broken),
        ] {
            assert_eq!(validity(&response, now), validity_of_it, "{response:?}");
        }
    }
}
