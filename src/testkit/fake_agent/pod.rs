//! What one agent holds and knows, at the granularity that a controller reasons about.
//!
//! No disk and no HAProxy: files are bytes in memory, the worker is a process id and the
//! names it has loaded. Whether HAProxy accepts a set is what the test says. The rules
//! are the contract's, written down here a second time and compared with the agent's own
//! by the parity tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::{Clock as _, SystemClock};
use crate::wire::digest::{ContentHash, DigestKind};
use crate::wire::limits::API_VERSION;
use crate::wire::manifest::{FileKind, Manifest, Token};
use crate::wire::op::OpKind;
use crate::wire::path::ManifestPath;
use crate::wire::result::{ApplyResult, Conflict, ConflictReason, REMEMBERED, Stage, Timing};
use crate::wire::state::{Degraded, Haproxy, HeldFile, RuntimeInventory, State};

use super::base64::base64;
use super::knobs::Knobs;
use super::worker::Worker;

/// How long a refusal of HAProxy is remembered.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// Refusals remembered at one time.
const MAX_REMEMBERED: usize = 16;

/// Bytes of a file, and their hashes.
#[derive(Debug, Clone)]
pub(super) struct Content {
    pub(super) bytes: Arc<[u8]>,
    pub(super) hash: ContentHash,
}

impl Content {
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self {
            hash: ContentHash::of(&bytes),
            bytes: bytes.into(),
        }
    }
}

/// What the last manifest said of an owned path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) digest: DigestKind,
    pub(super) kind: FileKind,
}

/// How a path looked when the last known good set was current.
#[derive(Debug, Clone)]
struct Backup {
    content: Option<Content>,
    owned: Option<Owned>,
}

/// A set as its own hashes have it.
pub(super) type Fold = BTreeMap<ManifestPath, [u8; 32]>;

/// A reload that waits.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) plan_id: String,
    /// As the wire writes it.
    pub(super) due: String,
    /// When it runs by itself; never, without an agent's own pacing.
    pub(super) fires: Option<Instant>,
    pub(super) fold: Fold,
    /// Commands have changed the worker since it loaded its files.
    pub(super) touched: bool,
}

#[derive(Debug)]
struct Remembered {
    set: Fold,
    at: Instant,
    nack: ApplyResult,
}

/// Where the fake says that its worker's socket is; nobody listens there.
const WORKER_SOCKET: &str = "/etc/haproxy/haproxy-worker.sock";

/// The agent's memory.
#[derive(Debug)]
pub(super) struct Pod {
    /// Names that no manifest may have, sorted.
    pub(super) reserved: Vec<String>,
    /// The main configuration file.
    pub(super) config: ManifestPath,
    /// Owned paths.
    pub(super) owned: BTreeMap<ManifestPath, Owned>,
    /// What lies under them.
    pub(super) disk: BTreeMap<ManifestPath, Content>,
    journal: BTreeMap<ManifestPath, Backup>,
    pub(super) applied: String,
    pub(super) token: Token,
    pub(super) running: String,
    pub(super) worker_ops: String,
    pub(super) lkg: String,
    lkg_fold: Fold,
    pub(super) epoch: u64,
    pub(super) generation: u64,
    pub(super) schema: i64,
    /// The plan it belongs to, and its bytes.
    blob: Option<(String, Vec<u8>)>,
    pub(super) pending: Option<Pending>,
    /// When the last reload ran, unless the window was opened again by hand.
    pub(super) last_reload: Option<Instant>,
    pub(super) worker: Worker,
    told: u64,
    remembered: Vec<Remembered>,
    pub(super) last_apply: Option<ApplyResult>,
    pub(super) violation: Option<String>,
    pub(super) degraded: Option<Degraded>,
    /// What something else wrote and nobody has looked at yet.
    pub(super) behind: BTreeMap<ManifestPath, Option<Content>>,
}

