//! Putting an answer together while an apply runs.

use std::time::{Duration, Instant};

use crate::store::StoreError;
use crate::wire::result::{ApplyResult, Failure, OpResult, Reload, ResultMode, Rollback, Timing};
use crate::wire::state::RuntimeInventory;

use super::agent::Agent;
use super::port::words;
use super::tx::Tx;

/// What an apply, a scheduled reload or a recovery has to say.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) plan_id: String,
    pub(super) watch: Stopwatch,
    pub(super) op_results: Vec<OpResult>,
    pub(super) reload: Option<Reload>,
    pub(super) rollback: Option<Rollback>,
    pub(super) error: Option<Failure>,
}

impl Report {
    pub(super) fn new(plan_id: &str, watch: Stopwatch) -> Self {
        Self {
            plan_id: plan_id.to_owned(),
            watch,
            op_results: Vec::new(),
            reload: None,
            rollback: None,
            error: None,
        }
    }
}

/// Where the time of an apply goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopwatch {
    started: Instant,
    last: Instant,
    timing: Timing,
}

/// The legs of an apply that [`Timing`] tells apart.
#[derive(Debug, Clone, Copy)]
pub(super) enum Leg {
    Stage,
    Admit,
    Write,
    Ops,
    Finish,
}

impl Stopwatch {
    pub(super) fn start(now: Instant) -> Self {
        Self {
            started: now,
            last: now,
            timing: Timing::default(),
        }
    }

    /// Everything since the last call belongs to `leg`.
    pub(super) fn lap(&mut self, leg: Leg, now: Instant) {
        let spent = millis(now.saturating_duration_since(self.last));
        self.last = now;
        let cell = match leg {
            Leg::Stage => &mut self.timing.stage_ms,
            Leg::Admit => &mut self.timing.admit_ms,
            Leg::Write => &mut self.timing.write_ms,
            Leg::Ops => &mut self.timing.ops_ms,
            Leg::Finish => &mut self.timing.finish_ms,
        };
        *cell += spent;
        self.timing.total_ms = millis(now.saturating_duration_since(self.started));
    }

    pub(super) fn timing(&self) -> Timing {
        self.timing
    }

    pub(super) fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// An end that the record tells of, if it could be saved, and nobody else yet.
pub(super) struct Ending {
    pub(super) result: ApplyResult,
    pub(super) watch: Stopwatch,
    pub(super) saved: Result<(), StoreError>,
}

impl Tx {
    /// Saves the record with the answer in it, then deletes the backups that it no longer
    /// names, and answers. A record that cannot be saved now is saved before the next
    /// apply; until then a restart finds the intent and finishes it again, and the answer
    /// of a success says so.
    pub(super) fn conclude(
        &mut self,
        agent: &Agent,
        report: Report,
        mode: ResultMode,
    ) -> ApplyResult {
        let ending = self.end(agent, report, mode);
        self.tell(agent, ending)
    }

    /// Puts the answer into the record and tries to save it.
    pub(super) fn end(&mut self, agent: &Agent, mut report: Report, mode: ResultMode) -> Ending {
        match mode {
            ResultMode::Runtime | ResultMode::Noop => {}
            // Files and worker part on purpose, or the worker has read the files.
            ResultMode::FileOnly
            | ResultMode::Scheduled
            | ResultMode::Reload
            | ResultMode::Rejected => self.owed.void(),
        }
        report.watch.lap(Leg::Finish, agent.clock.now());
        let watch = report.watch;
        let result = self.result(agent, report, mode);
        self.record.last_apply = Some(result.clone());
        let saved = self.save(agent);
        Ending {
            result,
            watch,
            saved,
        }
    }

    /// Lets go of what the saved record no longer names, counts, and answers.
    pub(super) fn tell(&mut self, agent: &Agent, ending: Ending) -> ApplyResult {
        let Ending {
            mut result,
            mut watch,
            saved,
        } = ending;
        match saved {
            Ok(()) => self.drop_retired(agent),
            Err(error) => {
                log::error!(error:% = words(&error); "the state cannot be saved; it is saved before the next apply");
                result.unsaved = result.ok.then(|| {
                    format!(
                        "the state could not be saved ({}); what was applied holds, and saving is tried again every few seconds: \
                         should the agent end before that, it has to recover this apply, may reload once more, and may then ask for a full set",
                        words(&error)
                    )
                });
            }
        }
        let now = agent.clock.now();
        watch.lap(Leg::Finish, now);
        result.timing = watch.timing();
        if let Some(last) = &mut self.record.last_apply {
            last.timing = result.timing;
        }
        self.count(agent, &result, watch.elapsed(now));
        result
    }

    /// The inventory, if no answer has carried it as it is now. Only for an answer that
    /// somebody reads: what a scheduled reload brought is news to the next request.
    pub(super) fn news(&mut self) -> Option<RuntimeInventory> {
        let news = self.inventory.generation != self.inventory_told;
        self.inventory_told = self.inventory.generation;
        news.then(|| RuntimeInventory::clone(&self.inventory))
    }

    fn result(&self, agent: &Agent, report: Report, mode: ResultMode) -> ApplyResult {
        ApplyResult {
            plan_id: report.plan_id,
            ok: mode != ResultMode::Rejected,
            mode,
            // A refusal that changed nothing leaves it known; the state tells.
            applied_plan_id: match mode {
                ResultMode::Rejected => String::new(),
                ResultMode::Runtime
                | ResultMode::FileOnly
                | ResultMode::Reload
                | ResultMode::Scheduled
                | ResultMode::Noop => self.record.applied_plan_id.clone(),
            },
            running_plan_id: self.record.running_plan_id.clone(),
            worker_ops_plan_id: self.record.worker_ops_plan_id.clone(),
            applied_token: self.record.applied_token,
            lkg_plan_id: self.record.lkg_plan_id.clone(),
            haproxy: self.haproxy(),
            at: agent.clock.wall().rfc3339(),
            timing: report.watch.timing(),
            op_results: report.op_results,
            reload: report.reload,
            rollback: report.rollback,
            error: report.error,
            // An answer gets it at the end; the state carries it itself.
            unsaved: None,
            runtime_inventory: None,
        }
    }

    fn count(&self, agent: &Agent, result: &ApplyResult, elapsed: Duration) {
        agent.metrics.applies.of(result.mode).inc();
        agent
            .metrics
            .apply_duration
            .of(result.mode)
            .observe(elapsed);
        let told = (
            result.plan_id.as_str(),
            result.mode.as_str(),
            self.record.generation,
            self.tree.files().len(),
            u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
        );
        let (plan_id, mode, generation, files, total_us) = told;
        match &result.error {
            None => {
                log::info!(plan_id, mode, generation, files, total_us; "apply done");
            }
            Some(failure) => {
                log::error!(
                    plan_id, mode, generation, files, total_us,
                    stage = failure.stage.as_str(), error = failure.message.as_str();
                    "apply failed"
                );
            }
        }
    }
}
