//! The socket, TCP or unix, with reads that end at an instant and writes in slices.
//!
//! Shared behind an `Arc` with the canceller, which only ever shuts it down; one thread
//! at a time reads and writes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::WRITE_SLICE;
use super::error::{Error, Phase};

#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// What one write did.
pub(super) enum Wrote {
    /// So many bytes went out; 0 if the peer took none for a slice.
    Bytes(usize),
    /// The connection is gone; an answer may still be here to read.
    Gone(io::Error),
}

impl Stream {
    /// Sets what every connection of ours has: no delay, writes in slices.
    pub(super) fn prepared(self) -> io::Result<Self> {
        match &self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(WRITE_SLICE))?;
            }
            Self::Unix(stream) => stream.set_write_timeout(Some(WRITE_SLICE))?,
        }
        Ok(self)
    }

    /// One write of at most one slice of time.
    pub(super) fn write_slice(&self, bytes: &[u8]) -> Wrote {
        let written = match self {
            Self::Tcp(stream) => (&mut &*stream).write(bytes),
            Self::Unix(stream) => (&mut &*stream).write(bytes),
        };
        match written {
            Ok(count) => Wrote::Bytes(count),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Wrote::Bytes(0),
                _ => Wrote::Gone(error),
            },
        }
    }

    /// One read; 0 is the end of the stream. A lost connection is [`Error::Reset`].
    pub(super) fn read_until(
        &self,
        buffer: &mut [u8],
        until: Instant,
        phase: Phase,
    ) -> Result<usize, Error> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Timeout(phase));
            }
            self.set_read_timeout(left)
                .map_err(|error| Error::Reset(Some(error)))?;
            match self.read(buffer) {
                Ok(count) => return Ok(count),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
                    _ => return Err(Error::Reset(Some(error))),
                },
            }
        }
    }

    /// What is here without waiting: `None` if nothing is, 0 at the end of the stream.
    pub(super) fn read_now(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.set_nonblocking(true)?;
        let outcome = self.read(buffer);
        self.set_nonblocking(false)?;
        match outcome {
            Ok(count) => Ok(Some(count)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Whether the connection stands and the peer has said nothing.
    pub(super) fn is_quiet(&self) -> bool {
        matches!(self.read_now(&mut [0]), Ok(None))
    }

    /// Ends both directions; whoever is blocked on the socket wakes.
    pub(super) fn shut(&self) {
        // One that is not connected any more needs no shutting.
        let _ended_before = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).read(buffer),
            Self::Unix(stream) => (&mut &*stream).read(buffer),
        }
    }

    fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(time)),
            Self::Unix(stream) => stream.set_read_timeout(Some(time)),
        }
    }

    fn set_nonblocking(&self, yes: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(yes),
            Self::Unix(stream) => stream.set_nonblocking(yes),
        }
    }
}
