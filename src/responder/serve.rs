//! The sockets of the responder: a fixed number of threads, each in accept; a line in, a
//! line out, next. What has been answered waits elsewhere for the peer to close.
//!
//! No error of accept ends a thread, and no peer holds one for longer than
//! [`CONNECTION_TIME`]. Nothing is logged, formatted or read from the store here: what is
//! worth a record goes through a bounded channel, so a log that blocks delays no check.
//!
//! The peer closes first. HAProxy does so with a reset once it has the line, and then no
//! side keeps the connection in TIME_WAIT; a responder that closes or half-closes first
//! leaves thousands of them within seconds.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

use super::answer::{Reply, decide};
use super::copy::CopyCell;
use super::coverage::{Coverage, Transition};
use super::kv::Weights;
use super::limits::{
    ACCEPT_PAUSE, BACKLOG, CLOSE_TIME, CONNECTION_TIME, DEFER_SECONDS, MAX_LINE_BYTES, QUIET_TIME,
    READ_TIME, STUCK, THREAD_STACK_BYTES, THREADS,
};
use super::line::{self, Request};
use super::metrics::{Metrics, Silence};
use super::parting::Parting;
use super::stop::Stop;
use crate::clock::Clock;
use crate::http::{ListenAddr, is_about_one_connection};
use crate::sys::{self, Interest, Watch};

/// Something to be logged by another thread.
#[derive(Debug)]
pub enum Note {
    /// A row's answer has changed.
    Told(Transition),
    /// A connection could not be accepted.
    AcceptFailed(io::Error),
    /// Nothing more comes.
    End,
}

/// What the answering threads share.
#[derive(Debug)]
pub struct Answering {
    /// The copy that answers come from.
    pub cell: Arc<CopyCell>,
    /// Whether replies carry weights.
    pub weights: Weights,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Who asks.
    pub coverage: Arc<Coverage>,
    /// Where what is worth a record goes.
    pub notes: SyncSender<Note>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// A bound listener whose connections wait until it serves.
#[derive(Debug)]
pub struct CheckListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl CheckListener {
    /// Listens at the first of the address's candidates that this machine has.
    ///
    /// # Errors
    /// The address is taken, not ours, or needs a privilege.
    pub fn bind(address: &ListenAddr) -> io::Result<Self> {
        let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for candidate in address.candidates() {
            match sys::listen(candidate, BACKLOG) {
                Ok(listener) => {
                    // Threads that wait in accept are woken one a connection; those that
                    // poll would all be.
                    listener.set_nonblocking(false)?;
                    // A kernel without it hands connections over at once, and a thread
                    // waits for the request instead.
                    let _as_well = sys::defer_accept(&listener, DEFER_SECONDS);
                    let address = listener.local_addr()?;
                    return Ok(Self { listener, address });
                }
                Err(error) => {
                    let no_such_family = matches!(
                        error.raw_os_error(),
                        Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL | libc::EPROTONOSUPPORT)
                    );
                    failed = error;
                    if !no_such_family {
                        break;
                    }
                }
            }
        }
        Err(failed)
    }

    /// Where it listens, with the port that the system chose if 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// Not even one thread can be started. With fewer than all of them it serves, and
    /// says so in the log.
    pub fn serve(self, answering: Answering) -> io::Result<Serving> {
        let shared = Arc::new(Shared {
            listener: self.listener,
            started: answering.clock.now(),
            answering,
            busy_since: (0..THREADS).map(|_| AtomicU64::new(IDLE)).collect(),
            broken: AtomicBool::new(false),
            parting: Parting::default(),
            stop: Stop::default(),
        });
        let mut threads = Vec::with_capacity(THREADS);
        let parting = {
            let theirs = Arc::clone(&shared);
            thread::Builder::new()
                .name("check-close".to_owned())
                .spawn(move || theirs.parting.look(&*theirs.answering.clock))?
        };
        for place in 0..THREADS {
            let theirs = Arc::clone(&shared);
            let spawned = thread::Builder::new()
                .name("check".to_owned())
                .stack_size(THREAD_STACK_BYTES)
                .spawn(move || theirs.answer_until_stopped(place));
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(error) if threads.is_empty() => {
                    shared.parting.stop();
                    return Err(error);
                }
                Err(error) => {
                    log::warn!(threads = threads.len(), wanted = THREADS, error:% = error; "fewer threads than wanted answer agent checks; raise the limit of threads");
                    break;
                }
            }
        }
        Ok(Serving {
            shared,
            threads,
            parting: Some(parting),
        })
    }
}

