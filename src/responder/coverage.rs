//! Who asks, with which keys, and what they were told: the answer to "does HAProxy really
//! ask?", which nothing in HAProxy's own metrics gives.
//!
//! Written by the answering threads after each reply, so the lock is short: the rows lie
//! in shards, and nothing is formatted, logged or waited for under one. Only memory is
//! kept here, bounded by [`MAX_ROWS`]; after a restart the rows come back within one
//! interval. It only reports and never decides an answer.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::answer::Answer;
use super::copy::Copy;
use super::key::is_addressable;
use super::limits::{MAX_ROWS, ROWS_OUT};
use super::line::Keys;
use super::value::Value;
use crate::clock::UnixNanos;
use crate::metrics::labels;

labels! {
    /// Whether a row asks and does what it is told.
    RowState {
        /// It has the state and the weight of its last answer.
        Following = "following",
        /// It was told something new, or its worker has just started.
        Pending = "pending",
        /// It has another state or weight than it was told: a weight its balancing
        /// refuses, `agent down`, another writer.
        Diverged = "diverged",
        /// HAProxy means to ask, but its question does not arrive here.
        NotAsking = "not_asking",
        /// It has an agent check that is switched off.
        AgentOff = "agent_off",
        /// It has no agent check.
        NotEnrolled = "not_enrolled",
        /// It asks, but HAProxy has no such row.
        Foreign = "foreign",
        /// Its check works without its own key, as in a server template: only group
        /// keys say what it is told.
        ByGroup = "by_group",
    }
}

/// Locks of the table; each covers a part of the rows.
const SHARDS: usize = 16;

/// Rows of one shard.
const SHARD_ROWS: usize = MAX_ROWS / SHARDS;

/// A row whose check is this many intervals away is not there any more.
const GONE_INTERVALS: u32 = 10;

/// The least time for the same: shorter intervals must not make a pause of HAProxy's
/// look like an end.
const GONE_LEAST: Duration = Duration::from_secs(10);

/// How long the responder listens before it calls a key unasked although no interval is
/// known, because nobody has asked twice.
const UNKNOWN_WARM_UP: Duration = Duration::from_secs(60);

/// What one row has asked and was told.
#[derive(Debug, Clone)]
pub struct Heard {
    /// The whole request, single blanks between the keys.
    pub request: Box<[u8]>,
    /// When it asked first, in this life of the responder.
    pub first: UnixNanos,
    /// When it asked last.
    pub last: UnixNanos,
    /// The same, to reckon with.
    pub last_at: Instant,
    /// How often it asked.
    pub count: u64,
    /// What it was told last.
    pub value: Value,
    /// Which of its keys decided that.
    pub decided: Option<usize>,
    /// Since when it is told that.
    pub changed_at: Instant,
    gaps: [Duration; 3],
}

impl Heard {
    fn new(keys: &Keys<'_>, answer: Answer, now: Instant, wall: UnixNanos) -> Self {
        Self {
            request: keys.as_slice().join(&b' ').into(),
            first: wall,
            last: wall,
            last_at: now,
            count: 1,
            value: answer.value,
            decided: answer.decided,
            changed_at: now,
            gaps: [Duration::ZERO; 3],
        }
    }

    /// Its keys.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.request.split(|byte| *byte == b' ')
    }

    /// The key that decided its last answer.
    #[must_use]
    pub fn deciding_key(&self) -> Option<&[u8]> {
        self.keys().nth(self.decided?)
    }

    /// The time between two of its checks: the middle one of the last three, so that
    /// neither an outage nor a burst counts. `None` until it has asked twice.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        let mut gaps = self.gaps;
        gaps.sort_unstable();
        match self.count {
            0 | 1 => None,
            // One gap is known, and the two zeroes sort before it.
            2 => Some(gaps[2]),
            // Of two the shorter, of three the middle one.
            _ => Some(gaps[1]),
        }
    }

    /// Whether it is still one of those that ask.
    #[must_use]
    pub fn is_live(&self, now: Instant) -> bool {
        let interval = self.interval().unwrap_or(UNKNOWN_WARM_UP / GONE_INTERVALS);
        let gone = (interval * GONE_INTERVALS).max(GONE_LEAST);
        now.saturating_duration_since(self.last_at) < gone
    }

    fn asked_again(&mut self, now: Instant, wall: UnixNanos) {
        let gap = now.saturating_duration_since(self.last_at);
        self.gaps = [self.gaps[1], self.gaps[2], gap];
        self.last_at = self.last_at.max(now);
        self.last = wall;
        self.count = self.count.saturating_add(1);
    }
}

