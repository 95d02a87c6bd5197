//! Runtime ops: a batch on the running worker instead of a reload.
//!
//! The files have landed when this runs, and the whole batch is compiled before its
//! first command. Whatever is not executable, is refused, or leaves a doubt about the
//! worker comes to one end: what is on disk is reloaded, and the answer still tells
//! which op failed with HAProxy's words. The agent never composes a command of its own
//! beyond what an op says.

use crate::haproxy::batch::{BatchReport, Ended, OpOutcome, OpenSession};
use crate::haproxy::ops::{self, NotExecutable, Outcome, Touched};
use crate::metrics::Invariant;
use crate::wire::op::{Op, OpKind};
use crate::wire::path::ManifestPath;
use crate::wire::result::{Failure, OpResult, ResultMode, Stage};

use super::agent::Agent;
use super::content::Managed;
use super::machine::Event;
use super::plan::ReloadWhy;
use super::record::Commands;
use super::run::Job;
use super::tx::Tx;
use super::upload::Answer;

impl Tx {
    /// Runs the manifest's ops; the tree is written.
    pub(super) fn runtime(&mut self, mut job: Job<'_>) -> Answer {
        let agent = job.agent;
        let (report, touched) = match self.batch(agent, &mut job.session, &job.manifest.ops) {
            Ok(ran) => ran,
            Err(fault) => {
                // A full queue, no worker yet or a disk that fails says nothing about the batch.
                let about_ops = !matches!(
                    fault.outcome,
                    Outcome::QueueFull | Outcome::WorkerChanged | Outcome::NotRun
                );
                if about_ops {
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
                let commands = Commands {
                    worker_ops_plan_id: job.manifest.plan_id.clone(),
                    deletes: self.record.deletes.clone(),
                    touched: report.reached_worker,
                    baseline_gone: false,
                };
                let noted = self.step(agent, Event::OpsDone, |note| {
                    note.worker = Some(identity);
                    note.commands = Some(commands);
                });
                if let Err(error) = noted {
                    // The worker holds the set: a restart that finds no note of it reloads
                    // once more and comes to the same end.
                    let _ = error.at(Stage::Write);
                }
                self.look_for_new_names(agent, &touched);
                let answer = self.commit(job, ResultMode::Runtime);
                self.owed.add(identity, touched);
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
                say_why(&mut job.report.op_results, &words);
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
        let failure = match self.batch(agent, &mut None, &job.manifest.in_place_ops) {
            Err(fault) => {
                job.report.op_results = not_sent(&job.manifest.in_place_ops, &fault);
                Some(fault.to_string())
            }
            Ok((report, touched)) => {
                count_refusals(agent, &report);
                job.report.op_results = told(&report.results);
                self.look_for_new_names(agent, &touched);
                if report.reached_worker {
                    // Until it is known that all of it is through.
                    self.record.worker_ops_plan_id.clear();
                    if let Some(pending) = &mut self.record.pending {
                        pending.touched = true;
                    }
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

    /// Counts the deletes that wait; the background thread is to see them through.
    pub(super) fn expect_deletes(&mut self, agent: &Agent) {
        self.count_deletes(agent);
        if !self.record.deletes.is_empty() {
            self.deletes_at = Some(agent.clock.now());
            agent.ring();
        }
    }

    /// Compiles and runs a batch on the worker of the record.
    fn batch(
        &mut self,
        agent: &Agent,
        session: &mut Option<OpenSession>,
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
        let owned = |path: &ManifestPath| self.record.owned.contains_key(path);
        let content = Managed::new(agent, &owned);
        let compiled = ops::compile(ops, &worker.version, &content, &self.record.deletes);
        let unreadable = content.was_unreadable();
        let batch = compiled.map_err(|mut fault| {
            if unreadable {
                fault.outcome = Outcome::NotRun;
            }
            fault
        })?;
        let report = agent
            .haproxy
            .run(&batch, session, expected, &mut self.record.deletes);
        self.expect_deletes(agent);
        Ok((report, batch.touched().clone()))
    }
}

fn count_refusals(agent: &Agent, report: &BatchReport) {
    for result in &report.results {
        if let (true, Some(kind)) = (result.outcome.is_refusal(), OpKind::parse(&result.kind)) {
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

/// Where not even the first op was sent, no other one says why.
fn say_why(results: &mut [OpResult], words: &str) {
    let not_run = Outcome::NotRun.as_str();
    if let Some(output) = results.first_mut().and_then(|first| first.output.as_mut()) {
        if output == not_run {
            *output = format!("{not_run}: {words}");
        }
    }
}

/// One op is at fault, and so none was sent.
pub(super) fn not_sent(ops: &[Op], fault: &NotExecutable) -> Vec<OpResult> {
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