/// The running threads; they end when this is stopped or dropped.
#[derive(Debug)]
pub struct Serving {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    parting: Option<JoinHandle<()>>,
}

impl Serving {
    /// A view of their health that outlives them.
    #[must_use]
    pub fn health(&self) -> Health {
        Health {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Takes no more connections, lets those that are open finish, and returns when all
    /// threads have ended, at most a moment more than [`CONNECTION_TIME`] later.
    pub fn stop(&mut self) {
        self.shared.raise_stop();
        for thread in self.threads.drain(..) {
            // A connection that panics is caught; nothing else in a thread can.
            let _ended = thread.join();
        }
        self.shared.parting.stop();
        if let Some(thread) = self.parting.take() {
            let _ended = thread.join();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether the answering threads are well.
#[derive(Debug, Clone)]
pub struct Health {
    shared: Arc<Shared>,
}

impl Health {
    /// What is wrong with them, if anything.
    #[must_use]
    pub fn trouble(&self) -> Option<&'static str> {
        if self.shared.broken.load(Ordering::Relaxed) {
            return Some("the listening socket is broken");
        }
        let now = self.shared.millis(self.shared.answering.clock.now());
        let limit = u64::try_from(STUCK.as_millis()).unwrap_or(u64::MAX);
        let stuck = |since: &AtomicU64| match since.load(Ordering::Relaxed) {
            IDLE => false,
            since => now.saturating_sub(since) > limit,
        };
        let stuck = self.shared.busy_since.iter().any(stuck);
        stuck.then_some("a connection does not end")
    }
}

/// In `busy_since`: the thread waits for a connection.
const IDLE: u64 = 0;

/// Errors of single connections in a row after which a thread pauses, so that a lasting
/// one (a firewall's EPERM) does not become a busy loop.
const ERRORS_BEFORE_PAUSE: u32 = 16;

#[derive(Debug)]
struct Shared {
    listener: TcpListener,
    answering: Answering,
    started: Instant,
    /// Milliseconds from `started`, one a thread.
    busy_since: Vec<AtomicU64>,
    broken: AtomicBool,
    parting: Parting,
    stop: Stop,
}

impl Shared {
    fn answer_until_stopped(&self, place: usize) {
        let mut errors_in_a_row = 0;
        // A stop makes accept fail, so it is not looked for otherwise.
        loop {
            match sys::accept(&self.listener) {
                Ok((stream, _peer)) => {
                    errors_in_a_row = 0;
                    self.broken.store(false, Ordering::Relaxed);
                    self.take(place, stream);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if self.stop.is_raised() {
                        return;
                    }
                    errors_in_a_row += 1;
                    self.after_error(error, errors_in_a_row);
                }
            }
        }
    }

    fn take(&self, place: usize, stream: TcpStream) {
        let accepted = self.answering.clock.now();
        let busy = self.busy_since.get(place);
        if let Some(busy) = busy {
            busy.store(self.millis(accepted), Ordering::Relaxed);
        }
        self.answering.metrics.connections.inc();
        // What a panic leaves behind is one connection, which closes all the same; the
        // coverage's locks are taken again whatever happened under them.
        let caught = catch_unwind(AssertUnwindSafe(|| {
            self.answering.converse(&stream, accepted)
        }));
        match caught {
            Ok(Some(end)) => {
                if let Err(stream) = self.parting.take(stream, end) {
                    self.answering.wait_for_close(&stream, end);
                }
            }
            Ok(None) => {}
            Err(_) => self.answering.metrics.panics.inc(),
        }
        self.answering.metrics.connections.dec();
        if let Some(busy) = busy {
            busy.store(IDLE, Ordering::Relaxed);
        }
    }

    /// Counts an error of accept and pauses where going on at once would find the same.
    fn after_error(&self, error: io::Error, in_a_row: u32) {
        self.answering.metrics.accept_errors.inc();
        let pause = match error.raw_os_error() {
            _ if is_about_one_connection(&error) => in_a_row >= ERRORS_BEFORE_PAUSE,
            Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK) => {
                self.broken.store(true, Ordering::Relaxed);
                true
            }
            _ => true,
        };
        self.answering.note(Note::AcceptFailed(error));
        if pause {
            let _the_next_accept_says_so = self.stop.pause(ACCEPT_PAUSE);
        }
    }

    fn raise_stop(&self) {
        self.stop.raise();
        // Every accept on the socket returns at once from now on. It fails only where
        // the socket listens no more, and then they have returned already.
        let _not_listening = shutdown(&self.listener, Shutdown::Both);
    }

    fn millis(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.started).as_millis();
        u64::try_from(since).unwrap_or(u64::MAX).saturating_add(1)
    }
}

impl Answering {
    /// One connection from its first byte to the answer. Returns until when the peer may
    /// take to close; nothing where it is closed at once.
    fn converse(&self, stream: &TcpStream, accepted: Instant) -> Option<Instant> {
        let mut buffer = [0u8; MAX_LINE_BYTES + 1];
        let received = self.read_line(stream, &mut buffer, accepted)?;
        let keys = match line::parse(received) {
            Request::Keys(keys) => keys,
            Request::NoKey => return self.stay_silent(Silence::NoKey),
            Request::TooLong => return self.stay_silent(Silence::TooLong),
        };
        let Some(copy) = self.cell.load() else {
            return self.stay_silent(Silence::Unsynced);
        };
        let wall = self.clock.wall();
        let answer = decide(&keys, &copy, wall);
        // The copy must not live as long as a slow peer: with many of them a large one
        // would be kept many times.
        drop(copy);
        let reply = Reply::new(answer.value, self.weights);
        let mut writer = stream;
        // A fresh connection's buffer holds a dozen bytes, so anything else than all of
        // them is a peer that has gone.
        if writer.write(reply.as_bytes()).ok() != Some(reply.as_bytes().len()) {
            return None;
        }
        let now = self.clock.now();
        self.metrics.replies.of(answer.value.into()).inc();
        let took = now.saturating_duration_since(accepted);
        self.metrics.reply_seconds.observe(took);
        if let Some(transition) = self.coverage.heard(&keys, answer, now, wall) {
            self.metrics.transitions.inc();
            self.note(Note::Told(transition));
        }
        Some((now + CLOSE_TIME).min(accepted + CONNECTION_TIME))
    }

    fn wait_for_close(&self, stream: &TcpStream, end: Instant) {
        while self.wait(stream, Interest::Hangup, end) == Waited::Interrupted {}
    }

    /// Reads until the request is whole, the stream or the time has ended, or a request
    /// that has begun pauses; `None` when the peer has reset the connection, or when what
    /// came may be a part of a request.
    fn read_line<'b>(
        &self,
        stream: &TcpStream,
        buffer: &'b mut [u8; MAX_LINE_BYTES + 1],
        accepted: Instant,
    ) -> Option<&'b [u8]> {
        let mut end = accepted + READ_TIME;
        let (mut length, mut pieces) = (0, 0);
        let mut reader = stream;
        while line::wants_more(buffer.get(..length)?) {
            match reader.read(buffer.get_mut(length..)?) {
                Ok(0) => break,
                Ok(count) => {
                    length += count;
                    pieces += 1;
                    end = (accepted + READ_TIME).min(self.clock.now() + QUIET_TIME);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.wait(stream, Interest::Read, end) == Waited::TimeOver {
                        if line::may_end(buffer.get(..length)?, pieces) {
                            break;
                        }
                        self.stay_silent(Silence::Unended);
                        return None;
                    }
                }
                Err(_) => return None,
            }
        }
        buffer.get(..length)
    }

    fn stay_silent(&self, why: Silence) -> Option<Instant> {
        self.metrics.silent.of(why).inc();
        None
    }

    fn wait(&self, stream: &TcpStream, interest: Interest, end: Instant) -> Waited {
        let left = end.saturating_duration_since(self.clock.now());
        if left == Duration::ZERO {
            return Waited::TimeOver;
        }
        let mut watch = [Watch::new(stream.as_fd(), interest)];
        match sys::poll(&mut watch, Some(left)) {
            Ok(0) => Waited::Interrupted,
            Ok(_) => Waited::Ready,
            Err(_) => Waited::TimeOver,
        }
    }

    fn note(&self, note: Note) {
        let told = matches!(note, Note::Told(_));
        if self.notes.try_send(note).is_err() && told {
            self.metrics.unlogged.inc();
        }
    }
}

/// How one wait ended.
#[derive(Debug, PartialEq, Eq)]
enum Waited {
    Ready,
    /// A signal, or the time; the next wait finds out.
    Interrupted,
    TimeOver,
}
