//! The accept loop: takes connections, gives each a slot and a thread, and goes on
//! after every error that does not concern the listener itself.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixDatagram;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::admission::{Admission, Full};
use super::conn::{Conn, busy_answer};
use super::limits::{
    DESCRIPTOR_PAUSE, Deadlines, ERRORS_BEFORE_PAUSE, LOG_INTERVAL, MAX_PARTING, MEMORY_PAUSE,
    PARTING_TIME, THREAD_STACK_BYTES,
};
use super::link::Link;
use super::server::{ServeError, Server, ServerStats, Service, reserve_descriptor};
use super::stop::StopSignal;
use crate::clock::{Clock as _, SystemClock};
use crate::sys::{self, Interest, Watch};

/// Everything that one run of a server needs, without its connections.
pub(super) struct AcceptLoop {
    name: &'static str,
    listener: TcpListener,
    stop: Arc<StopSignal>,
    stats: Arc<ServerStats>,
    admission: Arc<Admission>,
    deadlines: Arc<Deadlines>,
    service: Arc<dyn Service>,
    reserve: Option<UnixDatagram>,
    parting: Parting,
    errors_in_a_row: u32,
    accept_log: LogGate,
    refuse_log: LogGate,
}

/// What an error of accept4 asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accepting {
    /// No connection waits.
    Nothing,
    /// That connection failed; the next one may not.
    GoOn,
    /// No descriptor is left.
    NoDescriptor,
    /// The kernel is short of memory, or says something that nobody expected.
    Pause,
    /// The listener is gone.
    Fatal,
}

impl AcceptLoop {
    pub(super) fn new(server: Server, service: Arc<dyn Service>) -> Self {
        Self {
            name: server.config.name,
            listener: server.listener,
            stop: server.stop,
            stats: server.stats,
            admission: server.admission,
            deadlines: Arc::new(server.config.deadlines),
            service,
            reserve: Some(server.reserve),
            parting: Parting::default(),
            errors_in_a_row: 0,
            accept_log: LogGate::default(),
            refuse_log: LogGate::default(),
        }
    }

    /// Accepts until the stop; the listener closes with the return.
    pub(super) fn run(mut self) -> Result<(), ServeError> {
        while !self.stop.is_raised() {
            if !self.wait_for_connection()? {
                continue;
            }
            match sys::accept(&self.listener) {
                Ok((stream, peer)) => {
                    self.errors_in_a_row = 0;
                    self.take(stream, peer);
                }
                Err(error) => self.after_error(error)?,
            }
        }
        Ok(())
    }

    /// Whether the listener has something to say; handles refused connections meanwhile.
    fn wait_for_connection(&mut self) -> Result<bool, ServeError> {
        let timeout = self.parting.tidy();
        let mut watches = Vec::with_capacity(2 + MAX_PARTING);
        watches.push(Watch::new(self.listener.as_fd(), Interest::Read));
        watches.push(Watch::new(self.stop.as_fd(), Interest::Read));
        for (stream, _) in &self.parting.streams {
            watches.push(Watch::new(stream.as_fd(), Interest::Read));
        }
        match sys::poll(&mut watches, timeout) {
            Ok(_) => Ok(watches.first().is_some_and(Watch::is_ready)),
            Err(error) => {
                self.after_error(error)?;
                Ok(false)
            }
        }
    }

    fn after_error(&mut self, error: io::Error) -> Result<(), ServeError> {
        let kind = classify(&error);
        if kind == Accepting::Nothing {
            return Ok(());
        }
        self.stats.accept_errors.fetch_add(1, Ordering::Relaxed);
        if let Some(unsaid) = self.accept_log.open() {
            log::warn!(listener = self.name, error:% = error, unsaid = unsaid; "accept failed");
        }
        self.errors_in_a_row = self.errors_in_a_row.saturating_add(1);
        match kind {
            Accepting::Nothing => {}
            Accepting::GoOn => {
                if self.errors_in_a_row >= ERRORS_BEFORE_PAUSE {
                    self.pause(DESCRIPTOR_PAUSE);
                }
            }
            Accepting::NoDescriptor => {
                self.refuse_with_reserve();
                self.pause(DESCRIPTOR_PAUSE);
            }
            Accepting::Pause => self.pause(MEMORY_PAUSE),
            Accepting::Fatal => {
                return Err(ServeError {
                    name: self.name,
                    source: error,
                });
            }
        }
        Ok(())
    }

    /// Gives one waiting connection an answer although no descriptor is left. The
    /// reserve may be missing after another thread was faster; then it is taken as soon
    /// as there is one again.
    fn refuse_with_reserve(&mut self) {
        self.parting.streams.clear();
        self.reserve = None;
        if let Ok((stream, _)) = sys::accept(&self.listener) {
            self.stats.refused_busy.fetch_add(1, Ordering::Relaxed);
            say_busy(&stream);
        }
        self.reserve = reserve_descriptor().ok();
    }

    /// Waits, unless the server is to stop.
    fn pause(&self, time: Duration) {
        let mut watch = [Watch::new(self.stop.as_fd(), Interest::Read)];
        // A signal or an error only shortens the pause.
        let _ = sys::poll(&mut watch, Some(time));
    }