impl Pod {
    pub(super) fn new(config: ManifestPath, version: &str) -> Self {
        Self {
            reserved: Vec::new(),
            config,
            owned: BTreeMap::new(),
            disk: BTreeMap::new(),
            journal: BTreeMap::new(),
            applied: String::new(),
            token: Token::default(),
            running: String::new(),
            worker_ops: String::new(),
            lkg: String::new(),
            lkg_fold: Fold::new(),
            epoch: 0,
            generation: 0,
            schema: 0,
            blob: None,
            pending: None,
            last_reload: None,
            worker: Worker::new(version),
            told: 0,
            remembered: Vec::new(),
            last_apply: None,
            violation: None,
            degraded: None,
            behind: BTreeMap::new(),
        }
    }

    /// The state document.
    pub(super) fn state(&self, knobs: &Knobs, with_plan: bool) -> State {
        let blob = self.shown_blob();
        State {
            api_version: knobs.api_version.unwrap_or(API_VERSION),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            plan_schema_version: self.schema,
            agent_ops: match &knobs.known_ops {
                Some(known) => known.clone(),
                None => OpKind::names().map(str::to_owned).collect(),
            },
            features: Vec::new(),
            haproxy: self.worker.haproxy(),
            worker: Some(self.worker.answer()),
            generation: self.generation,
            applied_plan_id: self.applied.clone(),
            running_plan_id: self.running.clone(),
            worker_ops_plan_id: self.worker_ops.clone(),
            applied_token: self.token,
            lkg_plan_id: self.lkg.clone(),
            reserved_paths: self.reserved.clone(),
            worker_socket: Some(WORKER_SOCKET.to_owned()),
            applied_plan_stored: blob.is_some(),
            files: self.files(),
            in_the_way: BTreeMap::new(),
            runtime_inventory: self.worker.inventory(),
            pending_deletes: self.worker.pending_deletes(),
            applied_plan: blob.filter(|_| with_plan).map(base64),
            reload_pending_at: self.pending.as_ref().map(|pending| pending.due.clone()),
            last_apply: self.last_apply.clone(),
            invariant_violation: self.violation.clone(),
            degraded: self.degraded.clone(),
            unsaved: None,
        }
    }

    fn files(&self) -> BTreeMap<ManifestPath, HeldFile> {
        let held = |(path, content): (&ManifestPath, &Content)| {
            let kind = self
                .owned
                .get(path)
                .map_or(DigestKind::Sha256, |o| o.digest);
            let held = HeldFile {
                digest: content.hash.digest(kind),
                size: content.hash.size,
            };
            (path.clone(), held)
        };
        self.disk.iter().map(held).collect()
    }

    /// The blob, while it belongs to the applied plan.
    fn shown_blob(&self) -> Option<&[u8]> {
        let (plan_id, bytes) = self.blob.as_ref()?;
        (!self.applied.is_empty() && *plan_id == self.applied).then_some(bytes.as_slice())
    }

    /// A plan that is applied again without a blob keeps the one it has.
    pub(super) fn store_blob(&mut self, plan_id: &str, blob: Option<Vec<u8>>) {
        match blob {
            Some(bytes) => self.blob = Some((plan_id.to_owned(), bytes)),
            None => {
                self.blob.take_if(|(of, _)| of != plan_id);
            }
        }
    }

    /// The fence, in the contract's order. `paced`: whether a reload asked for now would
    /// have to wait.
    pub(super) fn fence(&self, manifest: &Manifest, paced: bool) -> Result<(), Box<Conflict>> {
        use crate::wire::manifest::Mode;
        let refuse = |reason| Err(Box::new(self.conflict(reason)));
        if manifest.token.leader_epoch < self.epoch {
            return refuse(ConflictReason::StaleEpoch);
        }
        if manifest.mode == Mode::RevertLkg {
            return Ok(());
        }
        if manifest.expected_prev_plan_id != self.applied {
            return refuse(match self.applied.is_empty() {
                true => ConflictReason::UnknownBaseline,
                false => ConflictReason::PrevMismatch,
            });
        }
        if manifest.expected_prev_token != self.token {
            return refuse(ConflictReason::PrevMismatch);
        }
        let would_wait = self.pending.is_some() || (paced && manifest.mode == Mode::Reload);
        let expected = manifest.expected_worker_ops_plan_id.as_deref();
        if !manifest.in_place_ops.is_empty()
            && would_wait
            && (self.worker_ops.is_empty() || expected != Some(self.worker_ops.as_str()))
        {
            return refuse(ConflictReason::WorkerOpsMismatch);
        }
        Ok(())
    }

