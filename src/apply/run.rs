//! One apply under the apply lock: fence again, plan, journal, renames, activation.
//!
//! Persist, effect, persist: every step is recorded before it has an effect, and every
//! effect survives being repeated. Whatever fails leaves through one of two doors,
//! [`Tx::refuse`] before the first rename and [`Tx::abort`] after it.

use std::collections::BTreeMap;

use crate::haproxy::batch::OpenSession;
use crate::haproxy::ops::{NotExecutable, Outcome};
use crate::metrics::Invariant;
use crate::store::StoreError;
use crate::store::files::Files;
use crate::store::stage::{StageRequest, StagedBlob, StagedFile};
use crate::wire::digest::ContentHash;
use crate::wire::manifest::{Manifest, Mode};
use crate::wire::op::{Op, OpKind};
use crate::wire::path::ManifestPath;
use crate::wire::result::{Failure, Missing, OpResult, ResultMode, Stage};

use super::agent::Agent;
use super::follow::Follow;
use super::known_bad::{Lookup, SetKey};
use super::machine::Event;
use super::outcome::{Leg, Report};
use super::plan::{self, Plan, ReloadWhy, Situation, StagedPart, Way};
use super::port::words;
use super::record::Record;
use super::tx::Tx;
use super::upload::{Answer, Upload};
use super::view::View;

/// What travels through one apply.
pub(super) struct Job<'a> {
    pub(super) agent: &'a Agent,
    pub(super) manifest: Manifest,
    pub(super) blob: Option<StagedBlob>,
    /// The generation before it.
    pub(super) generation: u64,
    /// With the worker, for a batch. Any reload needs it closed: a worker stays for as
    /// long as somebody talks to it.
    pub(super) session: Option<OpenSession>,
    /// Commands of this apply may have changed the worker.
    pub(super) touched: bool,
    /// What the worker holds is not known although the apply succeeds.
    pub(super) baseline_gone: bool,
    /// The record before an apply that has no phases, and nothing else to go back to.
    pub(super) before: Option<Box<Record>>,
    pub(super) report: Report,
}

/// Carries an upload out, `sealed` if its parts survive a power loss. Called without any
/// lock.
pub(super) fn run(upload: Upload<'_>, sealed: Result<(), StoreError>) -> Answer {
    let agent = upload.agent;
    let mut tx = agent.lock();
    let mut answer = tx.apply(upload, sealed);
    if let Answer::Result(result) = &mut answer {
        result.runtime_inventory = tx.news();
    }
    agent.publish(&tx);
    let look = tx.owed.is_some();
    drop(tx);
    if look {
        agent.ring();
    }
    answer
}

impl Tx {
    fn apply(&mut self, upload: Upload<'_>, sealed: Result<(), StoreError>) -> Answer {
        let Upload {
            agent,
            manifest,
            stage,
            parts,
            blob,
            watch,
            looked,
            ..
        } = upload;
        let report = Report::new(&manifest.plan_id, watch);
        if let Err(failure) = self.heal(agent) {
            return self.refuse(agent, report, failure);
        }
        // HAProxy wakes up while the files are looked at and the plan is made.
        let look = agent.haproxy.look(runs_ops(&manifest));
        let looked = looked.is_some_and(|looked| looked.holds(agent.clock.now()));
        let tree = if looked {
            agent.store.require_in_place()
        } else {
            self.look_at_tree(agent).map(drop)
        };
        if let Err(error) = tree {
            self.record.applied_plan_id.clear();
            return self.refuse(agent, report, at_backup(words(&error)));
        }
        let planned = self.plan(agent, &manifest, &parts);
        let (seen, session) = look.answer();
        self.worker_answered(agent, seen);
        let mut baseline = self.record.baseline();
        baseline.reload_paced = self.earliest_reload(agent).is_some();
        if let Err(conflict) = baseline.admit(&manifest) {
            return Answer::Conflict(conflict);
        }
        if let Err(failure) = self.accept_epoch(agent, manifest.token.leader_epoch) {
            return self.refuse(agent, report, failure);
        }
        if manifest.mode == Mode::RevertLkg {
            return self.revert(agent, &manifest, report);
        }
        if let Err(error) = sealed {
            return self.refuse(agent, report, at_backup(words(&error)));
        }
        let plan = match planned {
            Ok(plan) => plan,
            Err(missing) => return Answer::Missing(Missing { missing }),
        };
        let after = self.after(&plan);
        if let Some(nack) = self.known_bad(agent, &after, &manifest.plan_id) {
            return nack;
        }
        self.promote(&manifest);
        let generation = self.record.generation;
        let job = Job {
            agent,
            manifest,
            blob,
            generation,
            session,
            touched: false,
            baseline_gone: false,
            before: None,
            report,
        };
        self.carry_out(job, &plan, after.fold(), &parts, stage)
    }

