//! What ops did to the model's worker since it loaded its files.
//!
//! An op that names a server of the backend [`TO`] says which plan the worker holds once
//! its batch is through; in between it holds none that has a name. Deletes wait in the
//! agent's queue as they do with HAProxy. Each op and each pass of deletes is an event of
//! the world, so it can be cut before any of them.

use std::collections::BTreeSet;

use crate::haproxy::batch::{Batch, BatchReport, Ended, OpOutcome};
use crate::haproxy::deletes::{DeleteOutcome, DeleteRequest, Key, Queue};
use crate::haproxy::identity::WorkerInfo;
use crate::haproxy::ops::{Note, Outcome};
use crate::store::model::ModelFs;
use crate::wire::op::Op;

/// The backend whose servers are names of plans.
pub(super) const TO: &str = "to";

/// The backend whose servers come and go.
const OLD: &str = "old";

/// An op of a shape.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cmd {
    /// The worker holds that plan now.
    To(&'static str),
    /// A server goes, as soon as its sessions have ended.
    Del(&'static str),
    /// A server of that name comes.
    Add(&'static str),
    /// A map is sent anew from its file.
    Map(&'static str),
}

impl Cmd {
    pub(super) fn op(self) -> Op {
        let named = |kind: &str, backend: &str, server: &str| Op {
            kind: kind.to_owned(),
            backend: Some(backend.to_owned()),
            server: Some(server.to_owned()),
            ..Op::default()
        };
        match self {
            Self::To(plan) => Op {
                weight: Some(10),
                ..named("server_set_weight", TO, plan)
            },
            Self::Del(name) => named("server_del", OLD, name),
            Self::Add(name) => Op {
                address: Some("127.0.0.1".to_owned()),
                port: Some(80),
                ..named("server_add", OLD, name)
            },
            Self::Map(path) => Op {
                kind: "map_replace".to_owned(),
                path: Some(path.to_owned()),
                ..Op::default()
            },
        }
    }
}

/// How the next batch goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batches {
    /// Through.
    Through,
    /// The op of that index is refused.
    Refused(usize),
    /// The op of that index is carried out, and nobody hears of it.
    Unanswered(usize),
}

/// The worker's state beside its files.
#[derive(Debug, Clone)]
pub(super) struct Runtime {
    /// The plan that it holds, loaded or brought to; `None` for none that has a name.
    pub(super) holds: Option<String>,
    /// Plans that a controller called the same as far as the worker goes: it asked for
    /// their files alone.
    pub(super) also: BTreeSet<String>,
    /// Taken out of service and not deleted yet.
    pub(super) going: BTreeSet<Key>,
    /// Added by an op.
    added: BTreeSet<Key>,
    /// Deleted although it was wanted again.
    pub(super) wronged: Vec<Key>,
    pub(super) batches: Batches,
    /// Sessions keep the deletes from getting through.
    pub(super) busy: bool,
    /// The next look after a batch finds a difference.
    pub(super) differs: bool,
}

impl Runtime {
    /// Freshly loaded.
    pub(super) fn of(loaded: Option<&str>) -> Self {
        Self {
            holds: loaded.map(str::to_owned),
            also: BTreeSet::new(),
            going: BTreeSet::new(),
            added: BTreeSet::new(),
            wronged: Vec::new(),
            batches: Batches::Through,
            busy: false,
            differs: false,
        }
    }

    /// The same worker, found by another agent.
    pub(super) fn met_again(&self) -> Self {
        Self {
            batches: Batches::Through,
            busy: false,
            differs: false,
            ..self.clone()
        }
    }

    pub(super) fn run(
        &mut self,
        fs: &ModelFs,
        worker: &WorkerInfo,
        batch: &Batch,
        queue: &mut Queue,
    ) -> BatchReport {
        let mode = std::mem::replace(&mut self.batches, Batches::Through);
        let mut report = BatchReport {
            results: batch.kinds.iter().map(|kind| nothing(kind)).collect(),
            ended: Ended::Complete {
                worker: worker.clone(),
            },
            reached_worker: false,
            deletes: Vec::new(),
        };
        queue.bind(worker.identity);
        for key in &batch.cancels {
            queue.cancel(key);
        }
        for (index, result) in report.results.iter_mut().enumerate() {
            if fs.event().is_err() {
                report.ended = Ended::Unknown {
                    words: "the connection broke".to_owned(),
                };
                return report;
            }
            report.reached_worker = true;
            if mode == Batches::Refused(index) {
                result.outcome = Outcome::Rejected;
                "no".clone_into(&mut result.words);
                report.ended = Ended::Refused { index };
                return report;
            }
            self.obey(batch, index, queue);
            if mode == Batches::Unanswered(index) {
                result.outcome = Outcome::Unknown;
                report.ended = Ended::Unknown {
                    words: "no answer".to_owned(),
                };
                return report;
            }
            result.outcome = Outcome::Ok(Note::Done);
        }
        self.holds = batch
            .touched()
            .backends
            .get(TO)
            .and_then(|backend| backend.servers.keys().next().cloned());
        let requests: Vec<DeleteRequest> = batch
            .deferred
            .iter()
            .map(|(_, request)| request.clone())
            .collect();
        for (index, _) in &batch.deferred {
            report.results[*index].outcome = Outcome::Deferred;
        }
        queue.add(&requests, worker.identity);
        report.deletes = requests.into_iter().map(|request| request.key).collect();
        report
    }

    /// Whether a state may say that the worker holds that plan.
    pub(super) fn is(&self, plan_id: &str) -> bool {
        let plan = plan_id.strip_prefix("again-").unwrap_or(plan_id);
        let holds = self.holds.as_deref();
        holds == Some(plan) || (holds.is_some() && self.also.contains(plan))
    }

    fn obey(&mut self, batch: &Batch, index: usize, queue: &mut Queue) {
        self.holds = None;
        self.also.clear();
        if let Some((_, request)) = batch.deferred.iter().find(|(op, _)| *op == index) {
            self.added.remove(&request.key);
            self.going.insert(request.key.clone());
        }
        if batch.kinds[index] == "server_add" {
            if let Some(old) = batch.touched().backends.get(OLD) {
                for (name, server) in &old.servers {
                    if !server.deleted {
                        let key = Key::Server {
                            backend: OLD.to_owned(),
                            server: name.clone(),
                        };
                        // The one from before goes first.
                        self.going.remove(&key);
                        queue.finish(&key, DeleteOutcome::Done, "");
                        self.added.insert(key);
                    }
                }
            }
        }
    }

    /// One pass over the queue.
    ///
    /// # Errors
    /// The command was not answered.
    pub(super) fn delete(&mut self, fs: &ModelFs, queue: &mut Queue) -> Result<(), String> {
        let keys: Vec<Key> = queue.entries().keys().cloned().collect();
        for key in keys {
            if fs.event().is_err() {
                return Err("the connection broke".to_owned());
            }
            if self.busy {
                continue;
            }
            if !self.going.remove(&key) && self.added.remove(&key) {
                self.wronged.push(key.clone());
            }
            queue.finish(&key, DeleteOutcome::Done, "");
        }
        Ok(())
    }
}

fn nothing(kind: &str) -> OpOutcome {
    OpOutcome {
        kind: kind.to_owned(),
        outcome: Outcome::NotRun,
        words: String::new(),
    }
}
