//! Reload pacing: a reload inside the window is scheduled, never dropped, and fires at
//! its due time.
//!
//! One thread waits for the due time on a condition variable; it is woken when a reload
//! is scheduled and when the process stops. While the process lives the monotonic clock
//! decides; across a restart the wall clock does, because nothing else survives.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::wire::digest::hex;
use crate::wire::result::{Failure, ResultMode, Stage};

use super::activate::Activation;
use super::agent::Agent;
use super::outcome::{Report, Stopwatch};
use super::port::words;
use super::record::PendingReload;
use super::tx::Tx;

/// How often the background look comes by when nothing else is due.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);

/// For how long looks at the worker may be overtaken by applies before one holds them up.
const READBACK_OVERDUE: Duration = Duration::from_secs(5);

/// How long a scheduled reload that could not be asked for waits for its next try, at
/// least; the pacing interval may be longer.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Tx {
    /// When the next reload may start, as wall-clock nanoseconds; `None` for now.
    pub(super) fn earliest_reload(&self, agent: &Agent) -> Option<i128> {
        let interval = agent.settings.reload_interval;
        let since = agent
            .clock
            .now()
            .saturating_duration_since(self.last_reload_end?);
        let left = interval.checked_sub(since).filter(|left| !left.is_zero())?;
        Some(agent.clock.wall().plus(left).0)
    }

    /// Schedules the reload of what is on disk, and sets the timer to it. `touched`:
    /// commands have changed the worker since it loaded its files.
    pub(super) fn put_off(&mut self, agent: &Agent, plan_id: String, due: i128, touched: bool) {
        self.record.pending = Some(PendingReload {
            plan_id,
            due,
            fold: hex(&self.tree.fold()),
            touched,
        });
        self.arm(agent);
    }

    /// Fires the pending reload if it is due. Its outcome replaces the last apply's; the
    /// generation stays.
    pub(super) fn fire_if_due(&mut self, agent: &Agent, due: bool) {
        let Some(pending) = self.record.pending.clone() else {
            self.pending_at = None;
            return;
        };
        if !due {
            return;
        }
        let report = Report::new(&pending.plan_id, Stopwatch::start(agent.clock.now()));
        if self.heal(agent).is_err() {
            self.pending_at = Some(agent.clock.now() + RETRY_AFTER);
            return;
        }
        if let Err(error) = self.look_at_tree(agent) {
            log::error!(error:% = words(&error); "the tree cannot be read");
            self.record.forget_baseline();
        }
        let foreign = hex(&self.tree.fold()) != pending.fold;
        log::info!(plan_id = pending.plan_id; "the scheduled reload is due");
        let activation = self.reload(agent);
        self.fired(agent, report, activation, foreign, &pending.plan_id);
    }

    fn fired(
        &mut self,
        agent: &Agent,
        mut report: Report,
        activation: Activation,
        foreign: bool,
        plan_id: &str,
    ) {
        let stage = Stage::ScheduledReload;
        self.pending_at = None;
        match activation {
            Activation::Loaded(reload) => {
                report.reload = Some(reload);
                self.record.pending = None;
                if foreign || plan_id.is_empty() {
                    self.record.forget_baseline();
                } else {
                    self.worker_loaded(plan_id);
                }
                self.conclude(agent, report, ResultMode::Reload);
            }
            Activation::Refused {
                reload,
                message,
                verdict,
            } => {
                report.reload = Some(reload);
                let touched = self
                    .record
                    .pending
                    .take()
                    .is_some_and(|pending| pending.touched);
                let failure = Failure { stage, message };
                self.abort_refused(agent, report, failure, verdict, touched);
            }
            Activation::Unconfirmed { reload, message } => {
                report.reload = Some(reload);
                self.record.pending = None;
                self.keep_unconfirmed(agent);
                self.reject(agent, report, Failure { stage, message });
            }
            Activation::Unreachable { message, .. } => {
                // Nothing was asked of the master, so nothing is decided: it stays pending.
                self.degrade(agent, &message);
                self.pending_at =
                    Some(agent.clock.now() + agent.settings.reload_interval.max(RETRY_AFTER));
                log::error!(error = message; "the scheduled reload waits for the master socket");
            }
        }
    }

    /// The pending reload's due time on the monotonic clock.
    pub(super) fn arm(&mut self, agent: &Agent) {
        self.pending_at = self.record.pending.as_ref().map(|pending| {
            let left = pending.due.saturating_sub(agent.clock.wall().0).max(0);
            let left = Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
            // A wall clock that was set back must not put a reload off for longer than
            // the window could be.
            agent.clock.now() + left.min(agent.settings.reload_interval)
        });
    }
}

impl Agent {
    /// Wakes the background thread.
    pub(super) fn ring(&self) {
        self.alarm
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .look = true;
        self.alarm.rang.notify_all();
    }

    /// Ends the background thread.
    pub fn stop(&self) {
        self.alarm
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stop = true;
        self.alarm.rang.notify_all();
    }

    /// The background thread: fires pending reloads when they are due, sees deferred
    /// deletes through, and looks at the worker now and then. Returns when
    /// [`Agent::stop`] was called.
    pub fn keep(&self) {
        self.kept.store(true, Ordering::Release);
        let mut next_look = self.clock.now() + LOOK_EVERY;
        let mut overdue = None;
        loop {
            self.empty_discarded();
            let view = self.view();
            let wake = [view.pending_at, view.deletes_at]
                .into_iter()
                .flatten()
                .fold(next_look, Instant::min);
            drop(view);
            if self.wait_until(wake) {
                self.kept.store(false, Ordering::Release);
                self.empty_discarded();
                return;
            }
            let now = self.clock.now();
            {
                let mut tx = self.lock();
                let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
                let (reload, deletes) = (is_due(tx.pending_at), is_due(tx.deletes_at));
                if reload {
                    tx.fire_if_due(self, true);
                }
                if deletes {
                    tx.delete_some(self);
                }
                if reload || deletes {
                    self.publish(&tx);
                }
                self.read_back(tx, &mut overdue);
            }
            if now >= next_look {
                self.look();
                next_look = self.clock.now() + LOOK_EVERY;
            }
        }
    }

    /// Looks at what batches touched, if possible while applies go on. Where every look is
    /// overtaken by the next apply, one is taken with the lock held now and then: a worker
    /// that is out of step must not go unnoticed because its controller is busy.
    ///
    /// `overdue`: since when none has been finished.
    pub(super) fn read_back(&self, mut tx: MutexGuard<'_, Tx>, overdue: &mut Option<Instant>) {
        let Some(look) = tx.begin_read_back(self) else {
            return;
        };
        let now = self.clock.now();
        let since = *overdue.get_or_insert(now);
        let overdue_now = now.saturating_duration_since(since) >= READBACK_OVERDUE;
        let (mut tx, seen) = if overdue_now || !look.disturbs_nobody() {
            let seen = look.look(self);
            (tx, seen)
        } else {
            drop(tx);
            let seen = look.look(self);
            (self.lock(), seen)
        };
        if tx.end_read_back(self, look, seen) {
            *overdue = None;
            self.publish(&tx);
        }
    }

    /// Waits until `wake`, or until somebody rings. True if the process stops.
    pub(super) fn wait_until(&self, wake: Instant) -> bool {
        let mut state = self
            .alarm
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.stop {
                return true;
            }
            let left = wake.saturating_duration_since(self.clock.now());
            if state.look || left.is_zero() {
                state.look = false;
                return false;
            }
            state = self
                .alarm
                .rang
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}