    fn take(&mut self, stream: TcpStream, peer: SocketAddr) {
        self.stats.accepted.fetch_add(1, Ordering::Relaxed);
        if self.reserve.is_none() {
            self.reserve = reserve_descriptor().ok();
        }
        // Answers go out in whole; waiting for more to send only delays them.
        let _ = stream.set_nodelay(true);
        let stream = Arc::new(stream);
        let slot = match self.admission.admit(Arc::clone(&stream)) {
            Ok((slot, shut)) => {
                self.stats
                    .evicted
                    .fetch_add(u64::from(shut), Ordering::Relaxed);
                slot
            }
            Err(Full) => return self.refuse(stream, peer, "all connections are busy"),
        };
        let conn = Conn {
            link: Link::new(
                Arc::clone(&stream),
                Arc::clone(&self.deadlines),
                Arc::clone(&self.stop),
            ),
            peer,
            service: Arc::clone(&self.service),
            stats: Arc::clone(&self.stats),
            slot,
        };
        let open = OpenCount::new(Arc::clone(&self.stats));
        let stats = Arc::clone(&self.stats);
        let spawned = thread::Builder::new()
            .name(format!("http-{}", self.name))
            .stack_size(THREAD_STACK_BYTES)
            .spawn(move || {
                let _open = open;
                // The connection is moved in and dropped by the unwinding, which frees
                // its slot; nothing of it is looked at afterwards.
                if catch_unwind(AssertUnwindSafe(|| conn.serve())).is_err() {
                    stats.panics.fetch_add(1, Ordering::Relaxed);
                }
            });
        if spawned.is_err() {
            self.stats.spawn_errors.fetch_add(1, Ordering::Relaxed);
            self.refuse(stream, peer, "no thread can be started");
        }
    }

    fn refuse(&mut self, stream: Arc<TcpStream>, peer: SocketAddr, why: &str) {
        self.stats.refused_busy.fetch_add(1, Ordering::Relaxed);
        if let Some(unsaid) = self.refuse_log.open() {
            log::warn!(listener = self.name, peer:% = peer, unsaid = unsaid, reason = why; "connection refused");
        }
        say_busy(&stream);
        self.parting.add(stream);
    }
}

/// Sends the 503; a fresh connection's send buffer holds it whole.
fn say_busy(stream: &TcpStream) {
    let mut writer = stream;
    if writer.write(busy_answer()).is_ok() {
        let _ = stream.shutdown(Shutdown::Write);
    }
}

fn classify(error: &io::Error) -> Accepting {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Accepting::Nothing,
        Some(libc::EINTR) => Accepting::GoOn,
        Some(_) if is_about_one_connection(error) => Accepting::GoOn,
        Some(libc::EMFILE | libc::ENFILE) => Accepting::NoDescriptor,
        Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK) => Accepting::Fatal,
        _ => Accepting::Pause,
    }
}

/// Whether an error of accept is one connection's alone: it ended before it was taken, or
/// the network or a firewall had something against it. The next one may be well.
pub(crate) fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EPROTO
                | libc::EPERM
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH
                | libc::ETIMEDOUT
                | libc::ECONNRESET
        )
    )
}

/// Refused connections, kept until the client closes or a moment has passed.
#[derive(Default)]
struct Parting {
    streams: VecDeque<(Arc<TcpStream>, Instant)>,
}

impl Parting {
    fn add(&mut self, stream: Arc<TcpStream>) {
        if self.streams.len() >= MAX_PARTING {
            self.streams.pop_front();
        }
        self.streams
            .push_back((stream, SystemClock.now() + PARTING_TIME));
    }

    /// Drops what has ended, throws away what came, and says when to look again.
    fn tidy(&mut self) -> Option<Duration> {
        let now = SystemClock.now();
        self.streams.retain(|(stream, until)| {
            let mut reader = &**stream;
            let mut dropped = [0u8; 4096];
            *until > now
                && match reader.read(&mut dropped) {
                    Ok(count) => count > 0,
                    Err(error) => error.kind() == io::ErrorKind::WouldBlock,
                }
        });
        let (_, until) = self.streams.front()?;
        Some(until.saturating_duration_since(now))
    }
}

/// Counts a connection as open for as long as it lives.
struct OpenCount {
    stats: Arc<ServerStats>,
}

impl OpenCount {
    fn new(stats: Arc<ServerStats>) -> Self {
        stats.open.fetch_add(1, Ordering::Relaxed);
        Self { stats }
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.stats.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lets one log line an interval through and counts the others.
#[derive(Default)]
struct LogGate {
    next: Option<Instant>,
    unsaid: u64,
}

impl LogGate {
    /// How many lines were held back since the last one, if one may be written now.
    fn open(&mut self) -> Option<u64> {
        let now = SystemClock.now();
        if self.next.is_some_and(|next| now < next) {
            self.unsaid += 1;
            return None;
        }
        self.next = Some(now + LOG_INTERVAL);
        Some(std::mem::take(&mut self.unsaid))
    }
}