    fn carry_out(
        &mut self,
        mut job: Job<'_>,
        plan: &Plan,
        fold: [u8; 32],
        parts: &BTreeMap<ManifestPath, StagedFile>,
        stage: StageRequest,
    ) -> Answer {
        let agent = job.agent;
        let way = plan::choose(&job.manifest, self.situation(&job.manifest, plan));
        if way == Way::Reload(ReloadWhy::OpsNotExecutable) {
            let fault = unknown_kind(&job.manifest.ops);
            self.violated(agent, Invariant::OpsExecutable, &fault.to_string());
            job.report.op_results = super::runtime::not_sent(&job.manifest.ops, &fault);
        } else {
            job.report.op_results = unsent(&job.manifest, way);
        }
        log::debug!(
            plan_id = job.manifest.plan_id, writes = plan.writes.len(),
            deletes = plan.deletes.len(), way:?; "planned"
        );
        // A command that nothing on disk speaks of could be forgotten.
        let commands = way == Way::JoinPending && !job.manifest.in_place_ops.is_empty();
        let needs_phases = plan.changes()
            || commands
            || matches!(way, Way::Reload(_) | Way::FileOnly | Way::Runtime);
        if needs_phases {
            let writes: Vec<StagedFile> = plan
                .writes
                .iter()
                .filter_map(|w| parts.get(&w.path).cloned())
                .collect();
            if let Err(failure) = self.take_journal(&job, plan, &writes, fold) {
                return self.refuse(agent, job.report, failure);
            }
            job.report.watch.lap(Leg::Admit, agent.clock.now());
            if let Err(failure) = self.write_tree(agent, plan, parts, fold) {
                return self.abort(agent, job.report, failure);
            }
            // Parts that were sent although the agent holds them are removed with it.
            if writes.len() == parts.len() {
                stage.finish();
            }
        } else {
            job.before = Some(Box::new(self.record.clone()));
            self.record.owned = plan.owned.clone();
            job.report.watch.lap(Leg::Admit, agent.clock.now());
        }
        job.report.watch.lap(Leg::Write, agent.clock.now());
        if way != Way::Runtime {
            job.session = None;
        }
        match way {
            Way::Noop => self.commit(job, ResultMode::Noop),
            Way::FileOnly => self.file_only(job),
            Way::Runtime => self.runtime(job),
            Way::JoinPending => self.join_pending(job),
            Way::Reload(why) => self.activate(job, why),
        }
    }

    fn situation(&self, manifest: &Manifest, plan: &Plan) -> Situation {
        Situation {
            reload_pending: self.record.pending.is_some(),
            applied_known: !self.record.applied_plan_id.is_empty(),
            worker_known: self.worker_known(),
            changes: plan.changes(),
            ops_known: manifest
                .ops
                .iter()
                .all(|op| OpKind::parse(&op.kind).is_some()),
        }
    }

    /// A leader that passed the fence is remembered before anything else happens, so that
    /// an older one stays out even if this apply fails.
    fn accept_epoch(&mut self, agent: &Agent, epoch: u64) -> Result<(), Failure> {
        if epoch <= self.record.epoch {
            return Ok(());
        }
        self.record.epoch = epoch;
        self.save(agent).map_err(|error| at_backup(words(&error)))
    }

    fn plan(
        &self,
        agent: &Agent,
        manifest: &Manifest,
        parts: &BTreeMap<ManifestPath, StagedFile>,
    ) -> Result<Plan, Vec<ManifestPath>> {
        let staged: BTreeMap<_, _> = parts
            .values()
            .map(|part| {
                let staged = StagedPart {
                    staged: part.staged.clone(),
                    hash: part.hash,
                };
                (part.path.clone(), staged)
            })
            .collect();
        plan::build(
            manifest,
            &mut self.held_in_order(),
            &staged,
            &self.record.owned,
            &agent.settings.config,
        )
    }

    /// The content of an owned path, by the agent's own hash of it.
    pub(super) fn held(&self, path: &ManifestPath) -> Option<ContentHash> {
        if !self.record.owned.contains_key(path) {
            return None;
        }
        self.tree.get(path).map(|seen| seen.hash)
    }

