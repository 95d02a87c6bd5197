//! A listing row by row, however long it is.
//!
//! The answer is `LF` (the silent first command), the rows, a blank line, the version
//! line and a blank line. Those last three lines are held back, so that a row is never
//! one of them; only the end of the stream tells whether the answer was whole. What was
//! made of the rows before counts only then. Memory is a read's buffer and a few rows.

use super::socket::SocketError;
use super::worker::{DumpError, is_tagged, refused};
use crate::format::HaproxyVersion;
use std::collections::VecDeque;

/// The longest row: a map that thousands of rules use has one of some 100 KiB.
pub const MAX_ROW_BYTES: usize = 1024 * 1024;
/// Lines behind the last row.
const TAIL: usize = 3;
/// One read; HAProxy's own buffer has this size unless it is configured.
const READ_BYTES: usize = 16 * 1024;

/// Fills a buffer: the number of bytes, 0 at the end of the stream.
type Source<'a> = Box<dyn FnMut(&mut [u8]) -> Result<usize, SocketError> + 'a>;

/// The rows of one answer, to be read one after the other.
pub struct Rows<'a> {
    command: String,
    source: Source<'a>,
    buffer: Vec<u8>,
    /// The unread part of the buffer.
    unread: std::ops::Range<usize>,
    /// Whole lines that may be the last ones, oldest first.
    held: VecDeque<Vec<u8>>,
    /// The row that was handed out last, or room for another.
    row: Vec<u8>,
    /// The first line was seen.
    begun: bool,
    /// A first row with a severity tag is a refusal.
    listing: bool,
    bytes: usize,
}

impl<'a> Rows<'a> {
    /// The answer to `command` as `source` gives it.
    pub(super) fn new(command: &str, source: Source<'a>) -> Self {
        Self {
            command: command.to_owned(),
            source,
            buffer: vec![0; READ_BYTES],
            unread: 0..0,
            held: VecDeque::with_capacity(TAIL + 1),
            row: Vec::new(),
            begun: false,
            listing: false,
            bytes: 0,
        }
    }

    /// The same of a command that prints no message unless it refuses.
    pub(super) fn without_tags(mut self) -> Self {
        self.listing = true;
        self
    }

    /// The next row, without its LF. `None` is the end of a whole answer.
    ///
    /// # Errors
    ///
    /// [`DumpError`]: `Refused`, `Cut` when the answer does not end as it must,
    /// `RowTooBig`, `Socket`. Rows that came before mean nothing then.
    pub fn next_row(&mut self) -> Result<Option<&[u8]>, DumpError> {
        let first = std::mem::take(&mut self.listing);
        let some = self.advance()?;
        if first && some && is_tagged(&self.row) {
            return Err(self.refusal()?);
        }
        Ok(some.then_some(&*self.row))
    }

    /// What was refused, once the answer is whole.
    fn refusal(&mut self) -> Result<DumpError, DumpError> {
        let mut words = self.row.clone();
        while self.advance()? {
            if words.len() < MAX_ROW_BYTES {
                words.push(b'\n');
                words.extend_from_slice(&self.row);
            }
        }
        Ok(refused(&self.command, &words))
    }

    /// Moves the next row into place; false at the end of a whole answer.
    fn advance(&mut self) -> Result<bool, DumpError> {
        loop {
            if self.held.len() > TAIL {
                if let Some(row) = self.held.pop_front() {
                    self.row = row;
                    return Ok(true);
                }
            }
            let mut line = std::mem::take(&mut self.row);
            line.clear();
            if !self.line(&mut line)? {
                return self.end(&line).map(|()| false);
            }
            match (self.begun, line.is_empty()) {
                (true, _) => self.held.push_back(line),
                (false, true) => self.row = line,
                (false, false) => return Err(self.cut()),
            }
            self.begun = true;
        }
    }

