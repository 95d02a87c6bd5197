//! How the watcher is doing: what its thread writes and metrics, health checks and the
//! coverage read.
//!
//! One lock, held for a few assignments; nothing is read, written or logged under it.
//! All counters are closed sets and exist from the start.

use crate::clock::{Clock, UnixNanos};
use crate::metrics::Label;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

macro_rules! closed_set {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$vdoc])* $variant),+
        }

        impl Label for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

closed_set! {
    /// Why a reply of the store is not applied although it was read.
    Hold {
        /// Consul says that it left keys out for lack of rights.
        Filtered = "filtered",
        /// Everything is gone, and no delete has happened since the copy was read.
        Index = "index",
        /// A missing key may not be read, or its probe failed.
        Probe = "probe",
        /// The marker key is missing.
        Marker = "marker",
        /// The directory, its mark or its device is not the one the copy came from.
        Directory = "directory",
    }
}

closed_set! {
    /// How one read of the store ended.
    ReadResult {
        /// A new copy.
        Changed = "changed",
        /// Nothing new.
        Same = "same",
        /// Read, and not applied.
        Hold = "hold",
        /// No usable reply.
        Error = "error",
    }
}

closed_set! {
    /// What a failed read failed on.
    ErrorKind {
        /// No connection.
        Connect = "connect",
        /// No complete reply in time.
        Timeout = "timeout",
        /// A reply that is none of Consul's, or an error of its own.
        Http = "http",
        /// The cluster has no leader.
        Leader = "leader",
        /// The token is unknown or may not read the prefix.
        Acl = "acl",
        /// Cut short, too large, or not the JSON that it has to be.
        Parse = "parse",
    }
}

/// Names that are said one by one; the rest is counted.
const MAX_NAMED: usize = 16;

/// Names of keys or files: how many, and the first ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// How many.
    pub count: usize,
    /// The first of them, 16 at most.
    pub named: Vec<String>,
    /// The same, each with what there is to say of it.
    pub told: Vec<String>,
}

impl Names {
    /// All of these, of which the first ones are kept.
    pub(in crate::responder) fn of(names: impl IntoIterator<Item = String>) -> Self {
        let mut all = Self::default();
        for name in names {
            all.push(name);
        }
        all
    }

    /// One more.
    pub(super) fn push(&mut self, name: String) {
        let told = name.clone();
        self.push_told(name, told);
    }

    /// One more that is something special.
    pub(super) fn push_as(&mut self, name: String, what: &str) {
        let told = format!("{name} ({what})");
        self.push_told(name, told);
    }

    fn push_told(&mut self, name: String, told: String) {
        self.count += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(name);
            self.told.push(told);
        }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told.join(", "))?;
        match self.count - self.named.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Everything there is to know about the watcher at one moment.
#[derive(Debug, Clone)]
pub struct KvSnapshot {
    /// Whether a copy was ever read.
    pub synced: bool,
    /// When the store last said what the copy says: a reply that is held back is none.
    pub last_read: Option<UnixNanos>,
    /// Why the last reply was not applied; `None` when it was.
    pub hold: Option<Hold>,
    /// The last failure or hold in an operator's words; `None` after a good read.
    pub trouble: Option<String>,
    /// Since when there has been a failure or a hold at every read.
    pub trouble_since: Option<UnixNanos>,
    /// Keys of the current copy.
    pub keys: usize,
    /// Values of the current copy that count as absent.
    pub invalid_values: usize,
    /// Files that could not be read at the last look and keep their value.
    pub unreadable: Names,
    /// File names at the last look that are no key's.
    pub ignored: Names,
    /// Keys that the store lost and that are answered all the same.
    pub lost: Arc<BTreeSet<Box<str>>>,
    /// Keys that went when a reply was followed after one had been held back.
    pub ended_with_hold: u64,
    reads: [u64; ReadResult::ALL.len()],
    errors: [u64; ErrorKind::ALL.len()],
}

impl KvSnapshot {
    /// Reads that ended like this since the start.
    #[must_use]
    pub fn reads(&self, result: ReadResult) -> u64 {
        self.reads.get(result.index()).copied().unwrap_or(0)
    }

    /// Reads that failed on this since the start.
    #[must_use]
    pub fn errors(&self, kind: ErrorKind) -> u64 {
        self.errors.get(kind.index()).copied().unwrap_or(0)
    }
}

/// How a wait for the first copy ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncWait {
    /// It is there.
    Synced,
    /// Not within the time; [`KvSnapshot::trouble`] says why.
    Late,
    /// The watcher has ended.
    Stopped,
}

#[derive(Debug)]
struct Inner {
    snapshot: KvSnapshot,
    due: Instant,
    stopped: bool,
}

