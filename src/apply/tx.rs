//! What the apply lock guards: the record, the observed tree, the worker last seen.
//!
//! Every change of the record goes through here, so that the phase on disk and the
//! phase in memory cannot part, and so that the fold saved is always the fold of the
//! tree that was observed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::haproxy::deletes::{DeleteOutcome, ObjectKind};
use crate::haproxy::identity::WorkerInfo;
use crate::metrics::{self, DeleteKind};
use crate::store::StoreError;
use crate::store::tree::Tree;
use crate::wire::digest::hex;
use crate::wire::path::ManifestPath;
use crate::wire::result::{Failure, Stage};
use crate::wire::state::{Degraded, Haproxy, RuntimeInventory, WorkerAnswer};

use super::agent::Agent;
use super::machine::{self, Event, IllegalStep, Phase};
use super::port::words;
use super::readback::Owed;
use super::record::{PhaseNote, Record};

/// How long after a reload a connection may still reach the worker from before; measured
/// once in 450 reloads, 4 ms after the verdict.
const FORMER_WORKER_LINGERS: Duration = Duration::from_secs(1);

/// Guarded by the apply lock.
#[derive(Debug, Default)]
pub(super) struct Tx {
    /// The state, as saved or about to be.
    pub(super) record: Record,
    /// The owned files as last observed.
    pub(super) tree: Tree,
    /// How far the apply under way has come.
    pub(super) phase: Option<Phase>,
    /// The worker last seen.
    pub(super) worker: Option<WorkerInfo>,
    /// What the worker has loaded.
    pub(super) inventory: Arc<RuntimeInventory>,
    /// Generation of the inventory that an answer last carried.
    pub(super) inventory_told: u64,
    /// The inventory could not be read since the last reload.
    pub(super) inventory_stale: bool,
    /// Journals that the record no longer has; their backups go after the next save.
    pub(super) retired: Vec<crate::store::journal::Journal>,
    /// When the pending reload fires, monotonic.
    pub(super) pending_at: Option<Instant>,
    /// Whether the worker answered when it was last asked; `None` before the first time.
    pub(super) answering: Option<WorkerAnswer>,
    /// Since when it has not, monotonic.
    pub(super) silent_since: Option<Instant>,
    /// When the last look at every owned file began.
    pub(super) verified: Option<Instant>,
    /// Looks at the worker that batches have left to be taken.
    pub(super) owed: Owed,
    /// When the next pass over the deferred deletes is due, monotonic.
    pub(super) deletes_at: Option<Instant>,
    /// When the last reload ended, monotonic; refused ones count.
    pub(super) last_reload_end: Option<Instant>,
    /// An abort that could not be finished: the next apply finishes it first.
    pub(super) unfinished: bool,
    /// A state was found at the start.
    pub(super) found: bool,
    /// The record in memory is ahead of the one on disk.
    pub(super) unsaved: bool,
    /// Since when it could not be saved, and why.
    pub(super) unsaved_since: Option<Degraded>,
    /// A worker came from nowhere and nothing has been done about it yet, whoever saw it
    /// first: an apply, a reader that verifies, or the background look.
    pub(super) worker_strange: bool,
    /// When a reload was last spent on a worker that came from nowhere. The next one is
    /// allowed by an apply of the controller, or by ten minutes.
    pub(super) restored_worker: Option<Instant>,
}

/// Why a step could not be taken.
#[derive(Debug)]
pub(super) enum StepError {
    /// The disk.
    Store(StoreError),
    /// A defect of ours.
    Illegal(IllegalStep),
}

impl From<StoreError> for StepError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl StepError {
    /// As the failure of a stage.
    pub(super) fn at(&self, stage: Stage) -> Failure {
        let message = match self {
            Self::Store(error) => words(error),
            Self::Illegal(step) => {
                log::error!(step:%; "the apply took a step that the machine does not have");
                format!("internal error: {step}")
            }
        };
        Failure { stage, message }
    }
}

