//! The good end: plan roles, blob, journal, invariants, in one save.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::store::install;
use crate::store::journal::{self, Journal};
use crate::store::stage::StagedBlob;
use crate::wire::digest::hex;
use crate::wire::manifest::Token;
use crate::wire::path::ManifestPath;
use crate::wire::result::{Failure, ResultMode, Stage};

use super::agent::Agent;
use super::machine::Event;
use super::outcome::{Ending, Leg, Report};
use super::port::words;
use super::record::{BlobRef, Record};
use super::run::{Job, at_backup};
use super::tx::Tx;
use super::upload::Answer;

impl Tx {
    /// The set is on disk, and active or scheduled: everything that says so.
    pub(super) fn commit(&mut self, mut job: Job<'_>, mode: ResultMode) -> Answer {
        let agent = job.agent;
        job.report.watch.lap(Leg::Ops, agent.clock.now());
        let plan_id = job.manifest.plan_id.clone();
        self.store_blob(agent, &plan_id, job.blob.take());
        self.settle(
            &plan_id,
            job.manifest.token,
            job.manifest.plan_schema_version,
            mode,
        );
        if job.baseline_gone {
            self.record.applied_plan_id.clear();
            self.record.worker_ops_plan_id.clear();
        }
        self.restored_worker = None;
        self.check_invariants(&job, mode);
        self.note_unproven(agent, mode);
        self.rest(agent);
        let ending = self.end(agent, job.report, mode);
        match (&ending.saved, job.before) {
            (Err(error), Some(before)) => {
                let failure = at_backup(words(error));
                self.unsay(agent, *before, ending, failure)
            }
            (Ok(()), _) | (Err(_), None) => Answer::Result(Box::new(self.tell(agent, ending))),
        }
    }

    /// NACK for an apply that would have changed nothing but the record, which cannot be
    /// saved: no intent speaks for it, so a restart would know nothing of it.
    fn unsay(
        &mut self,
        agent: &Agent,
        mut before: Record,
        ending: Ending,
        failure: Failure,
    ) -> Answer {
        // What was written under this number may be on disk all the same.
        before.txn = self.record.txn;
        self.record = before;
        let mut report = Report::new(&ending.result.plan_id, ending.watch);
        report.op_results = ending.result.op_results;
        self.refuse(agent, report, failure)
    }

    /// The plan roles after a success; the generation moves by one.
    pub(super) fn settle(&mut self, plan_id: &str, token: Token, schema: i64, mode: ResultMode) {
        let record = &mut self.record;
        record.generation = record.generation.saturating_add(1);
        plan_id.clone_into(&mut record.applied_plan_id);
        record.applied_token = token;
        record.plan_schema_version = schema;
        match mode {
            ResultMode::Reload => self.worker_loaded(plan_id),
            ResultMode::FileOnly | ResultMode::Runtime | ResultMode::Noop => {
                if record.pending.is_none() {
                    plan_id.clone_into(&mut record.worker_ops_plan_id);
                    // Disk and worker hold what was asked for, whatever was refused before.
                    record.degraded = None;
                }
            }
            ResultMode::Scheduled | ResultMode::Rejected => {}
        }
    }

    /// A completed reload: the worker's own binary has just accepted what is on disk.
    pub(super) fn worker_loaded(&mut self, plan_id: &str) {
        plan_id.clone_into(&mut self.record.running_plan_id);
        plan_id.clone_into(&mut self.record.worker_ops_plan_id);
        self.record.degraded = None;
        self.worker_strange = false;
        self.set_is_good(plan_id);
    }

    /// Takes note of a set that HAProxy has not seen anything of.
    pub(super) fn note_unproven(&mut self, agent: &Agent, mode: ResultMode) {
        let config = &agent.settings.config;
        let intent = self.record.intent.as_ref();
        let rewrote = intent.is_some_and(|intent| intent.tree.targets().any(|path| path == config));
        self.record.unproven |= match mode {
            ResultMode::Scheduled => true,
            ResultMode::FileOnly => rewrote,
            ResultMode::Runtime | ResultMode::Reload | ResultMode::Noop | ResultMode::Rejected => {
                false
            }
        };
    }

