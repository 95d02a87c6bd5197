//! The server's bounds, each with its reason.

use std::time::Duration;

/// Connections that wait in the kernel while all threads are busy; the kernel caps it
/// at `net.core.somaxconn`.
pub const LISTEN_BACKLOG: u16 = 1024;

/// Connections of the API listener: a handful of controllers, each with a small pool.
pub const API_CONNECTIONS: usize = 64;

/// Connections of the metrics listener: scrapers come one at a time.
pub const METRICS_CONNECTIONS: usize = 16;

/// A connection's stack. Handlers keep their buffers on the heap.
pub const THREAD_STACK_BYTES: usize = 256 * 1024;

/// A connection's only input buffer, and so the longest head.
pub const INPUT_BYTES: usize = 16 * 1024;

/// The request line. Our longest route needs 30 bytes.
pub const MAX_REQUEST_LINE_BYTES: usize = 4 * 1024;

/// Header fields of one request; clients and proxies add about 20.
pub const MAX_FIELDS: usize = 64;

/// Digits of a Content-Length: any such number fits 64 bits, so no sum overflows.
pub const MAX_LENGTH_DIGITS: usize = 18;

/// Hex digits of a chunk's size, 4 GiB; far above any body limit.
pub const MAX_CHUNK_DIGITS: u8 = 8;

/// Extensions of one chunk, which are read and ignored.
pub const MAX_CHUNK_EXTENSION_BYTES: usize = 256;

/// The trailers of a chunked body, which are read and ignored.
pub const MAX_TRAILER_BYTES: usize = 4 * 1024;

/// Requests of one connection; afterwards the client opens a new one, so that no
/// connection outlives a change of addresses by much.
pub const MAX_REQUESTS_PER_CONNECTION: u32 = 1000;

/// What is read and thrown away after an early answer: a whole apply body with its
/// chunk framing. A client that sends more loses the answer.
pub const MAX_LINGER_BYTES: u64 = crate::wire::limits::MAX_APPLY_BODY_BYTES + 4 * 1024 * 1024;

/// An answer of at most this size goes out in one write with its head.
pub const SMALL_ANSWER_BYTES: usize = 16 * 1024;

/// How long a newcomer waits for the slot of a connection that was shut for it.
pub const SLOT_WAIT: Duration = Duration::from_millis(50);

/// The pause after EMFILE and ENFILE.
pub const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(20);

/// The pause after ENOBUFS and ENOMEM, and after an error that nobody expected.
pub const MEMORY_PAUSE: Duration = Duration::from_millis(100);

/// Errors of single connections in a row after which the accept loop pauses, so that a
/// lasting one (a firewall's EPERM) cannot turn it into a busy loop.
pub const ERRORS_BEFORE_PAUSE: u32 = 16;

/// Refused connections that are kept for a moment after the 503, so that closing them
/// with unread input does not take the answer away again.
pub const MAX_PARTING: usize = 16;

/// How long a refused connection is kept.
pub const PARTING_TIME: Duration = Duration::from_secs(1);

/// How long a stop waits for connections after their sockets were shut.
pub const SHUT_WAIT: Duration = Duration::from_secs(1);

/// Log lines about what a peer can provoke: one a second of each kind.
pub const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The server's deadlines. The default is what production uses; a test that is about
/// a deadline shortens it.
#[derive(Debug, Clone)]
pub struct Deadlines {
    /// From the accept to the first byte.
    pub first_byte: Duration,
    /// From the first byte to the end of the head.
    pub head: Duration,
    /// From the first read of a body to its end.
    pub body: Duration,
    /// Within a body, the longest time without a byte.
    pub body_stall: Duration,
    /// One answer, in all.
    pub write: Duration,
    /// Within an answer, the longest time without progress.
    pub write_stall: Duration,
    /// Between two requests. Controllers pool connections for 90 s; ours must last
    /// longer, or they send a request into a closing connection.
    pub idle: Duration,
    /// Reading on after the last answer, so that the client gets to read it.
    pub linger: Duration,
    /// On a stop, how long requests that are being served may take.
    pub stop_grace: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            first_byte: Duration::from_secs(5),
            head: Duration::from_secs(10),
            body: Duration::from_secs(120),
            body_stall: Duration::from_secs(15),
            write: Duration::from_secs(180),
            write_stall: Duration::from_secs(15),
            idle: Duration::from_secs(120),
            linger: Duration::from_secs(2),
            stop_grace: Duration::from_secs(15),
        }
    }
}
