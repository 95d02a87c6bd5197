//! A command that may be sent inside a session.
//!
//! The checks are those without which a session loses step or HAProxy loses a thread:
//! one command a line, no payload mark where none is meant, payloads that end. What a
//! command means, and whether its words are right, is not looked at.

use crate::wire::limits::{MAX_COMMAND_LINE_BYTES, MAX_COMMAND_WORDS, MAX_PAYLOAD_BYTES};
use std::error::Error;
use std::fmt;
use std::time::Duration;

pub use crate::format::payload::MAX_PAYLOAD_LINE_BYTES;

/// How long HAProxy may take for one command, waits not counted.
pub const COMMAND_PATIENCE: Duration = Duration::from_secs(10);
/// Ends a payload. Seven characters is what HAProxy takes before 3.4.
const TERMINATOR: &str = "E_O_F";

/// The bytes of one command, its last LF included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    bytes: Vec<u8>,
    payload: bool,
    patience: Duration,
}

impl Command {
    /// A command of one line, given without its LF.
    ///
    /// # Errors
    ///
    /// [`CommandFault`]: empty, a comment, several commands, a byte that ends or escapes,
    /// too long, too many words, a last word that starts a payload, `prompt` or `quit`.
    pub fn line(text: &str) -> Result<Self, CommandFault> {
        let mut own = String::with_capacity(text.len() + 1);
        own.push_str(text);
        Self::from_line(own)
    }

    /// [`line`](Self::line) of a text that is not needed any more.
    ///
    /// # Errors
    ///
    /// As [`line`](Self::line).
    pub fn from_line(text: String) -> Result<Self, CommandFault> {
        check_line(&text, 0)?;
        let mut bytes = text.into_bytes();
        bytes.push(b'\n');
        Ok(Self {
            bytes,
            payload: false,
            patience: COMMAND_PATIENCE,
        })
    }

    /// A command with a payload: `text <<E_O_F`, `body`, `E_O_F`. A body whose last line
    /// is open gets an LF. It has `budget` bytes in all, [`MAX_PAYLOAD_BYTES`] at most.
    ///
    /// # Errors
    ///
    /// As [`line`](Self::line), and for a body that is empty, has a NUL, a line that ends
    /// the payload, or a line or size above the limits.
    pub fn with_payload(text: &str, body: &[u8], budget: usize) -> Result<Self, CommandFault> {
        check_line(text, 1)?;
        check_body(body)?;
        let budget = budget.min(MAX_PAYLOAD_BYTES);
        let mut bytes = format!("{text} <<{TERMINATOR}\n").into_bytes();
        bytes.extend_from_slice(body);
        if !body.ends_with(b"\n") {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(TERMINATOR.as_bytes());
        bytes.push(b'\n');
        if bytes.len() > budget {
            return Err(CommandFault::PayloadTooBig {
                bytes: bytes.len(),
                budget,
            });
        }
        Ok(Self {
            bytes,
            payload: true,
            patience: COMMAND_PATIENCE,
        })
    }

    /// The same with another patience; for a `wait`, its budget and two seconds.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// What is written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the answer may be preceded by payload echoes.
    #[must_use]
    pub fn has_payload(&self) -> bool {
        self.payload
    }

    /// How long its answer may take once it is the oldest open one.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Its first line, without payload mark, for messages.
    #[must_use]
    pub fn text(&self) -> String {
        let line = self.bytes.split(|&b| b == b'\n').next().unwrap_or_default();
        let text = String::from_utf8_lossy(line);
        match self.payload {
            true => text
                .trim_end_matches(TERMINATOR)
                .trim_end_matches(" <<")
                .to_owned(),
            false => text.into_owned(),
        }
    }
}

fn check_line(text: &str, more_words: usize) -> Result<(), CommandFault> {
    let mut words = text
        .as_bytes()
        .split(|b| matches!(b, b' ' | b'\t'))
        .filter(|word| !word.is_empty());
    let first = words.next().ok_or(CommandFault::Empty)?;
    if first.starts_with(b"#") || first == b"prompt" || first == b"quit" {
        let word = String::from_utf8_lossy(first);
        return Err(CommandFault::NotForASession {
            word: word.chars().take(20).collect(),
        });
    }
    let (mut count, mut last) = (1 + more_words, first);
    for word in words {
        (count, last) = (count + 1, word);
    }
    let mut escaped = false;
    for &byte in text.as_bytes() {
        // A backslash keeps a blank in its word, and is nothing that a line needs otherwise.
        if escaped && byte != b' ' {
            return Err(CommandFault::Byte { byte: b'\\' });
        }
        if matches!(byte, b'\n' | b'\r' | b'\0' | b';') {
            return Err(CommandFault::Byte { byte });
        }
        escaped = byte == b'\\';
    }
    if escaped {
        return Err(CommandFault::Byte { byte: b'\\' });
    }
    if count > MAX_COMMAND_WORDS {
        return Err(CommandFault::TooManyWords { words: count });
    }
    if text.len() + 1 > MAX_COMMAND_LINE_BYTES {
        return Err(CommandFault::LineTooLong {
            bytes: text.len() + 1,
        });
    }
    match more_words == 0 && last.starts_with(b"<<") {
        true => Err(CommandFault::PayloadMark),
        false => Ok(()),
    }
}

fn check_body(body: &[u8]) -> Result<(), CommandFault> {
    if body.iter().all(|&b| b == b'\n') {
        return Err(CommandFault::EmptyPayload);
    }
    if body.contains(&0) {
        return Err(CommandFault::Byte { byte: 0 });
    }
    for line in body.split(|&b| b == b'\n') {
        if line == TERMINATOR.as_bytes() {
            return Err(CommandFault::Terminator);
        }
        if line.len() + 1 > MAX_PAYLOAD_LINE_BYTES {
            return Err(CommandFault::PayloadLineTooLong {
                bytes: line.len() + 1,
            });
        }
    }
    Ok(())
}

/// Why something cannot be sent as one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandFault {
    /// No word.
    Empty,
    /// A first word that changes or ends the session or is no command.
    NotForASession {
        /// The word.
        word: String,
    },
    /// A byte that would end, split or escape.
    Byte {
        /// The byte.
        byte: u8,
    },
    /// More words than HAProxy reads.
    TooManyWords {
        /// How many.
        words: usize,
    },
    /// A line above [`MAX_COMMAND_LINE_BYTES`].
    LineTooLong {
        /// Its length.
        bytes: usize,
    },
    /// A last word that HAProxy takes for the start of a payload.
    PayloadMark,
    /// A payload without content: HAProxy would take the terminator for it.
    EmptyPayload,
    /// A payload line that ends the payload early.
    Terminator,
    /// A payload line above [`MAX_PAYLOAD_LINE_BYTES`].
    PayloadLineTooLong {
        /// Its length.
        bytes: usize,
    },
    /// A payload command above the version's budget.
    PayloadTooBig {
        /// Its size.
        bytes: usize,
        /// What is possible.
        budget: usize,
    },
}

