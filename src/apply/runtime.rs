//! Runtime ops: a batch on the running worker instead of a reload.
//!
//! The files have landed when this runs, and the whole batch is compiled before its
//! first command. Whatever is not executable, is refused, or leaves a doubt about the
//! worker comes to one end: what is on disk is reloaded, and the answer still tells
//! which op failed with HAProxy's words. The agent never composes a command of its own
//! beyond what an op says.

use crate::haproxy::batch::{BatchReport, Ended, OpOutcome, OpenSession};
use crate::haproxy::deletes::Queue;
use crate::haproxy::identity::Identity;
use crate::haproxy::ops::{self, Content, NotExecutable, Outcome, Touched};
use crate::haproxy::readback::{Object, Verdict, Void};
use crate::metrics::Invariant;
use crate::wire::op::{Op, OpKind};
use crate::wire::path::ManifestPath;
use crate::wire::result::{Failure, OpResult, ResultMode, Stage};

use std::io::Read;
use std::sync::Arc;

use super::agent::Agent;
use super::machine::Event;
use super::plan::ReloadWhy;
use super::run::Job;
use super::tx::Tx;
use super::upload::Answer;
use super::view::View;

/// The managed files on disk, for ops that send content.
struct Managed<'a> {
    agent: &'a Agent,
    tx: &'a Tx,
}

impl Content for Managed<'_> {
    fn open(&self, path: &str) -> Result<Box<dyn Read + '_>, String> {
        open_owned(self.agent, path, |path| {
            self.tx.record.owned.contains_key(path)
        })
    }
}

fn open_owned<'a>(
    agent: &Agent,
    path: &str,
    owned: impl FnOnce(&ManifestPath) -> bool,
) -> Result<Box<dyn Read + 'a>, String> {
    let path = ManifestPath::parse(path).map_err(|error| error.to_string())?;
    if !owned(&path) {
        return Err(format!("{path} is not among the files of the set"));
    }
    match agent.store.fs().open(path.as_str()) {
        Ok(file) => Ok(file),
        Err(error) => Err(format!("{path} cannot be read: {error}")),
    }
}

/// A look at what a batch touched, which needs no lock: applies go on meanwhile, and the
/// first of them makes it void.
#[derive(Debug)]
pub(super) struct ReadBack {
    expected: Identity,
    /// The record as it was; every apply moves it.
    txn: u64,
    touched: Touched,
    deletes: Queue,
    view: Arc<View>,
}

impl ReadBack {
    pub(super) fn look(&self, agent: &Agent) -> Result<Vec<(Object, Verdict)>, Void> {
        let content = Viewed {
            agent,
            view: &self.view,
        };
        let (touched, deletes) = (&self.touched, &self.deletes);
        agent
            .haproxy
            .read_back(self.expected, touched, &content, deletes)
    }
}

/// The managed files on disk, as they were published.
struct Viewed<'a> {
    agent: &'a Agent,
    view: &'a View,
}

impl Content for Viewed<'_> {
    fn open(&self, path: &str) -> Result<Box<dyn Read + '_>, String> {
        open_owned(self.agent, path, |path| self.view.files.contains_key(path))
    }
}

impl Tx {
    /// Runs the manifest's ops; the tree is written.
    pub(super) fn runtime(&mut self, mut job: Job<'_>) -> Answer {
        let agent = job.agent;
        let session = job.session.take();
        let (report, touched) = match self.batch(agent, session, &job.manifest.ops) {
            Ok(ran) => ran,
            Err(fault) => {
                // A full queue is the controller's doing, not a batch that cannot be.
                if fault.outcome != Outcome::QueueFull {
                    self.violated(agent, Invariant::OpsExecutable, &fault.to_string());
                }
                job.report.op_results = not_sent(&job.manifest.ops, &fault);
                return self.activate(job, ReloadWhy::OpsNotExecutable);
            }
        };
        count_refusals(agent, &report);
        job.report.op_results = told(&report.results);
        job.touched = report.reached_worker;
        match report.ended {
            Ended::Complete { worker } => {
                let identity = worker.identity;
                self.worker = Some(worker);
                let noted = self.step(agent, Event::OpsDone, |note| note.worker = Some(identity));
                if let Err(error) = noted {
                    // The worker holds the set: a restart that finds no note of it reloads
                    // once more and comes to the same end.
                    let _ = error.at(Stage::Write);
                }
                self.look_for_new_names(agent, &touched);
                let answer = self.commit(job, ResultMode::Runtime);
                self.readback = Some((self.record.generation, touched));
                answer
            }
            Ended::Refused { .. } => {
                if self.earliest_reload(agent).is_some() {
                    // The reload waits, and the worker keeps what ran until then.
                    self.look_for_new_names(agent, &touched);
                }
                self.activate(job, ReloadWhy::OpRefused)
            }
            Ended::Unknown { words } | Ended::WorkerChanged { words } => {
                log::warn!(reason = words; "what the worker holds is not known after a batch");
                self.record.forget_worker();
                self.activate(job, ReloadWhy::WorkerUnknown)
            }
        }
    }

