//! Where one answer of an interactive session ends and the next begins.
//!
//! Pure: bytes in, answers out. An answer is empty (`LF > SP` at once) or ends at the
//! first empty line followed by the prompt. A bare prompt after a single LF is content:
//! lines that start with `> ` occur. In front of the answer to a payload command HAProxy
//! may print `+ ` any number of times, without end while a line is incomplete; these are
//! skipped and never kept.
//!
//! What remains possible is content with an empty line before a line that starts with
//! `> `. No answer to a change can hold that; listings can and are not read this way.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;

/// One answer within a session, payload echoes removed. Answers to changes have a line
/// or two; a certificate refusal may have a dozen.
pub const MAX_REPLY_BYTES: usize = 64 * 1024;

const EMPTY: &[u8] = b"\n> ";
const END: &[u8] = b"\n\n> ";

/// One answer, its prompt removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    body: Vec<u8>,
}

impl Reply {
    /// As it came: empty, or ending in LF.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Whether HAProxy said nothing, which for many commands is success.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.body.is_empty()
    }

    /// The digit of the leading `[n]: `; listings and some commits have none.
    #[must_use]
    pub fn severity(&self) -> Option<u8> {
        match self.body.as_slice() {
            [b'[', digit @ b'0'..=b'7', b']', b':', b' ', ..] => Some(digit - b'0'),
            _ => None,
        }
    }

    /// The words behind the tag, without the last LF; invalid UTF-8 replaced, so that
    /// it cannot equal any expected text.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        let body = self.body.strip_suffix(b"\n").unwrap_or(&self.body);
        let tag = self.severity().map_or(0, |_| "[n]: ".len());
        String::from_utf8_lossy(body.get(tag..).unwrap_or_default())
    }
}

/// Cuts the bytes of a session into answers.
#[derive(Debug, Default)]
pub struct Splitter {
    /// For each open command, oldest first: whether it had a payload.
    open: VecDeque<bool>,
    state: State,
    buffer: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first byte that counts.
    #[default]
    Start,
    /// After a `+` that may be half an echo.
    Plus,
    /// In the answer.
    Body,
}

impl Splitter {
    /// Adds a command whose answer is to come.
    pub fn expect(&mut self, has_payload: bool) {
        self.open.push_back(has_payload);
    }

    /// Takes back the newest `count` commands, of which nothing was written.
    pub fn forget_newest(&mut self, count: usize) {
        self.open.truncate(self.open.len().saturating_sub(count));
    }

    /// Commands without an answer.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// What has come of the answer that is not complete.
    #[must_use]
    pub fn partial(&self) -> &[u8] {
        &self.buffer
    }

    /// Takes the next bytes; complete answers are appended to `replies`, oldest first.
    ///
    /// # Errors
    ///
    /// [`OutOfStep`]; what is in `replies` came before the fault.
    pub fn feed(&mut self, bytes: &[u8], replies: &mut Vec<Reply>) -> Result<(), OutOfStep> {
        for &byte in bytes {
            let Some(&payload) = self.open.front() else {
                return Err(OutOfStep::Unasked);
            };
            match (self.state, byte) {
                (State::Start, b'+') if payload => {
                    self.state = State::Plus;
                    continue;
                }
                (State::Plus, b' ') => {
                    self.state = State::Start;
                    continue;
                }
                (State::Plus, _) => self.buffer.push(b'+'),
                (State::Start | State::Body, _) => {}
            }
            self.state = State::Body;
            self.buffer.push(byte);
            if byte == b' ' && (self.buffer == EMPTY || self.buffer.ends_with(END)) {
                let body = match self.buffer.len().saturating_sub(EMPTY.len()) {
                    0 => Vec::new(),
                    length => self.buffer.get(..length).unwrap_or_default().to_vec(),
                };
                self.buffer.clear();
                self.state = State::Start;
                self.open.pop_front();
                replies.push(Reply { body });
            } else if self.buffer.len() > MAX_REPLY_BYTES {
                return Err(OutOfStep::TooLong);
            }
        }
        Ok(())
    }
}

/// The session cannot be trusted any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutOfStep {
    /// Bytes came that no command asked for.
    Unasked,
    /// An answer above [`MAX_REPLY_BYTES`].
    TooLong,
}

impl fmt::Display for OutOfStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unasked => f.write_str("HAProxy sent more answers than there were commands"),
            Self::TooLong => write!(
                f,
                "an answer of HAProxy has more than {MAX_REPLY_BYTES} bytes"
            ),
        }
    }
}

impl Error for OutOfStep {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds in pieces of `step` bytes: bodies, and what is left open.
    fn split(
        payloads: &[bool],
        wire: &[u8],
        step: usize,
    ) -> Result<(Vec<String>, usize), OutOfStep> {
        let mut splitter = Splitter::default();
        for &payload in payloads {
            splitter.expect(payload);
        }
        let mut replies = Vec::new();
        for piece in wire.chunks(step) {
            splitter.feed(piece, &mut replies)?;
        }
        let bodies = replies
            .iter()
            .map(|r| String::from_utf8(r.body().to_vec()).unwrap());
        Ok((bodies.collect(), splitter.open()))
    }