/// A row that was told something else than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The row's first key.
    pub row: Box<[u8]>,
    /// What it was told until now.
    pub from: Value,
    /// What it is told from now on.
    pub to: Value,
    /// The key that decided; `None` when none has a value.
    pub key: Option<Box<[u8]>>,
}

#[derive(Debug, Default)]
struct Shard {
    rows: HashMap<Box<[u8]>, Heard>,
    evicted: u64,
}

/// Everything that was heard.
#[derive(Debug)]
pub struct Coverage {
    started: Instant,
    shards: [Mutex<Shard>; SHARDS],
}

impl Coverage {
    /// Nothing heard since `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            started: now,
            shards: Default::default(),
        }
    }

    /// Takes down one answered request. A row's first answer is no transition.
    pub fn heard(
        &self,
        keys: &Keys<'_>,
        answer: Answer,
        now: Instant,
        wall: UnixNanos,
    ) -> Option<Transition> {
        let mut shard = self.shard(keys.first());
        match shard.rows.get_mut(keys.first()) {
            Some(row) => {
                row.asked_again(now, wall);
                if !row.keys().eq(keys.as_slice().iter().copied()) {
                    row.request = keys.as_slice().join(&b' ').into();
                }
                row.decided = answer.decided;
                if row.value == answer.value {
                    return None;
                }
                let from = std::mem::replace(&mut row.value, answer.value);
                row.changed_at = now;
                Some(Transition {
                    row: keys.first().into(),
                    from,
                    to: answer.value,
                    key: row.deciding_key().map(Box::from),
                })
            }
            None => {
                if shard.rows.len() >= SHARD_ROWS {
                    shard.forget_oldest();
                }
                let row = Heard::new(keys, answer, now, wall);
                shard.rows.insert(keys.first().into(), row);
                None
            }
        }
    }

    /// All rows, sorted by key.
    #[must_use]
    pub fn rows(&self) -> Vec<(String, Heard)> {
        let mut rows = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            rows.extend(
                shard
                    .rows
                    .iter()
                    .map(|(key, row)| (key.clone(), row.clone())),
            );
        }
        let mut rows: Vec<_> = rows
            .into_iter()
            .map(|(key, row)| (String::from_utf8_lossy(&key).into_owned(), row))
            .collect();
        rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        rows
    }

    /// Rows that were forgotten for want of room.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).evicted).sum()
    }

    /// How long it has been listening.
    #[must_use]
    pub fn listening_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        // FNV-1a: rows of one backend differ in their last bytes only.
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let at = usize::try_from((hash >> 32) % SHARDS as u64).unwrap_or(0);
        // `at` is below SHARDS.
        lock(&self.shards[at])
    }
}

impl Shard {
    fn forget_oldest(&mut self) {
        let mut ages: Vec<Instant> = self.rows.values().map(|row| row.last_at).collect();
        let out = (ROWS_OUT / SHARDS).max(1).min(ages.len());
        let (_, youngest_out, _) = ages.select_nth_unstable(out - 1);
        let limit = *youngest_out;
        let before = self.rows.len();
        self.rows.retain(|_, row| row.last_at > limit);
        let gone = before - self.rows.len();
        self.evicted = self
            .evicted
            .saturating_add(u64::try_from(gone).unwrap_or(0));
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keys of the copy that no row asks for: misspelt, or of rows that are gone. Empty until
/// every row had the time to ask once.
#[must_use]
pub fn unasked(
    copy: &Copy,
    rows: &[(String, Heard)],
    listening_for: Duration,
    now: Instant,
) -> Vec<String> {
    let live = || {
        rows.iter()
            .map(|(_, row)| row)
            .filter(|row| row.is_live(now))
    };
    let longest = live().filter_map(Heard::interval).max();
    let warm_up = longest.map_or(UNKNOWN_WARM_UP, |interval| {
        (interval + Duration::from_secs(1)).max(GONE_LEAST)
    });
    if listening_for < warm_up {
        return Vec::new();
    }
    let asked: HashSet<&[u8]> = live().flat_map(Heard::keys).collect();
    let keys = copy.iter().map(|(key, _)| key);
    keys.filter(|key| is_addressable(key) && !asked.contains(key.as_bytes()))
        .map(str::to_owned)
        .collect()
}

/// Keys of the copy that no request can name.
#[must_use]
pub fn unaddressable(copy: &Copy) -> Vec<String> {
    let keys = copy.iter().map(|(key, _)| key);
    keys.filter(|key| !is_addressable(key))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests;