    fn conflict(&self, reason: ConflictReason) -> Conflict {
        Conflict {
            reason,
            applied_plan_id: self.applied.clone(),
            applied_token: self.token,
            running_plan_id: self.running.clone(),
            worker_ops_plan_id: self.worker_ops.clone(),
            lkg_plan_id: self.lkg.clone(),
            highest_epoch: Some(self.epoch),
        }
    }

    /// Looks at every owned file: what something else wrote makes the baseline unknown.
    pub(super) fn look(&mut self) -> bool {
        let mut changed = false;
        for (path, content) in std::mem::take(&mut self.behind) {
            if !self.owned.contains_key(&path) {
                continue;
            }
            let before = self.disk.get(&path).map(|held| held.hash);
            changed = changed || before != content.as_ref().map(|new| new.hash);
            match content {
                Some(content) => self.disk.insert(path, content),
                None => self.disk.remove(&path),
            };
        }
        if changed {
            self.forget_baseline();
        }
        changed
    }

    /// Remembers how a path looks, unless it is remembered already.
    fn back_up(&mut self, path: &ManifestPath) {
        if !self.journal.contains_key(path) {
            let backup = Backup {
                content: self.disk.get(path).cloned(),
                owned: self.owned.get(path).copied(),
            };
            self.journal.insert(path.clone(), backup);
        }
    }

    /// Puts a set in place: its owned paths, and the content that is new.
    pub(super) fn write(
        &mut self,
        owned: BTreeMap<ManifestPath, Owned>,
        writes: BTreeMap<ManifestPath, Content>,
    ) {
        let gone: BTreeSet<ManifestPath> = self
            .owned
            .keys()
            .filter(|path| !owned.contains_key(*path))
            .cloned()
            .collect();
        for path in writes.keys().chain(&gone) {
            self.back_up(path);
        }
        self.disk.extend(writes);
        self.disk.retain(|path, _| !gone.contains(path));
        self.owned = owned;
    }

    /// Puts the last known good set back.
    pub(super) fn restore(&mut self) {
        for (path, backup) in std::mem::take(&mut self.journal) {
            match backup.owned {
                Some(owned) => self.owned.insert(path.clone(), owned),
                None => self.owned.remove(&path),
            };
            match backup.content.filter(|_| backup.owned.is_some()) {
                Some(content) => self.disk.insert(path, content),
                None => self.disk.remove(&path),
            };
        }
        let fold = self.fold();
        let holds = self.holds_last_known_good();
        if let Some(pending) = &mut self.pending {
            pending.plan_id = match holds {
                true => self.lkg.clone(),
                false => String::new(),
            };
            pending.fold = fold;
        }
        if !holds {
            self.lkg.clear();
        }
    }

    /// What is on disk is the last known good set from now on.
    pub(super) fn set_is_good(&mut self, plan_id: &str) {
        plan_id.clone_into(&mut self.lkg);
        self.lkg_fold = self.fold();
        self.journal.clear();
    }

    /// The controller's own check passed for what is applied.
    pub(super) fn promote(&mut self, manifest: &Manifest) {
        let validated = manifest.validated_plan_id.as_ref();
        if !self.applied.is_empty() && validated == Some(&self.applied) {
            let plan_id = self.applied.clone();
            self.set_is_good(&plan_id);
        }
    }

    pub(super) fn holds_last_known_good(&self) -> bool {
        !self.lkg.is_empty() && self.lkg_fold == self.fold()
    }

    /// The set on disk.
    pub(super) fn fold(&self) -> Fold {
        let of = |(path, content): (&ManifestPath, &Content)| (path.clone(), content.hash.sha256);
        self.disk.iter().map(of).collect()
    }

    pub(super) fn forget_baseline(&mut self) {
        self.applied.clear();
        self.forget_worker();
    }

    pub(super) fn forget_worker(&mut self) {
        self.running.clear();
        self.worker_ops.clear();
    }

