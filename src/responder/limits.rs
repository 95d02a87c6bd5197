//! The responder's bounds, each with its reason.

use std::time::Duration;

/// The longest request line, its line end included: one row and its groups.
pub const MAX_LINE_BYTES: usize = 1024;

/// Keys of one request.
pub const MAX_KEYS: usize = 16;

/// How long the kernel holds back a connection that has sent nothing, so that a thread is
/// woken once, with the request there, and who says nothing holds none. In seconds, the
/// least that the kernel knows.
pub const DEFER_SECONDS: u8 = 1;

/// From the accept to the end of the request line. HAProxy sends it at once; who stops
/// in the middle holds a thread for that long.
pub const READ_TIME: Duration = Duration::from_millis(200);

/// How long a request that has begun, and has no line end yet, may pause before the pause
/// ends it. A server added at runtime cannot be given a line end, and HAProxy sends a
/// request in one piece, so this only has to be longer than one piece takes.
pub const QUIET_TIME: Duration = Duration::from_millis(20);

/// The longest request that a pause may end: no network cuts one of this size in two, so
/// what came in one piece is whole. A cut one would name other keys, and be answered for
/// them.
pub const MAX_UNENDED_BYTES: usize = 512;

/// How long the peer may take to close after the reply, so that no TIME_WAIT stays here.
pub const CLOSE_TIME: Duration = Duration::from_millis(100);

/// How often answered connections are looked at.
pub const PARTING_LOOK: Duration = Duration::from_millis(5);

/// Answered connections that wait for their peer to close; a thread that has one more
/// waits with it. 9000 checks a second have 45 between two looks.
pub const MAX_PARTING: usize = 512;

/// A whole connection, far below the shortest sensible interval of checks.
pub const CONNECTION_TIME: Duration = Duration::from_millis(500);

/// Threads that answer. 500 peers that say nothing delay a check by
/// 500 / 128 × [`READ_TIME`], which is 0.8 s.
pub const THREADS: usize = 128;

/// A thread's stack; it holds one request line and no formatting.
pub const THREAD_STACK_BYTES: usize = 64 * 1024;

/// Connections that wait in the kernel. A dropped one costs its row a whole second, so
/// this matters more than the threads; the kernel caps it at `net.core.somaxconn`.
pub const BACKLOG: u16 = 4096;

/// The pause after an accept that failed for want of descriptors or memory.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A connection that holds a thread for longer than this is stuck: four times the bound
/// of any, and a machine that sleeps does not count.
pub const STUCK: Duration = Duration::from_secs(10);

/// How late the watcher of the store may be with a sign of life.
pub const WATCHER_LATE: Duration = Duration::from_secs(10);

/// Rows that are remembered; the oldest go first. 17 times the rows of a large fleet.
pub const MAX_ROWS: usize = 16_384;

/// How many of them go at once, so that a flood of names costs little each.
pub const ROWS_OUT: usize = 256;

/// Transitions that wait to be logged; more are counted, not logged.
pub const MAX_WAITING_TRANSITIONS: usize = 4096;

/// Keys of the store, unless `--kv-max-keys` says otherwise: 17 times the rows of a large
/// fleet. A store with more is not applied, so that a runaway writer cannot fill the memory.
pub const MAX_KV_KEYS: usize = 16_384;

/// What `--kv-max-keys` takes at most.
pub const MOST_KV_KEYS: usize = 1_000_000;

/// Bytes of Consul's reply for each key of that limit: twice what a key of 400 bytes has
/// in it, so 16 MiB for 16 384 keys.
pub const REPLY_BYTES_A_KEY: usize = 1024;

/// How often HAProxy is asked what became of the answers.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// How long such a look may take in all.
pub const LOOK_TIME: Duration = Duration::from_secs(5);

/// How long a request for the coverage may wait for such a look. Clients wait longer.
pub const FRESH_TIME: Duration = Duration::from_secs(3);

/// Overrides of the copy that the coverage shows where that is asked for; more are counted.
/// With the longest keys it is 40 MiB.
pub const MAX_SHOWN_OVERRIDES: usize = 65_536;

/// The interval of a row's checks while it is not known: HAProxy's own default.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(2);

/// Connections of the monitoring listener: scrapers come one at a time.
pub const MONITORING_CONNECTIONS: usize = 16;
