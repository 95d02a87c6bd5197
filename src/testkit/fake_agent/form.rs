//! Form data, parsed once more.
//!
//! The agent has a parser of its own and so has this fake: a controller whose requests
//! both understand is right about the format, not about one reader of it. Parts are kept
//! in memory, each bounded by what its reader says.

use std::fmt;
use std::io::{self, Read};

/// What stands before the first delimiter, and a part's head, at most.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// A boundary, as the standard has it.
const MAX_BOUNDARY_BYTES: usize = 70;

const READ_BYTES: usize = 16 * 1024;

/// What stands in front of a content: the end of the empty line before it.
const EMPTY_LINE: usize = 2;

/// Why a body is refused.
#[derive(Debug)]
pub(super) enum FormError {
    /// The form is broken; in words.
    Broken(String),
    /// More than the limit was sent.
    TooLarge,
    /// The connection.
    Source(io::Error),
}

impl fmt::Display for FormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(what) => f.write_str(what),
            Self::TooLarge => f.write_str("the body is larger than an apply may be"),
            Self::Source(error) => error.fmt(f),
        }
    }
}

fn broken<T>(what: impl Into<String>) -> Result<T, FormError> {
    Err(FormError::Broken(what.into()))
}

/// What a part says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) name: String,
    pub(super) filename: Option<String>,
}

/// The boundary that a content type names.
pub(super) fn boundary(content_type: &str) -> Result<String, FormError> {
    let mut fields = Fields::of(content_type);
    let kind = fields.first();
    if !kind.eq_ignore_ascii_case("multipart/form-data") {
        return broken("the content type must be multipart/form-data with a boundary");
    }
    let mut found = None;
    for (name, value) in fields.rest()? {
        if name.eq_ignore_ascii_case("boundary") && found.replace(value).is_some() {
            return broken("the content type has two boundaries");
        }
    }
    match found {
        Some(text) if (1..=MAX_BOUNDARY_BYTES).contains(&text.len()) => Ok(text),
        Some(_) => broken("the boundary must have 1 to 70 characters"),
        None => broken("the content type has no boundary"),
    }
}

/// A header value of the form `word; name=value; name="quoted value"`.
struct Fields<'a>(&'a str);

impl<'a> Fields<'a> {
    fn of(value: &'a str) -> Self {
        Self(value)
    }

    fn first(&mut self) -> &'a str {
        let (word, rest) = self.0.split_once(';').unwrap_or((self.0, ""));
        self.0 = rest;
        word.trim()
    }

    fn rest(&mut self) -> Result<Vec<(&'a str, String)>, FormError> {
        let mut found = Vec::new();
        loop {
            self.0 = self.0.trim_start_matches([' ', '\t', ';']);
            if self.0.is_empty() {
                return Ok(found);
            }
            let Some((name, rest)) = self.0.split_once('=') else {
                return broken(format!("{:?} is no parameter of a header", self.0));
            };
            let (value, rest) = match rest.strip_prefix('"') {
                Some(quoted) => unquoted(quoted)?,
                None => {
                    let end = rest.find(';').unwrap_or(rest.len());
                    let (value, rest) = rest.split_at(end);
                    (value.trim().to_owned(), rest)
                }
            };
            found.push((name.trim(), value));
            self.0 = rest;
        }
    }
}

/// The text up to the closing quote, `\"` and `\\` resolved, and what follows it.
fn unquoted(text: &str) -> Result<(String, &str), FormError> {
    let mut value = String::new();
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (c, escaped) {
            ('"' | '\\', true) => {
                value.push(c);
                escaped = false;
            }
            (c, true) => {
                value.push('\\');
                value.push(c);
                escaped = false;
            }
            ('\\', false) => escaped = true,
            ('"', false) => {
                let rest = text.get(at + 1..).unwrap_or_default();
                return Ok((value, rest));
            }
            (c, false) => value.push(c),
        }
    }
    broken("a quoted value of a header does not end")
}

/// A form that is read part by part.
pub(super) struct Form<R> {
    source: R,
    /// Read and not yet used.
    bytes: Vec<u8>,
    delimiter: Vec<u8>,
    /// Bytes that may still be read.
    left: u64,
    ended: bool,
    started: bool,
    closed: bool,
}

impl<R: Read> Form<R> {
    /// Reads at most `limit` bytes of `source`.
    pub(super) fn new(source: R, boundary: &str, limit: u64) -> Self {
        Self {
            source,
            // The first delimiter then looks like the others.
            bytes: b"\r\n".to_vec(),
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            left: limit,
            ended: false,
            started: false,
            closed: false,
        }
    }

