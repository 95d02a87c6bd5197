//! Request heads: bytes in, a checked [`Head`] or the reason for refusing it out.
//!
//! Pure, and stricter than the standard allows: whatever two parsers could read in two
//! ways is refused (folding, bare line feeds, a second length, an encoding beside a
//! length), because a proxy in front of us may have chosen the other way. Every bound
//! is in [`limits`](super::limits).

use std::ops::Range;

use super::limits::{INPUT_BYTES, MAX_FIELDS, MAX_LENGTH_DIGITS, MAX_REQUEST_LINE_BYTES};

pub use error::HeadError;

/// A place in a head's text.
type Span = Range<usize>;

/// The methods that a route may tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// GET
    Get,
    /// HEAD: answered like GET, without the body.
    Head,
    /// POST
    Post,
    /// Any other token; no route of ours takes one.
    Other,
}

/// The protocol version of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0; the connection closes after the answer.
    Http10,
    /// HTTP/1.1
    Http11,
}

/// Where a request's body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// After this many bytes, at most 18 digits.
    Length(u64),
    /// After the last chunk and its trailers.
    Chunked,
}

/// A request head that passed every rule.
#[derive(Debug)]
pub struct Head {
    text: Box<[u8]>,
    method: Method,
    method_name: Span,
    path: Span,
    query: Option<Span>,
    version: Version,
    fields: Vec<Field>,
    framing: Framing,
    expects_continue: bool,
    wants_close: bool,
}

#[derive(Debug)]
struct Field {
    name: Span,
    value: Span,
}

/// Looks for the end of a head while it arrives, and refuses at the first bad byte.
#[derive(Debug, Default)]
pub struct Scanner {
    seen: usize,
    line_start: usize,
    first_line_seen: bool,
}

impl Scanner {
    /// Goes on where the last call ended; `bytes` are all bytes so far. Returns the
    /// head's length, the empty line included, once it is complete.
    ///
    /// # Errors
    /// A control byte, a lone CR or LF, a request line or a head beyond its bound.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, HeadError> {
        let mut before = match self.seen.checked_sub(1) {
            Some(last) => bytes.get(last).copied(),
            None => None,
        };
        for (at, &byte) in bytes.iter().enumerate().skip(self.seen) {
            if at >= INPUT_BYTES {
                return Err(HeadError::TooLong);
            }
            match (before, byte) {
                (Some(b'\r'), b'\n') => {
                    let empty = at - self.line_start == 1;
                    match (empty, self.first_line_seen) {
                        (true, true) => return Ok(Some(at + 1)),
                        (true, false) => return Err(HeadError::RequestLine),
                        (false, _) => {}
                    }
                    self.first_line_seen = true;
                    self.line_start = at + 1;
                }
                (Some(b'\r'), _) | (_, b'\n') => return Err(HeadError::BareLineBreak),
                (_, b'\t' | b'\r') => {}
                (_, 0..=0x1f | 0x7f) => return Err(HeadError::ControlByte),
                (_, _) => {}
            }
            if !self.first_line_seen && at >= MAX_REQUEST_LINE_BYTES {
                return Err(HeadError::RequestLineTooLong);
            }
            before = Some(byte);
        }
        self.seen = bytes.len();
        if bytes.len() >= INPUT_BYTES {
            return Err(HeadError::TooLong);
        }
        Ok(None)
    }
}

