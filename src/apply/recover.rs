//! The files that the last life left, made wholly one set.
//!
//! Needs no HAProxy. Every step can be cut and begun again; what the worker makes of the
//! set is decided in [`resume`](super::resume) once it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::haproxy::identity::Identity;
use crate::store::state_file::Loaded;
use crate::store::tree::Tree;
use crate::store::{StoreError, install, journal, sweep};
use crate::wire::digest::{DigestKind, hex};
use crate::wire::path::ManifestPath;
use crate::wire::result::{Failure, ResultMode, Stage};

use super::agent::Agent;
use super::machine::{self, Event, Phase, Recovery};
use super::port::words;
use super::record::{Commands, PendingReload, PhaseNote, Record};
use super::tx::Tx;

/// What is left to do once HAProxy answers.
pub(super) enum Rest {
    /// Nothing.
    Nothing,
    /// Reload what is on disk; it commits or aborts the intent.
    Activate,
    /// Commit if that worker still runs, else reload.
    CommitIf(Option<Identity>, ResultMode),
}
impl Tx {
    /// The part of the recovery that needs no HAProxy. May be called again after an error.
    pub(super) fn recover_files(&mut self, agent: &Agent) -> Result<Rest, StoreError> {
        *self = Self::default();
        let note = self.load(agent)?;
        let phase = note.as_ref().map(|note| note.phase).or(self.record.phase);
        self.phase = phase;
        let now = agent.clock.wall();
        self.tree = Tree::observe(&**agent.store.fs(), self.record.owned.keys(), now)?;
        if let Some(phase) = phase {
            log::warn!(phase:?; "the last run ended in the middle of an apply; recovering");
        }
        let rest = match machine::recovery(phase) {
            Recovery::KeepBaseline => {
                self.phase = None;
                self.keep_baseline();
                Rest::Nothing
            }
            Recovery::RollForward | Recovery::Activate => self.roll_forward(agent)?,
            Recovery::CommitIfSameWorker => {
                let worker = note.as_ref().and_then(|note| note.worker);
                let commands = note.as_ref().is_some_and(|note| note.commands.is_some());
                let mode = match phase {
                    Some(Phase::Applied) if commands => ResultMode::Runtime,
                    Some(Phase::Applied) => ResultMode::FileOnly,
                    _ => ResultMode::Reload,
                };
                match self.roll_forward(agent)? {
                    Rest::Activate => Rest::CommitIf(worker, mode),
                    other => other,
                }
            }
            Recovery::CommitScheduled => {
                let due = note.as_ref().and_then(|note| note.due);
                let commands = note.and_then(|note| note.commands);
                match self.roll_forward(agent)? {
                    Rest::Activate => {
                        self.commit_scheduled(agent, due, commands);
                        Rest::Nothing
                    }
                    other => other,
                }
            }
            Recovery::Restore => {
                self.record.applied_plan_id.clear();
                self.doubt_worker();
                if let Some(failure) = note.and_then(|note| note.failure) {
                    self.degrade(agent, &failure.message);
                }
                self.restore(agent)?;
                self.save(agent)?;
                self.drop_retired(agent);
                Rest::Nothing
            }
        };
        // What an earlier life could not remove; the record keeps the names until it is gone.
        self.prune(agent);
        let mut keep: BTreeSet<String> = self.record.journal.backups().map(str::to_owned).collect();
        // Backups that only the record on disk still names.
        let retired = self.retired.iter().flat_map(journal::Journal::backups);
        keep.extend(retired.map(str::to_owned));
        if let Some(intent) = &self.record.intent {
            keep.extend(intent.tree.staged().map(str::to_owned));
        }
        agent.state_file.tidy(self.found);
        agent.blob.tidy(self.record.blob.is_some());
        let swept = sweep::sweep(&agent.store, &keep);
        if swept.removed > 0 || swept.stuck > 0 {
            log::info!(removed = swept.removed, stuck = swept.stuck; "swept what earlier runs left");
        }
        self.resume_pacing(agent);
        Ok(rest)
    }

    fn load(&mut self, agent: &Agent) -> Result<Option<PhaseNote>, StoreError> {
        match agent.state_file.load::<Record, PhaseNote>()? {
            Loaded::Absent => Ok(None),
            Loaded::Found(record, _) if !record.names_only_ours() => {
                let moved_to = agent.state_file.set_aside()?;
                let reason = "it names backups or parts that are none of the agent's".to_owned();
                self.start_without(agent, &reason, &moved_to);
                Ok(None)
            }
            Loaded::Found(record, note) => {
                self.record = record;
                self.found = true;
                // Whatever becomes of the apply: these are the deletes that the worker is
                // waiting for, and a stale one could remove what is wanted again.
                if let Some(commands) = note.as_ref().and_then(|n: &PhaseNote| n.commands.as_ref())
                {
                    self.record.deletes = commands.deletes.clone();
                }
                Ok(note)
            }
            Loaded::Unusable { reason, moved_to } => {
                self.start_without(agent, &reason, &moved_to);
                Ok(None)
            }
        }
    }

    /// There was a state, and it cannot be used.
    fn start_without(&mut self, agent: &Agent, reason: &str, moved_to: &str) {
        agent.metrics.state_file_resets.inc();
        log::error!(
            reason, moved_to;
            "the state file cannot be used and was set aside; starting without a baseline"
        );
        self.degrade(
            agent,
            &format!("the state file could not be used ({reason}) and is {moved_to} now: what is on disk and what HAProxy runs is unknown until the next full set"),
        );
    }

