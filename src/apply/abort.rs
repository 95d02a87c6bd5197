//! The two bad ends: refused before anything changed, and undone after it.
//!
//! An abort puts the last known good set back and says what went wrong first; that the
//! undoing itself can fail is the case that `unfinished` is for. After an abort the applied
//! plan is unknown, because the controller's next step has to be a full set; a refusal
//! forgets nothing.

use std::time::{Duration, Instant};

use crate::metrics::{Invariant, RejectStage};
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
use super::record::PhaseNote;
use super::run::at_backup;
use super::tx::Tx;
use super::upload::Answer;

impl Tx {
    /// NACK before the first rename: disk and worker are as they were, and so is what is
    /// known of them. Only the answer names no plan to build on.
    pub(super) fn refuse(&mut self, agent: &Agent, report: Report, failure: Failure) -> Answer {
        if matches!(self.phase, Some(Phase::Staged | Phase::Verified)) {
            if let Err(error) = self.enter(Event::Failed(failure.stage)) {
                let _ = error.at(failure.stage);
            }
        }
        // What an earlier batch has left to be compared is still there to be compared.
        let owed = std::mem::take(&mut self.owed);
        let answer = self.nack(agent, report, failure);
        self.owed = owed;
        answer
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
        report: Report,
        failure: Failure,
        touched: bool,
    ) -> Answer {
        if touched {
            // What it holds has no name until a reload works, also where none can follow.
            self.record.forget_worker();
        }
        let performed = self.undo(agent, &failure);
        let reloaded = performed && touched && self.reload_restored(agent);
        self.undone(agent, report, failure, (performed, reloaded))
    }

    /// The same where the master could not be asked: the recovery reload waits for it no
    /// second time.
    pub(super) fn abort_unreached(
        &mut self,
        agent: &Agent,
        report: Report,
        failure: Failure,
        touched: bool,
    ) -> Answer {
        let away = touched.then(|| agent.haproxy.master().err()).flatten();
        let Some(error) = away else {
            return self.abort_after(agent, report, failure, touched);
        };
        self.record.forget_worker();
        let performed = self.undo(agent, &failure);
        self.violated(agent, Invariant::RecoveryReload, &error);
        self.undone(agent, report, failure, (performed, false))
    }

    fn undone(
        &mut self,
        agent: &Agent,
        mut report: Report,
        failure: Failure,
        (performed, reloaded): (bool, bool),
    ) -> Answer {
        report.rollback = Some(Rollback {
            performed,
            reloaded,
        });
        self.reject(agent, report, failure)
    }

    /// The same where HAProxy refused what is on disk. Its verdict on the bytes, if it is
    /// one, is remembered.
    pub(super) fn abort_refused(
        &mut self,
        agent: &Agent,
        report: Report,
        failure: Failure,
        verdict: bool,
        touched: bool,
    ) -> Answer {
        // Before the restore: what was refused is what is on disk now.
        let key = verdict.then(|| self.tree_key());
        let asked = report
            .reload
            .as_ref()
            .is_some_and(|reload| reload.performed);
        let gone = asked && self.worker_went(agent);
        let answer = self.abort_after(agent, report, failure, touched || gone);
        if let (Some(key), Answer::Result(nack)) = (key, &answer) {
            agent
                .known_bad()
                .remember(key, (**nack).clone(), agent.clock.now());
        }
        answer
    }

