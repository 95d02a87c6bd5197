//! The invariants, as code that runs after every apply.
//!
//! A violation is counted, logged at error level and named in the state. It never
//! panics: a data plane must not take itself down over an assertion.

use crate::metrics::{Invariant, Label as _};
use crate::wire::manifest::Mode;
use crate::wire::result::ResultMode;

use super::agent::Agent;
use super::follow::Follow;
use super::run::Job;
use super::tx::Tx;

impl Tx {
    /// Takes note of a violation.
    pub(super) fn violated(&mut self, agent: &Agent, invariant: Invariant, what: &str) {
        agent.metrics.invariant_violations.of(invariant).inc();
        log::error!(invariant = invariant.as_str(), what; "invariant violated");
        self.record.violation = Some(invariant.as_str().to_owned());
    }

    /// Checks what must hold once an apply succeeded, before it is recorded.
    pub(super) fn check_invariants(&mut self, job: &Job<'_>, mode: ResultMode) {
        let agent = job.agent;
        let reload = job.report.reload.as_ref();
        let performed = reload.is_some_and(|reload| reload.performed);
        let scheduled = reload.is_some_and(|reload| reload.scheduled_at.is_some());
        let ran_ops = job.report.op_results.iter().any(|result| result.ok);
        if self.record.generation != job.generation.saturating_add(1) {
            let what = "the generation did not move by one";
            self.violated(agent, Invariant::GenerationMonotonic, what);
        }
        if job.manifest.mode != Mode::RevertLkg && !self.holds_the_set(job) {
            let what = "the tree is not what the manifest declares";
            self.violated(agent, Invariant::DiskIsTheDesiredSet, what);
        }
        if mode == ResultMode::Runtime && performed {
            let what = "a runtime outcome reloaded";
            self.violated(agent, Invariant::RuntimeModeDoesNotReload, what);
        }
        if mode == ResultMode::Reload && !(performed || scheduled) {
            let what = "a reload outcome did not reload";
            self.violated(agent, Invariant::ReloadModeReloads, what);
        }
        if mode == ResultMode::Noop && ran_ops {
            let what = "a noop outcome ran commands";
            self.violated(agent, Invariant::NoopRunsNoOps, what);
        }
        if mode == ResultMode::Reload && !self.record.journal.entries.is_empty() {
            let what = "backups are left although the applied plan is the last known good one";
            self.violated(agent, Invariant::JournalOnlyWhileDiverged, what);
        }
        if agent.store.counters().cross_device() > 0
            && self.record.violation.as_deref()
                != Some(Invariant::MountProbeFoundEveryMount.as_str())
        {
            let what = "a rename or link crossed a device; restart the agent after changing mounts";
            self.violated(agent, Invariant::MountProbeFoundEveryMount, what);
        }
    }

    fn holds_the_set(&self, job: &Job<'_>) -> bool {
        let mut seen = Follow::new(self.tree.files());
        self.tree.files().len() == job.manifest.files.len()
            && job.manifest.files.iter().all(|file| {
                seen.get(&file.path).is_some_and(|seen| {
                    seen.hash.size == file.size && seen.hash.matches(&file.digest)
                })
            })
    }
}