    /// Appends one line without its LF; false when the stream ended before one.
    fn line(&mut self, line: &mut Vec<u8>) -> Result<bool, DumpError> {
        loop {
            let unread = self.buffer.get(self.unread.clone()).unwrap_or_default();
            let end = unread.iter().position(|&b| b == b'\n');
            let part = unread.get(..end.unwrap_or(unread.len()));
            line.extend_from_slice(part.unwrap_or_default());
            self.unread.start += end.map_or(unread.len(), |at| at + 1);
            if line.len() > MAX_ROW_BYTES {
                return Err(DumpError::RowTooBig {
                    command: self.command.clone(),
                });
            }
            if end.is_some() {
                return Ok(true);
            }
            let count = (self.source)(&mut self.buffer).map_err(DumpError::Socket)?;
            if count == 0 {
                return Ok(false);
            }
            self.bytes += count;
            self.unread = 0..count;
        }
    }

    /// A blank line, the version, a blank line, and nothing behind them.
    fn end(&self, rest: &[u8]) -> Result<(), DumpError> {
        let version = |line: &[u8]| {
            let text = std::str::from_utf8(line.strip_prefix(b"[6]: ")?).ok()?;
            text.parse::<HaproxyVersion>().ok()
        };
        let mut held = self.held.iter();
        let whole = match (held.next(), held.next(), held.next(), held.next()) {
            (Some(blank), Some(line), Some(last), None) => {
                rest.is_empty() && blank.is_empty() && last.is_empty() && version(line).is_some()
            }
            (_, _, _, _) => false,
        };
        match whole {
            true => Ok(()),
            false => Err(self.cut()),
        }
    }

    fn cut(&self) -> DumpError {
        DumpError::Cut {
            command: self.command.clone(),
            bytes: self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of an answer that arrives in pieces of `size` bytes.
    fn rows(answer: &[u8], size: usize) -> Result<Vec<Vec<u8>>, DumpError> {
        let mut pieces = answer.chunks(size);
        let source = Box::new(move |buffer: &mut [u8]| {
            let piece = pieces.next().unwrap_or_default();
            buffer[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        });
        let mut rows = Rows::new("show x", source);
        let mut all = Vec::new();
        while let Some(row) = rows.next_row()? {
            all.push(row.to_vec());
        }
        Ok(all)
    }

    #[test]
    fn rows_are_what_stands_before_the_version_line() {
        let table: [(&[u8], Option<&[&str]>); 12] = [
            (b"\nrow\n\n[6]: 3.4.7-1\n\n", Some(&["row"])),
            (b"\n\n[6]: 3.0.11-1+deb13u4\n\n", Some(&[])),
            (b"\n[6]: admin\n\n[6]: 3.2.26\n\n", Some(&["[6]: admin"])),
            (b"\na\n\nb\n\n[6]: 3.4.7\n\n", Some(&["a", "", "b"])),
            (b"\nrow\n\n[6]: 3.4.7-1\n", None),
            (b"\nrow\n\n[6]: 3.4.", None),
            (b"\nrow\n\n", None),
            (b"\n[6]: 3.4.7\n\n", None),
            (b"row\n\n[6]: 3.4.7\n\n", None),
            (b"\nrow\n\n3.4.7\n\n", None),
            (b"\nrow\n[6]: 3.4.7\n\n", None),
            (b"", None),
        ];
        for (answer, expected) in table {
            for size in [1, 2, 7, 100] {
                let seen = rows(answer, size).ok();
                let expected = expected.map(|rows| {
                    let rows = rows.iter().map(|row| row.as_bytes().to_vec());
                    rows.collect::<Vec<_>>()
                });
                assert_eq!(seen, expected, "{:?}", String::from_utf8_lossy(answer));
            }
        }
    }

    #[test]
    fn no_cut_of_an_answer_is_whole() {
        let whole = b"\n0x1 a [6]: 3.4.7\n0x2 b c\n\n[6]: 3.4.7-1\n\n";
        assert!(rows(whole, 5).is_ok());
        for cut in 0..whole.len() {
            assert!(rows(&whole[..cut], 5).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_row_has_an_end() {
        let mut answer = vec![b'\n'];
        answer.resize(MAX_ROW_BYTES + 2, b'x');
        let seen = rows(&answer, READ_BYTES);
        assert!(matches!(seen, Err(DumpError::RowTooBig { .. })));
        let long = [&answer[..=MAX_ROW_BYTES], b"\n\n[6]: 3.4.7\n\n"].concat();
        assert_eq!(rows(&long, READ_BYTES).unwrap()[0].len(), MAX_ROW_BYTES);
    }
}
