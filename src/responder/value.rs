//! What a stored value may say: `ready`, `drain`, `maint` or `N%`, and nothing else.
//!
//! Health words (`up`, `down`, `stopped`, `fail`) are refused on purpose: health is
//! HAProxy's own, the store sets the admin state. A refused value counts as absent;
//! nothing here guesses what its writer meant.

use std::error::Error;
use std::fmt;

/// The longest value in bytes, blanks around it included. The longest legal one has
/// five; the rest is room for blanks and for words worth quoting in a complaint.
pub const MAX_VALUE_BYTES: usize = 64;
/// The greatest percentage. HAProxy cuts the resulting weight to 256 by itself.
pub const MAX_PERCENT: u16 = 999;

/// The wanted admin state of a server row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value {
    /// In service with the configured weight.
    Ready,
    /// No new connections but those that are bound to it; ends without a ramp.
    Drain,
    /// Out of service; leaving it starts the configured slow start.
    Maint,
    /// In service with this share of the configured weight in per cent, 0 to
    /// [`MAX_PERCENT`].
    Weight(u16),
}

impl Value {
    /// Reads a stored value: blanks and line ends around it are dropped, case does
    /// not matter.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`]: the key counts as absent then.
    pub fn parse(stored: &[u8]) -> Result<Self, InvalidValue> {
        if stored.len() > MAX_VALUE_BYTES {
            return Err(InvalidValue::TooLong);
        }
        let word = stored.trim_ascii().to_ascii_lowercase();
        match word.as_slice() {
            b"" => Err(InvalidValue::Empty),
            b"ready" => Ok(Self::Ready),
            b"drain" => Ok(Self::Drain),
            b"maint" => Ok(Self::Maint),
            b"up" | b"down" | b"stopped" | b"fail" => Err(InvalidValue::Health(text_of(&word))),
            word => match word.strip_suffix(b"%") {
                Some(number) => percent(number)
                    .map(Self::Weight)
                    .ok_or_else(|| InvalidValue::Percent(text_of(word))),
                None => Err(InvalidValue::Unknown(text_of(word))),
            },
        }
    }
}

impl fmt::Display for Value {
    /// As it is written into the store.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Drain => f.write_str("drain"),
            Self::Maint => f.write_str("maint"),
            Self::Weight(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Digits only, no leading zero, at most [`MAX_PERCENT`].
fn percent(digits: &[u8]) -> Option<u16> {
    let leading_zero = digits.len() > 1 && digits.first() == Some(&b'0');
    if digits.len() > 3 || leading_zero || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn text_of(word: &[u8]) -> Box<str> {
    String::from_utf8_lossy(word).into()
}

/// Why a stored value counts as absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidValue {
    /// Nothing but blanks.
    Empty,
    /// More than [`MAX_VALUE_BYTES`].
    TooLong,
    /// A word about health.
    Health(Box<str>),
    /// A percentage outside the grammar.
    Percent(Box<str>),
    /// Anything else.
    Unknown(Box<str>),
    /// A percentage where weights are left to others.
    WeightsKept,
    /// The key is too long to be asked for.
    KeyTooLong,
    /// What stands behind the value of a file is no note.
    Note(Box<str>),
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(
                f,
                "the value is empty; delete the key to end an override, or write ready, drain, maint or N%"
            ),
            Self::TooLong => write!(
                f,
                "the value has more than {MAX_VALUE_BYTES} bytes; write ready, drain, maint or N%"
            ),
            Self::Health(word) => write!(
                f,
                "{word:?} is about health, which HAProxy's own checks decide; write drain or maint to take a server out"
            ),
            Self::Percent(text) => write!(
                f,
                "{text:?} is no weight; write 0% to {MAX_PERCENT}%, without sign, leading zero or fraction"
            ),
            Self::Unknown(text) => {
                write!(f, "{text:?} is none of ready, drain, maint and N%")
            }
            Self::WeightsKept => write!(
                f,
                "weights are not set here (--weights keep); write ready, drain or maint"
            ),
            Self::KeyTooLong => write!(
                f,
                "the key has more than {} bytes, so no server can ask for it; delete it",
                super::key::MAX_KEY_BYTES
            ),
            Self::Note(line) => write!(
                f,
                "the line {line:?} behind the value is no note; a file has the value alone, or what hapticctl wrote"
            ),
        }
    }
}

impl Error for InvalidValue {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_as_a_value() {
        let table: [(&[u8], Value); 14] = [
            (b"ready", Value::Ready),
            (b"drain", Value::Drain),
            (b"maint", Value::Maint),
            (b"DRAIN", Value::Drain),
            (b"Maint\n", Value::Maint),
            (b" \t drain \r\n\n", Value::Drain),
            (b"0%", Value::Weight(0)),
            (b"7%", Value::Weight(7)),
            (b"50%", Value::Weight(50)),
            (b"100%\n", Value::Weight(100)),
            (b"300%", Value::Weight(300)),
            (b"999%", Value::Weight(999)),
            (
                b"                                                       drain    ",
                Value::Drain,
            ),
            (b"ready\n", Value::Ready),
        ];
        for (stored, value) in table {
            assert_eq!(Value::parse(stored), Ok(value), "{stored:?}");
            assert_eq!(Value::parse(value.to_string().as_bytes()), Ok(value));
        }
    }

    #[test]
    fn what_does_not() {
        let text = |text: &str| Box::<str>::from(text);
        let percent = |t: &str| InvalidValue::Percent(text(t));
        let unknown = |t: &str| InvalidValue::Unknown(text(t));
        let table: [(&[u8], InvalidValue); 27] = [
            (b"", InvalidValue::Empty),
            (b" \r\n", InvalidValue::Empty),
            (&[b' '; 65], InvalidValue::TooLong),
            (&[b'x'; 65], InvalidValue::TooLong),
            (b"up", InvalidValue::Health(text("up"))),
            (b"Down\n", InvalidValue::Health(text("down"))),
            (b"stopped", InvalidValue::Health(text("stopped"))),
            (b"fail", InvalidValue::Health(text("fail"))),
            (b"down 50%", percent("down 50%")),
            (b"007%", percent("007%")),
            (b"00%", percent("00%")),
            (b"+5%", percent("+5%")),
            (b"-5%", percent("-5%")),
            (b"50.5%", percent("50.5%")),
            (b"1000%", percent("1000%")),
            (b"%", percent("%")),
            (b"5 0%", percent("5 0%")),
            (b"50 %", percent("50 %")),
            (b"50%%", percent("50%%")),
            (b"50", unknown("50")),
            (b"weight:50", unknown("weight:50")),
            (b"drain ready", unknown("drain ready")),
            (b"drain,50%", percent("drain,50%")),
            (b"drained", unknown("drained")),
            (b"drain\nmaint", unknown("drain\nmaint")),
            (b"\0drain", unknown("\0drain")),
            (b"\xffdrain", unknown("\u{fffd}drain")),
        ];
        for (stored, why) in table {
            assert_eq!(Value::parse(stored), Err(why), "{stored:?}");
        }
    }
}
