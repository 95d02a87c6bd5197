//! `multipart/form-data` as a stream: parts come out while the body comes in.
//!
//! It holds one buffer of fixed size whatever a peer sends; content goes straight
//! through it. It refuses what would make the end of a part uncertain: a missing
//! closing delimiter, folded part headers, an encoded part. Bounds: a part head of
//! 8 KiB and 16 fields, a preamble and an epilogue of 64 KiB each, and as many parts as
//! the caller says.

use std::fmt;
use std::io::{self, Read};

use super::disposition;

pub use super::disposition::{boundary_of, percent_decoded};
pub use error::{Framing, MultipartError};

/// A part's head, its empty line included.
pub const MAX_PART_HEAD_BYTES: usize = 8 * 1024;

/// Header fields of one part; clients send one or two.
pub const MAX_PART_FIELDS: usize = 16;

/// What may stand before the first delimiter, and again after the last one.
pub const MAX_AROUND_BYTES: usize = 64 * 1024;

/// A boundary, as the standard has it.
pub const MAX_BOUNDARY_BYTES: usize = 70;

/// Spaces between a delimiter and its line end.
const MAX_PADDING_BYTES: usize = 64;

/// The only buffer: a part head and a delimiter fit with room to spare.
const BUFFER_BYTES: usize = 32 * 1024;

const _: () =
    assert!(BUFFER_BYTES > 2 * (MAX_PART_HEAD_BYTES + MAX_BOUNDARY_BYTES + MAX_PADDING_BYTES + 8));

/// What a part says about itself, `\"` and `\\` resolved, percent signs as sent.
///
/// Clients disagree about `%22`: one writes it for a quote, another sends a name that
/// really contains it. So the literal value comes first, and [`percent_decoded`] gives
/// the other reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartHead {
    /// The form field's name.
    pub name: String,
    /// The file name, if one was sent.
    pub filename: Option<String>,
}

/// A parser over one body.
pub struct Multipart<R> {
    source: Source<R>,
    place: Place,
    parts_left: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Preamble,
    InPart,
    AtPartHead,
    Closed,
}

impl<R: Read> Multipart<R> {
    /// Reads `source`, whose parts are separated by `boundary` (see [`boundary_of`]),
    /// and refuses more than `max_parts` of them.
    pub fn new(source: R, boundary: &str, max_parts: usize) -> Self {
        Self {
            source: Source::new(source, boundary),
            place: Place::Preamble,
            parts_left: max_parts,
        }
    }

    /// Goes to the next part, past what is unread of the present one. `None` is the
    /// closing delimiter; [`finish`](Self::finish) then reads the rest.
    ///
    /// # Errors
    /// See [`Framing`]; and the reader's.
    pub fn next_part(&mut self) -> Result<Option<PartHead>, MultipartError> {
        match self.place {
            Place::Preamble => self.skip(MAX_AROUND_BYTES, Framing::NoFirstDelimiter)?,
            Place::InPart => self.skip(usize::MAX, Framing::NotClosed)?,
            Place::AtPartHead | Place::Closed => {}
        }
        if self.place == Place::Closed {
            return Ok(None);
        }
        self.parts_left = self
            .parts_left
            .checked_sub(1)
            .ok_or(Framing::TooManyParts)?;
        let head = self.source.part_head()?;
        self.place = Place::InPart;
        Ok(Some(head))
    }

    /// Reads content of the present part; 0 is its end, also before the first part and
    /// after the last one.
    ///
    /// # Errors
    /// [`Framing::NotClosed`]; and the reader's.
    pub fn read_part(&mut self, buffer: &mut [u8]) -> Result<usize, MultipartError> {
        if self.place != Place::InPart || buffer.is_empty() {
            return Ok(0);
        }
        match self.source.content(buffer.len())? {
            Content::Bytes(count) => {
                buffer[..count].copy_from_slice(&self.source.bytes()[..count]);
                self.source.take(count);
                Ok(count)
            }
            Content::Delimiter(delimiter) => {
                self.pass(delimiter);
                Ok(0)
            }
        }
    }

