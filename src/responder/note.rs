//! Who set an override, why and when, and how that stands in a file of the directory
//! store. A note explains; no answer depends on it.
//!
//! A file has its value in the first line. Further lines are `name: text`:
//!
//! ```text
//! drain
//! until: 2026-09-10T12:00:00Z
//! by: alice
//! why: kernel update
//! at: 2026-09-10T11:30:00Z
//! ```
//!
//! Names that are not known are passed over, so that later versions may add some; a
//! line that has no such form makes the file invalid, and so does an `until` that is no
//! time, because an override that was meant to end must not stay for good unnoticed.

use super::copy::Entry;
use super::kv::Weights;
use super::stamp::Stamp;
use super::value::{InvalidValue, MAX_VALUE_BYTES, Value};
use std::fmt;

/// The longest `by` and the longest `why`, in bytes.
pub const MAX_TEXT_BYTES: usize = 256;
/// The longest file: a value, an end, and the longest note.
pub const MAX_FILE_BYTES: usize = 1024;

/// What a person wants to know about an override.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Note {
    /// Who set it.
    pub by: Option<String>,
    /// Why.
    pub why: Option<String>,
    /// When.
    pub at: Option<Stamp>,
}

impl Note {
    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A file of the directory store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// What answers follow.
    pub entry: Entry,
    /// The rest.
    pub note: Note,
}

/// Reads a file's bytes.
#[must_use]
pub fn read_file(bytes: &[u8], weights: Weights) -> File {
    let invalid = |why| File {
        entry: Entry::new(Err(why), None),
        note: Note::default(),
    };
    let content = bytes.trim_ascii();
    if bytes.len() > MAX_FILE_BYTES || content.is_empty() {
        let long = bytes.len() > MAX_VALUE_BYTES;
        return invalid(if long {
            InvalidValue::TooLong
        } else {
            InvalidValue::Empty
        });
    }
    let Some(end) = content.iter().position(|byte| *byte == b'\n') else {
        return File {
            entry: Entry::new(weights.parse(bytes), None),
            note: Note::default(),
        };
    };
    let (first, rest) = content.split_at(end);
    let mut until = None;
    let mut note = Note::default();
    for line in rest.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let text = String::from_utf8_lossy(line);
        let known = text.split_once(':').filter(|(name, _)| is_name(name));
        let refused = || InvalidValue::Note(shortened(&text).into());
        let Some((name, value)) = known else {
            return invalid(refused());
        };
        let value = value.trim();
        match name {
            "until" => match Stamp::parse(value) {
                Some(stamp) => until = Some(stamp),
                None => return invalid(refused()),
            },
            "by" => note.by = Some(value.to_owned()),
            "why" => note.why = Some(value.to_owned()),
            "at" => note.at = Stamp::parse(value),
            _ => {}
        }
    }
    File {
        entry: Entry::new(weights.parse(first), until),
        note,
    }
}

/// The bytes of a file.
#[must_use]
pub fn write_file(value: Value, until: Option<Stamp>, note: &Note) -> Vec<u8> {
    let mut text = format!("{value}\n");
    let mut line = |name: &str, value: Option<&dyn fmt::Display>| {
        if let Some(value) = value {
            text += &format!("{name}: {value}\n");
        }
    };
    line("until", until.as_ref().map(|s| s as &dyn fmt::Display));
    line("by", note.by.as_ref().map(|s| s as &dyn fmt::Display));
    line("why", note.why.as_ref().map(|s| s as &dyn fmt::Display));
    line("at", note.at.as_ref().map(|s| s as &dyn fmt::Display));
    text.into_bytes()
}

