//! The other end of HTTP: one connection, one request at a time, every wait bounded.
//!
//! Over std alone, so that a controller links nothing of the daemon. No redirects, no
//! proxies, no TLS, no retries and no pool: whoever holds a [`Connection`] decides what
//! to do with it, and asks [`Connection::is_reusable`] before the next request.
//!
//! While a request body is being sent the socket is looked at between two writes, and
//! at the latest every [`WRITE_SLICE`]: an answer that comes early (401, 409, 413) ends
//! the sending and is returned, also when the peer has reset the connection by then.
//! Answers are parsed strictly; what two readers could take in two ways is refused.
//!
//! Every wait ends at an absolute instant of the caller ([`Until`]), or when another
//! thread calls [`Cancel::cancel`], which shuts the socket down.

mod answer;
mod cancel;
mod connect;
mod error;
mod head;
mod origin;
mod send;
mod stream;

use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use answer::Answer;
pub use cancel::Cancel;
pub use error::{Error, Phase};
pub use head::Head;
pub use origin::{Origin, OriginError};

use cancel::Watch;
use head::Framing;
use stream::Stream;

/// The longest answer head.
pub const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Fields of one answer head.
pub const MAX_FIELDS: usize = 64;

/// Interim answers (1xx) before the final one.
pub const MAX_INTERIM: usize = 8;

/// The longest time between two looks for an early answer while a body is sent.
pub const WRITE_SLICE: Duration = Duration::from_millis(50);

/// Bytes of a body that are sent between two looks.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// Requests of ours. Others have no use in the contracts spoken here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
}

impl Method {
    fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// What is sent after the head.
pub enum Body<'r> {
    /// Nothing.
    None,
    /// Bytes at hand, with their length.
    Bytes(&'r [u8]),
    /// Read while it is sent: by length if it is known, else in chunks. A source that
    /// ends before its length, or goes on after it, is [`Error::Source`].
    Stream {
        /// Where the bytes come from.
        source: &'r mut dyn Read,
        /// How many there are.
        length: Option<u64>,
    },
}

/// One request. `Host`, the framing fields and nothing else are added.
pub struct Request<'r> {
    /// The method.
    pub method: Method,
    /// Path and query, percent-encoded by the caller; starts with a slash.
    pub target: &'r str,
    /// Names and values; a name that is no token or a value with a control character is
    /// [`Error::Request`].
    pub fields: &'r [(&'r str, &'r str)],
    /// The body.
    pub body: Body<'r>,
}

impl Request<'_> {
    /// A GET without fields of its own.
    #[must_use]
    pub fn get(target: &str) -> Request<'_> {
        Request {
            method: Method::Get,
            target,
            fields: &[],
            body: Body::None,
        }
    }
}

/// Fields may hold credentials, so only their names are printed.
impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.fields.iter().map(|(name, _)| name).collect();
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("target", &self.target)
            .field("fields", &names)
            .finish_non_exhaustive()
    }
}

/// When an exchange must have come how far.
#[derive(Debug, Clone, Copy)]
pub struct Until {
    /// The final answer's head has been read.
    pub head: Instant,
    /// The answer's body has been read.
    pub whole: Instant,
}

impl Until {
    /// One instant for both.
    #[must_use]
    pub fn all(at: Instant) -> Self {
        Self {
            head: at,
            whole: at,
        }
    }

    /// So long from now for both.
    #[must_use]
    pub fn within(time: Duration) -> Self {
        Self::all(after(time))
    }
}

/// So long from now; a day at most, which no wait of ours comes near.
pub(crate) fn after(time: Duration) -> Instant {
    Instant::now() + time.min(Duration::from_secs(86_400))
}

/// A connection and what was read from it beyond the last answer.
pub struct Connection {
    stream: Arc<Stream>,
    host: String,
    input: Vec<u8>,
    cancel: Cancel,
    watch: Watch,
    phase: Keep,
}

/// Whether a next request may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// Nothing is under way.
    Idle,
    /// An answer's body is being read.
    Busy,
    /// The connection ends with this answer.
    Over,
}