    /// The present part as a reader. Its errors carry a [`Framing`], or are the body
    /// reader's own; `MultipartError::from` tells them apart again.
    pub fn part(&mut self) -> PartReader<'_, R> {
        PartReader { multipart: self }
    }

    /// Reads what follows the closing delimiter to the body's end, so that the
    /// connection can be used again.
    ///
    /// # Errors
    /// There are parts left, or the epilogue is too long; and the reader's.
    pub fn finish(mut self) -> Result<(), MultipartError> {
        if self.place == Place::Preamble {
            self.skip(MAX_AROUND_BYTES, Framing::NoFirstDelimiter)?;
        }
        let mut buffer = [0u8; 512];
        if self.read_part(&mut buffer)? > 0 || self.place != Place::Closed {
            return Err(Framing::PartsLeft.into());
        }
        let mut dropped = 0usize;
        loop {
            dropped += self.source.bytes().len();
            self.source.take(self.source.bytes().len());
            if dropped > MAX_AROUND_BYTES {
                return Err(Framing::EpilogueTooLong.into());
            }
            if !self.source.fill()? {
                return Ok(());
            }
        }
    }

    /// Reads on to the next delimiter, over at most `limit` bytes.
    fn skip(&mut self, limit: usize, beyond: Framing) -> Result<(), MultipartError> {
        let mut left = limit;
        loop {
            match self.source.content(BUFFER_BYTES)? {
                Content::Bytes(count) => {
                    left = left.checked_sub(count).ok_or(beyond)?;
                    self.source.take(count);
                }
                Content::Delimiter(delimiter) => {
                    self.pass(delimiter);
                    return Ok(());
                }
            }
        }
    }

    fn pass(&mut self, delimiter: Delimiter) {
        self.source.take(delimiter.length);
        self.place = if delimiter.closing {
            Place::Closed
        } else {
            Place::AtPartHead
        };
    }
}

impl<R> fmt::Debug for Multipart<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multipart")
            .field("place", &self.place)
            .field("parts_left", &self.parts_left)
            .finish_non_exhaustive()
    }
}

/// See [`Multipart::part`].
#[derive(Debug)]
pub struct PartReader<'m, R> {
    multipart: &'m mut Multipart<R>,
}

impl<R: Read> Read for PartReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.multipart
            .read_part(buffer)
            .map_err(|error| match error {
                MultipartError::Framing(framing) => {
                    io::Error::new(io::ErrorKind::InvalidData, framing)
                }
                MultipartError::Transport(error) => error,
            })
    }
}

/// What stands at the front of the buffer.
enum Content {
    /// So many bytes that belong to no delimiter; at least one.
    Bytes(usize),
    Delimiter(Delimiter),
}

#[derive(Clone, Copy)]
struct Delimiter {
    length: usize,
    closing: bool,
}

/// How the bytes after a boundary read.
enum Match {
    Is(Delimiter),
    IsNot,
    /// More bytes decide.
    Open,
    /// A closing delimiter with something behind it.
    Broken,
}

/// The reader with its buffer.
struct Source<R> {
    reader: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    ended: bool,
    /// CR LF, two dashes, and the boundary.
    mark: Vec<u8>,
}