impl fmt::Display for CommandFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the command is empty"),
            Self::NotForASession { word } => write!(f, "{word:?} is no command for a session"),
            Self::Byte { byte } => write!(f, "the byte 0x{byte:02x} cannot be sent in a command"),
            Self::TooManyWords { words } => write!(
                f,
                "the command has {words} words and HAProxy reads {MAX_COMMAND_WORDS}"
            ),
            Self::LineTooLong { bytes } => write!(
                f,
                "the command has {bytes} bytes and at most {MAX_COMMAND_LINE_BYTES} are sent on one line"
            ),
            Self::PayloadMark => {
                f.write_str("the last word starts with << and would start a payload")
            }
            Self::EmptyPayload => f.write_str("the payload is empty"),
            Self::Terminator => write!(f, "a line of the payload is {TERMINATOR}, which ends it"),
            Self::PayloadLineTooLong { bytes } => write!(
                f,
                "a line of the payload has {bytes} bytes and at most {MAX_PAYLOAD_LINE_BYTES} are possible"
            ),
            Self::PayloadTooBig { bytes, budget } => write!(
                f,
                "the command with its payload has {bytes} bytes and this HAProxy takes {budget}"
            ),
        }
    }
}

impl Error for CommandFault {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::limits::MAX_PAYLOAD_BYTES;

    #[test]
    fn what_goes_on_the_wire() {
        let line = Command::line("show map").unwrap();
        assert_eq!(line.bytes(), b"show map\n");
        assert_eq!(
            (line.text().as_str(), line.has_payload()),
            ("show map", false)
        );
        for body in ["k v", "k v\n"] {
            let payload =
                Command::with_payload("add map m", body.as_bytes(), MAX_PAYLOAD_BYTES).unwrap();
            assert_eq!(payload.bytes(), b"add map m <<E_O_F\nk v\nE_O_F\n");
            assert_eq!(
                (payload.text().as_str(), payload.has_payload()),
                ("add map m", true)
            );
        }
    }

    #[test]
    fn lines_that_would_break_a_session_are_refused() {
        let words = |count: usize| vec!["w"; count].join(" ");
        let long = |bytes: usize| "x".repeat(bytes - 1);
        assert!(Command::line(&words(MAX_COMMAND_WORDS)).is_ok());
        assert!(Command::line(&long(MAX_COMMAND_LINE_BYTES)).is_ok());
        for bad in [
            "",
            "  ",
            "# x",
            "prompt",
            "prompt i",
            "quit",
            "a;b",
            "a\nb",
            "a\r",
            "a\0",
            "a\\",
            "a\\\\ b",
            "a\\\tb",
            "a\\nb",
            "a \\ <<E",
            "add map m <<",
            "add map m <<E",
            &words(MAX_COMMAND_WORDS + 1),
            &long(MAX_COMMAND_LINE_BYTES + 1),
        ] {
            assert!(Command::line(bad).is_err(), "{bad:.40?}");
        }
        assert!(
            Command::line("set map m << v").is_ok(),
            "a mark elsewhere is a word"
        );
        assert!(
            Command::line("add server b/s agent-send b/s\\ group").is_ok(),
            "a blank within a word"
        );
    }

    #[test]
    fn payloads_that_would_not_end_are_refused() {
        let with = |body: &[u8]| Command::with_payload("x", body, MAX_PAYLOAD_BYTES);
        let line = |bytes: usize| "x".repeat(bytes - 1).into_bytes();
        assert!(with(b"a\n\nb\n").is_ok());
        assert!(with(b"E_O_F x\n E_O_F\n").is_ok());
        // With its frame it has to be within the payload too.
        assert!(with(&line(MAX_PAYLOAD_LINE_BYTES - 64)).is_ok());
        for bad in [
            &b""[..],
            b"\n",
            b"\n\n",
            b"a\0b",
            b"a\nE_O_F\nb",
            b"E_O_F",
            &line(MAX_PAYLOAD_LINE_BYTES + 1),
        ] {
            assert!(with(bad).is_err());
        }
        let much = b"12345678901234567890123456789\n".repeat(409);
        let sized = |budget| Command::with_payload("x", &much, budget);
        let exact = sized(usize::MAX).unwrap().bytes().len();
        assert!(sized(exact).is_ok());
        assert_eq!(
            sized(exact - 1),
            Err(CommandFault::PayloadTooBig {
                bytes: exact,
                budget: exact - 1
            })
        );
    }
}
