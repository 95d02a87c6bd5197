//! What became of the answers: HAProxy's own view of its rows, joined with who asked.
//!
//! Every `LOOK_INTERVAL` the worker's socket is asked for the state of its servers and
//! for their agent checks; a row's name is `backend/server`. Only listings are read,
//! never a command sent: a row that does not do what it was told is reported, not
//! corrected, because whatever holds it there (an operator's `agent down`, a balancing
//! that knows no weights) is stronger than another command.
//!
//! Whoever waits for the outcome of a write gets a look of its own, as often as that costs
//! HAProxy little; see `turns`.
//!
//! `judge` is pure. Nothing is called wrong that may still be on its way: not before
//! two intervals after a change, and not before three after a start or reload.

mod turns;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::coverage::{Coverage, Heard, RowState};
use super::kv::{Names, Weights};
use super::limits::{DEFAULT_INTERVAL, LOOK_TIME};
use super::metrics::{Look, Metrics};
use super::value::Value;
use crate::clock::{Clock, UnixNanos};
use crate::error::Chain;
use crate::haproxy::server_stats::{self, ServerStat};
use crate::haproxy::servers_state::{self, ServerRow};
use crate::haproxy::{Deadline, WorkerSocket};

use turns::Turns;

/// How long an old view is shown while HAProxy does not answer: longer than a reload or a
/// restart takes, so that an alert that waits is not set back by one.
const VIEW_KEPT: Duration = Duration::from_secs(60);

/// Slack beside whole intervals, for a machine that is busy.
const SLACK: Duration = Duration::from_secs(1);

/// Bits of a server's admin state that an agent's words set.
const ADMIN_MAINT: u32 = 1;
const ADMIN_DRAIN: u32 = 8;

/// A bit of a server's agent state: it has one.
const AGENT_CONFIGURED: u32 = 2;

/// The greatest weight in HAProxy.
const MAX_WEIGHT: u32 = 256;

/// One row of HAProxy's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRow {
    /// Whether it asks and does what it is told.
    pub state: RowState,
    /// Its admin state, a bit mask.
    pub admin: u32,
    /// Its wanted weight.
    pub weight: u32,
    /// The weight that percentages count from.
    pub base_weight: u32,
    /// As the statistics page shows it.
    pub status: String,
    /// How its last agent check ended.
    pub agent_status: String,
    /// What HAProxy had to complain about in the last reply.
    pub agent_words: String,
    /// The agent that it asks, `address:port`.
    pub agent: String,
}

/// HAProxy's rows as of one look.
#[derive(Debug)]
pub struct View {
    /// When.
    pub at: UnixNanos,
    at_instant: Instant,
    /// Its rows by `backend/server`.
    pub rows: HashMap<String, SeenRow>,
    /// Rows that ask and that it does not have.
    pub foreign: Vec<String>,
}

impl View {
    /// Whether it was taken before `at`.
    #[must_use]
    pub fn is_older_than(&self, at: Instant) -> bool {
        self.at_instant < at
    }

    /// Whether something was heard within three of its intervals before the look, or since.
    #[must_use]
    pub fn was_asking(&self, row: &Heard) -> bool {
        is_asking(row, self.at_instant)
    }

    /// How many rows are in a state.
    #[must_use]
    pub fn count(&self, state: RowState) -> usize {
        match state {
            RowState::Foreign => self.foreign.len(),
            other => self.rows.values().filter(|row| row.state == other).count(),
        }
    }
}

/// Looks at one worker.
#[derive(Debug)]
pub struct Confirm {
    worker: WorkerSocket,
    coverage: Arc<Coverage>,
    metrics: Arc<Metrics>,
    weights: Weights,
    clock: Arc<dyn Clock>,
    last: Mutex<Last>,
    turns: Turns,
}

#[derive(Debug, Default)]
struct Last {
    view: Option<Arc<View>>,
    /// Rows of other names than HAProxy's that have been logged.
    told: BTreeSet<String>,
    trouble: Option<String>,
}

impl Last {
    /// The requests of rows that ask by a name that neither this look nor the one before
    /// has found, and that have not been told of. One look is not enough: a server may just
    /// have been deleted.
    fn strange(&mut self, view: &View, heard: &[(String, Heard)]) -> Vec<String> {
        let Some(before) = &self.view else {
            return Vec::new();
        };
        let lasting = |name: &String| before.foreign.contains(name);
        let since = |row: &Heard| row.last_at > before.at_instant;
        let strange = heard
            .iter()
            .filter(|(name, row)| view.foreign.contains(name) && lasting(name) && since(row));
        let fresh: Vec<&(String, Heard)> = strange
            .filter(|(name, _)| !self.told.contains(name))
            .collect();
        let requests = fresh
            .iter()
            .map(|(_, row)| String::from_utf8_lossy(&row.request).into_owned());
        let requests = requests.collect();
        self.told.retain(|name| view.foreign.contains(name));
        self.told
            .extend(fresh.into_iter().map(|(name, _)| name.clone()));
        requests
    }
}