impl Tx {
    /// Saves the whole record, with the phase and the fold as they are now.
    pub(super) fn save(&mut self, agent: &Agent) -> Result<(), StoreError> {
        self.record.txn = self.record.txn.wrapping_add(1);
        self.record.phase = self.phase;
        self.record.fold = hex(&self.tree.fold());
        self.unsaved = true;
        if let Err(error) = agent.state_file.save(&self.record) {
            let since = match self.unsaved_since.take() {
                Some(earlier) => earlier.since,
                None => agent.clock.wall().rfc3339(),
            };
            let reason = words(&error);
            self.unsaved_since = Some(Degraded { since, reason });
            return Err(error);
        }
        self.unsaved = false;
        self.unsaved_since = None;
        Ok(())
    }

    /// Takes a step and notes the phase that follows; `fill` adds what that phase carries.
    pub(super) fn step(
        &mut self,
        agent: &Agent,
        event: Event,
        fill: impl FnOnce(&mut PhaseNote),
    ) -> Result<(), StepError> {
        self.enter(event)?;
        if let Some(phase) = self.phase {
            let mut note = PhaseNote::of(phase);
            fill(&mut note);
            agent.state_file.save_phase(self.record.txn, &note)?;
        }
        Ok(())
    }

    /// Takes a step that the next [`Tx::save`] records.
    pub(super) fn enter(&mut self, event: Event) -> Result<(), StepError> {
        self.phase = machine::next(self.phase, event).map_err(StepError::Illegal)?;
        Ok(())
    }

    /// Looks at every owned file; what moved is hashed again. True if something other
    /// than the agent wrote the tree: the baseline is forgotten then.
    pub(super) fn look_at_tree(&mut self, agent: &Agent) -> Result<bool, StoreError> {
        agent.store.require_in_place()?;
        Ok(!self.written_by_others(agent)?.is_empty())
    }

    /// The owned paths that something other than the agent has written since they were last
    /// looked at. The baseline is forgotten if there are any.
    pub(super) fn written_by_others(
        &mut self,
        agent: &Agent,
    ) -> Result<Vec<ManifestPath>, StoreError> {
        let changed = self.tree.recheck(&**agent.store.fs(), agent.clock.wall())?;
        if !changed.is_empty() {
            self.tree_is_foreign(&changed);
        }
        Ok(changed)
    }

    /// Something else wrote these paths.
    pub(super) fn tree_is_foreign(&mut self, changed: &[ManifestPath]) {
        let first = changed.first().map(ToString::to_string).unwrap_or_default();
        log::warn!(
            path = first, files = changed.len(), plan_id = self.record.applied_plan_id;
            "something other than the agent changed the tree; the applied plan is unknown until the next full apply"
        );
        self.record.forget_baseline();
    }

    /// Asks who the worker is. A worker that is not the one of the record means that the
    /// running plan is unknown; one that does not answer means nothing. True if it is
    /// another one.
    pub(super) fn look_at_worker(&mut self, agent: &Agent) -> bool {
        self.worker_answered(agent, agent.haproxy.worker())
    }

    /// Takes note of what a look at the worker brought.
    pub(super) fn worker_answered(
        &mut self,
        agent: &Agent,
        seen: Result<WorkerInfo, String>,
    ) -> bool {
        self.note_answer(agent, seen.as_ref().err().map(String::as_str));
        match seen {
            Ok(info) if !info.stopping && !self.is_former(agent, &info) => {
                self.worker_seen(agent, info)
            }
            Ok(_) => false,
            Err(_) => false,
        }
    }

    /// Asks the worker's socket and takes note of whether it answers; who answers is for
    /// the caller to judge.
    pub(super) fn ask_worker(&mut self, agent: &Agent) -> Result<WorkerInfo, String> {
        let seen = agent.haproxy.worker();
        self.note_answer(agent, seen.as_ref().err().map(String::as_str));
        seen
    }

    /// For the state and the metrics; in the log it is told once when the worker stops
    /// answering, and once when it answers again.
    pub(super) fn note_answer(&mut self, agent: &Agent, error: Option<&str>) {
        let answers = error.is_none();
        agent.metrics.haproxy_up.set(u64::from(answers));
        let before = self.answering.take();
        let was_silent = before.as_ref().is_some_and(|before| !before.answers);
        match (error, was_silent) {
            (Some(error), false) => log::error!(error; "HAProxy's worker does not answer"),
            (None, true) => log::info!("HAProxy's worker answers again"),
            (Some(_), true) | (None, false) => {}
        }
        self.silent_since = match error {
            Some(_) => self.silent_since.or(Some(agent.clock.now())),
            None => None,
        };
        let since = match before.filter(|before| before.answers == answers) {
            Some(before) => before.since,
            None => agent.clock.wall().rfc3339(),
        };
        self.answering = Some(WorkerAnswer {
            answers,
            since,
            reason: error.map(str::to_owned),
        });
    }

