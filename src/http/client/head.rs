//! Answer heads: bytes in, a checked [`Head`] or the reason for refusing it out. Pure.

use std::ops::Range;

use super::error::Error;
use super::{MAX_FIELDS, MAX_HEAD_BYTES, Method};

/// Digits of a Content-Length: any such number fits 64 bits.
const MAX_LENGTH_DIGITS: usize = 18;

/// An answer's head.
#[derive(Debug)]
pub struct Head {
    text: Box<[u8]>,
    status: u16,
    old: bool,
    fields: Vec<(Range<usize>, Range<usize>)>,
}

/// Where an answer's body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length(u64),
    Chunked,
    ToTheEnd,
}

/// The length of the head at the start of `bytes`, its empty line included, once it is
/// there.
pub(super) fn end(bytes: &[u8]) -> Result<Option<usize>, Error> {
    let bound = &bytes[..bytes.len().min(MAX_HEAD_BYTES)];
    if let Some(at) = bound.windows(4).position(|four| four == b"\r\n\r\n") {
        return Ok(Some(at + 4));
    }
    // A peer that speaks something else is told apart at its first bytes.
    let start = b"HTTP/1.";
    let seen = bytes.len().min(start.len());
    if bytes[..seen] != start[..seen] {
        return Err(Error::Malformed("it does not start with HTTP/1."));
    }
    if bytes.len() >= MAX_HEAD_BYTES {
        return Err(Error::Malformed("its head is too long"));
    }
    Ok(None)
}

impl Head {
    /// Reads one complete head, the empty line included and nothing after it.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Error> {
        let mut lines = Vec::new();
        let mut at = 0;
        loop {
            let rest = text.get(at..).unwrap_or_default();
            let length = rest
                .windows(2)
                .position(|two| two == b"\r\n")
                .ok_or(Error::Malformed("a line of its head has no end"))?;
            if length == 0 {
                break;
            }
            if rest[..length]
                .iter()
                .any(|&byte| byte != b'\t' && (byte < 0x20 || byte == 0x7f))
            {
                return Err(Error::Malformed("a control byte in its head"));
            }
            lines.push(at..at + length);
            at += length + 2;
        }
        let mut lines = lines.into_iter();
        let first = lines
            .next()
            .ok_or(Error::Malformed("it has no status line"))?;
        let (old, status) = status_line(&text[first])?;
        let mut fields = Vec::new();
        for line in lines {
            if fields.len() == MAX_FIELDS {
                return Err(Error::Malformed("its head has too many fields"));
            }
            fields.push(field(text, line)?);
        }
        Ok(Self {
            text: text.into(),
            status,
            old,
            fields,
        })
    }

    /// The status, 200 to 599 in an answer that a caller gets to see.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The first field of this name, whatever its case, without the spaces around it.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.values(name).next()
    }

    /// As [`field`](Self::field), where it is ASCII.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        let value = self.field(name)?;
        value
            .is_ascii()
            .then(|| std::str::from_utf8(value).unwrap_or_default())
    }

    fn values<'h>(&'h self, name: &str) -> impl Iterator<Item = &'h [u8]> {
        self.fields
            .iter()
            .filter(move |(have, _)| self.text[have.clone()].eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| &self.text[value.clone()])
    }

    /// Whether a final answer follows. An upgrade was never asked for.
    pub(super) fn is_interim(&self) -> Result<bool, Error> {
        match self.status {
            101 => Err(Error::Malformed("it switches protocols")),
            100..=199 => Ok(true),
            _ => Ok(false),
        }
    }

    /// How the body of an answer to `method` ends.
    pub(super) fn framing(&self, method: Method) -> Result<Framing, Error> {
        let lengths = self.values("content-length").count();
        let encodings = self.values("transfer-encoding").count();
        if lengths > 1 || encodings > 1 || (lengths == 1 && encodings == 1) {
            return Err(Error::Malformed("its length is stated twice"));
        }
        let length = match self.field("content-length") {
            Some(digits) => Some(read_length(digits)?),
            None => None,
        };
        if let Some(encoding) = self.field("transfer-encoding") {
            if self.old || !encoding.eq_ignore_ascii_case(b"chunked") {
                return Err(Error::Malformed("an encoding that we do not take"));
            }
        }
        if method == Method::Head || matches!(self.status, 204 | 304) {
            return Ok(Framing::None);
        }
        Ok(match (length, encodings) {
            (Some(length), _) => Framing::Length(length),
            (None, 1) => Framing::Chunked,
            (None, _) => Framing::ToTheEnd,
        })
    }

    /// Whether the connection ends after this answer.
    pub(super) fn closes(&self) -> bool {
        let says = |wanted: &[u8]| {
            self.values("connection")
                .flat_map(|value| value.split(|&byte| byte == b','))
                .any(|word| word.trim_ascii().eq_ignore_ascii_case(wanted))
        };
        says(b"close") || (self.old && !says(b"keep-alive"))
    }
}

/// `HTTP/1.x`, a space, three digits, and a space with a reason or nothing.
fn status_line(line: &[u8]) -> Result<(bool, u16), Error> {
    let old = match line.get(..9) {
        Some(b"HTTP/1.1 ") => false,
        Some(b"HTTP/1.0 ") => true,
        _ => return Err(Error::Malformed("its version is unknown")),
    };
    let digits = line.get(9..12).unwrap_or_default();
    let after = line.get(12);
    let shaped = digits.len() == 3
        && digits.iter().all(u8::is_ascii_digit)
        && matches!(after, None | Some(b' '));
    let status = digits.iter().fold(0, |sum, digit| {
        sum * 10 + u16::from(digit.wrapping_sub(b'0'))
    });
    if !shaped || !(100..=599).contains(&status) {
        return Err(Error::Malformed("its status is no number from 100 to 599"));
    }
    Ok((old, status))
}

fn field(text: &[u8], line: Range<usize>) -> Result<(Range<usize>, Range<usize>), Error> {
    let bytes = &text[line.clone()];
    let colon = bytes
        .iter()
        .position(|&byte| byte == b':')
        .ok_or(Error::Malformed("a field of its head has no colon"))?;
    // A folded line starts with a space, which no name holds.
    if !is_token(&bytes[..colon]) {
        return Err(Error::Malformed("a field name in its head is none"));
    }
    let value = &bytes[colon + 1..];
    let blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
    let leading = value.iter().take_while(blank).count();
    let trailing = value[leading..].iter().rev().take_while(blank).count();
    let start = line.start + colon + 1 + leading;
    Ok((line.start..line.start + colon, start..line.end - trailing))
}

pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

fn read_length(digits: &[u8]) -> Result<u64, Error> {
    let shaped =
        (1..=MAX_LENGTH_DIGITS).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    if !shaped {
        return Err(Error::Malformed("its Content-Length is no number"));
    }
    Ok(digits
        .iter()
        .fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}
