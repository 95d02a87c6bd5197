//! One reload, from the command to the new worker's own word.
//!
//! The order: send `reload`, wait for `Success=`, then ask the worker's socket until
//! another worker answers than before. A busy master and a refused connect say nothing
//! about the files and are tried again within the deadline.
//!
//! An answer without a verdict does not say whether *this* reload was carried out: on
//! 3.0 a master that is reloading for someone else takes the connection and resets it,
//! and the worker that comes up may have read the files before they were written. So
//! the command is given again, a few times, and only if no verdict can be had does the
//! worker's identity decide.
//!
//! A HAProxy of which neither process listens any more is not waited for to the end: a
//! master that executes itself anew refuses for a moment, and longer with a large
//! configuration, but its worker answers meanwhile.
//!
//! The whole takes at most the timeout and one last look of [`LOOK`].

use super::alerts::ReloadLog;
use super::identity::{Identity, WorkerInfo};
use super::master::{MasterSocket, ReloadReply};
use super::socket::SocketError;
use super::wait::{Backoff, Deadline};
use super::worker::WorkerSocket;
use crate::clock::{Clock, UnixNanos};
use crate::wire::result::{NO_NEW_WORKER, STILL_ANSWERS};
use std::error::Error;
use std::time::{Duration, Instant};

/// How long one question to the worker may take: a loaded worker answers within
/// milliseconds, a stuck one must not eat the deadline.
pub const LOOK: Duration = Duration::from_secs(1);
/// How long nobody may listen on either socket, or the master's socket may be missing,
/// before that counts as the end of this HAProxy. What starts it again starts it from the
/// files that are there, and no apply has to wait for that.
pub const GONE_AFTER: Duration = Duration::from_secs(3);
/// How long a worker that had started before the command was given is taken for one that
/// somebody else's reload has just brought, with ours to follow. Bounded, because a wall
/// clock can be set back.
pub const EARLIER_WORKER: Duration = Duration::from_secs(1);
/// How often a command whose verdict was lost is given again.
pub const MAX_RESENDS: u32 = 2;

/// What became of a reload. `took` is the whole time spent.
#[derive(Debug)]
pub enum ReloadOutcome {
    /// A new worker runs with the files that were there when it was asked for.
    Loaded {
        /// The new worker.
        worker: WorkerInfo,
        /// Time spent.
        took: Duration,
        /// HAProxy's start-up log; empty when the verdict was lost.
        log: ReloadLog,
    },
    /// HAProxy would not load it; the old worker serves on.
    Refused {
        /// Its start-up log.
        log: ReloadLog,
        /// Time spent.
        took: Duration,
        /// The log blames the files, not the surroundings: the same bytes would be
        /// refused again.
        verdict_on_files: bool,
    },
    /// It is not known which worker runs with which files.
    Unconfirmed {
        /// What is known.
        what: String,
        /// Time spent.
        took: Duration,
        /// HAProxy's start-up log, empty if none came.
        log: ReloadLog,
    },
    /// The command could not be sent; nothing has happened.
    Unreachable {
        /// Why.
        what: String,
    },
}

/// Reloads HAProxy and waits for the worker that comes of it. `before` is the worker
/// known to run now; without it any worker that is not stopping counts as the new one
/// after `Success=1`, and nothing does when the verdict is lost.
///
/// The caller keeps reloads from overlapping.
#[must_use]
pub fn reload(
    master: &MasterSocket,
    worker: &WorkerSocket,
    before: Option<Identity>,
    timeout: Duration,
    clock: &dyn Clock,
) -> ReloadOutcome {
    let started = clock.now();
    Procedure {
        master,
        worker,
        before,
        clock,
        started,
        deadline: Deadline::from(started, timeout),
    }
    .run()
}

/// What a wall clock, read by two processes, may differ by.
const CLOCK_MARGIN: Duration = Duration::from_millis(10);

struct Procedure<'a> {
    master: &'a MasterSocket,
    worker: &'a WorkerSocket,
    before: Option<Identity>,
    clock: &'a dyn Clock,
    started: Instant,
    deadline: Deadline,
}

