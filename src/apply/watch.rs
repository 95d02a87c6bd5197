//! Looking at the worker and the disk when nobody asks for an apply.
//!
//! A worker that came from nowhere (HAProxy restarted, or reloaded by someone else)
//! makes the running plan unknown. If the disk is still ours, one reload of it restores
//! the baseline instead of waiting for the controller; only one within [`RESTORE_AGAIN`],
//! unless an apply came between.

use std::time::{Duration, Instant};

use crate::store::tree::Tree;
use crate::wire::path::ManifestPath;
use crate::wire::result::{Failure, ResultMode, Stage};

use super::abort::KEPT_GRACE;
use super::activate::Activation;
use super::agent::Agent;
use super::outcome::{Report, Stopwatch};
use super::port::words;
use super::tx::Tx;

/// How long after a reload was spent on a worker that came from nowhere the next one is
/// not answered so: a HAProxy that keeps restarting is not helped by more.
const RESTORE_AGAIN: Duration = Duration::from_secs(600);

impl Agent {
    /// The background look.
    pub(super) fn look(&self) {
        let mut tx = self.lock();
        let healed = tx.heal(self);
        tx.look_at_worker(self);
        if healed.is_err() {
            // Logged by whoever failed first; an apply meanwhile says it again.
            self.publish(&tx);
            return;
        }
        tx.look_at_base(self);
        if let Some(since) = tx.silent_since {
            tx.fall_back_if_down(self, since, KEPT_GRACE);
        }
        if tx.worker_strange {
            tx.restore_worker(self);
        }
        if tx.inventory_stale {
            if let Err(error) = tx.refresh_inventory(self) {
                log::debug!(error; "the inventory cannot be read yet");
            }
        }
        self.publish(&tx);
    }

    /// `verify=1`: hashes every owned file and looks at the worker, unless another reader's
    /// look began after `asked` and serves this one too. False while an apply is under way:
    /// the caller asks again, and can leave meanwhile.
    pub fn try_verify(&self, asked: Instant) -> bool {
        let Some(mut tx) = self.try_lock() else {
            return false;
        };
        if tx.verified.is_some_and(|began| began >= asked) {
            return true;
        }
        let began = self.clock.now();
        tx.look_at_base(self);
        let paths: Vec<ManifestPath> = tx.record.owned.keys().cloned().collect();
        match Tree::observe(&**self.store.fs(), &paths, self.clock.wall()) {
            Ok(tree) => {
                let differ = |path: &&ManifestPath| {
                    tx.tree.get(path).map(|seen| seen.hash) != tree.get(path).map(|seen| seen.hash)
                };
                let changed: Vec<ManifestPath> = paths.iter().filter(differ).cloned().collect();
                tx.tree = tree;
                if !changed.is_empty() {
                    tx.tree_is_foreign(&changed);
                    tx.save_quietly(self);
                }
            }
            Err(error) => {
                log::error!(error:% = words(&error); "a file of the tree cannot be read; the applied plan is unknown");
                tx.record.forget_baseline();
                tx.save_quietly(self);
            }
        }
        if tx.look_at_worker(self) {
            tx.save_quietly(self);
        }
        tx.verified = Some(began);
        self.publish(&tx);
        true
    }
}

impl Tx {
    /// Saves what a look has found; if that fails the next apply saves it.
    pub(super) fn save_quietly(&mut self, agent: &Agent) {
        if let Err(error) = self.save(agent) {
            log::error!(error:% = words(&error); "the state cannot be saved; it is saved before the next apply");
        }
    }

    /// Where the agent's directory is not the one that HAProxy would find, nothing is claimed
    /// of it until a full set lands where it should. What the worker runs is as it was.
    fn look_at_base(&mut self, agent: &Agent) {
        let Err(error) = agent.store.require_in_place() else {
            return;
        };
        if self.record.applied_plan_id.is_empty() {
            return;
        }
        let reason = words(&error);
        log::error!(reason, plan_id = self.record.applied_plan_id; "the applied plan is unknown");
        self.record.applied_plan_id.clear();
        self.degrade(agent, &reason);
        self.save_quietly(agent);
    }

    /// Another worker runs. Reloads the applied set once, if disk still holds it.
    pub(super) fn restore_worker(&mut self, agent: &Agent) {
        self.worker_strange = false;
        self.save_quietly(agent);
        let foreign = match self.look_at_tree(agent) {
            Ok(foreign) => foreign,
            Err(error) => {
                log::error!(error:% = words(&error); "the tree cannot be read");
                true
            }
        };
        if let Err(error) = self.refresh_inventory(agent) {
            log::debug!(error; "the inventory cannot be read yet");
        }
        let plan_id = self.record.applied_plan_id.clone();
        if foreign {
            self.save_quietly(agent);
            return;
        }
        let now = agent.clock.now();
        let again = self
            .restored_worker
            .is_some_and(|last| now.saturating_duration_since(last) < RESTORE_AGAIN);
        if plan_id.is_empty() || self.record.pending.is_some() || again {
            return;
        }
        self.restored_worker = Some(now);
        if let Some(due) = self.earliest_reload(agent) {
            log::info!(plan_id; "the applied set is on disk; a reload of it is scheduled");
            self.put_off(agent, plan_id, due, false);
            self.save_quietly(agent);
            return;
        }
        log::info!(plan_id; "the applied set is on disk; reloading it once to know again what runs");
        let mut report = Report::new(&plan_id, Stopwatch::start(agent.clock.now()));
        match self.reload(agent) {
            Activation::Loaded(reload) => {
                report.reload = Some(reload);
                self.worker_loaded(&plan_id);
                self.conclude(agent, report, ResultMode::Reload);
            }
            Activation::Refused {
                reload,
                message,
                verdict,
            } => {
                report.reload = Some(reload);
                let failure = Failure {
                    stage: Stage::ScheduledReload,
                    message,
                };
                self.abort_refused(agent, report, failure, verdict, false);
            }
            Activation::Unconfirmed { message, .. } => {
                self.keep_unconfirmed(agent);
                self.degrade(agent, &message);
                self.save_quietly(agent);
            }
            Activation::Unreachable { message, .. } => {
                // The master may still be starting: the next look is another try.
                self.restored_worker = None;
                self.worker_strange = true;
                self.degrade(agent, &message);
                self.save_quietly(agent);
            }
        }
    }
}