    /// Runs the ops that are safe on the running worker while a reload waits. A refusal
    /// makes the worker's plan unknown and is reported; the reload that waits repairs it.
    pub(super) fn run_in_place(&mut self, job: &mut Job<'_>) {
        let agent = job.agent;
        if job.manifest.in_place_ops.is_empty() {
            return;
        }
        let failure = match self.batch(agent, None, &job.manifest.in_place_ops) {
            Err(fault) => {
                job.report.op_results = not_sent(&job.manifest.in_place_ops, &fault);
                Some(fault.to_string())
            }
            Ok((report, touched)) => {
                count_refusals(agent, &report);
                job.report.op_results = told(&report.results);
                self.look_for_new_names(agent, &touched);
                if let (true, Some(pending)) = (report.reached_worker, &mut self.record.pending) {
                    pending.touched = true;
                }
                match report.ended {
                    Ended::Complete { .. } => None,
                    Ended::Refused { index } => Some(match report.results.get(index) {
                        Some(op) => format!("{}: {}", op.kind, op.words),
                        None => "an op was refused".to_owned(),
                    }),
                    Ended::Unknown { words } | Ended::WorkerChanged { words } => Some(words),
                }
            }
        };
        match failure {
            None => {
                if let Some(plan_id) = &job.manifest.worker_ops_plan_id {
                    self.record.worker_ops_plan_id.clone_from(plan_id);
                }
            }
            Some(message) => {
                job.baseline_gone = true;
                job.report.error = Some(Failure {
                    stage: Stage::InPlace,
                    message,
                });
            }
        }
    }

    /// Reads the inventory again if a batch may have made certificates or CAs.
    fn look_for_new_names(&mut self, agent: &Agent, touched: &Touched) {
        let mut new = touched.certs.values().chain(touched.cas.values());
        if new.any(|new| *new) {
            if let Err(error) = self.refresh_inventory(agent) {
                log::warn!(error; "the inventory cannot be read yet");
            }
        }
    }

    /// What the latest batch touched, to be looked at. Nothing if an apply came after it.
    pub(super) fn begin_read_back(&mut self, agent: &Agent) -> Option<ReadBack> {
        let (generation, touched) = self.readback.take()?;
        if generation != self.record.generation || touched.is_empty() {
            return None;
        }
        Some(ReadBack {
            expected: self.record.worker?,
            txn: self.record.txn,
            touched,
            deletes: self.record.deletes.clone(),
            view: agent.view(),
        })
    }

    /// Acts on a look. A worker that is out of step with its files is counted and
    /// reloaded, as soon as the pacing allows. False if something happened in between,
    /// so that the look says nothing.
    pub(super) fn end_read_back(
        &mut self,
        agent: &Agent,
        look: &ReadBack,
        seen: Result<Vec<(Object, Verdict)>, Void>,
    ) -> bool {
        if self.record.txn != look.txn || self.record.worker != Some(look.expected) {
            return false;
        }
        let seen = match seen {
            Ok(seen) => seen,
            Err(void) => {
                log::debug!(reason = void.why; "no look at the worker after the batch");
                return true;
            }
        };
        log::debug!(objects = seen.len(); "looked at what the batch changed");
        let mut differs = false;
        for (object, verdict) in seen {
            match verdict {
                Verdict::Agrees => {}
                Verdict::Differs { what } => {
                    differs = true;
                    agent.metrics.map_divergence.inc();
                    log::error!(object:%, what; "the worker is out of step with the files");
                }
                Verdict::Unverified { why } => {
                    log::warn!(object:%, reason = why; "what the worker holds could not be compared");
                }
            }
        }
        if differs {
            self.record.worker_ops_plan_id.clear();
            self.repair(agent);
        }
        true
    }