    /// What is on disk is the last known good set from now on.
    pub(super) fn set_is_good(&mut self, plan_id: &str) {
        self.record.unproven = false;
        plan_id.clone_into(&mut self.record.lkg_plan_id);
        self.record.lkg_fold = hex(&self.tree.fold());
        self.retire_journal();
    }

    /// Ends the phases of an apply that succeeded.
    pub(super) fn rest(&mut self, agent: &Agent) {
        if self.phase.is_some() {
            if let Err(error) = self.enter(Event::Committed) {
                // Logged there. The set is in place; the phase must not say otherwise.
                let _ = error.at(Stage::Write);
                self.phase = None;
            }
        }
        self.record.intent = None;
        self.prune(agent);
    }

    /// Takes the journal out of the record. Its backups are deleted once a record
    /// without them is saved, never before.
    pub(super) fn retire_journal(&mut self) {
        let journal = std::mem::take(&mut self.record.journal);
        if !journal.entries.is_empty() {
            self.retired.push(journal);
        }
    }

    /// Lets go of what no saved record names any more.
    pub(super) fn drop_retired(&mut self, agent: &Agent) {
        agent.discard(self.retired.drain(..));
    }

    /// The blob belongs to the plan that brought it. A plan that is applied again without
    /// one keeps it, because a controller may split one plan over several applies.
    fn store_blob(&mut self, agent: &Agent, plan_id: &str, blob: Option<StagedBlob>) {
        if let Some(blob) = blob {
            let hash = blob.hash;
            self.record.blob = match agent.blob.adopt(blob) {
                Ok(()) => Some(BlobRef {
                    plan_id: plan_id.to_owned(),
                    sha256: hex(&hash.sha256),
                    size: hash.size,
                }),
                Err(error) => {
                    log::warn!(error:% = words(&error); "the plan blob cannot be stored");
                    None
                }
            };
        } else if self
            .record
            .blob
            .take_if(|blob| blob.plan_id != plan_id)
            .is_some()
        {
            if let Err(error) = agent.blob.remove() {
                log::warn!(error:% = words(&error); "an old plan blob cannot be removed");
            }
        }
    }

    /// Removes directories that the agent made and that its last file has left.
    pub(super) fn prune(&mut self, agent: &Agent) {
        let owned = &self.record.owned;
        let in_use = |dir: &str| {
            let inside = format!("{dir}/");
            owned
                .range::<str, _>((
                    std::ops::Bound::Included(inside.as_str()),
                    std::ops::Bound::Unbounded,
                ))
                .next()
                .is_some_and(|(path, _): (&ManifestPath, _)| path.as_str().starts_with(&inside))
        };
        let empty: Vec<&str> = self
            .record
            .made_dirs
            .iter()
            .map(String::as_str)
            .filter(|dir| !in_use(dir))
            .collect();
        if empty.is_empty() {
            return;
        }
        match install::prune(&agent.store, empty) {
            Ok(gone) => {
                for dir in gone {
                    // A restore makes it again, and it is the agent's then too.
                    if !self.record.journal.has_backup_below(&dir) {
                        self.record.made_dirs.remove(&dir);
                    }
                }
            }
            Err(error) => {
                log::warn!(error:% = words(&error); "an empty directory cannot be removed");
            }
        }
    }
}

impl Agent {
    /// Takes backups that nothing names any more. A backup's name is never used twice, so
    /// they can go at any time, and dropping an old inode takes milliseconds on some file
    /// systems: the background thread does it after the answer, where there is one.
    fn discard(&self, journals: impl Iterator<Item = Journal>) {
        self.discarded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(journals);
        if self.kept.load(Ordering::Acquire) {
            self.ring();
        } else {
            self.empty_discarded();
        }
    }

    /// Deletes what was discarded. Needs no lock of the apply.
    pub(super) fn empty_discarded(&self) {
        let journals = std::mem::take(
            &mut *self
                .discarded
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for journal in journals {
            if let Err(error) = journal::clear(&self.store, &journal) {
                log::warn!(error:% = words(&error); "a backup that is no longer needed stays; the next start removes it");
            }
        }
    }
}
