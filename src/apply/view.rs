//! What readers see: a copy of the transaction's state, swapped whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::Clock;
use crate::store::files::Files;
use crate::wire::digest::DigestKind;
use crate::wire::limits::API_VERSION;
use crate::wire::op::OpKind;
use crate::wire::path::ManifestPath;
use crate::wire::result::{ApplyResult, REMEMBERED, Stage, Timing};
use crate::wire::state::{
    Degraded, Haproxy, HeldFile, PendingDeletes, RuntimeInventory, State, WorkerAnswer,
};

use super::agent::Agent;
use super::fence::Baseline;
use super::follow::Follow;
use super::owned::Owned;
use super::record::BlobRef;
use super::tx::Tx;

/// A state to be read without the apply lock.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) baseline: Baseline,
    /// What is on disk; how each digest is spoken of is in `owned`.
    pub(super) files: Files,
    owned: Owned,
    in_the_way: BTreeMap<ManifestPath, String>,
    generation: u64,
    plan_schema_version: i64,
    haproxy: Haproxy,
    worker: Option<WorkerAnswer>,
    inventory: Arc<RuntimeInventory>,
    /// When the pending reload fires, monotonic.
    pub(super) pending_at: Option<std::time::Instant>,
    /// When the next pass over the deferred deletes is due, monotonic.
    pub(super) deletes_at: Option<std::time::Instant>,
    pending_due: Option<String>,
    last_apply: Option<ApplyResult>,
    violation: Option<String>,
    degraded: Option<Degraded>,
    unsaved: Option<Degraded>,
    deletes: PendingDeletes,
    blob: Option<BlobRef>,
}

/// What a reader of the state asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateRead {
    /// Hash every owned file first.
    pub verify: bool,
    /// Carry the plan blob.
    pub plan: bool,
}

impl View {
    pub(super) fn of(tx: &Tx) -> Self {
        let record = &tx.record;
        Self {
            baseline: record.baseline(),
            files: tx.tree.files().clone(),
            owned: record.owned.clone(),
            in_the_way: {
                let others = tx.tree.others();
                let others = others.filter(|(path, _)| record.owned.contains_key(*path));
                others
                    .map(|(path, kind)| (path.clone(), kind.to_string()))
                    .collect()
            },
            generation: record.generation,
            plan_schema_version: record.plan_schema_version,
            haproxy: tx.haproxy(),
            worker: tx.answering.clone(),
            inventory: Arc::clone(&tx.inventory),
            pending_at: tx.pending_at,
            deletes_at: tx.deletes_at,
            pending_due: record
                .pending
                .as_ref()
                .map(|pending| crate::clock::UnixNanos(pending.due).rfc3339()),
            last_apply: record.last_apply.clone(),
            violation: record.violation.clone(),
            degraded: record.degraded.clone(),
            unsaved: tx.unsaved_since.clone(),
            deletes: {
                let (servers, backends) = record.deletes.pending();
                PendingDeletes { servers, backends }
            },
            blob: record.blob.clone().filter(|blob| {
                !record.applied_plan_id.is_empty() && blob.plan_id == record.applied_plan_id
            }),
        }
    }

    fn held_files(&self) -> BTreeMap<ManifestPath, HeldFile> {
        let mut kinds = Follow::new(&*self.owned);
        self.files
            .iter()
            .map(|(path, seen)| {
                let kind = kinds.get(path).copied().unwrap_or(DigestKind::Sha256);
                let held = HeldFile {
                    digest: seen.hash.digest(kind),
                    size: seen.hash.size,
                };
                (path.clone(), held)
            })
            .collect()
    }

    /// A remembered refusal with the ids and the time of now. No reload was performed
    /// for this answer, and nothing was rolled back; the words say so, and what to do.
    pub(super) fn refresh(
        &self,
        clock: &dyn Clock,
        mut nack: ApplyResult,
        plan_id: &str,
    ) -> ApplyResult {
        plan_id.clone_into(&mut nack.plan_id);
        nack.applied_plan_id
            .clone_from(&self.baseline.applied_plan_id);
        nack.running_plan_id
            .clone_from(&self.baseline.running_plan_id);
        nack.worker_ops_plan_id
            .clone_from(&self.baseline.worker_ops_plan_id);
        nack.applied_token = self.baseline.applied_token;
        nack.lkg_plan_id.clone_from(&self.baseline.lkg_plan_id);
        nack.haproxy = self.haproxy.clone();
        nack.at = clock.wall().rfc3339();
        nack.timing = Timing::default();
        nack.rollback = None;
        nack.runtime_inventory = None;
        if let Some(reload) = &mut nack.reload {
            reload.performed = false;
            reload.took_ms = None;
        }
        if let Some(failure) = &mut nack.error {
            // It may have been a scheduled one that was refused.
            failure.stage = Stage::Reload;
            failure.message = format!("{}\n{REMEMBERED}", failure.message);
        }
        nack
    }
}

impl Agent {
    /// Whether the applied plan's blob is stored, so that a state may carry it.
    #[must_use]
    pub fn has_blob(&self) -> bool {
        self.view().blob.is_some()
    }

    /// The state document, and the plan blob if it is asked for and stored: the document's
    /// `applied_plan` is left to whoever encodes it.
    #[must_use]
    pub fn state(&self, read: StateRead) -> (State, Option<Vec<u8>>) {
        let view = self.view();
        let blob = view
            .blob
            .as_ref()
            .filter(|_| read.plan)
            .and_then(|blob| self.stored_blob(blob));
        let stored = match (&view.blob, read.plan) {
            (None, _) => false,
            (Some(_), true) => blob.is_some(),
            // Its bytes are checked when they are handed out.
            (Some(named), false) => self.blob.has(named.size),
        };
        let state = State {
            api_version: API_VERSION,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            plan_schema_version: view.plan_schema_version,
            agent_ops: OpKind::names().map(str::to_owned).collect(),
            features: Vec::new(),
            haproxy: view.haproxy.clone(),
            worker: view.worker.clone(),
            generation: view.generation,
            applied_plan_id: view.baseline.applied_plan_id.clone(),
            running_plan_id: view.baseline.running_plan_id.clone(),
            worker_ops_plan_id: view.baseline.worker_ops_plan_id.clone(),
            applied_token: view.baseline.applied_token,
            lkg_plan_id: view.baseline.lkg_plan_id.clone(),
            reserved_paths: self.settings.reserved.names(),
            worker_socket: self.settings.worker_socket.clone(),
            applied_plan_stored: stored,
            files: view.held_files(),
            in_the_way: view.in_the_way.clone(),
            runtime_inventory: RuntimeInventory::clone(&view.inventory),
            pending_deletes: view.deletes.clone(),
            applied_plan: None,
            reload_pending_at: view.pending_due.clone(),
            last_apply: view.last_apply.clone(),
            invariant_violation: view.violation.clone(),
            degraded: view.degraded.clone(),
            unsaved: view.unsaved.clone(),
        };
        (state, blob)
    }

    fn stored_blob(&self, blob: &BlobRef) -> Option<Vec<u8>> {
        let Ok(crate::wire::digest::Digest::Sha256(sha256)) =
            crate::wire::digest::Digest::parse(&blob.sha256)
        else {
            return None;
        };
        match self.blob.read(&sha256) {
            Ok(bytes) => bytes,
            Err(error) => {
                log::warn!(error:% = super::port::words(&error); "the plan blob cannot be read");
                None
            }
        }
    }
}