/// The shared status; one a watcher.
#[derive(Debug)]
pub struct KvStatus {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl KvStatus {
    /// The status of a watcher that has done nothing yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let snapshot = KvSnapshot {
            synced: false,
            last_read: None,
            hold: None,
            trouble: None,
            trouble_since: None,
            keys: 0,
            invalid_values: 0,
            unreadable: Names::default(),
            ignored: Names::default(),
            lost: Arc::default(),
            ended_with_hold: 0,
            reads: [0; ReadResult::ALL.len()],
            errors: [0; ErrorKind::ALL.len()],
        };
        let inner = Inner {
            snapshot,
            due: clock.now(),
            stopped: false,
        };
        Self {
            clock,
            inner: Mutex::new(inner),
            changed: Condvar::new(),
        }
    }

    /// All of it, as of one moment.
    #[must_use]
    pub fn snapshot(&self) -> KvSnapshot {
        self.lock().snapshot.clone()
    }

    /// Whether a copy was ever read.
    #[must_use]
    pub fn synced(&self) -> bool {
        self.lock().snapshot.synced
    }

    /// How long the watcher's next sign of life is overdue; zero while it is well.
    /// Every step that may take long announces its bound before, so anything above a
    /// few seconds means that the thread hangs or has ended.
    #[must_use]
    pub fn overdue(&self) -> Duration {
        let due = self.lock().due;
        self.clock.now().saturating_duration_since(due)
    }

    /// Waits for the first copy, at most `timeout`; `None` waits until the watcher
    /// ends.
    #[must_use]
    pub fn wait_synced(&self, timeout: Option<Duration>) -> SyncWait {
        let end = timeout.and_then(|time| self.clock.now().checked_add(time));
        let mut inner = self.lock();
        loop {
            if inner.snapshot.synced {
                return SyncWait::Synced;
            }
            if inner.stopped {
                return SyncWait::Stopped;
            }
            inner = match end {
                None => {
                    let woken = self.changed.wait(inner);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
                Some(end) => {
                    let left = end.saturating_duration_since(self.clock.now());
                    if left.is_zero() {
                        return SyncWait::Late;
                    }
                    let woken = self.changed.wait_timeout(inner, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// The next sign of life comes within `time`.
    pub(super) fn busy_for(&self, time: Duration) {
        let due = self.clock.now() + time;
        self.lock().due = due;
    }

    /// A usable reply that is now the copy, or says what the copy says.
    pub(super) fn read_ok(&self, changed: bool, keys: usize, invalid: usize) {
        let now = self.clock.wall();
        let result = if changed {
            ReadResult::Changed
        } else {
            ReadResult::Same
        };
        let mut inner = self.lock();
        let snapshot = &mut inner.snapshot;
        snapshot.synced = true;
        snapshot.last_read = Some(now);
        snapshot.hold = None;
        snapshot.trouble = None;
        snapshot.trouble_since = None;
        snapshot.keys = keys;
        snapshot.invalid_values = invalid;
        count(&mut snapshot.reads, result.index());
        drop(inner);
        self.changed.notify_all();
    }

    /// A usable reply that is not applied.
    pub(super) fn read_held(&self, hold: Hold, trouble: String) {
        let now = self.clock.wall();
        let mut inner = self.lock();
        let snapshot = &mut inner.snapshot;
        snapshot.hold = Some(hold);
        snapshot.trouble = Some(trouble);
        snapshot.trouble_since.get_or_insert(now);
        count(&mut snapshot.reads, ReadResult::Hold.index());
    }

    /// No usable reply; a hold that there was goes on.
    pub(super) fn read_failed(&self, kind: Option<ErrorKind>, trouble: String) {
        let now = self.clock.wall();
        let mut inner = self.lock();
        let snapshot = &mut inner.snapshot;
        snapshot.trouble = Some(trouble);
        snapshot.trouble_since.get_or_insert(now);
        count(&mut snapshot.reads, ReadResult::Error.index());
        if let Some(kind) = kind {
            count(&mut snapshot.errors, kind.index());
        }
    }

    /// What a look at the directory had to leave out.
    pub(super) fn left_out(&self, unreadable: Names, ignored: Names) {
        let mut inner = self.lock();
        inner.snapshot.unreadable = unreadable;
        inner.snapshot.ignored = ignored;
    }

    /// The store lost these keys, or has all of them again.
    pub(super) fn lost(&self, keys: Option<&BTreeSet<Box<str>>>) {
        let mut inner = self.lock();
        let lost = &mut inner.snapshot.lost;
        if keys.map_or(0, BTreeSet::len) != lost.len() || keys.is_some_and(|k| **lost != *k) {
            *lost = Arc::new(keys.cloned().unwrap_or_default());
        }
    }

    /// A copy that is followed although something else is held back.
    pub(super) fn holds(&self, keys: usize, invalid: usize) {
        let mut inner = self.lock();
        inner.snapshot.keys = keys;
        inner.snapshot.invalid_values = invalid;
    }

    /// Keys that a hold had kept are gone.
    pub(super) fn ended_with_hold(&self, keys: usize) {
        let keys = u64::try_from(keys).unwrap_or(u64::MAX);
        let mut inner = self.lock();
        let count = &mut inner.snapshot.ended_with_hold;
        *count = count.saturating_add(keys);
    }

    /// The watcher has ended.
    pub(super) fn stopped(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count(counters: &mut [u64], index: usize) {
    if let Some(counter) = counters.get_mut(index) {
        *counter += 1;
    }
}