impl Connection {
    /// Connects. `until` bounds name resolution and all addresses together; `cancel`
    /// may end this and everything that follows on the connection.
    ///
    /// # Errors
    /// [`Error::NotConnected`], [`Error::Timeout`], [`Error::Cancelled`]. Where the
    /// origin is a numeric address, a cancel is noticed only once the connect is
    /// through or `until` has come.
    pub fn open(origin: &Origin, until: Instant, cancel: &Cancel) -> Result<Self, Error> {
        cancel.check()?;
        let stream = Arc::new(connect::connect(origin, until, cancel)?);
        let watch = cancel.watch(&stream)?;
        Ok(Self {
            stream,
            host: origin.host_field(),
            input: Vec::new(),
            cancel: cancel.clone(),
            watch,
            phase: Keep::Idle,
        })
    }

    /// Hands the connection over to another canceller, for one that is used again.
    ///
    /// # Errors
    /// That one was cancelled already.
    pub fn cancelled_by(&mut self, cancel: &Cancel) -> Result<(), Error> {
        self.watch = cancel.watch(&self.stream)?;
        self.cancel = cancel.clone();
        Ok(())
    }

    /// Whether another request may be sent: the last answer was read to its end, the
    /// peer keeps the connection, and has neither closed it nor sent anything since.
    #[must_use]
    pub fn is_reusable(&mut self) -> bool {
        self.phase == Keep::Idle && self.input.is_empty() && self.stream.is_quiet()
    }

    /// Sends a request and reads the head of its answer; the body is read from what is
    /// returned.
    ///
    /// # Errors
    /// See [`Error`]; the connection is of no use afterwards.
    pub fn send(&mut self, request: Request<'_>, until: Until) -> Result<Answer<'_>, Error> {
        if self.phase != Keep::Idle {
            return Err(Error::Request("the last answer was not read to its end"));
        }
        self.phase = Keep::Over;
        let method = request.method;
        let sent = self.transmit(request, until);
        let (head, early) = match sent {
            Ok(Some(head)) => (head, true),
            Ok(None) => (self.read_head(until.head)?, false),
            Err(error) => return Err(self.cancelled(error)),
        };
        let framing = head.framing(method)?;
        let ends = match framing {
            Framing::ToTheEnd => true,
            Framing::None | Framing::Length(_) | Framing::Chunked => head.closes(),
        };
        // After an early answer the peer is still owed the rest of the body.
        let keep = !(ends || early);
        Ok(Answer::new(self, head, framing, keep, until.whole))
    }

    /// The final answer's head, as far as waiting for it goes.
    fn read_head(&mut self, until: Instant) -> Result<Head, Error> {
        let mut interim = 0;
        loop {
            if let Some(head) = self.parse_head(&mut interim)? {
                return Ok(head);
            }
            self.fill(until, Phase::Head)?;
        }
    }

    /// A final head out of what is here already.
    fn parse_head(&mut self, interim: &mut usize) -> Result<Option<Head>, Error> {
        loop {
            let Some(length) = head::end(&self.input)? else {
                return Ok(None);
            };
            let head = Head::parse(&self.input[..length])?;
            self.input.drain(..length);
            if !head.is_interim()? {
                return Ok(Some(head));
            }
            *interim += 1;
            if *interim > MAX_INTERIM {
                return Err(Error::Malformed("too many interim answers"));
            }
        }
    }

    /// Waits for more bytes of the answer.
    fn fill(&mut self, until: Instant, phase: Phase) -> Result<(), Error> {
        let mut buffer = [0; MAX_HEAD_BYTES];
        let count = self.receive(&mut buffer, until, phase)?;
        if count == 0 {
            return Err(self.ended(None));
        }
        self.input.extend_from_slice(&buffer[..count]);
        Ok(())
    }

    /// One read from the socket; 0 is the end of the stream.
    fn receive(&mut self, buffer: &mut [u8], until: Instant, phase: Phase) -> Result<usize, Error> {
        match self.stream.read_until(buffer, until, phase) {
            Ok(0) => {
                self.cancel.check()?;
                Ok(0)
            }
            Ok(count) => Ok(count),
            Err(Error::Reset(source)) => {
                self.cancel.check()?;
                Err(self.ended(source))
            }
            Err(error) => Err(self.cancelled(error)),
        }
    }

    /// The connection ended while a head was awaited.
    fn ended(&self, source: Option<std::io::Error>) -> Error {
        if self.input.is_empty() {
            Error::Reset(source)
        } else {
            Error::Cut(source)
        }
    }

    /// A cancel looks like a lost connection to whoever is blocked on it.
    fn cancelled(&self, error: Error) -> Error {
        match self.cancel.check() {
            Ok(()) => error,
            Err(cancelled) => cancelled,
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("host", &self.host)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}
