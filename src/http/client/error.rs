//! Why there is no answer.

use std::fmt;
use std::io;

/// What was being waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// A connection.
    Connect,
    /// The peer to take the request.
    Send,
    /// The answer's head.
    Head,
    /// The answer's body.
    Body,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "to connect",
            Self::Send => "to send the request",
            Self::Head => "for an answer",
            Self::Body => "for the rest of the answer",
        })
    }
}

/// Why an exchange failed. Only [`NotConnected`](Self::NotConnected) and
/// [`Reset`](Self::Reset) leave room for a retry; whether one is safe after a reset is
/// the caller's knowledge, since the peer may have acted on the request.
#[derive(Debug)]
pub enum Error {
    /// Nobody accepted the connection, or the name is unknown.
    NotConnected(io::Error),
    /// The connection ended before a byte of the answer came; without an error of the
    /// system's if the peer closed it in order.
    Reset(Option<io::Error>),
    /// The connection ended within the answer.
    Cut(Option<io::Error>),
    /// The time was over while waiting for this.
    Timeout(Phase),
    /// What came is no HTTP/1 answer, or one that could be read in two ways.
    Malformed(&'static str),
    /// The answer's body is longer than the caller takes.
    TooLarge {
        /// What it takes, in bytes.
        limit: u64,
    },
    /// Another thread cancelled.
    Cancelled,
    /// The request body's source failed, or its length is not the one declared.
    Source(io::Error),
    /// The request cannot be sent as it is; nothing was sent.
    Request(&'static str),
}

impl Error {
    /// Whether the peer's machine refused the connection: nobody listens there.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        match self {
            Self::NotConnected(source) => matches!(
                source.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
            ),
            Self::Reset(_)
            | Self::Cut(_)
            | Self::Timeout(_)
            | Self::Malformed(_)
            | Self::TooLarge { .. }
            | Self::Cancelled
            | Self::Source(_)
            | Self::Request(_) => false,
        }
    }

    /// The error behind one that a reader of an answer's body returned.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected(source) => write!(f, "cannot connect: {source}"),
            Self::Reset(Some(source)) => {
                write!(f, "the connection was lost before an answer came: {source}")
            }
            Self::Reset(None) => write!(f, "the connection was closed before an answer came"),
            Self::Cut(Some(source)) => {
                write!(f, "the connection was lost within the answer: {source}")
            }
            Self::Cut(None) => write!(f, "the connection was closed within the answer"),
            Self::Timeout(phase) => write!(f, "no time left {phase}"),
            Self::Malformed(what) => write!(f, "the answer is no HTTP that we take: {what}"),
            Self::TooLarge { limit } => {
                write!(f, "the answer is longer than the {limit} bytes we take")
            }
            Self::Cancelled => write!(f, "cancelled"),
            Self::Source(source) => write!(f, "cannot read what is to be sent: {source}"),
            Self::Request(what) => write!(f, "the request cannot be sent: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotConnected(source)
            | Self::Reset(Some(source))
            | Self::Cut(Some(source))
            | Self::Source(source) => Some(source),
            Self::Reset(None)
            | Self::Cut(None)
            | Self::Timeout(_)
            | Self::Malformed(_)
            | Self::TooLarge { .. }
            | Self::Cancelled
            | Self::Request(_) => None,
        }
    }
}
