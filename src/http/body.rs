//! A request's body: by length or by chunks, never beyond the limit that the reader set.
//!
//! An early end is an error, never an end. The limit is compared with the declared
//! length before the first byte is read, and with the running total before each chunk
//! is. `100 Continue` goes out at the first read, so a request that was refused by its
//! head never invites its body.

use std::fmt;
use std::io;

use super::head::Framing;
use super::limits::{MAX_CHUNK_DIGITS, MAX_CHUNK_EXTENSION_BYTES, MAX_TRAILER_BYTES};
use super::link::{Link, Pace, Trouble};

/// Why a body could not be read to its end. It travels inside an [`io::Error`]; see
/// [`BodyError::of`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// The body is, or declares to be, longer than the reader's limit.
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The client ended its stream before the body's end.
    Truncated,
    /// No byte came for the stall limit.
    Stalled,
    /// The whole body took too long.
    Late,
    /// The chunks are malformed.
    BadFraming(&'static str),
    /// The connection failed.
    Gone(io::ErrorKind),
}

impl BodyError {
    /// The body error inside an [`io::Error`] that came out of a [`Body`], through any
    /// reader that passes errors on.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit } => write!(f, "the request body exceeds {limit} bytes"),
            Self::Truncated => f.write_str("the request body ended early"),
            Self::Stalled => f.write_str("the request body stopped coming"),
            Self::Late => f.write_str("the request body took too long"),
            Self::BadFraming(what) => write!(f, "the request body is badly framed: {what}"),
            Self::Gone(kind) => write!(f, "the connection failed: {kind}"),
        }
    }
}

impl std::error::Error for BodyError {}

impl From<BodyError> for io::Error {
    fn from(error: BodyError) -> Self {
        let kind = match error {
            BodyError::TooLarge { .. } | BodyError::BadFraming(_) => io::ErrorKind::InvalidData,
            BodyError::Truncated => io::ErrorKind::UnexpectedEof,
            BodyError::Stalled | BodyError::Late => io::ErrorKind::TimedOut,
            BodyError::Gone(_) => io::ErrorKind::ConnectionReset,
        };
        io::Error::new(kind, error)
    }
}

/// How far a body was read; it outlives the [`Body`] handles of one request.
#[derive(Debug)]
pub(super) struct BodyState {
    place: Place,
    /// Content bytes handed out.
    total: u64,
    pace: Option<Pace>,
    continue_due: bool,
    chunked: bool,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// So many bytes of a body with a length are still to come.
    Length(u64),
    /// A chunk's size line comes next.
    ChunkSize,
    /// So many bytes of a chunk are still to come.
    Chunk(u64),
    /// The line end after a chunk's bytes comes next.
    ChunkEnd,
    /// The trailers and the empty line come next.
    Trailers,
    Done,
    Failed(BodyError),
}

impl BodyState {
    pub(super) fn new(framing: Framing, expects_continue: bool) -> Self {
        let place = match framing {
            Framing::None | Framing::Length(0) => Place::Done,
            Framing::Length(length) => Place::Length(length),
            Framing::Chunked => Place::ChunkSize,
        };
        Self {
            place,
            total: 0,
            pace: None,
            continue_due: expects_continue,
            chunked: matches!(framing, Framing::Chunked),
        }
    }