    /// The next part's head; `None` after the last part.
    pub(super) fn head(&mut self) -> Result<Option<Head>, FormError> {
        if !self.started {
            self.started = true;
            if self.content(MAX_HEAD_BYTES)?.is_none() {
                return broken("too much stands before the first delimiter");
            }
        }
        if self.closed {
            return Ok(None);
        }
        let end = loop {
            if self.bytes.starts_with(b"\r\n") {
                break 0;
            }
            if let Some(at) = find(&self.bytes, b"\r\n\r\n") {
                break at + 2;
            }
            if self.bytes.len() > MAX_HEAD_BYTES {
                return broken("a part's head does not end");
            }
            if !self.more()? {
                return broken("the body ends in a part's head");
            }
        };
        let lines: Vec<u8> = self.bytes.drain(..end).collect();
        // The line end of the empty line stays: a part without content may have no other.
        let Ok(text) = String::from_utf8(lines) else {
            return broken("a part's head is not UTF-8");
        };
        head(&text).map(Some)
    }

    /// The content of the part whose head was read last, if it has at most `most` bytes:
    /// `None` is a longer one, read to its end all the same.
    pub(super) fn content(&mut self, most: usize) -> Result<Option<Vec<u8>>, FormError> {
        let mut content = Vec::new();
        let mut longer = false;
        loop {
            let at = find(&self.bytes, &self.delimiter);
            // Without a delimiter all but its possible beginning is content.
            let keep = self.delimiter.len().saturating_sub(1);
            let upto = at.unwrap_or(self.bytes.len().saturating_sub(keep));
            let taken = self.bytes.drain(..upto);
            if content.len() + upto <= most.saturating_add(EMPTY_LINE) {
                content.extend(taken);
            } else {
                longer = true;
                drop(taken);
            }
            if at.is_some() && self.delimited()? {
                break;
            }
            if at.is_some() {
                // The delimiter's bytes, and something behind them: content after all.
                let taken = self.bytes.drain(..self.delimiter.len());
                content.extend(taken);
                continue;
            }
            if !self.more()? {
                return broken("the body ends before its closing delimiter");
            }
        }
        // The empty line's own end stands in front.
        content.drain(..content.len().min(EMPTY_LINE));
        longer = longer || content.len() > most;
        Ok((!longer).then_some(content))
    }

    /// A delimiter's bytes stand in front: takes them if they are one.
    fn delimited(&mut self) -> Result<bool, FormError> {
        let at = self.delimiter.len();
        while self.bytes.len() < at + 4 && self.more()? {}
        let behind = self.bytes.get(at..).unwrap_or_default();
        let dashes = behind.starts_with(b"--");
        let rest = behind.get(if dashes { 2 } else { 0 }..).unwrap_or_default();
        let blanks = rest
            .iter()
            .take_while(|b| matches!(b, b' ' | b'\t'))
            .count();
        let length = at + usize::from(dashes) * 2 + blanks;
        let end = rest.get(blanks..).unwrap_or_default();
        if end.starts_with(b"\r\n") {
            // The line end begins the head, and stays for a closing one's epilogue.
            self.bytes.drain(..length + 2);
            self.closed = dashes;
            return Ok(true);
        }
        if dashes && end.is_empty() && self.ended {
            self.bytes.clear();
            self.closed = true;
            return Ok(true);
        }
        match dashes {
            true => broken("something stands behind the closing delimiter"),
            false => Ok(false),
        }
    }

    /// Reads what follows the closing delimiter, so that the connection can be used again.
    pub(super) fn finish(mut self) -> Result<(), FormError> {
        let mut behind = self.bytes.len();
        self.bytes.clear();
        while self.more()? {
            behind += self.bytes.len();
            self.bytes.clear();
            if behind > MAX_HEAD_BYTES {
                return broken("too much stands behind the closing delimiter");
            }
        }
        Ok(())
    }

    /// Reads once; false at the end of the body.
    fn more(&mut self) -> Result<bool, FormError> {
        if self.ended {
            return Ok(false);
        }
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match self.source.read(&mut buffer) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(false);
                }
                Ok(count) => {
                    self.left = match self.left.checked_sub(count as u64) {
                        Some(left) => left,
                        None => return Err(FormError::TooLarge),
                    };
                    self.bytes
                        .extend_from_slice(buffer.get(..count).unwrap_or_default());
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FormError::Source(error)),
            }
        }
    }
}

