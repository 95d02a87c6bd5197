//! The look at the worker after a batch, and what follows if it is out of step.
//!
//! A look at maps holds no lock: applies go on meanwhile, and the first of them makes it
//! void. What it found is acted on under the lock, if nothing has happened in between. The
//! agent mends nothing here by commands of its own; the files are reloaded.

use std::sync::Arc;

use crate::haproxy::deletes::Queue;
use crate::haproxy::identity::Identity;
use crate::haproxy::ops::Touched;
use crate::haproxy::readback::{Object, Verdict, Void};
use crate::wire::path::ManifestPath;

use super::agent::Agent;
use super::content::Managed;
use super::tx::Tx;
use super::view::View;

/// What batches touched and nobody has looked at. A look that is overtaken by the next
/// batch is owed together with that one's.
#[derive(Debug, Default)]
pub(super) struct Owed {
    worker: Option<Identity>,
    touched: Touched,
    /// How often looks were made void.
    epoch: u64,
}

impl Owed {
    /// Whether there is anything to look at.
    pub(super) fn is_some(&self) -> bool {
        !self.touched.is_empty()
    }

    /// After a batch on that worker.
    pub(super) fn add(&mut self, worker: Identity, touched: Touched) {
        if self.worker != Some(worker) {
            self.touched = Touched::default();
        }
        self.worker = Some(worker);
        self.touched.extend(touched);
    }

    /// Worker and files are not to be compared any more.
    pub(super) fn void(&mut self) {
        self.touched = Touched::default();
        self.epoch += 1;
    }
}

/// What batches touched, while it is looked at.
#[derive(Debug)]
pub(super) struct ReadBack {
    expected: Identity,
    epoch: u64,
    /// The record as it was; every apply moves it.
    txn: u64,
    touched: Touched,
    deletes: Queue,
    view: Arc<View>,
}

impl ReadBack {
    /// Whether applies may go on meanwhile. Maps are listed beside any change. A listing
    /// of certificates locks them, so that an op on one is refused, and some releases end
    /// when a server or backend goes while they are listed.
    pub(super) fn disturbs_nobody(&self) -> bool {
        let Touched {
            maps: _,
            backends,
            certs,
            cas,
            crt_rows,
        } = &self.touched;
        backends.is_empty() && certs.is_empty() && cas.is_empty() && crt_rows.is_empty()
    }

    /// Compares the worker with the files as they were published.
    pub(super) fn look(&self, agent: &Agent) -> Result<Vec<(Object, Verdict)>, Void> {
        let owned = |path: &ManifestPath| self.view.files.get(path).is_some();
        let content = Managed::new(agent, &owned);
        let (touched, deletes) = (&self.touched, &self.deletes);
        agent
            .haproxy
            .read_back(self.expected, touched, &content, deletes)
    }
}

impl Tx {
    /// What is to be looked at, if anything.
    pub(super) fn begin_read_back(&mut self, agent: &Agent) -> Option<ReadBack> {
        let touched = std::mem::take(&mut self.owed.touched);
        let expected = self.owed.worker?;
        if touched.is_empty() || self.record.worker != Some(expected) {
            return None;
        }
        Some(ReadBack {
            expected,
            epoch: self.owed.epoch,
            txn: self.record.txn,
            touched,
            deletes: self.record.deletes.clone(),
            view: agent.view(),
        })
    }

    /// Acts on a look. A worker that is out of step with its files is counted and
    /// reloaded, as soon as the pacing allows. False if something happened in between,
    /// so that the look says nothing; it is owed again unless it has no meaning any more.
    pub(super) fn end_read_back(
        &mut self,
        agent: &Agent,
        look: ReadBack,
        seen: Result<Vec<(Object, Verdict)>, Void>,
    ) -> bool {
        let same_worker = self.record.worker == Some(look.expected);
        if self.record.txn != look.txn || !same_worker {
            if same_worker && self.owed.epoch == look.epoch {
                let later = std::mem::replace(&mut self.owed.touched, look.touched);
                self.owed.touched.extend(later);
                agent.ring();
            }
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
}