impl Head {
    /// Reads one complete head, the empty line included and nothing after it.
    ///
    /// # Errors
    /// See [`HeadError`].
    pub fn parse(text: &[u8]) -> Result<Self, HeadError> {
        if Scanner::default().scan(text)? != Some(text.len()) {
            return Err(HeadError::RequestLine);
        }
        let mut lines = Lines { text, at: 0 };
        let line = lines.next().ok_or(HeadError::RequestLine)?;
        let (method_name, target, version) = split_request_line(text, line)?;
        // The version comes before the target, so that a preface of another protocol
        // is told which protocols are spoken.
        let version = read_version(&text[version])?;
        if !is_token(&text[method_name.clone()]) {
            return Err(HeadError::Method);
        }
        let method = match &text[method_name.clone()] {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            _ => Method::Other,
        };
        let (path, query) = split_target(text, target)?;
        let mut fields = Vec::new();
        for line in lines {
            if fields.len() == MAX_FIELDS {
                return Err(HeadError::TooManyFields);
            }
            fields.push(read_field(text, line)?);
        }
        let mut head = Self {
            text: text.into(),
            method,
            method_name,
            path,
            query,
            version,
            fields,
            framing: Framing::None,
            expects_continue: false,
            wants_close: false,
        };
        head.interpret()?;
        Ok(head)
    }

    /// The method, as far as routes tell them apart.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The method as it was sent.
    #[must_use]
    pub fn method_name(&self) -> &str {
        self.ascii(&self.method_name)
    }

    /// The target without its query, exactly as sent; always starts with a slash. An
    /// absolute URL has lost its scheme and authority.
    #[must_use]
    pub fn path(&self) -> &str {
        match self.ascii(&self.path) {
            "" => "/",
            path => path,
        }
    }

    /// What stands after the first question mark.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.query.as_ref().map(|range| self.ascii(range))
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// How the body ends.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// Whether the connection ends after this request.
    #[must_use]
    pub fn wants_close(&self) -> bool {
        self.wants_close
    }

    /// The first field of this name, whatever its case, without the spaces around it.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.values(name).next()
    }

    /// All fields, in the order they were sent.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields
            .iter()
            .map(|field| (self.ascii(&field.name), &self.text[field.value.clone()]))
    }

    fn values<'h>(&'h self, name: &str) -> impl Iterator<Item = &'h [u8]> {
        self.fields()
            .filter(move |(have, _)| have.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// Only for ranges that were checked to be ASCII.
    fn ascii(&self, range: &Span) -> &str {
        std::str::from_utf8(&self.text[range.clone()]).unwrap_or_default()
    }

    /// The rules that concern fields together: host, framing, expectation, closing.
    fn interpret(&mut self) -> Result<(), HeadError> {
        let hosts = self.values("host").count();
        let host_missing = match self.version {
            Version::Http10 => false,
            Version::Http11 => hosts == 0,
        };
        if hosts > 1 || host_missing {
            return Err(HeadError::Host);
        }
        let lengths = self.values("content-length").count();
        let encodings = self.values("transfer-encoding").count();
        if lengths > 1 {
            return Err(HeadError::LengthTwice);
        }
        if encodings > 1 || (encodings == 1 && lengths == 1) {
            return Err(HeadError::EncodingMisplaced);
        }
        if let Some(encoding) = self.header("transfer-encoding") {
            match self.version {
                Version::Http10 => return Err(HeadError::EncodingMisplaced),
                Version::Http11 => {}
            }
            if !encoding.eq_ignore_ascii_case(b"chunked") {
                return Err(HeadError::EncodingUnknown);
            }
            self.framing = Framing::Chunked;
        }
        if let Some(length) = self.header("content-length") {
            self.framing = Framing::Length(read_length(length)?);
        }
        match self.version {
            Version::Http10 => self.wants_close = true,
            Version::Http11 => {
                if let Some(expect) = self.header("expect") {
                    if !expect.eq_ignore_ascii_case(b"100-continue") {
                        return Err(HeadError::Expect);
                    }
                    self.expects_continue = true;
                }
                let close = self
                    .values("connection")
                    .flat_map(|value| value.split(|&byte| byte == b','))
                    .any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"));
                self.wants_close = close;
            }
        }
        Ok(())
    }
}

/// The lines of a scanned head, without their line ends and without the empty one.
struct Lines<'a> {
    text: &'a [u8],
    at: usize,
}

