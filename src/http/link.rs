//! One connection's bytes, in both directions, each wait bounded.
//!
//! Every wait of the server on a peer goes through [`Pace`]: to the nearer of a
//! deadline, which nothing moves, and a stall limit, which only moved bytes restart.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::limits::{Deadlines, INPUT_BYTES};
use super::stop::StopSignal;
use crate::clock::{Clock as _, SystemClock};
use crate::sys::{self, Interest, Watch};

/// Why a transfer ended before its end.
#[derive(Debug)]
pub(super) enum Trouble {
    /// No byte moved for the stall limit.
    Stalled,
    /// The whole took too long.
    Late,
    /// The connection failed.
    Io(io::Error),
}

/// How long a transfer may take, in all and without progress.
#[derive(Debug)]
pub(super) struct Pace {
    deadline: Instant,
    stall: Duration,
    stalled_at: Instant,
}

impl Pace {
    pub(super) fn new(total: Duration, stall: Duration) -> Self {
        let now = SystemClock.now();
        Self {
            deadline: now + total,
            stall,
            stalled_at: now + stall,
        }
    }

    /// A deadline without a stall limit.
    pub(super) fn until(total: Duration) -> Self {
        Self::new(total, total)
    }

    fn moved(&mut self) {
        self.stalled_at = SystemClock.now() + self.stall;
    }

    fn left(&self) -> Result<Duration, Trouble> {
        let now = SystemClock.now();
        if now >= self.deadline {
            return Err(Trouble::Late);
        }
        if now >= self.stalled_at {
            return Err(Trouble::Stalled);
        }
        Ok(self.deadline.min(self.stalled_at) - now)
    }

    fn wait(&self, stream: &TcpStream, interest: Interest) -> Result<(), Trouble> {
        loop {
            let left = self.left()?;
            let mut watch = [Watch::new(stream.as_fd(), interest)];
            if sys::poll(&mut watch, Some(left)).map_err(Trouble::Io)? > 0 {
                return Ok(());
            }
        }
    }
}

/// Bytes that arrived and that nobody took yet.
#[derive(Debug)]
pub(super) struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    fn new() -> Self {
        Self {
            buffer: vec![0; INPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn take(&mut self, count: usize) {
        self.start = self.end.min(self.start + count);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// The free room, after moving what is there to the front.
    fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.buffer[self.end..]
    }
}

/// A connection with its input buffer and its deadlines.
#[derive(Debug)]
pub(super) struct Link {
    stream: Arc<TcpStream>,
    input: Input,
    deadlines: Arc<Deadlines>,
    stop: Arc<StopSignal>,
}

impl Link {
    /// The stream must be non-blocking.
    pub(super) fn new(
        stream: Arc<TcpStream>,
        deadlines: Arc<Deadlines>,
        stop: Arc<StopSignal>,
    ) -> Self {
        Self {
            stream,
            input: Input::new(),
            deadlines,
            stop,
        }
    }

    pub(super) fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn stop(&self) -> &StopSignal {
        &self.stop
    }

    pub(super) fn input(&self) -> &[u8] {
        self.input.bytes()
    }

    pub(super) fn take(&mut self, count: usize) {
        self.input.take(count);
    }

    /// Reads more input behind what is there; 0 is the end of the stream. The buffer
    /// must not be full.
    pub(super) fn fill(&mut self, pace: &mut Pace) -> Result<usize, Trouble> {
        let count = receive(&self.stream, self.input.room(), pace)?;
        self.input.end += count;
        Ok(count)
    }

    /// Reads into `buffer` from the input first, from the peer otherwise.
    pub(super) fn read(&mut self, buffer: &mut [u8], pace: &mut Pace) -> Result<usize, Trouble> {
        let waiting = self.input.bytes();
        if waiting.is_empty() {
            return receive(&self.stream, buffer, pace);
        }
        let count = waiting.len().min(buffer.len());
        buffer[..count].copy_from_slice(&waiting[..count]);
        self.input.take(count);
        Ok(count)
    }

    pub(super) fn send(&self, mut bytes: &[u8], pace: &mut Pace) -> Result<(), Trouble> {
        while !bytes.is_empty() {
            match (&*self.stream).write(bytes) {
                Ok(0) => return Err(Trouble::Io(io::ErrorKind::WriteZero.into())),
                Ok(count) => {
                    bytes = &bytes[count..];
                    pace.moved();
                    pace.left()?;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => pace.wait(&self.stream, Interest::Write)?,
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(Trouble::Io(error)),
                },
            }
        }
        Ok(())
    }

    /// Ends our side and throws away what still comes, until the peer has ended its
    /// side, `limit` bytes came, or the time is up. Closing with unread input would
    /// reset the connection and take the last answer from the client.
    pub(super) fn linger(&mut self, time: Duration, limit: u64) {
        if self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let mut pace = Pace::until(time);
        let mut dropped = 0u64;
        self.input.take(INPUT_BYTES);
        while dropped <= limit {
            match receive(&self.stream, self.input.room(), &mut pace) {
                Ok(0) | Err(_) => return,
                Ok(count) => dropped += count as u64,
            }
        }
    }

    /// Lets the coming close reset the connection instead of keeping unsent bytes.
    pub(super) fn abandon(&self) {
        sys::reset_on_close(&self.stream);
    }
}

fn receive(stream: &TcpStream, buffer: &mut [u8], pace: &mut Pace) -> Result<usize, Trouble> {
    let mut stream_ref = stream;
    loop {
        match stream_ref.read(buffer) {
            Ok(count) => {
                pace.moved();
                // A peer that always has bytes ready is held to the deadline as well.
                pace.left()?;
                return Ok(count);
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => pace.wait(stream, Interest::Read)?,
                io::ErrorKind::Interrupted => {}
                _ => return Err(Trouble::Io(error)),
            },
        }
    }
}
