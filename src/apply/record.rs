//! What the agent remembers across its own death.
//!
//! One value, saved whole with the intent of an apply and at its end; between those a
//! small [`PhaseNote`] says how far the apply came. It holds no per-file digests: disk
//! is the authority, and [`Record::fold`] only tells whether the tree is still the one
//! that was left. A note counts only for the record it was written after
//! ([`Record::txn`]); a note of another transaction is history.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::haproxy::deletes::Queue;
use crate::haproxy::identity::Identity;
use crate::store::install;
use crate::store::journal::Journal;
use crate::store::mounts::is_own_name;
use crate::store::state_file::Stored;
use crate::wire::manifest::{Mode, Token};
use crate::wire::result::{ApplyResult, Failure};
use crate::wire::state::Degraded;

use super::fence::Baseline;
use super::machine::Phase;
use super::owned::Owned;

/// The layout of [`Record`] on disk. A file of another format is set aside unread.
pub const FORMAT: u32 = 2;

/// The whole state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// Grows by one with every save.
    pub txn: u64,
    /// Successful applies so far.
    pub generation: u64,
    /// The highest leader epoch that ever passed the fence.
    pub epoch: u64,
    /// Of the applied plan.
    pub plan_schema_version: i64,
    /// What disk holds; `""` when unknown.
    pub applied_plan_id: String,
    /// Of the last accepted apply; stays when the plan id is lost.
    pub applied_token: Token,
    /// What the worker loaded; `""` when unknown.
    pub running_plan_id: String,
    /// That and the ops since; `""` when unknown.
    pub worker_ops_plan_id: String,
    /// What a rollback goes back to; `""` before there is one.
    pub lkg_plan_id: String,
    /// The fold of that set, hex: what a rollback must come to.
    pub lkg_fold: String,
    /// What the agent put there. While an intent is recorded: old and new together.
    pub owned: Owned,
    /// Directories that the agent made.
    pub made_dirs: BTreeSet<String>,
    /// SHA-256 fold of the owned files as last observed, hex.
    pub fold: String,
    /// How every path changed since the last known good set looked then.
    pub journal: Journal,
    /// The next backup's number; a number is never used twice.
    pub next_backup: u64,
    /// The phase at the time of this save.
    pub phase: Option<Phase>,
    /// What the apply under way wants; present exactly while a phase is.
    pub intent: Option<Intent>,
    /// The reload that waits.
    pub pending: Option<PendingReload>,
    /// Removals that wait for connections to end, with the worker they belong to.
    #[serde(default)]
    pub deletes: Queue,
    /// When the last reload ended, wall clock in nanoseconds; refused ones count.
    pub last_reload_end: Option<i128>,
    /// The worker that `running_plan_id` speaks of.
    pub worker: Option<Identity>,
    /// The stored plan blob.
    pub blob: Option<BlobRef>,
    /// The latest apply's answer.
    pub last_apply: Option<ApplyResult>,
    /// Name of the latest invariant that failed.
    pub violation: Option<String>,
    /// What is wrong, since when.
    pub degraded: Option<Degraded>,
}

/// What an apply wants, recorded before its first rename.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The manifest's.
    pub plan_id: String,
    /// The manifest's.
    pub token: Token,
    /// The manifest's.
    pub mode: Mode,
    /// The manifest has ops of either kind, so the worker may have got some.
    #[serde(default)]
    pub commands: bool,
    /// The manifest's.
    pub plan_schema_version: i64,
    /// Renames and removals, in their order.
    pub tree: install::Intent,
    /// What is owned once this apply is committed; `None` if that is what was owned
    /// before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owned: Option<Owned>,
    /// The fold of the whole set, hex. The intent lists only what changes; a restore that
    /// was begun and cut may have put back other paths of the journal as well.
    pub fold: String,
}

/// The stored blob, and the plan that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    /// Only while this is the applied plan is the blob handed out.
    pub plan_id: String,
    /// SHA-256 of its content, hex; a file that differs is not handed out.
    pub sha256: String,
    /// In bytes.
    pub size: u64,
}