impl Procedure<'_> {
    fn run(&self) -> ReloadOutcome {
        let mut backoff = Backoff::default();
        let mut absence = Absence::default();
        let mut lost = 0;
        let mut last;
        loop {
            let asked = self.clock.wall();
            match self.master.reload_once(self.deadline) {
                ReloadReply::Success { log } => return self.confirm(log, asked),
                ReloadReply::Refused { log } => return self.refused(log, lost),
                ReloadReply::Busy => {
                    last = "another reload is still in progress".to_owned();
                }
                ReloadReply::NotSent { error } => {
                    let hopeless = matches!(error, SocketError::PathTooLong { .. });
                    let absent = match &error {
                        SocketError::Missing { .. } => true,
                        error => error.is_nobody() && Self::nobody(&self.look()),
                    };
                    last = chain(&error);
                    if hopeless || absence.lasts(absent, self.clock.now()) {
                        break;
                    }
                }
                ReloadReply::NoVerdict { what } => {
                    last = what;
                    lost += 1;
                    if lost > MAX_RESENDS {
                        break;
                    }
                }
            }
            if !backoff.pause(self.deadline) {
                break;
            }
        }
        match lost {
            0 => ReloadOutcome::Unreachable { what: last },
            _ => self.decide_by_identity(&last),
        }
    }

    /// `Success=1` was read: a new worker must answer.
    fn confirm(&self, log: ReloadLog, asked: UnixNanos) -> ReloadOutcome {
        match self.new_worker(Some(asked)) {
            Ok(worker) => ReloadOutcome::Loaded {
                worker,
                took: self.took(),
                log,
            },
            Err(seen) => ReloadOutcome::Unconfirmed {
                what: format!("{NO_NEW_WORKER}: {seen}"),
                took: self.took(),
                log,
            },
        }
    }

    /// `Success=0`. If an earlier command of ours lost its verdict, it may have been
    /// the one that worked.
    fn refused(&self, log: ReloadLog, lost: u32) -> ReloadOutcome {
        if lost > 0 {
            let changed = match (self.look(), self.before) {
                (Ok(info), Some(before)) => info.identity != before,
                (Ok(_) | Err(_), _) => true,
            };
            if changed {
                return ReloadOutcome::Unconfirmed {
                    what: "HAProxy refused the reload, and an earlier one without a verdict may have brought a new worker".to_owned(),
                    took: self.took(),
                    log,
                };
            }
        }
        ReloadOutcome::Refused {
            verdict_on_files: log.is_verdict_on_files(),
            took: self.took(),
            log,
        }
    }

    /// No verdict could be had.
    fn decide_by_identity(&self, what: &str) -> ReloadOutcome {
        let log = ReloadLog::default();
        if self.before.is_none() {
            return ReloadOutcome::Unconfirmed {
                what: format!("{what}; which worker ran before is not known"),
                took: self.took(),
                log,
            };
        }
        match self.new_worker(None) {
            Ok(worker) => ReloadOutcome::Loaded {
                worker,
                took: self.took(),
                log,
            },
            Err(seen) => ReloadOutcome::Unconfirmed {
                what: format!("{what}; {seen}"),
                took: self.took(),
                log,
            },
        }
    }

    /// Asks until a worker answers that is not the one from before and is not
    /// stopping; else what was seen last. Looks at least once. `asked`: when the command
    /// was given that brought it. A worker that is older came of an earlier command, of an
    /// agent that died in its middle for example, and the right one is on its way.
    fn new_worker(&self, asked: Option<UnixNanos>) -> Result<WorkerInfo, String> {
        let mut backoff = Backoff::default();
        let mut absence = Absence::default();
        let mut since = None;
        loop {
            let look = self.look();
            let absent = Self::nobody(&look) && self.no_master();
            let gone = absence.lasts(absent, self.clock.now());
            let mut earlier = None;
            let seen = match look {
                Ok(info) if info.stopping => format!("{} answers and is stopping", info.identity),
                Ok(info) if Some(info.identity) == self.before => {
                    format!("{} {STILL_ANSWERS}", info.identity)
                }
                Ok(info) if !is_older(&info, asked) => return Ok(info),
                Ok(info) => {
                    let now = self.clock.now();
                    let since = *since.get_or_insert(now);
                    if now.saturating_duration_since(since) >= EARLIER_WORKER {
                        return Ok(info);
                    }
                    earlier = Some(info);
                    String::new()
                }
                Err(error) => chain(&error),
            };
            if gone || !backoff.pause(self.deadline) {
                return earlier.ok_or(seen);
            }
        }
    }

    /// Whether a look found nobody.
    fn nobody(look: &Result<WorkerInfo, SocketError>) -> bool {
        look.as_ref().is_err_and(SocketError::is_nobody)
    }

    fn no_master(&self) -> bool {
        let seen = self.master.show_proc(Deadline::after(LOOK));
        seen.is_err_and(|error| error.is_nobody())
    }

    fn look(&self) -> Result<WorkerInfo, SocketError> {
        self.worker.info(Deadline::after(LOOK))
    }

    fn took(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.started)
    }
}

/// Whether it had started before that time.
fn is_older(info: &WorkerInfo, asked: Option<UnixNanos>) -> bool {
    let started = i128::from(info.identity.start_micros) * 1_000;
    let margin = i128::try_from(CLOCK_MARGIN.as_nanos()).unwrap_or_default();
    asked.is_some_and(|asked| started < asked.0 - margin)
}

/// Since when nobody was there, without a break.
#[derive(Default)]
struct Absence {
    since: Option<Instant>,
}

impl Absence {
    /// Takes note of a look. True once it has lasted for [`GONE_AFTER`].
    fn lasts(&mut self, absent: bool, now: Instant) -> bool {
        if !absent {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.saturating_duration_since(since) >= GONE_AFTER
    }
}

/// An error with its sources, for an outcome that keeps text only.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}