    pub(super) fn worker_known(&self) -> bool {
        !self.running.is_empty() && !self.worker_ops.is_empty()
    }

    /// A new worker serves what is on disk.
    pub(super) fn worker_loaded(&mut self, plan_id: &str) {
        plan_id.clone_into(&mut self.running);
        plan_id.clone_into(&mut self.worker_ops);
        self.degraded = None;
        self.set_is_good(plan_id);
    }

    /// Something is wrong until a reload works again; when it was first noticed stays.
    pub(super) fn degrade(&mut self, reason: &str) {
        let since = match self.degraded.take() {
            Some(earlier) => earlier.since,
            None => now(),
        };
        self.degraded = Some(Degraded {
            since,
            reason: reason.to_owned(),
        });
    }

    /// The inventory, if no answer has carried it as it is now.
    pub(super) fn news(&mut self) -> Option<RuntimeInventory> {
        let inventory = self.worker.inventory();
        let news = inventory.generation != self.told;
        self.told = inventory.generation;
        news.then_some(inventory)
    }

    /// Another controller's push, which HAProxy loaded.
    pub(super) fn push_behind(
        &mut self,
        plan_id: &str,
        token: Token,
        files: BTreeMap<ManifestPath, (FileKind, Vec<u8>)>,
    ) {
        let mut owned = BTreeMap::new();
        let mut writes = BTreeMap::new();
        for (path, (kind, bytes)) in files {
            let digest = DigestKind::Sha256;
            owned.insert(path.clone(), Owned { digest, kind });
            writes.insert(path, Content::of(bytes));
        }
        self.epoch = self.epoch.max(token.leader_epoch);
        self.write(owned, writes);
        self.generation = self.generation.saturating_add(1);
        plan_id.clone_into(&mut self.applied);
        self.token = token;
        self.pending = None;
        self.store_blob(plan_id, None);
        self.worker.load(&self.disk, &self.owned);
        self.worker_loaded(plan_id);
    }

    /// Remembers HAProxy's refusal of a set.
    pub(super) fn remember(&mut self, set: Fold, nack: ApplyResult) {
        self.remembered.retain(|entry| entry.set != set);
        if self.remembered.len() >= MAX_REMEMBERED {
            self.remembered.remove(0);
        }
        let at = SystemClock.now();
        self.remembered.push(Remembered { set, at, nack });
    }

    /// A remembered refusal of that set, with the ids and the time of now.
    pub(super) fn known_bad(&mut self, set: &Fold, plan_id: &str) -> Option<ApplyResult> {
        let now_is = SystemClock.now();
        self.remembered
            .retain(|entry| now_is.saturating_duration_since(entry.at) < REMEMBERED_FOR);
        let entry = self.remembered.iter().find(|entry| entry.set == *set)?;
        let mut nack = entry.nack.clone();
        plan_id.clone_into(&mut nack.plan_id);
        nack.applied_plan_id.clone_from(&self.applied);
        nack.running_plan_id.clone_from(&self.running);
        nack.worker_ops_plan_id.clone_from(&self.worker_ops);
        nack.applied_token = self.token;
        nack.lkg_plan_id.clone_from(&self.lkg);
        nack.haproxy = self.haproxy();
        nack.at = now();
        nack.timing = Timing::default();
        nack.rollback = None;
        nack.runtime_inventory = None;
        if let Some(reload) = &mut nack.reload {
            reload.performed = false;
            reload.took_ms = None;
        }
        if let Some(failure) = &mut nack.error {
            failure.stage = Stage::Reload;
            failure.message = format!("{}\n{REMEMBERED}", failure.message);
        }
        Some(nack)
    }

    pub(super) fn forget_refusals(&mut self) {
        self.remembered.clear();
    }

    pub(super) fn haproxy(&self) -> Haproxy {
        self.worker.haproxy()
    }
}

/// The time, as the wire writes it.
pub(super) fn now() -> String {
    SystemClock.wall().rfc3339()
}

/// Some time from now, as the wire writes it.
pub(super) fn later(by: Duration) -> String {
    SystemClock.wall().plus(by).rfc3339()
}