impl<R: Read> Source<R> {
    fn new(reader: R, boundary: &str) -> Self {
        let mut buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        // The first delimiter has no line end before it when there is no preamble.
        // With one of our own in front of the body it reads like the others.
        buffer[..2].copy_from_slice(b"\r\n");
        Self {
            reader,
            buffer,
            start: 0,
            end: 2,
            ended: false,
            mark: format!("\r\n--{boundary}").into_bytes(),
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn take(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Reads more behind what is there; `false` is the body's end. The buffer is never
    /// full here: nothing asks for more while it holds as much as the longest head.
    fn fill(&mut self) -> Result<bool, MultipartError> {
        if self.ended {
            return Ok(false);
        }
        if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(false);
                }
                Ok(count) => {
                    self.end += count;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(MultipartError::Transport(error)),
            }
        }
    }

    /// At most `most` bytes of content, or the delimiter at the front.
    fn content(&mut self, most: usize) -> Result<Content, MultipartError> {
        loop {
            let bytes = self.bytes();
            let reach = bytes.len().min(most);
            let mut from = 0;
            let mut undecided = false;
            while let Some(at) = find_cr(&bytes[..reach], from) {
                match self.match_delimiter(&bytes[at..]) {
                    Match::IsNot => from = at + 1,
                    Match::Is(delimiter) if at == 0 => return Ok(Content::Delimiter(delimiter)),
                    Match::Broken if at == 0 => return Err(Framing::AfterClose.into()),
                    Match::Open if at == 0 => {
                        undecided = true;
                        break;
                    }
                    Match::Is(_) | Match::Broken | Match::Open => return Ok(Content::Bytes(at)),
                }
            }
            if !undecided && reach > 0 {
                return Ok(Content::Bytes(reach));
            }
            // At the body's end the same bytes are looked at once more: then nothing
            // is left open.
            if !self.fill()? && !undecided {
                return Err(Framing::NotClosed.into());
            }
        }
    }

    /// Whether `bytes`, which begin with a CR, begin with a delimiter.
    fn match_delimiter(&self, bytes: &[u8]) -> Match {
        let common = self.mark.len().min(bytes.len());
        if bytes[..common] != self.mark[..common] {
            return Match::IsNot;
        }
        let rest = &bytes[common..];
        let (closing, rest) = match rest {
            [] | [b'-'] if !self.ended => return Match::Open,
            [b'-', b'-', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let padding = rest
            .iter()
            .take(MAX_PADDING_BYTES + 1)
            .take_while(|byte| matches!(byte, b' ' | b'\t'))
            .count();
        let length = bytes.len() - rest.len() + padding;
        let fits = padding <= MAX_PADDING_BYTES;
        match (&rest[padding..], closing) {
            ([b'\r', b'\n', ..], _) if fits => Match::Is(Delimiter {
                length: length + 2,
                closing,
            }),
            ([], true) if fits && self.ended => Match::Is(Delimiter { length, closing }),
            ([] | [b'\r'], _) if fits && !self.ended => Match::Open,
            (_, true) => Match::Broken,
            (_, false) => Match::IsNot,
        }
    }

    /// Reads a part's head, which stands at the front.
    fn part_head(&mut self) -> Result<PartHead, MultipartError> {
        let mut seen = 0;
        loop {
            if let Some(length) = head_length(self.bytes(), seen) {
                if length > MAX_PART_HEAD_BYTES {
                    return Err(Framing::PartHeadTooLong.into());
                }
                let head = disposition::part_head(&self.bytes()[..length])?;
                self.take(length - 2);
                // A part without content may leave its line end out: then the one of
                // the head's empty line belongs to the delimiter.
                if let Content::Bytes(_) = self.content(2)? {
                    self.take(2);
                }
                return Ok(head);
            }
            if self.bytes().len() >= MAX_PART_HEAD_BYTES {
                return Err(Framing::PartHeadTooLong.into());
            }
            seen = self.bytes().len();
            if !self.fill()? {
                return Err(Framing::NotClosed.into());
            }
        }
    }
}

fn find_cr(bytes: &[u8], from: usize) -> Option<usize> {
    Some(from + memchr::memchr(b'\r', &bytes[from..])?)
}

/// The length of a part's head with its empty line, which is all of a head without
/// fields. `seen` bytes were looked at before.
fn head_length(bytes: &[u8], seen: usize) -> Option<usize> {
    if bytes.starts_with(b"\r\n") {
        return Some(2);
    }
    let from = seen.saturating_sub(3);
    let at = bytes[from..]
        .windows(4)
        .position(|end| end == b"\r\n\r\n")?;
    Some(from + at + 4)
}

mod error;

#[cfg(test)]
mod tests;
