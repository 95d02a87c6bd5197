//! An answer's body, read as a stream whose end is known to be its end.

use std::fmt;
use std::io;
use std::time::Instant;

use super::error::{Error, Phase};
use super::head::{Framing, Head};
use super::{Connection, Keep};

/// Hex digits of a chunk's size, 4 GiB.
const MAX_CHUNK_DIGITS: u8 = 8;

/// Extensions of one chunk, and all trailers together, which are read and ignored.
const MAX_IGNORED_BYTES: usize = 4 * 1024;

/// What one read asks the socket for where the framing is read byte by byte.
const BUFFER_BYTES: usize = 8 * 1024;

/// An answer: its head, and its body as a reader.
///
/// `Ok(0)` means that the body is complete; an early end is [`Error::Cut`]. As a
/// [`Read`](io::Read) its errors are found again with [`Error::of`].
pub struct Answer<'c> {
    connection: &'c mut Connection,
    head: Head,
    rest: Rest,
    keep: bool,
    until: Instant,
}

/// What is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    Bytes(u64),
    /// Of this chunk, whose line end follows.
    InChunk(u64),
    /// The next thing is a chunk's size.
    ChunkSize,
    ToTheEnd,
    Nothing,
    Failed,
}

impl<'c> Answer<'c> {
    pub(super) fn new(
        connection: &'c mut Connection,
        head: Head,
        framing: Framing,
        keep: bool,
        until: Instant,
    ) -> Self {
        let rest = match framing {
            Framing::None | Framing::Length(0) => Rest::Nothing,
            Framing::Length(length) => Rest::Bytes(length),
            Framing::Chunked => Rest::ChunkSize,
            Framing::ToTheEnd => Rest::ToTheEnd,
        };
        let mut answer = Self {
            connection,
            head,
            rest,
            keep,
            until,
        };
        answer.connection.phase = Keep::Busy;
        if rest == Rest::Nothing {
            answer.complete();
        }
        answer
    }