/// A reload that waits for the pacing window to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingReload {
    /// The plan that disk holds when it fires.
    pub plan_id: String,
    /// When, wall clock in nanoseconds. Never moved by a later apply.
    pub due: i128,
    /// The fold of the tree that it is to load, hex. A tree of another fold is not that
    /// plan, whoever changed it and whenever.
    pub fold: String,
    /// Commands changed the worker since: if the set is refused, the worker has to be
    /// reloaded with the restored one.
    #[serde(default)]
    pub touched: bool,
}

/// How far the apply under way has come; small, written between two records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseNote {
    /// The phase.
    pub phase: Phase,
    /// The worker that holds the set, from `Applied` and `Reloaded` on.
    pub worker: Option<Identity>,
    /// When the reload is due, from `Scheduled` on.
    pub due: Option<i128>,
    /// What went wrong, from `Aborting` on.
    pub failure: Option<Failure>,
    /// What commands did, from `Applied` and `Scheduled` on, if any were to be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<Commands>,
}

/// What the commands of an apply have done to the worker. The record on disk is from
/// before them, and they are not sent a second time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commands {
    /// What the worker holds with them; `""` when that is unknown.
    pub worker_ops_plan_id: String,
    /// The deletes that wait now.
    pub deletes: Queue,
    /// Some may have reached the worker: see [`PendingReload::touched`].
    pub touched: bool,
    /// The controller is to be told that nothing is known.
    pub baseline_gone: bool,
}

impl PhaseNote {
    /// A note of nothing but the phase.
    #[must_use]
    pub fn of(phase: Phase) -> Self {
        Self {
            phase,
            worker: None,
            due: None,
            failure: None,
            commands: None,
        }
    }
}

impl Stored for Record {
    const FORMAT: u32 = FORMAT;

    fn txn(&self) -> u64 {
        self.txn
    }
}

impl Default for Record {
    fn default() -> Self {
        Self {
            format: FORMAT,
            txn: 0,
            generation: 0,
            epoch: 0,
            plan_schema_version: 0,
            applied_plan_id: String::new(),
            applied_token: Token::default(),
            running_plan_id: String::new(),
            worker_ops_plan_id: String::new(),
            lkg_plan_id: String::new(),
            lkg_fold: String::new(),
            owned: Owned::default(),
            made_dirs: BTreeSet::new(),
            fold: String::new(),
            journal: Journal::default(),
            next_backup: 0,
            phase: None,
            intent: None,
            pending: None,
            deletes: Queue::default(),
            last_reload_end: None,
            worker: None,
            blob: None,
            last_apply: None,
            violation: None,
            degraded: None,
        }
    }
}

impl Record {
    /// Whether every backup and every part that it names is in a directory of the agent's
    /// own. One that was made up or edited must not lead a restore elsewhere.
    #[must_use]
    pub fn names_only_ours(&self) -> bool {
        let staged = self.intent.iter().flat_map(|intent| intent.tree.staged());
        let mut names = self.journal.backups().chain(staged);
        names.all(is_own_name)
    }

    /// What the fence compares with.
    #[must_use]
    pub fn baseline(&self) -> Baseline {
        Baseline {
            applied_plan_id: self.applied_plan_id.clone(),
            applied_token: self.applied_token,
            running_plan_id: self.running_plan_id.clone(),
            worker_ops_plan_id: self.worker_ops_plan_id.clone(),
            lkg_plan_id: self.lkg_plan_id.clone(),
            highest_epoch: self.epoch,
            reload_pending: self.pending.is_some(),
            reload_paced: false,
        }
    }

    /// Takes the plan that a restore has put on disk, for the reload that waits: it is
    /// never dropped, and what it loads now is that set. `holds`: disk holds all of it.
    pub fn pending_loads_restored(&mut self, fold: &str, holds: bool) {
        if let Some(pending) = &mut self.pending {
            pending.plan_id.clear();
            if holds {
                pending.plan_id.clone_from(&self.lkg_plan_id);
            }
            fold.clone_into(&mut pending.fold);
        }
    }

    /// Something other than an apply changed disk or state: nothing is known any more,
    /// except the token, which keeps a stale controller out.
    pub fn forget_baseline(&mut self) {
        self.applied_plan_id.clear();
        self.forget_worker();
    }

    /// The worker is not the one that loaded the running plan.
    pub fn forget_worker(&mut self) {
        self.running_plan_id.clear();
        self.worker_ops_plan_id.clear();
    }
}