/// Whether `text` may stand in a note: one line, not too long, not blank.
#[must_use]
pub fn is_text(text: &str) -> bool {
    !text.trim().is_empty()
        && text.len() <= MAX_TEXT_BYTES
        && !text
            .chars()
            .any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase())
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> File {
        read_file(bytes, Weights::Set)
    }

    #[test]
    fn a_value_alone() {
        for bytes in [&b"drain"[..], b"drain\n", b"\n drain \r\n\n", b"DRAIN\n"] {
            let file = read(bytes);
            assert_eq!(file.entry, Entry::new(Ok(Value::Drain), None));
            assert!(file.note.is_empty());
        }
    }

    #[test]
    fn a_value_with_all_that_may_follow() {
        let file = read(
            b"50%\nuntil: 2026-09-10T12:00:00Z\nby: alice\n\nwhy: kernel: update\r\nticket: 7\nat: 2026-09-10T11:30:00Z\n",
        );
        let until = Stamp::parse("2026-09-10T12:00:00Z");
        assert_eq!(file.entry, Entry::new(Ok(Value::Weight(50)), until));
        assert_eq!(file.note.by.as_deref(), Some("alice"));
        assert_eq!(file.note.why.as_deref(), Some("kernel: update"));
        assert_eq!(file.note.at, Stamp::parse("2026-09-10T11:30:00Z"));
    }

    #[test]
    fn what_makes_a_file_invalid() {
        let long = [b"drain\nwhy: ".as_slice(), &[b'x'; MAX_FILE_BYTES]].concat();
        let table: [(&[u8], InvalidValue); 9] = [
            (b"", InvalidValue::Empty),
            (b" \n\n", InvalidValue::Empty),
            (&[b' '; 65], InvalidValue::TooLong),
            (&long, InvalidValue::TooLong),
            (b"drain\nmaint", InvalidValue::Note("maint".into())),
            (
                b"drain\nuntil: tomorrow",
                InvalidValue::Note("until: tomorrow".into()),
            ),
            (b"drain\nuntil:", InvalidValue::Note("until:".into())),
            (
                b"drain\nUntil: 2026-09-10T12:00:00Z",
                InvalidValue::Note("Until: 2026-09-10T12:00:00Z".into()),
            ),
            (b"by: alice\ndrain", InvalidValue::Note("drain".into())),
        ];
        for (bytes, why) in table {
            assert_eq!(read(bytes).entry.stored(), Err(&why), "{bytes:?}");
        }
        let long_value = [b"drain".as_slice(), &[b' '; 64]].concat();
        assert_eq!(
            read(&long_value).entry.stored(),
            Err(&InvalidValue::TooLong)
        );
    }

    #[test]
    fn every_cut_of_a_file_is_a_prefix_of_it_or_invalid() {
        let note = Note {
            by: Some("alice".into()),
            why: Some("because".into()),
            at: Stamp::at(5),
        };
        let bytes = write_file(Value::Drain, Stamp::at(1_800_000_000), &note);
        for cut in 0..bytes.len() {
            let file = read(&bytes[..cut]);
            if let Ok(value) = file.entry.stored() {
                assert_eq!(value, Value::Drain, "cut at {cut}");
            }
        }
    }

    #[test]
    fn texts_of_one_line() {
        assert!(is_text("kernel update, ticket 7"));
        for text in ["", "  ", "a\nb", "a\u{2028}b", "\u{7}", &"x".repeat(257)] {
            assert!(!is_text(text), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            percent in 0_u16..=999,
            until in proptest::option::of(0_u64..=253_402_300_799),
            by in proptest::option::of("[^\\p{C}\\u{2028}\\u{2029}]{1,80}"),
            why in proptest::option::of("[^\\p{C}\\u{2028}\\u{2029}]{1,80}"),
            at in proptest::option::of(0_u64..=253_402_300_799),
        ) {
            let trimmed = |text: Option<String>| text.filter(|t| is_text(t)).map(|t| t.trim().to_owned());
            let note = Note { by: trimmed(by), why: trimmed(why), at: at.and_then(Stamp::at) };
            let until = until.and_then(Stamp::at);
            let bytes = write_file(Value::Weight(percent), until, &note);
            prop_assume!(bytes.len() <= MAX_FILE_BYTES);
            let file = read(&bytes);
            prop_assert_eq!(file.entry, Entry::new(Ok(Value::Weight(percent)), until));
            prop_assert_eq!(file.note, note);
        }
    }
}