    /// The head.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.head.status()
    }

    /// Reads the whole body into memory, at most `limit` bytes.
    ///
    /// # Errors
    /// [`Error::TooLarge`], at once if the length is declared; else as for reading.
    pub fn collect(mut self, limit: u64) -> Result<Vec<u8>, Error> {
        match self.rest {
            Rest::Bytes(length) if length > limit => return Err(Error::TooLarge { limit }),
            Rest::Bytes(_)
            | Rest::InChunk(_)
            | Rest::ChunkSize
            | Rest::ToTheEnd
            | Rest::Nothing
            | Rest::Failed => {}
        }
        let mut bytes = Vec::new();
        let mut buffer = vec![0; 32 * 1024];
        loop {
            let count = self.next(&mut buffer)?;
            if count == 0 {
                return Ok(bytes);
            }
            if bytes.len() as u64 + count as u64 > limit {
                return Err(Error::TooLarge { limit });
            }
            bytes.extend_from_slice(&buffer[..count]);
        }
    }

    /// The next bytes of the body; 0 once it is complete.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Cut`], [`Error::Malformed`], [`Error::Cancelled`];
    /// after one of them every further call is [`Error::Cut`].
    pub fn next(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let outcome = self.advance(buffer);
        if outcome.is_err() {
            self.rest = Rest::Failed;
            self.connection.phase = Keep::Over;
        }
        outcome
    }

    fn advance(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        if self.rest == Rest::ChunkSize {
            self.rest = match self.chunk_size()? {
                0 => {
                    self.trailers()?;
                    Rest::Nothing
                }
                size => Rest::InChunk(size),
            };
            if self.rest == Rest::Nothing {
                self.complete();
            }
        }
        match self.rest {
            Rest::Nothing => Ok(0),
            Rest::Failed => Err(Error::Cut(None)),
            Rest::ChunkSize => Err(Error::Malformed("a chunk without a size")),
            Rest::ToTheEnd => {
                let count = self.take(buffer)?;
                if count == 0 {
                    self.rest = Rest::Nothing;
                    self.complete();
                }
                Ok(count)
            }
            Rest::Bytes(left) => {
                let count = self.take_of(left, buffer)?;
                let left = left - count as u64;
                self.rest = Rest::Bytes(left);
                if left == 0 {
                    self.rest = Rest::Nothing;
                    self.complete();
                }
                Ok(count)
            }
            Rest::InChunk(left) => {
                let count = self.take_of(left, buffer)?;
                let left = left - count as u64;
                self.rest = Rest::InChunk(left);
                if left == 0 {
                    self.line_end()?;
                    self.rest = Rest::ChunkSize;
                }
                Ok(count)
            }
        }
    }

    /// The body is read to its end.
    fn complete(&mut self) {
        self.connection.phase = if self.keep { Keep::Idle } else { Keep::Over };
    }

    /// At most `left` bytes; an end before them is an early one.
    fn take_of(&mut self, left: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let most = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        match self.take(&mut buffer[..most])? {
            0 => Err(Error::Cut(None)),
            count => Ok(count),
        }
    }

    /// Bytes that came with the head first, then from the socket.
    fn take(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let connection = &mut *self.connection;
        if !connection.input.is_empty() {
            let count = connection.input.len().min(buffer.len());
            buffer[..count].copy_from_slice(&connection.input[..count]);
            connection.input.drain(..count);
            return Ok(count);
        }
        connection
            .receive(buffer, self.until, Phase::Body)
            .map_err(|error| match error {
                Error::Reset(source) => Error::Cut(source),
                other => other,
            })
    }

    /// One byte of framing, through the connection's input.
    fn byte(&mut self) -> Result<u8, Error> {
        if self.connection.input.is_empty() {
            let mut buffer = [0; BUFFER_BYTES];
            let count = self.take(&mut buffer)?;
            self.connection.input.extend_from_slice(&buffer[..count]);
        }
        match self.connection.input.first().copied() {
            Some(byte) => {
                self.connection.input.drain(..1);
                Ok(byte)
            }
            None => Err(Error::Cut(None)),
        }
    }

    fn line_end(&mut self) -> Result<(), Error> {
        if self.byte()? != b'\r' || self.byte()? != b'\n' {
            return Err(Error::Malformed("a chunk does not end where it should"));
        }
        Ok(())
    }

    /// The line before a chunk.
    fn chunk_size(&mut self) -> Result<u64, Error> {
        let mut size = 0;
        let mut digits = 0;
        let mut byte = self.byte()?;
        while let Some(digit) = char::from(byte).to_digit(16) {
            digits += 1;
            if digits > MAX_CHUNK_DIGITS {
                return Err(Error::Malformed("a chunk's size is too long"));
            }
            size = size * 16 + u64::from(digit);
            byte = self.byte()?;
        }
        if digits == 0 {
            return Err(Error::Malformed("a chunk's size is no number"));
        }
        if byte == b';' {
            byte = self.ignore_line(MAX_IGNORED_BYTES)?.1;
        }
        if byte != b'\r' || self.byte()? != b'\n' {
            return Err(Error::Malformed("a chunk's size is no number"));
        }
        Ok(size)
    }

    /// What follows the last chunk, up to the empty line.
    fn trailers(&mut self) -> Result<(), Error> {
        let mut left = MAX_IGNORED_BYTES;
        loop {
            let (length, _) = self.ignore_line(left)?;
            if self.byte()? != b'\n' {
                return Err(Error::Malformed("a trailer's line has no end"));
            }
            if length == 0 {
                return Ok(());
            }
            left = left.saturating_sub(length);
        }
    }

    /// Reads up to and with the next carriage return; returns the bytes before it.
    fn ignore_line(&mut self, most: usize) -> Result<(usize, u8), Error> {
        for length in 0..=most {
            match self.byte()? {
                b'\r' => return Ok((length, b'\r')),
                b'\t' | b' '..=b'~' | 0x80.. => {}
                _ => return Err(Error::Malformed("a control byte between chunks")),
            }
        }
        Err(Error::Malformed("too much between chunks"))
    }
}

impl io::Read for Answer<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.next(buffer).map_err(|error| {
            let kind = match &error {
                Error::Timeout(_) => io::ErrorKind::TimedOut,
                Error::Cut(_) | Error::Reset(_) => io::ErrorKind::UnexpectedEof,
                Error::NotConnected(_)
                | Error::Malformed(_)
                | Error::TooLarge { .. }
                | Error::Cancelled
                | Error::Source(_)
                | Error::Request(_) => io::ErrorKind::Other,
            };
            io::Error::new(kind, error)
        })
    }
}

impl fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status())
            .field("rest", &self.rest)
            .finish_non_exhaustive()
    }
}