impl Confirm {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(
        worker: WorkerSocket,
        coverage: Arc<Coverage>,
        metrics: Arc<Metrics>,
        weights: Weights,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            worker,
            coverage,
            metrics,
            weights,
            clock,
            last: Mutex::new(Last::default()),
            turns: Turns::default(),
        }
    }

    /// Looks every so often, and sooner for who [waits](Self::refresh), until the
    /// [end](Self::stop).
    pub fn run(&self, every: Duration) {
        self.turns.run(every, || self.look());
    }

    /// Ends [`run`](Self::run) and every wait for it.
    pub fn stop(&self) {
        self.turns.stop();
    }

    /// Waits for a look that begins now or later, at most `time`; false without one: what
    /// is shown is as old as it says.
    #[must_use]
    pub fn refresh(&self, time: Duration) -> bool {
        self.turns.refresh(time)
    }

    /// The last view, while it is not too old, and why there is no newer one.
    #[must_use]
    pub fn last(&self) -> (Option<Arc<View>>, Option<String>) {
        let now = self.clock.now();
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |view: &&Arc<View>| now.saturating_duration_since(view.at_instant) < VIEW_KEPT;
        (
            last.view.as_ref().filter(fresh).cloned(),
            last.trouble.clone(),
        )
    }

    /// Looks once. A failure is counted, logged when it is a new one, and shown.
    pub fn look(&self) {
        let (view, trouble) = match self.read() {
            Ok(view) => {
                self.metrics.looks.of(Look::Ok).inc();
                (Some(Arc::new(view)), None)
            }
            Err(error) => {
                self.metrics.looks.of(Look::Error).inc();
                (None, Some(error))
            }
        };
        let heard = self.coverage.rows();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut last.trouble, trouble.clone());
        let mut strange = Vec::new();
        if let Some(view) = view {
            strange = last.strange(&view, &heard);
            last.view = Some(view);
        }
        drop(last);
        if !strange.is_empty() {
            let requests = Names::of(strange).to_string();
            log::warn!(requests; "rows ask by names that HAProxy does not have: the first word of agent-send has to be backend/server as HAProxy spells them");
        }
        let socket = self.worker.path().display();
        match (before, trouble) {
            (None, Some(error)) => {
                log::warn!(socket:% = socket, error = error; "HAProxy cannot be asked what became of the answers; agent checks are answered all the same");
            }
            (Some(_), None) => log::info!(socket:% = socket; "HAProxy can be asked again"),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    fn read(&self) -> Result<View, String> {
        let deadline = Deadline::after(LOOK_TIME);
        let info = self.worker.info(deadline).map_err(told)?;
        let servers = servers_state::read_all(&self.worker, deadline).map_err(told)?;
        let stats = server_stats::read(&self.worker, deadline).map_err(told)?;
        let heard = self.coverage.rows();
        let at = self.clock.wall();
        let at_instant = self.clock.now();
        let started = i128::from(info.identity.start_micros) * 1000;
        let age = u64::try_from((at.0 - started).max(0)).unwrap_or(u64::MAX);
        let context = Context {
            now: at_instant,
            worker_age: Duration::from_nanos(age),
            listening_for: self.coverage.listening_for(at_instant),
            longest_interval: longest_interval(&heard, at_instant),
            weights: self.weights,
            grouped: heard
                .iter()
                .any(|(name, row)| !name.contains('/') && row.is_live(at_instant)),
        };
        Ok(join(&servers, &stats, &heard, &context, at))
    }
}

fn told(error: impl Error) -> String {
    Chain(&error).to_string()
}

fn longest_interval(heard: &[(String, Heard)], now: Instant) -> Duration {
    let live = heard.iter().filter(|(_, row)| row.is_live(now));
    let longest = live.filter_map(|(_, row)| row.interval()).max();
    longest.unwrap_or_default().max(DEFAULT_INTERVAL)
}

/// What a judgement needs beside the row.
#[derive(Debug, Clone, Copy)]
struct Context {
    now: Instant,
    worker_age: Duration,
    listening_for: Duration,
    /// For rows that have not been heard.
    longest_interval: Duration,
    weights: Weights,
    /// Whether somebody asks without a row's name.
    grouped: bool,
}