    /// No apply was under way. The tree must be the one that was left.
    fn keep_baseline(&mut self) {
        self.record.intent = None;
        if self.record.fold != hex(&self.tree.fold()) && !self.record.owned.is_empty() {
            log::warn!(
                plan_id = self.record.applied_plan_id;
                "something other than the agent changed the tree while it was not running; the applied plan is unknown until the next full apply"
            );
            self.record.forget_baseline();
        }
    }

    /// Finishes the renames of the intent. If content is lost the journal goes back.
    fn roll_forward(&mut self, agent: &Agent) -> Result<Rest, StoreError> {
        let Some(intent) = self.record.intent.clone() else {
            log::error!("a phase without an intent was found; the last known good set goes back");
            self.give_up_intent(agent, &lost("the intent of the apply is missing"))?;
            return Ok(Rest::Nothing);
        };
        match install::replay(&agent.store, &intent.tree) {
            Ok(()) => {}
            // The second: somebody has put something into a directory that was to go.
            Err(error)
                if matches!(error, StoreError::StagedLost { .. })
                    || error.errno() == Some(libc::ENOTEMPTY) =>
            {
                log::warn!(error:% = words(&error); "the apply cannot be finished");
                self.give_up_intent(agent, &lost(&words(&error)))?;
                return Ok(Rest::Nothing);
            }
            Err(error) => return Err(error),
        }
        let now = agent.clock.wall();
        // Every owned file was hashed when the recovery began. What the intent moves may be
        // another one since, and what is not seen yet is looked at too.
        let mut tree = self.tree.clone();
        let owned = intent.owned.as_ref().unwrap_or(&self.record.owned);
        tree.retain(|path| owned.contains_key(path));
        let targets: BTreeSet<_> = intent.tree.targets().collect();
        for path in owned.keys() {
            if targets.contains(path) || tree.get(path).is_none() {
                tree.observe_one(&**agent.store.fs(), path, now)?;
            }
        }
        if hex(&tree.fold()) != intent.fold || self.put_back_again(agent, owned)? {
            let message = "the tree is not the set of the apply: a restore of the last known good set had begun, or something else wrote it";
            log::warn!(plan_id = intent.plan_id; "{message}");
            self.give_up_intent(agent, &lost(message))?;
            return Ok(Rest::Nothing);
        }
        if let Some(owned) = intent.owned {
            self.record.owned = owned;
        }
        self.tree = tree;
        self.phase = Some(Phase::Written);
        Ok(Rest::Activate)
    }

    /// Whether a file is there that the set of the intent does not have and that an apply
    /// before it had removed: a restore brings those back first, and no fold shows them.
    fn put_back_again(
        &self,
        agent: &Agent,
        owned: &BTreeMap<ManifestPath, DigestKind>,
    ) -> Result<bool, StoreError> {
        let mut removed = self
            .record
            .journal
            .entries
            .iter()
            .filter(|(path, entry)| entry.backup().is_some() && !owned.contains_key(*path));
        removed.try_fold(false, |found, (path, _)| {
            Ok(found || agent.store.has_file(path.as_str())?)
        })
    }

    /// Puts the last known good set back; the intent is void. An error is tried again: an
    /// agent whose tree is a mix must not become ready.
    pub(super) fn give_up_intent(
        &mut self,
        agent: &Agent,
        failure: &Failure,
    ) -> Result<(), StoreError> {
        self.phase = Some(Phase::BackedUp);
        self.record.applied_plan_id.clear();
        self.doubt_worker();
        self.degrade(agent, &failure.message);
        self.begin_restore(agent, failure)?;
        self.restore(agent)?;
        self.save(agent)?;
        self.drop_retired(agent);
        Ok(())
    }

    fn commit_scheduled(&mut self, agent: &Agent, due: Option<i128>, commands: Option<Commands>) {
        let Some(intent) = self.record.intent.clone() else {
            return;
        };
        let due = due.unwrap_or_else(|| agent.clock.wall().0);
        if let Err(error) = self.enter(Event::ReloadScheduled) {
            let _ = error.at(Stage::Write);
        }
        let fold = hex(&self.tree.fold());
        let pending = self.record.pending.get_or_insert(PendingReload {
            plan_id: String::new(),
            due,
            fold: String::new(),
            touched: false,
        });
        pending.fold = fold;
        pending.plan_id.clone_from(&intent.plan_id);
        pending.touched |= commands.as_ref().is_some_and(|commands| commands.touched);
        let schema = intent.plan_schema_version;
        self.settle(&intent.plan_id, intent.token, schema, ResultMode::Scheduled);
        if let Some(commands) = commands {
            self.record.worker_ops_plan_id = commands.worker_ops_plan_id;
            if commands.baseline_gone {
                self.record.applied_plan_id.clear();
            }
        }
        self.rest(agent);
        self.save_quietly(agent);
    }

    /// The pacing window goes on across a restart. A wall clock that was set back meanwhile
    /// no longer tells how much of it is left: it begins anew, so that no restart makes
    /// reloads come sooner than the interval.
    fn resume_pacing(&mut self, agent: &Agent) {
        let Some(end) = self.record.last_reload_end else {
            return;
        };
        let since = agent.clock.wall().0.saturating_sub(end).max(0);
        let Ok(since) = u64::try_from(since) else {
            return;
        };
        self.last_reload_end = agent.clock.now().checked_sub(Duration::from_nanos(since));
    }
}

fn lost(message: &str) -> Failure {
    Failure {
        stage: Stage::Write,
        message: message.to_owned(),
    }
}
