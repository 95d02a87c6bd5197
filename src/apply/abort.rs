//! The two bad ends: refused before anything changed, and undone after it.
//!
//! An abort puts the last known good set back and says what went wrong first; that the
//! undoing itself can fail is the case that `unfinished` is for. Either way the applied
//! plan is unknown afterwards, because the controller's next step has to be a full set.

use crate::metrics::{Invariant, Label as _, RejectStage};
use crate::store::StoreError;
use crate::store::restore::{self, Restored};
use crate::wire::digest::hex;
use crate::wire::result::{Failure, ResultMode, Rollback, Stage};
use crate::wire::state::Degraded;

use super::activate::Activation;
use super::agent::Agent;
use super::machine::{Event, Phase};
use super::outcome::Report;
use super::port::words;
use super::run::at_backup;
use super::tx::Tx;
use super::upload::Answer;

impl Tx {
    /// NACK before the first rename: disk and worker are as they were.
    pub(super) fn refuse(&mut self, agent: &Agent, report: Report, failure: Failure) -> Answer {
        if matches!(self.phase, Some(Phase::Staged | Phase::Verified)) {
            if let Err(error) = self.enter(Event::Failed(failure.stage)) {
                let _ = error.at(failure.stage);
            }
        }
        self.reject(agent, report, failure)
    }

    /// NACK after the first rename: the last known good set goes back.
    pub(super) fn abort(&mut self, agent: &Agent, report: Report, failure: Failure) -> Answer {
        self.abort_after(agent, report, failure, false)
    }

    /// The same where commands may have changed the worker: it is reloaded with the
    /// restored set, or it would go on with a part of the refused one.
    pub(super) fn abort_after(
        &mut self,
        agent: &Agent,
        mut report: Report,
        failure: Failure,
        touched: bool,
    ) -> Answer {
        let performed = self.undo(agent, &failure);
        if let Some(pending) = &mut self.record.pending {
            // It is never dropped; what it loads now is the restored set.
            pending.plan_id.clone_from(&self.record.lkg_plan_id);
            pending.fold = hex(&self.tree.fold());
        }
        let reloaded = performed && touched && self.reload_restored(agent);
        report.rollback = Some(Rollback {
            performed,
            reloaded,
        });
        self.reject(agent, report, failure)
    }

    /// The recovery reload. That it can fail too never closes the agent: an operator
    /// needs it most then.
    fn reload_restored(&mut self, agent: &Agent) -> bool {
        self.record.applied_plan_id.clear();
        match self.reload(agent) {
            Activation::Loaded(_) => {
                let lkg = self.record.lkg_plan_id.clone();
                if self.holds_last_known_good() {
                    self.worker_loaded(&lkg);
                } else {
                    self.record.forget_worker();
                }
                true
            }
            Activation::Refused { message, .. }
            | Activation::Unconfirmed { message, .. }
            | Activation::Unreachable { message, .. } => {
                self.record.forget_worker();
                self.violated(agent, Invariant::RecoveryReload, &message);
                false
            }
        }
    }

    /// Records and answers a failure; the applied plan is unknown from here on.
    pub(super) fn reject(&mut self, agent: &Agent, mut report: Report, failure: Failure) -> Answer {
        agent.metrics.rejected.of(reject_label(failure.stage)).inc();
        self.record.applied_plan_id.clear();
        self.degrade(agent, &failure.message);
        report.error = Some(failure);
        Answer::Result(Box::new(self.conclude(agent, report, ResultMode::Rejected)))
    }

    /// Something is wrong until a reload works again; the first time it was noticed stays.
    pub(super) fn degrade(&mut self, agent: &Agent, reason: &str) {
        let since = match self.record.degraded.take() {
            Some(earlier) => earlier.since,
            None => agent.clock.wall().rfc3339(),
        };
        self.record.degraded = Some(Degraded {
            since,
            reason: reason.to_owned(),
        });
    }

    /// Puts the last known good set back. False if the disk did not let it; the next
    /// apply, the background look or a restart tries again.
    pub(super) fn undo(&mut self, agent: &Agent, failure: &Failure) -> bool {
        let noted = self.step(agent, Event::Failed(failure.stage), |note| {
            note.failure = Some(failure.clone());
        });
        if let Err(error) = noted {
            // Without the note a restart rolls forward, finds the staged files gone, and
            // comes to the same restore.
            let _ = error.at(failure.stage);
        }
        match self.restore(agent) {
            Ok(()) => true,
            Err(error) => {
                log::error!(error:% = words(&error); "the last known good set cannot be restored yet");
                self.unfinished = true;
                false
            }
        }
    }

    /// Restores and takes note of what disk holds then. The record is not saved yet.
    pub(super) fn restore(&mut self, agent: &Agent) -> Result<(), StoreError> {
        let config = agent.settings.config.as_str();
        match restore::restore(&agent.store, &self.record.journal, config) {
            Ok(restored) => self.take_note(agent, restored)?,
            Err(StoreError::BackupLost { paths }) => {
                log::error!(
                    path = paths.first().map_or("", String::as_str), files = paths.len();
                    "backups are lost: what is on disk is not the last known good set"
                );
                self.record.lkg_plan_id.clear();
                self.record.lkg_fold.clear();
                self.take_note(agent, Restored::default())?;
            }
            Err(error) => return Err(error),
        }
        agent.metrics.rollbacks.inc();
        Ok(())
    }

    fn take_note(&mut self, agent: &Agent, restored: Restored) -> Result<(), StoreError> {
        let now = agent.clock.wall();
        let mut owned = std::mem::take(&mut self.record.owned);
        self.record.journal.restore_ownership(&mut owned);
        self.record.owned = owned;
        let paths: Vec<_> = self.record.journal.entries.keys().cloned().collect();
        for path in &paths {
            if self.record.owned.contains_key(path) {
                self.tree.observe_one(&**agent.store.fs(), path, now)?;
            } else {
                self.tree.forget(path);
            }
        }
        self.record.made_dirs.extend(restored.dirs_made);
        self.record.intent = None;
        self.retire_journal();
        self.prune(agent);
        self.unfinished = false;
        if let Err(error) = self.enter(Event::Restored) {
            let _ = error.at(Stage::Write);
            self.phase = None;
        }
        Ok(())
    }

    /// Whether disk holds the last known good set, byte for byte.
    pub(super) fn holds_last_known_good(&self) -> bool {
        !self.record.lkg_plan_id.is_empty() && self.record.lkg_fold == hex(&self.tree.fold())
    }

    /// Finishes what an earlier apply could not: its undoing, or its save.
    pub(super) fn heal(&mut self, agent: &Agent) -> Result<(), Failure> {
        if self.unfinished {
            self.restore(agent).map_err(|error| {
                at_backup(format!(
                    "an earlier apply cannot be undone yet: {}",
                    words(&error)
                ))
            })?;
            self.unsaved = true;
            log::info!("an earlier apply is undone now");
        }
        if self.unsaved {
            self.save(agent).map_err(|error| at_backup(words(&error)))?;
            self.drop_retired(agent);
        }
        Ok(())
    }
}

/// The metric label of a stage.
pub(super) fn reject_label(stage: Stage) -> RejectStage {
    RejectStage::ALL
        .iter()
        .copied()
        .find(|label| label.as_str() == stage.as_str())
        .unwrap_or(RejectStage::Request)
}