    /// Whether a refused reload has taken the worker with it, which answered before. HAProxy
    /// 3.2 and 3.4 do so when a second reload in a row fails and this one got as far as its
    /// addresses: then nothing serves until a good one.
    fn worker_went(&mut self, agent: &Agent) -> bool {
        let answered = self.answering.as_ref().is_some_and(|last| last.answers);
        let went = answered && self.ask_worker(agent).is_err();
        if went {
            log::error!(
                "the refused reload has ended the worker that served; the set that goes back is reloaded"
            );
        }
        went
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

    /// Reloads what a restore has put on disk, if a master is there to be asked: the worker
    /// may be one that the agent cannot see, with the set that went.
    pub(super) fn reload_if_asked(&mut self, agent: &Agent) {
        if agent.haproxy.master().is_ok() {
            self.reload_restored(agent);
            self.save_quietly(agent);
        }
    }

    /// HAProxy has been down since then. If it has had `grace` to come up and disk holds a
    /// set that it has seen nothing of, that set may be why: the last known good one goes
    /// back. What commands have proven stays, and so does what was written because HAProxy
    /// was down: a HAProxy that was stopped starts with what it was left with.
    pub(super) fn fall_back_if_down(&mut self, agent: &Agent, since: Instant, grace: Duration) {
        let down = agent.clock.now().saturating_duration_since(since);
        let nothing_to_do = !self.record.unproven
            || self.record.lkg_plan_id.is_empty()
            || self.record.journal.entries.is_empty();
        if down < grace || nothing_to_do || agent.haproxy.master().is_ok() {
            return;
        }
        log::warn!(
            plan_id = self.record.lkg_plan_id;
            "HAProxy does not come up with a set that it has seen nothing of; the last known good one goes back"
        );
        let failure = Failure {
            stage: Stage::ScheduledReload,
            message: format!(
                "HAProxy did not come up for {} seconds with a set that it had seen nothing of, so the last known good one was put back",
                down.as_secs()
            ),
        };
        self.undo(agent, &failure);
        self.save_quietly(agent);
        self.drop_retired(agent);
        agent.publish(self);
    }

    /// Records and answers a failure; the applied plan is unknown from here on.
    pub(super) fn reject(&mut self, agent: &Agent, report: Report, failure: Failure) -> Answer {
        self.record.applied_plan_id.clear();
        self.nack(agent, report, failure)
    }

    /// Records and answers a failure.
    fn nack(&mut self, agent: &Agent, mut report: Report, failure: Failure) -> Answer {
        if let Some(label) = RejectStage::of(failure.stage) {
            agent.metrics.rejected.of(label).inc();
        }
        // Of a tree that is a mix the state says so until it is none.
        if !self.unfinished {
            self.degrade(agent, &failure.message);
        }
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
        self.record.applied_plan_id.clear();
        self.degrade(agent, &failure.message);
        self.unfinished = true;
        match self
            .begin_restore(agent, failure)
            .and_then(|()| self.restore(agent))
        {
            Ok(()) => true,
            Err(error) => {
                let error = words(&error);
                log::error!(error; "the last known good set cannot be restored yet");
                self.degrade(
                    agent,
                    &format!(
                        "{}; the last known good set cannot be put back yet, so disk holds files of both: {error}",
                        failure.message
                    ),
                );
                false
            }
        }
    }

    /// Records that the tree is being restored, before the first step of it.
    ///
    /// With an intent on disk a small note is enough, and even that may be lost: a restart
    /// then finishes the intent, finds that the tree does not fold to it, and comes to the
    /// same restore. From rest nothing else says that the tree may be a mix, so the whole
    /// record is saved, and without it nothing is touched.
    pub(super) fn begin_restore(
        &mut self,
        agent: &Agent,
        failure: &Failure,
    ) -> Result<(), StoreError> {
        let with_intent = self.record.intent.is_some();
        if let Err(error) = self.enter(Event::Failed(failure.stage)) {
            let _ = error.at(failure.stage);
            self.phase = Some(Phase::Aborting);
        }
        if !with_intent {
            return self.save(agent);
        }
        let mut note = PhaseNote::of(Phase::Aborting);
        note.failure = Some(failure.clone());
        if let Err(error) = agent.state_file.save_phase(self.record.txn, &note) {
            log::warn!(error:% = words(&error); "that the apply is being undone cannot be noted");
        }
        Ok(())
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
        let journal = &self.record.journal;
        let owned = &mut self.record.owned;
        owned.change(|paths| journal.restore_ownership(paths));
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
        self.record.unproven = false;
        let (fold, holds) = (hex(&self.tree.fold()), self.holds_last_known_good());
        self.record.pending_loads_restored(&fold, holds);
        if !holds && !self.record.lkg_plan_id.is_empty() {
            log::error!(
                plan_id = self.record.lkg_plan_id;
                "what was put back is not the last known good set: something other than the agent had changed files of it, and their good content is not held"
            );
            self.record.lkg_plan_id.clear();
            self.record.lkg_fold.clear();
        }
        self.retire_journal();
        self.prune(agent);
        self.unfinished = false;
        self.unsaved = true;
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
            // Whether it was recorded before is not known to be so.
            self.phase = Some(Phase::Aborting);
            let restored = self.save(agent).and_then(|()| self.restore(agent));
            restored.map_err(|error| {
                at_backup(format!(
                    "an earlier apply cannot be undone yet: {}",
                    words(&error)
                ))
            })?;
            log::info!("an earlier apply is undone now");
            let failed = self.record.last_apply.as_ref();
            if let Some(failure) = failed.and_then(|last| last.error.clone()) {
                self.degrade(agent, &failure.message);
            }
        }
        if self.unsaved {
            self.save(agent).map_err(|error| at_backup(words(&error)))?;
            self.drop_retired(agent);
        }
        Ok(())
    }
}
