//! What becomes of a set that the last life had written, once HAProxy answers: committed
//! if the worker that loaded it still runs, else loaded, and undone if it is refused.

use crate::wire::result::{Failure, Reload, ResultMode, Stage};

use super::activate::Activation;
use super::agent::Agent;
use super::machine::Event;
use super::outcome::{Report, Stopwatch};
use super::recover::Rest;
use super::tx::Tx;

impl Tx {
    /// The part of the recovery that asks HAProxy.
    pub(super) fn recover_worker(&mut self, agent: &Agent, rest: Rest) {
        match rest {
            Rest::Nothing => {
                // The last life may have seen the other worker, saved that, and been cut.
                self.look_at_worker(agent);
                let unknown = !self.worker_known() && !self.record.applied_plan_id.is_empty();
                if self.worker_strange || unknown {
                    self.restore_worker(agent);
                }
            }
            Rest::Activate => self.activate_intent(agent),
            Rest::CommitIf(worker, mode) => {
                let runs = agent.haproxy.worker().ok().map(|info| info.identity);
                if runs.is_some() && runs == worker {
                    self.record.worker = runs;
                    self.look_at_worker(agent);
                    self.commit_intent(agent, mode, None);
                } else {
                    self.activate_intent(agent);
                }
            }
        }
    }

    fn activate_intent(&mut self, agent: &Agent) {
        let plan_id = self
            .record
            .intent
            .as_ref()
            .map_or("", |intent| intent.plan_id.as_str());
        let report = Report::new(plan_id, Stopwatch::start(agent.clock.now()));
        log::info!(plan_id; "reloading the set that the last run had written");
        let stage = Stage::Reload;
        match self.reload(agent) {
            Activation::Loaded(reload) => {
                self.commit_intent(agent, ResultMode::Reload, Some((report, reload)));
            }
            Activation::Refused {
                message, verdict, ..
            } => {
                let touched = self.may_have_touched();
                self.consume_pending();
                let failure = Failure { stage, message };
                self.abort_refused(agent, report, failure, verdict, touched);
            }
            Activation::Unreachable { message, .. } => {
                self.doubt_worker();
                self.abort(agent, report, Failure { stage, message });
            }
            Activation::Unconfirmed { message, .. } => {
                self.consume_pending();
                self.keep_unconfirmed(agent);
                self.reject(agent, report, Failure { stage, message });
            }
        }
    }

    pub(super) fn commit_intent(
        &mut self,
        agent: &Agent,
        mode: ResultMode,
        reloaded: Option<(Report, Reload)>,
    ) {
        let Some(intent) = self.record.intent.clone() else {
            return;
        };
        let event = match mode {
            ResultMode::Reload => Event::ReloadDone,
            ResultMode::Runtime
            | ResultMode::FileOnly
            | ResultMode::Scheduled
            | ResultMode::Noop
            | ResultMode::Rejected => Event::OpsDone,
        };
        if let Err(error) = self.enter(event) {
            let _ = error.at(Stage::Write);
        }
        if mode == ResultMode::Reload {
            // A set that had joined a scheduled reload is loaded now.
            self.consume_pending();
            self.record.deletes.supersede_all("HAProxy was reloaded");
            self.count_deletes(agent);
        }
        self.settle(
            &intent.plan_id,
            intent.token,
            intent.plan_schema_version,
            mode,
        );
        self.rest(agent);
        let report = match reloaded {
            Some((mut report, reload)) => {
                report.reload = Some(reload);
                report
            }
            None => Report::new(&intent.plan_id, Stopwatch::start(agent.clock.now())),
        };
        self.conclude(agent, report, mode);
    }

    /// Whether commands of the apply that was cut, or of those that wait for a reload, may
    /// have reached the worker; no note says how far a batch came.
    fn may_have_touched(&self) -> bool {
        let intent = self.record.intent.as_ref();
        let batch = intent.is_some_and(|intent| intent.commands);
        batch || self.record.pending.as_ref().is_some_and(|p| p.touched)
    }

    /// The set goes back without a reload: a worker that commands may have changed holds
    /// no plan that could be named.
    pub(super) fn doubt_worker(&mut self) {
        if self.may_have_touched() {
            self.record.forget_worker();
        }
    }

    fn consume_pending(&mut self) {
        self.record.pending = None;
        self.pending_at = None;
    }
}