    /// Whether the next byte of the connection belongs to the next request.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.place, Place::Done)
    }

    /// Whether nothing was read yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.pace.is_none()
    }

    fn read(&mut self, link: &mut Link, limit: u64, buffer: &mut [u8]) -> Result<usize, BodyError> {
        if buffer.is_empty() {
            return Ok(0);
        }
        match self.advance(link, limit, buffer) {
            Ok(count) => Ok(count),
            Err(error) => {
                self.place = Place::Failed(error);
                Err(error)
            }
        }
    }

    fn advance(
        &mut self,
        link: &mut Link,
        limit: u64,
        buffer: &mut [u8],
    ) -> Result<usize, BodyError> {
        loop {
            match self.place {
                Place::Done => return Ok(0),
                Place::Failed(error) => return Err(error),
                Place::Length(left) | Place::Chunk(left) => {
                    // For a chunk this was checked at its size, for a length it covers
                    // the whole of the rest.
                    if self.total.saturating_add(left) > limit {
                        return Err(BodyError::TooLarge { limit });
                    }
                    self.begin(link)?;
                    let count = self.content(link, left, buffer)?;
                    let left = left - count as u64;
                    self.total += count as u64;
                    self.place = match (self.chunked, left) {
                        (false, 0) => Place::Done,
                        (true, 0) => Place::ChunkEnd,
                        (false, left) => Place::Length(left),
                        (true, left) => Place::Chunk(left),
                    };
                    return Ok(count);
                }
                Place::ChunkSize => {
                    self.begin(link)?;
                    let size = self.chunk_size(link)?;
                    if self.total.saturating_add(size) > limit {
                        return Err(BodyError::TooLarge { limit });
                    }
                    self.place = match size {
                        0 => Place::Trailers,
                        size => Place::Chunk(size),
                    };
                }
                Place::ChunkEnd => {
                    self.line_end(link)?;
                    self.place = Place::ChunkSize;
                }
                Place::Trailers => {
                    self.trailers(link)?;
                    self.place = Place::Done;
                }
            }
        }
    }

    /// Starts the clock at the first read, and tells a client that waits for it to go on.
    fn begin(&mut self, link: &Link) -> Result<(), BodyError> {
        if self.pace.is_some() {
            return Ok(());
        }
        let deadlines = link.deadlines();
        if self.continue_due {
            self.continue_due = false;
            let mut pace = Pace::new(deadlines.write, deadlines.write_stall);
            link.send(b"HTTP/1.1 100 Continue\r\n\r\n", &mut pace)
                .map_err(trouble)?;
        }
        self.pace = Some(Pace::new(deadlines.body, deadlines.body_stall));
        Ok(())
    }

    fn content(
        &mut self,
        link: &mut Link,
        left: u64,
        buffer: &mut [u8],
    ) -> Result<usize, BodyError> {
        let most = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        match link.read(&mut buffer[..most], self.pace()?) {
            Ok(0) => Err(BodyError::Truncated),
            Ok(count) => Ok(count),
            Err(error) => Err(trouble(error)),
        }
    }

    fn chunk_size(&mut self, link: &mut Link) -> Result<u64, BodyError> {
        let mut size = 0u64;
        let mut digits = 0u8;
        let mut byte = self.byte(link)?;
        while let Some(digit) = hex_digit(byte) {
            digits += 1;
            if digits > MAX_CHUNK_DIGITS {
                return Err(BodyError::BadFraming("a chunk size has more than 8 digits"));
            }
            size = size * 16 + u64::from(digit);
            byte = self.byte(link)?;
        }
        if digits == 0 {
            return Err(BodyError::BadFraming("a chunk size has no digits"));
        }
        if byte == b';' {
            let mut length = 0;
            byte = self.byte(link)?;
            while byte != b'\r' {
                length += 1;
                if length > MAX_CHUNK_EXTENSION_BYTES {
                    return Err(BodyError::BadFraming("a chunk extension is too long"));
                }
                if byte.is_ascii_control() && byte != b'\t' {
                    return Err(BodyError::BadFraming("control byte in a chunk extension"));
                }
                byte = self.byte(link)?;
            }
        }
        if byte != b'\r' || self.byte(link)? != b'\n' {
            return Err(BodyError::BadFraming("a chunk size does not end in CR LF"));
        }
        Ok(size)
    }

    fn line_end(&mut self, link: &mut Link) -> Result<(), BodyError> {
        if self.byte(link)? != b'\r' || self.byte(link)? != b'\n' {
            return Err(BodyError::BadFraming("a chunk does not end in CR LF"));
        }
        Ok(())
    }

    fn trailers(&mut self, link: &mut Link) -> Result<(), BodyError> {
        let mut line = 0usize;
        let mut total = 0usize;
        while total < MAX_TRAILER_BYTES {
            total += 1;
            match self.byte(link)? {
                b'\r' => {
                    total += 1;
                    if self.byte(link)? != b'\n' {
                        return Err(BodyError::BadFraming("a trailer does not end in CR LF"));
                    }
                    if line == 0 {
                        return Ok(());
                    }
                    line = 0;
                }
                byte if byte.is_ascii_control() && byte != b'\t' => {
                    return Err(BodyError::BadFraming("control byte in a trailer"));
                }
                _ => line += 1,
            }
        }
        Err(BodyError::BadFraming("the trailers are too long"))
    }

    /// One byte of framing, through the input buffer.
    fn byte(&mut self, link: &mut Link) -> Result<u8, BodyError> {
        if link.input().is_empty() && link.fill(self.pace()?).map_err(trouble)? == 0 {
            return Err(BodyError::Truncated);
        }
        let byte = link.input().first().copied().ok_or(BodyError::Truncated)?;
        link.take(1);
        Ok(byte)
    }

    fn pace(&mut self) -> Result<&mut Pace, BodyError> {
        self.pace.as_mut().ok_or(BodyError::Late)
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

fn trouble(trouble: Trouble) -> BodyError {
    match trouble {
        Trouble::Stalled => BodyError::Stalled,
        Trouble::Late => BodyError::Late,
        Trouble::Io(error) => BodyError::Gone(error.kind()),
    }
}

/// The reader that [`Request::body`](super::Request::body) hands out.
///
/// `Ok(0)` means that the body is complete, its last chunk and trailers included. After
/// an error every further read reports it again.
#[derive(Debug)]
pub struct Body<'r> {
    link: &'r mut Link,
    state: &'r mut BodyState,
    limit: u64,
}

impl<'r> Body<'r> {
    pub(super) fn new(link: &'r mut Link, state: &'r mut BodyState, limit: u64) -> Self {
        Self { link, state, limit }
    }

    /// Reads the whole body into memory.
    ///
    /// # Errors
    /// As for reading; the limit bounds the memory.
    pub fn read_all(mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut self, &mut bytes)?;
        Ok(bytes)
    }
}

impl io::Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.state.read(self.link, self.limit, buffer)?)
    }
}