impl Iterator for Lines<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let rest = self.text.get(self.at..)?;
        let length = rest.iter().position(|&byte| byte == b'\r')?;
        if length == 0 {
            return None;
        }
        let line = self.at..self.at + length;
        self.at = line.end + 2;
        Some(line)
    }
}

fn split_request_line(text: &[u8], line: Span) -> Result<(Span, Span, Span), HeadError> {
    let bytes = &text[line.clone()];
    let mut spaces = (line.start..).zip(bytes).filter(|&(_, &byte)| byte == b' ');
    let (first, second) = match (spaces.next(), spaces.next(), spaces.next()) {
        (Some((first, _)), Some((second, _)), None) => (first, second),
        _ => return Err(HeadError::RequestLine),
    };
    let parts = (line.start..first, first + 1..second, second + 1..line.end);
    if parts.0.is_empty() || parts.1.is_empty() || parts.2.is_empty() {
        return Err(HeadError::RequestLine);
    }
    Ok(parts)
}

fn read_version(word: &[u8]) -> Result<Version, HeadError> {
    match word {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(HeadError::VersionUnknown)
        }
        _ => Err(HeadError::Version),
    }
}

/// The path and the query of a target. The path is empty when an absolute URL has none.
fn split_target(text: &[u8], target: Span) -> Result<(Span, Option<Span>), HeadError> {
    let bytes = &text[target.clone()];
    if !bytes.iter().all(u8::is_ascii_graphic) {
        return Err(HeadError::Target);
    }
    let start = if bytes.first() == Some(&b'/') {
        target.start
    } else {
        target.start + authority_end(bytes).ok_or(HeadError::Target)?
    };
    match text[start..target.end]
        .iter()
        .position(|&byte| byte == b'?')
    {
        Some(mark) => Ok((start..start + mark, Some(start + mark + 1..target.end))),
        None => Ok((start..target.end, None)),
    }
}

/// Where the path of an absolute URL begins.
fn authority_end(target: &[u8]) -> Option<usize> {
    let scheme = [b"http://".as_slice(), b"https://"]
        .into_iter()
        .find(|scheme| {
            target
                .get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        })?;
    let authority = &target[scheme.len()..];
    let length = authority
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?'))
        .unwrap_or(authority.len());
    (length > 0).then_some(scheme.len() + length)
}

fn read_field(text: &[u8], line: Span) -> Result<Field, HeadError> {
    let bytes = &text[line.clone()];
    if matches!(bytes.first(), Some(b' ' | b'\t')) {
        return Err(HeadError::Folded);
    }
    let colon = bytes
        .iter()
        .position(|&byte| byte == b':')
        .ok_or(HeadError::FieldName)?;
    if !is_token(&bytes[..colon]) {
        return Err(HeadError::FieldName);
    }
    let mut value = line.start + colon + 1..line.end;
    while value.start < value.end && matches!(text[value.start], b' ' | b'\t') {
        value.start += 1;
    }
    while value.start < value.end && matches!(text[value.end - 1], b' ' | b'\t') {
        value.end -= 1;
    }
    Ok(Field {
        name: line.start..line.start + colon,
        value,
    })
}

fn read_length(value: &[u8]) -> Result<u64, HeadError> {
    if value.is_empty() || value.len() > MAX_LENGTH_DIGITS {
        return Err(HeadError::Length);
    }
    value.iter().try_fold(0u64, |sum, byte| match byte {
        b'0'..=b'9' => Ok(sum * 10 + u64::from(byte - b'0')),
        _ => Err(HeadError::Length),
    })
}

/// One or more of the characters that names and methods are made of.
pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes.iter().all(|byte| {
            byte.is_ascii_alphanumeric()
                || matches!(
                    byte,
                    b'!' | b'#'
                        | b'$'
                        | b'%'
                        | b'&'
                        | b'\''
                        | b'*'
                        | b'+'
                        | b'-'
                        | b'.'
                        | b'^'
                        | b'_'
                        | b'`'
                        | b'|'
                        | b'~'
                )
        })
}

mod error;

#[cfg(test)]
mod tests;
