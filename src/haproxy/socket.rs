//! One connection to a unix socket on which nothing waits without a bound.
//!
//! Connect, write and read each end by a [`Deadline`]. A connect does not block even
//! when the peer's backlog is full (HAProxy serves ten connections by default and
//! lets the others queue): it is tried again until the deadline. Replies are capped
//! by the caller. Nothing is retried here after a byte was sent.

use super::wait::{Backoff, Deadline};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The longest path that a unix socket address holds, its closing NUL not counted.
pub const MAX_SOCKET_PATH_BYTES: usize = 107;
/// One read; HAProxy's own buffer has this size unless it is configured.
const READ_BYTES: usize = 16 * 1024;

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    path: PathBuf,
}

/// How a bounded read to the end of the stream finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The peer closed.
    Eof,
    /// The cap was reached; more may follow.
    Cap,
}

impl Connection {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    ///
    /// [`SocketError`]: `PathTooLong`, `Missing`, `Refused`, `Denied`, or `Deadline`
    /// when the peer's queue stayed full; nothing has been sent in any of them.
    pub fn open(path: &Path, deadline: Deadline) -> Result<Self, SocketError> {
        let io = |doing, source: io::Error| SocketError::io(path, doing, source);
        let bytes = path.as_os_str().len();
        if bytes > MAX_SOCKET_PATH_BYTES {
            return Err(SocketError::PathTooLong {
                path: path.to_path_buf(),
                bytes,
            });
        }
        let address = SocketAddrUnix::new(path.as_os_str().as_bytes())
            .map_err(|errno| io("connecting", errno.into()))?;
        let mut backoff = Backoff::default();
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket: OwnedFd =
                net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
                    .map_err(|errno| io("making a socket", errno.into()))?;
            match net::connect(&socket, &address) {
                Ok(()) => {
                    let stream = UnixStream::from(socket);
                    stream
                        .set_nonblocking(false)
                        .map_err(|error| io("connecting", error))?;
                    return Ok(Self {
                        stream,
                        path: path.to_path_buf(),
                    });
                }
                // AGAIN is a full backlog: only waiting helps.
                Err(Errno::AGAIN | Errno::INTR) => {
                    if !backoff.pause(deadline) {
                        return Err(SocketError::Deadline {
                            path: path.to_path_buf(),
                            doing: "connecting",
                        });
                    }
                }
                Err(errno) => return Err(io("connecting", errno.into())),
            }
        }
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    ///
    /// [`WriteError`] with the number of bytes that had been taken before.
    pub fn write(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), WriteError> {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match self.write_once(rest, deadline) {
                Ok(taken) => written += taken,
                Err(source) => return Err(WriteError { written, source }),
            }
        }
        Ok(())
    }

    fn write_once(&mut self, rest: &[u8], deadline: Deadline) -> Result<usize, SocketError> {
        let doing = "writing";
        let left = deadline.remaining().ok_or_else(|| self.late(doing))?;
        self.stream
            .set_write_timeout(Some(left))
            .map_err(|error| self.io(doing, error))?;
        match self.stream.write(rest) {
            Ok(0) => Err(self.closed(doing)),
            Ok(taken) => Ok(taken),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(self.io(doing, error)),
        }
    }

    /// One read into `buffer`: the number of bytes, 0 at the end of the stream.
    ///
    /// # Errors
    ///
    /// `Deadline` when nothing came in time, `Closed` after a reset, `Io`.
    pub fn read(&mut self, buffer: &mut [u8], deadline: Deadline) -> Result<usize, SocketError> {
        let doing = "reading";
        loop {
            let left = deadline.remaining().ok_or_else(|| self.late(doing))?;
            self.stream
                .set_read_timeout(Some(left))
                .map_err(|error| self.io(doing, error))?;
            match self.stream.read(buffer) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io(doing, error)),
            }
        }
    }

    /// What can be read at this moment without waiting; `None` when there is nothing.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), without `Deadline`.
    pub fn read_now(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, SocketError> {
        let doing = "reading";
        let io = |error| SocketError::io(&self.path, doing, error);
        self.stream.set_nonblocking(true).map_err(io)?;
        let read = self.stream.read(buffer);
        self.stream.set_nonblocking(false).map_err(io)?;
        match read {
            Ok(count) => Ok(Some(count)),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(None)
            }
            Err(error) => Err(io(error)),
        }
    }

    /// Appends what comes to `into` until the end of the stream or until `into` holds
    /// `cap` bytes.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); `into` keeps what came before.
    pub fn read_to_end(
        &mut self,
        into: &mut Vec<u8>,
        cap: usize,
        deadline: Deadline,
    ) -> Result<Ended, SocketError> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let room = cap.saturating_sub(into.len()).min(buffer.len());
            if room == 0 {
                return Ok(Ended::Cap);
            }
            let count = self.read(buffer.get_mut(..room).unwrap_or_default(), deadline)?;
            if count == 0 {
                return Ok(Ended::Eof);
            }
            into.extend_from_slice(buffer.get(..count).unwrap_or_default());
        }
    }

    /// The path it is connected to.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn late(&self, doing: &'static str) -> SocketError {
        SocketError::Deadline {
            path: self.path.clone(),
            doing,
        }
    }

    fn closed(&self, doing: &'static str) -> SocketError {
        SocketError::Closed {
            path: self.path.clone(),
            doing,
        }
    }

    fn io(&self, doing: &'static str, error: io::Error) -> SocketError {
        SocketError::io(&self.path, doing, error)
    }
}