    /// A reload of the applied set, when the pacing allows it.
    fn repair(&mut self, agent: &Agent) {
        if self.record.pending.is_none() {
            let due = self
                .earliest_reload(agent)
                .unwrap_or_else(|| agent.clock.wall().0);
            let plan_id = self.record.applied_plan_id.clone();
            self.put_off(agent, plan_id, due, true);
        }
        self.save_quietly(agent);
    }

    /// One pass over the deletes that wait. Nothing else talks to the worker meanwhile.
    pub(super) fn delete_some(&mut self, agent: &Agent) {
        let before = self.record.deletes.pending();
        let pass = agent
            .haproxy
            .delete(&mut self.record.deletes, agent.settings.deletes);
        if let Some(error) = pass.error {
            log::warn!(error; "deferred deletes got no answer; they are tried again");
        }
        log::debug!(waiting = self.record.deletes.pending().0.len(); "looked at deferred deletes");
        self.deletes_at = pass.next;
        self.count_deletes(agent);
        if self.record.deletes.pending() != before {
            self.save_quietly(agent);
        }
    }

    /// Deletes wait: the background thread is to see them through.
    pub(super) fn expect_deletes(&mut self, agent: &Agent) {
        if !self.record.deletes.is_empty() {
            self.deletes_at = Some(agent.clock.now());
            agent.ring();
        }
    }

    /// Compiles and runs a batch on the worker of the record.
    fn batch(
        &mut self,
        agent: &Agent,
        session: Option<OpenSession>,
        ops: &[Op],
    ) -> Result<(BatchReport, Touched), NotExecutable> {
        let Some((worker, expected)) = self.worker.clone().zip(self.record.worker) else {
            return Err(NotExecutable {
                index: 0,
                kind: ops.first().map(|op| op.kind.clone()).unwrap_or_default(),
                outcome: Outcome::WorkerChanged,
                words: "no worker has answered yet".to_owned(),
            });
        };
        self.record.deletes.bind(expected);
        let content = Managed { agent, tx: self };
        let batch = ops::compile(ops, &worker.version, &content, &self.record.deletes)?;
        let report = agent
            .haproxy
            .run(&batch, session, expected, &mut self.record.deletes);
        self.count_deletes(agent);
        self.expect_deletes(agent);
        Ok((report, batch.touched().clone()))
    }
}

fn count_refusals(agent: &Agent, report: &BatchReport) {
    for result in &report.results {
        if let (true, Some(kind)) = (result.outcome.is_failure(), OpKind::parse(&result.kind)) {
            agent.metrics.op_errors.of(kind).inc();
        }
    }
}

fn told(results: &[OpOutcome]) -> Vec<OpResult> {
    results
        .iter()
        .map(|result| OpResult {
            kind: result.kind.clone(),
            ok: result.outcome.is_ok(),
            output: match (result.words.is_empty(), result.outcome.is_ok()) {
                (false, _) => Some(result.words.clone()),
                (true, true) => None,
                (true, false) => Some(result.outcome.as_str().to_owned()),
            },
        })
        .collect()
}

/// One op is at fault, and so none was sent.
fn not_sent(ops: &[Op], fault: &NotExecutable) -> Vec<OpResult> {
    ops.iter()
        .enumerate()
        .map(|(index, op)| OpResult {
            kind: op.kind.clone(),
            ok: false,
            output: Some(if index == fault.index {
                format!("{}: {}", fault.outcome.as_str(), fault.words)
            } else {
                "not sent: another op of the batch is not executable".to_owned()
            }),
        })
        .collect()
}