    /// For some milliseconds after a reload the former worker may still take connections;
    /// that it answers is no news. Bounded, because a wall clock can be set back.
    fn is_former(&self, agent: &Agent, info: &WorkerInfo) -> bool {
        let fresh = self.last_reload_end.is_some_and(|end| {
            agent.clock.now().saturating_duration_since(end) < FORMER_WORKER_LINGERS
        });
        fresh
            && self
                .record
                .worker
                .is_some_and(|now| info.identity.is_older_than(now))
    }

    /// Takes note of the worker that answers. True if it is not the one of the record.
    pub(super) fn worker_seen(&mut self, agent: &Agent, info: WorkerInfo) -> bool {
        let identity = info.identity;
        self.worker = Some(info);
        if self.record.worker == Some(identity) {
            return false;
        }
        if let Some(old) = self.record.worker {
            agent.metrics.worker_changes.inc();
            log::warn!(
                old:%, new:% = identity, running = self.record.running_plan_id;
                "HAProxy has another worker, and the agent did not reload; what it runs is unknown"
            );
            agent.known_bad().forget();
        }
        self.record.worker = Some(identity);
        self.record.forget_worker();
        self.record
            .deletes
            .supersede_all("HAProxy has another worker");
        self.count_deletes(agent);
        self.worker_strange = true;
        true
    }

    /// The worker is the one that loaded the running plan.
    pub(super) fn worker_known(&self) -> bool {
        !self.record.running_plan_id.is_empty() && !self.record.worker_ops_plan_id.is_empty()
    }

    /// Reads what the worker has loaded; what could not be read stays as it was and is
    /// tried again in the background.
    pub(super) fn refresh_inventory(&mut self, agent: &Agent) -> Result<(), String> {
        let lists = agent
            .haproxy
            .inventory()
            .inspect_err(|_| self.inventory_stale = true)?;
        self.inventory_stale = false;
        let fresh = RuntimeInventory {
            generation: self.inventory.generation,
            maps: lists.maps,
            acl_files: lists.acl_files,
            certs: lists.certs,
            ca_files: lists.ca_files,
            crl_files: lists.crl_files,
            crt_lists: lists.crt_lists,
        };
        if fresh != *self.inventory || self.inventory.generation == 0 {
            self.inventory = Arc::new(RuntimeInventory {
                generation: self.inventory.generation + 1,
                ..fresh
            });
        }
        Ok(())
    }

    /// Counts what became of deferred deletes.
    pub(super) fn count_deletes(&mut self, agent: &Agent) {
        for event in self.record.deletes.take_events() {
            let kind = match event.key.kind() {
                ObjectKind::Server => DeleteKind::Server,
                ObjectKind::Backend => DeleteKind::Backend,
            };
            let outcome = match event.outcome {
                DeleteOutcome::Done => metrics::DeleteOutcome::Done,
                DeleteOutcome::Deferred => metrics::DeleteOutcome::Deferred,
                DeleteOutcome::Abandoned => {
                    log::warn!(
                        object:% = event.key, reason = event.words;
                        "a deferred delete is given up; the object stays until the next reload"
                    );
                    metrics::DeleteOutcome::Abandoned
                }
                DeleteOutcome::Superseded => metrics::DeleteOutcome::Superseded,
            };
            agent.metrics.deferred_deletes.of(kind).of(outcome).inc();
        }
        for (kind, label) in [
            (ObjectKind::Server, DeleteKind::Server),
            (ObjectKind::Backend, DeleteKind::Backend),
        ] {
            agent
                .metrics
                .pending_deletes
                .of(label)
                .set(self.record.deletes.count(kind) as u64);
        }
    }

    /// The worker, for answers.
    pub(super) fn haproxy(&self) -> Haproxy {
        match &self.worker {
            None => Haproxy::default(),
            Some(info) => Haproxy {
                version: info.version.short().to_owned(),
                full_version: info.version.full().to_owned(),
                worker_pid: info.identity.pid,
                worker_start_time_unix_micros: info.identity.start_micros,
            },
        }
    }
}