    /// [`Self::held`] for many paths that are known to be owned, best in their order.
    fn held_in_order(&self) -> impl FnMut(&ManifestPath) -> Option<ContentHash> {
        let mut seen = Follow::new(self.tree.files());
        move |path| seen.get(path).map(|seen| seen.hash)
    }

    /// The tree once the plan is carried out.
    fn after(&self, plan: &Plan) -> Files {
        let writes = plan.writes.iter().map(|write| (&write.path, write.hash));
        self.tree.after(writes, &plan.deletes)
    }

    /// The set on disk by the agent's own hashes.
    pub(super) fn tree_key(&self) -> SetKey {
        content_key(self.tree.files())
    }

    /// HAProxy's verdict on this content, if it is remembered. Here the content is hashed,
    /// so an XXH64 manifest can be answered too.
    fn known_bad(&self, agent: &Agent, after: &Files, plan_id: &str) -> Option<Answer> {
        if agent.known_bad().is_empty() {
            return None;
        }
        let key = content_key(after);
        let found = agent.known_bad().confirm(key, agent.clock.now());
        match found {
            Lookup::Unknown => None,
            Lookup::Known(nack) => {
                agent.metrics.known_bad_hits.inc();
                let nack = View::of(self).refresh(&*agent.clock, *nack, plan_id);
                Some(Answer::Result(Box::new(nack)))
            }
        }
    }

    /// The controller's own check passed for what is applied: it becomes the last known
    /// good set. The backups go once a state without them is saved.
    fn promote(&mut self, manifest: &Manifest) {
        let applied = &self.record.applied_plan_id;
        if applied.is_empty() || manifest.validated_plan_id.as_ref() != Some(applied) {
            return;
        }
        if self.record.lkg_plan_id != *applied || !self.record.journal.entries.is_empty() {
            log::info!(plan_id = applied; "the applied plan is validated: it is the last known good one now");
            self.set_is_good(&applied.clone());
        }
    }

    /// Only files changed, and no command is needed.
    fn file_only(&mut self, job: Job<'_>) -> Answer {
        let worker = self.record.worker;
        match self.step(job.agent, Event::OpsDone, |note| note.worker = worker) {
            Ok(()) => self.commit(job, ResultMode::FileOnly),
            Err(error) => {
                let failure = error.at(Stage::Write);
                self.abort(job.agent, job.report, failure)
            }
        }
    }
}

fn content_key(files: &Files) -> SetKey {
    SetKey::of_content(
        files
            .iter()
            .map(|(path, seen)| (path, seen.hash.sha256, seen.hash.size)),
    )
}

/// A failure before the first rename.
pub(super) fn at_backup(message: String) -> Failure {
    Failure {
        stage: Stage::Backup,
        message,
    }
}

/// Whether the manifest asks for commands on the worker.
fn runs_ops(manifest: &Manifest) -> bool {
    manifest.mode == Mode::Auto && !manifest.ops.is_empty()
}

/// The first op of a kind that this agent does not know.
fn unknown_kind(ops: &[Op]) -> NotExecutable {
    let unknown = |op: &Op| OpKind::parse(&op.kind).is_none();
    let index = ops.iter().position(unknown).unwrap_or_default();
    let kind = ops.get(index).map(|op| op.kind.clone()).unwrap_or_default();
    NotExecutable {
        index,
        outcome: Outcome::Unsupported,
        words: format!("this agent knows no op of the kind {kind:?}"),
        kind,
    }
}

/// What became of the ops where none of them is sent.
fn unsent(manifest: &Manifest, way: Way) -> Vec<OpResult> {
    let why = match way {
        Way::Noop | Way::FileOnly | Way::Runtime => return Vec::new(),
        Way::JoinPending => "not sent: a reload is pending and will load the files",
        Way::Reload(why) => match why {
            ReloadWhy::Asked => "not sent: the manifest asks for a reload",
            ReloadWhy::BaselineUnknown => {
                "not sent: the applied plan is unknown, so the files are reloaded"
            }
            ReloadWhy::WorkerUnknown => {
                "not sent: the worker is not the one the ops were composed for, so the files are reloaded"
            }
            ReloadWhy::OpsNotExecutable => "not sent: an op of the batch is not executable",
            ReloadWhy::OpRefused => "not sent: the worker refused an op of the batch",
        },
    };
    manifest
        .ops
        .iter()
        .map(|op| OpResult {
            kind: op.kind.clone(),
            ok: false,
            output: Some(why.to_owned()),
        })
        .collect()
}