    #[test]
    fn answers_end_where_the_rules_say() {
        const P: bool = true;
        const N: bool = false;
        type Case<'a> = (&'a str, &'a [bool], &'a str, &'a [&'a str], usize);
        let table: &[Case<'_>] = &[
            ("silent", &[N], "\n> ", &[""], 0),
            ("message", &[N], "[6]: Done.\n\n> ", &["[6]: Done.\n"], 0),
            ("two silent", &[N, N], "\n> \n> ", &["", ""], 0),
            (
                "silent, message, silent",
                &[N, N, N],
                "\n> a\n\n> \n> ",
                &["", "a\n", ""],
                0,
            ),
            ("dump of lines", &[N], "a\nb\n\n> ", &["a\nb\n"], 0),
            (
                "a line that looks like a prompt",
                &[N],
                "a\n> b\n\n> ",
                &["a\n> b\n"],
                0,
            ),
            (
                "and is a whole line",
                &[N],
                "a\n> \nb\n\n> ",
                &["a\n> \nb\n"],
                0,
            ),
            (
                "an empty line that is no end",
                &[N],
                "a\n\nb\n\n> ",
                &["a\n\nb\n"],
                0,
            ),
            (
                "an answer that starts with LF",
                &[N],
                "\na\n\n> ",
                &["\na\n"],
                0,
            ),
            ("an answer that is one LF", &[N], "\n\n> ", &["\n"], 0),
            ("echoes", &[P], "+ + + \n> ", &[""], 0),
            (
                "echoes before a message",
                &[P],
                "+ + [3]: no\n\n> ",
                &["[3]: no\n"],
                0,
            ),
            ("no echo", &[P], "\n> ", &[""], 0),
            (
                "echo without payload is content",
                &[N],
                "+ a\n\n> ",
                &["+ a\n"],
                0,
            ),
            ("half an echo is content", &[P], "+ +a\n\n> ", &["+a\n"], 0),
            (
                "an echo later is content",
                &[P],
                "+ a\n+ b\n\n> ",
                &["a\n+ b\n"],
                0,
            ),
            (
                "payload after silent",
                &[N, P, N],
                "\n> + + \n> x\n\n> ",
                &["", "", "x\n"],
                0,
            ),
            ("nothing yet", &[N], "", &[], 1),
            ("cut in the prompt", &[N], "a\n\n>", &[], 1),
            ("no end without the empty line", &[N, N], "a\n> ", &[], 2),
        ];
        for (what, payloads, wire, bodies, open) in table {
            for step in [1, 2, 3, 1000] {
                let (seen, left) = split(payloads, wire.as_bytes(), step).unwrap();
                assert_eq!(
                    (seen.as_slice(), left),
                    (&bodies.map_owned()[..], *open),
                    "{what}, {step}"
                );
            }
        }
    }

    trait MapOwned {
        fn map_owned(&self) -> Vec<String>;
    }

    impl MapOwned for &[&str] {
        fn map_owned(&self) -> Vec<String> {
            self.iter().map(|text| (*text).to_owned()).collect()
        }
    }

    #[test]
    fn more_answers_than_commands_are_out_of_step() {
        for wire in ["\n> x", "\n> \n", "a\n\n> \n> "] {
            assert_eq!(split(&[false], wire.as_bytes(), 1), Err(OutOfStep::Unasked));
            assert_eq!(
                split(&[false], wire.as_bytes(), 99),
                Err(OutOfStep::Unasked)
            );
        }
        assert_eq!(split(&[], b"x", 1), Err(OutOfStep::Unasked));
    }

    #[test]
    fn an_answer_is_capped_and_echoes_are_not_kept() {
        let long = vec![b'x'; MAX_REPLY_BYTES + 1];
        assert_eq!(split(&[false], &long, 1000), Err(OutOfStep::TooLong));
        let mut echoes = b"+ ".repeat(100_000);
        echoes.extend_from_slice(b"\n> ");
        assert_eq!(
            split(&[true], &echoes, 999).unwrap(),
            (vec![String::new()], 0)
        );
        let mut splitter = Splitter::default();
        splitter.expect(true);
        splitter.feed(&b"+ ".repeat(1000), &mut Vec::new()).unwrap();
        assert!(splitter.partial().is_empty());
    }

    #[test]
    fn tags_are_digits_in_their_exact_form() {
        let reply = |body: &str| Reply { body: body.into() };
        let table = [
            ("[3]: no\n", Some(3), "no"),
            ("[6]: \n", Some(6), ""),
            ("[3]: a\nb\n", Some(3), "a\nb"),
            ("Success!\n", None, "Success!"),
            ("[8]: x\n", None, "[8]: x"),
            ("[3] x\n", None, "[3] x"),
            ("", None, ""),
        ];
        for (body, severity, text) in table {
            let reply = reply(body);
            assert_eq!(
                (reply.severity(), &*reply.text()),
                (severity, text),
                "{body:?}"
            );
            assert_eq!(reply.is_silent(), body.is_empty());
        }
    }

    proptest! {
        #[test]
        fn what_is_joined_is_split_again(
            replies in proptest::collection::vec((any::<bool>(), 0..5_usize, "[a>+ \\[\\]:3\n]{0,12}"), 1..20),
            step in 1..40_usize,
        ) {
            let mut wire = Vec::new();
            let (mut payloads, mut bodies) = (Vec::new(), Vec::new());
            for (payload, echoes, text) in replies {
                // HAProxy's answers: empty, or closed by LF; the one ambiguity left out,
                // and no answer to a payload command starts with an echo.
                let mut body = text;
                if !body.is_empty() { body.push('\n'); }
                let ambiguous = body.contains("\n\n> ") || body.starts_with("\n> ")
                    || (payload && body.starts_with('+'));
                if ambiguous { continue; }
                if payload { wire.extend_from_slice(&b"+ ".repeat(echoes)); }
                wire.extend_from_slice(body.as_bytes());
                wire.extend_from_slice(b"\n> ");
                payloads.push(payload);
                bodies.push(body);
            }
            prop_assert_eq!(split(&payloads, &wire, step).unwrap(), (bodies, 0));
        }
    }
}