fn head(text: &str) -> Result<Head, FormError> {
    let mut found = None;
    for line in text.split_terminator("\r\n") {
        let Some((name, value)) = line.split_once(':') else {
            return broken(format!("{line:?} is no header of a part"));
        };
        if !name.eq_ignore_ascii_case("content-disposition") {
            continue;
        }
        let mut fields = Fields::of(value);
        if !fields.first().eq_ignore_ascii_case("form-data") {
            return broken("a part is no form data");
        }
        let (mut name, mut filename) = (None, None);
        for (key, value) in fields.rest()? {
            match key.to_ascii_lowercase().as_str() {
                "name" => name = Some(value),
                "filename" => filename = Some(value),
                // Anything else says nothing about which file it is.
                _ => {}
            }
        }
        let Some(name) = name else {
            return broken("a part has no name");
        };
        if found.replace(Head { name, filename }).is_some() {
            return broken("a part says twice what it is");
        }
    }
    match found {
        Some(head) => Ok(head),
        None => broken("a part does not say what it is"),
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = wanted.first()?;
    let mut from = 0;
    loop {
        let rest = bytes.get(from..)?;
        let at = from + rest.iter().position(|byte| byte == first)?;
        if bytes.get(at..)?.starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out a body a few bytes at a time.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            let (now, later) = self.0.split_at(count);
            buffer[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    type Parts = Vec<(Head, Vec<u8>)>;

    fn read(body: &[u8], step: usize) -> Result<Parts, FormError> {
        let mut form = Form::new(Drip(body, step), "b", 1 << 20);
        let mut parts = Vec::new();
        while let Some(head) = form.head()? {
            let content = form.content(1 << 16)?.unwrap();
            parts.push((head, content));
        }
        form.finish()?;
        Ok(parts)
    }

    fn part(name: &str, content: &[u8]) -> (Head, Vec<u8>) {
        let head = Head {
            name: name.to_owned(),
            filename: None,
        };
        (head, content.to_vec())
    }

    #[test]
    fn parts_come_out_alike_whatever_the_pieces() {
        let body = b"preamble\r\n--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none\r\n--b \t\r\nContent-Disposition: form-data; name=n\r\nX-Other: 1\r\n\r\n\r\n--bx\r\n--b\r\n--\r\n\r\n--b\r\nContent-Disposition: form-data; name=\"empty\"\r\n\r\n\r\n--b--\r\nepilogue";
        // `--bx` and `--b` of a content line: the first is no delimiter, the second is one.
        let whole = b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none\r\n--bx\r\ntwo\r\n--b\r\nContent-Disposition: form-data; name=\"empty\"\r\n\r\n\r\n--b--\r\n";
        for step in [1, 2, 3, 7, 50, 10_000] {
            let parts = read(whole, step).unwrap();
            assert_eq!(
                parts,
                [part("a", b"one\r\n--bx\r\ntwo"), part("empty", b"")],
                "{step}"
            );
            // A head that is no head, after a delimiter in the middle of a content.
            assert!(read(body, step).is_err(), "{step}");
        }
    }

    #[test]
    fn names_are_unescaped_and_percent_signs_stay() {
        let body = b"--b\r\ncontent-disposition: Form-Data; name=\"a\\\"b\\\\c\\d%22\"; filename=\"x/y\"\r\n\r\n1\r\n--b--";
        let parts = read(body, 5).unwrap();
        assert_eq!(parts[0].0.name, "a\"b\\c\\d%22");
        assert_eq!(parts[0].0.filename.as_deref(), Some("x/y"));
        assert_eq!(parts[0].1, b"1");
    }

    #[test]
    fn what_is_cut_off_or_no_form_is_refused() {
        let good = b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none\r\n--b--";
        assert_eq!(read(good, 4).unwrap().len(), 1);
        for cut in 0..good.len() {
            assert!(read(&good[..cut], 4).is_err(), "{cut}");
        }
        for bad in [
            &b"--b\r\n\r\none\r\n--b--"[..],
            b"--b\r\nContent-Disposition: form-data\r\n\r\none\r\n--b--",
            b"--b\r\nContent-Disposition: attachment; name=a\r\n\r\none\r\n--b--",
            b"--b\r\nno header\r\n\r\none\r\n--b--",
            b"--b\r\nContent-Disposition: form-data; name=\"a\r\n\r\none\r\n--b--",
            b"--b--x\r\n",
        ] {
            assert!(read(bad, 3).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn limits_hold_for_a_part_and_for_the_whole() {
        let body = b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n0123456789\r\n--b--";
        let mut form = Form::new(&body[..], "b", 1000);
        form.head().unwrap();
        assert_eq!(form.content(9).unwrap(), None);
        assert_eq!(form.head().unwrap(), None);
        let mut form = Form::new(&body[..], "b", 1000);
        form.head().unwrap();
        assert_eq!(form.content(10).unwrap().unwrap(), b"0123456789");
        let mut form = Form::new(Drip(body, 8), "b", 20);
        assert!(matches!(form.head(), Err(FormError::TooLarge)));
    }

    #[test]
    fn boundaries_quoted_or_not() {
        for (text, wanted) in [
            ("multipart/form-data; boundary=abc", Some("abc")),
            (
                "Multipart/Form-Data;charset=x; BOUNDARY=\"a b;c\"",
                Some("a b;c"),
            ),
            ("multipart/form-data", None),
            ("multipart/mixed; boundary=abc", None),
            ("multipart/form-data; boundary=", None),
            ("multipart/form-data; boundary=a; boundary=b", None),
        ] {
            assert_eq!(boundary(text).ok().as_deref(), wanted, "{text}");
        }
        let long = format!("multipart/form-data; boundary={}", "x".repeat(71));
        assert!(boundary(&long).is_err());
    }
}