fn join(
    servers: &[ServerRow],
    stats: &[ServerStat],
    heard: &[(String, Heard)],
    context: &Context,
    at: UnixNanos,
) -> View {
    let stats: HashMap<(&str, &str), &ServerStat> = stats
        .iter()
        .map(|stat| ((stat.backend.as_str(), stat.name.as_str()), stat))
        .collect();
    let by_name: HashMap<&str, &Heard> = heard
        .iter()
        .map(|(name, row)| (name.as_str(), row))
        .collect();
    let named = servers.iter().map(name_of);
    let named: Vec<(String, &ServerRow)> = named.zip(servers).collect();
    let known: HashSet<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
    let foreign = heard.iter().filter(|(name, row)| {
        name.contains('/') && is_asking(row, context.now) && !known.contains(name.as_str())
    });
    let foreign: Vec<String> = foreign.map(|(name, _)| name.clone()).collect();
    // Whoever asks by a wrong name is heard, only not as the row that it is.
    let context = &Context {
        grouped: context.grouped || !foreign.is_empty(),
        ..*context
    };
    let mut rows = HashMap::with_capacity(servers.len());
    for (name, server) in named {
        let stat = stats.get(&(server.backend.as_str(), server.name.as_str()));
        let stat = stat.copied();
        let state = judge(server, stat, by_name.get(name.as_str()).copied(), context);
        let text = |pick: fn(&ServerStat) -> &String| stat.map(pick).cloned().unwrap_or_default();
        let (address, port) = &server.agent_at;
        let row = SeenRow {
            state,
            admin: server.admin,
            weight: server.weight,
            base_weight: server.base_weight,
            status: text(|s| &s.status),
            agent_status: text(|s| &s.agent_status),
            agent_words: text(|s| &s.agent_words),
            agent: match address.as_str() {
                "-" => format!(":{port}"),
                address => format!("{address}:{port}"),
            },
        };
        rows.insert(name, row);
    }
    View {
        at,
        at_instant: context.now,
        rows,
        foreign,
    }
}

fn name_of(server: &ServerRow) -> String {
    format!("{}/{}", server.backend, server.name)
}

/// Whether a row has been heard within three of its intervals.
fn is_asking(row: &Heard, now: Instant) -> bool {
    let interval = row.interval().unwrap_or(DEFAULT_INTERVAL);
    now.saturating_duration_since(row.last_at) <= interval * 3 + SLACK
}

fn judge(
    server: &ServerRow,
    stat: Option<&ServerStat>,
    heard: Option<&Heard>,
    context: &Context,
) -> RowState {
    if !server.is_asked() {
        return match server.agent & AGENT_CONFIGURED {
            0 => RowState::NotEnrolled,
            _ => RowState::AgentOff,
        };
    }
    match heard.filter(|row| is_asking(row, context.now)) {
        Some(row) => {
            let settled = row.interval().unwrap_or(DEFAULT_INTERVAL) * 2 + SLACK;
            let told_for = context.now.saturating_duration_since(row.changed_at);
            if follows(server, stat, row.value, context.weights) {
                RowState::Following
            } else if told_for < settled || context.worker_age < settled {
                RowState::Pending
            } else {
                RowState::Diverged
            }
        }
        None => {
            let interval = heard.and_then(Heard::interval);
            let due = interval.unwrap_or(context.longest_interval) * 3 + SLACK;
            if context.worker_age < due || context.listening_for < due {
                RowState::Pending
            } else if context.grouped && stat.is_some_and(ServerStat::agent_is_well) {
                RowState::ByGroup
            } else {
                RowState::NotAsking
            }
        }
    }
}

/// Whether a server is as its last answer says. What it inherits from a server that it
/// tracks is not its own, and a weight says nothing while it is out.
fn follows(server: &ServerRow, stat: Option<&ServerStat>, value: Value, weights: Weights) -> bool {
    let admin = server.admin & (ADMIN_MAINT | ADMIN_DRAIN);
    let in_service = |percent: Option<u16>| {
        let held_down = stat.is_some_and(|stat| stat.status.starts_with("DOWN (agent)"));
        let weight = percent.is_none_or(|percent| {
            let share = server.base_weight * u32::from(percent) / 100;
            server.weight == share.min(MAX_WEIGHT)
        });
        admin == 0 && weight && !held_down
    };
    match (value, weights) {
        (Value::Drain, _) => admin == ADMIN_DRAIN,
        (Value::Maint, _) => admin == ADMIN_MAINT,
        (Value::Ready | Value::Weight(_), Weights::Keep) => in_service(None),
        (Value::Ready, Weights::Set) => in_service(Some(100)),
        (Value::Weight(percent), Weights::Set) => in_service(Some(percent)),
    }
}

#[cfg(test)]
mod tests;