/// A write that was not taken whole.
#[derive(Debug)]
pub struct WriteError {
    /// Bytes the peer has or may read; they count as executed.
    pub written: usize,
    /// What went wrong.
    pub source: SocketError,
}

/// Whose socket it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A `stats socket` line of the configuration opens it.
    Worker,
    /// HAProxy's command line names it.
    Master,
}

/// Why a socket gave no answer.
#[derive(Debug)]
pub enum SocketError {
    /// Nothing has this path.
    Missing {
        /// The socket.
        path: PathBuf,
        /// Whose it would be, which says where its path is written.
        of: Peer,
    },
    /// Something has this path and nobody listens on it.
    Refused {
        /// The socket.
        path: PathBuf,
    },
    /// The file's mode or a directory's does not let this process in.
    Denied {
        /// The socket.
        path: PathBuf,
    },
    /// No progress in time.
    Deadline {
        /// The socket.
        path: PathBuf,
        /// What took too long.
        doing: &'static str,
    },
    /// The peer closed before the answer was complete.
    Closed {
        /// The socket.
        path: PathBuf,
        /// What was going on.
        doing: &'static str,
    },
    /// The address does not fit.
    PathTooLong {
        /// The socket.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// The answer has no end or does not have the form it must have.
    Malformed {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Anything else the system said.
    Io {
        /// The socket.
        path: PathBuf,
        /// What was going on.
        doing: &'static str,
        /// The system's words.
        source: io::Error,
    },
}

impl SocketError {
    fn io(path: &Path, doing: &'static str, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            ErrorKind::NotFound => Self::Missing {
                path,
                of: Peer::Worker,
            },
            ErrorKind::ConnectionRefused => Self::Refused { path },
            ErrorKind::PermissionDenied => Self::Denied { path },
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Deadline { path, doing },
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                Self::Closed { path, doing }
            }
            // `ErrorKind` is not ours and grows.
            _ => Self::Io {
                path,
                doing,
                source,
            },
        }
    }
}

impl SocketError {
    /// The same of a socket that is the master's.
    pub(super) fn of_master(self) -> Self {
        match self {
            Self::Missing { path, .. } => Self::Missing {
                path,
                of: Peer::Master,
            },
            other @ (Self::Refused { .. }
            | Self::Denied { .. }
            | Self::Deadline { .. }
            | Self::Closed { .. }
            | Self::PathTooLong { .. }
            | Self::Malformed { .. }
            | Self::Io { .. }) => other,
        }
    }

    /// Whether nobody listens there: nothing was sent, and nobody can be asked.
    #[must_use]
    pub fn is_nobody(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Refused { .. })
    }
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { path, of } => write!(
                f,
                "there is no socket {}; is HAProxy running, and is this the path that {}?",
                path.display(),
                match of {
                    Peer::Worker => "a `stats socket` line of its configuration opens",
                    Peer::Master => "its command line has behind -S",
                }
            ),
            Self::Refused { path } => write!(
                f,
                "nobody listens on {}; HAProxy is stopped, starting or reloading",
                path.display()
            ),
            Self::Denied { path } => write!(
                f,
                "no permission for {}; give the socket a mode, user or group that lets the agent in",
                path.display()
            ),
            Self::Deadline { path, doing } => {
                write!(f, "{} gave no answer in time while {doing}", path.display())
            }
            Self::Closed { path, doing } => write!(
                f,
                "{} was closed while {doing}, before the answer was complete",
                path.display()
            ),
            Self::PathTooLong { path, bytes } => write!(
                f,
                "the socket path {} has {bytes} bytes and at most {MAX_SOCKET_PATH_BYTES} are possible; use a shorter directory",
                path.display()
            ),
            Self::Malformed { path, what } => {
                write!(
                    f,
                    "{} answered something else than HAProxy: {what}",
                    path.display()
                )
            }
            Self::Io { path, doing, .. } => write!(f, "{} failed while {doing}", path.display()),
        }
    }
}

impl Error for SocketError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Missing { .. }
            | Self::Refused { .. }
            | Self::Denied { .. }
            | Self::Deadline { .. }
            | Self::Closed { .. }
            | Self::PathTooLong { .. }
            | Self::Malformed { .. } => None,
        }
    }
}
