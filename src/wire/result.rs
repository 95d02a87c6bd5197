//! The answers of `POST /v1/apply`.

use serde::{Deserialize, Serialize};

use super::manifest::Token;
use super::path::ManifestPath;
use super::state::{Haproxy, RuntimeInventory};

/// What an apply turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultMode {
    /// Ops ran, no reload.
    Runtime,
    /// Files changed, no command was needed.
    FileOnly,
    /// HAProxy reloaded.
    Reload,
    /// A reload waits for the pacing window.
    Scheduled,
    /// Nothing to do.
    Noop,
    /// Refused or rolled back.
    Rejected,
}

impl ResultMode {
    /// The wire name, also the metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::FileOnly => "file_only",
            Self::Reload => "reload",
            Self::Scheduled => "scheduled",
            Self::Noop => "noop",
            Self::Rejected => "rejected",
        }
    }
}

/// Where an apply was refused or broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The agent is not ready.
    Startup,
    /// Too many uploads at once.
    Busy,
    /// Framing of the request.
    Request,
    /// The manifest.
    Manifest,
    /// The parts.
    Parts,
    /// Before the first rename: journal, intent, targets. Nothing changed.
    Backup,
    /// Renames and unlinks.
    Write,
    /// The reload, or the look at the set before it.
    Reload,
    /// Restoring the last known good set on request.
    Revert,
    /// The reload after that.
    RevertReload,
    /// A reload that had been scheduled.
    ScheduledReload,
    /// A batch on the running worker while a reload is pending.
    InPlace,
}

impl Stage {
    /// Whether it was the way back to the last known good set that failed.
    #[must_use]
    pub fn is_revert(self) -> bool {
        matches!(self, Self::Revert | Self::RevertReload)
    }

    /// The wire name, also the metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Busy => "busy",
            Self::Request => "request",
            Self::Manifest => "manifest",
            Self::Parts => "parts",
            Self::Backup => "backup",
            Self::Write => "write",
            Self::Reload => "reload",
            Self::Revert => "revert",
            Self::RevertReload => "revert_reload",
            Self::ScheduledReload => "scheduled_reload",
            Self::InPlace => "in_place",
        }
    }
}

/// How a [`Failure::message`] begins when no reload could be asked of HAProxy's master,
/// so that nobody has judged the files.
pub const UNREACHABLE: &str = "the reload could not be asked for";

/// How it begins when HAProxy ran neither before nor after a set was written, so that
/// nothing of it could be asked: the set stays.
pub const NOT_RUNNING: &str = "HAProxy is not running: the set is on disk";

/// How it ends when a reload left neither master nor worker.
pub const HAPROXY_GONE: &str = "HAProxy itself is gone";

/// What a refusal ends with that was answered from memory, and how to get past it.
pub const REMEMBERED: &str = "HAProxy was not asked again: exactly these files were refused within the last minute. \
If the reason lay beside them and is mended, change any byte of the set (a comment will do) and it is asked at once";

/// How a failure begins where HAProxy took a set and the agent never met the worker that
/// loaded it: mostly the set's configuration opens no `stats socket` where the agent looks.
pub const NO_NEW_WORKER: &str = "HAProxy reported success and no new worker showed up in time";

/// What such a failure says where the socket is open and the former worker is at it.
pub const STILL_ANSWERS: &str = "still answers, as before";

/// What went wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Where.
    pub stage: Stage,
    /// In an operator's words, HAProxy's own where it spoke.
    pub message: String,
}

/// Why the fence refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictReason {
    /// Another plan or token is applied than expected: diff again.
    PrevMismatch,
    /// A newer leader has spoken: stand down.
    StaleEpoch,
    /// The agent does not know what it holds: full set, mode `reload`.
    UnknownBaseline,
    /// The worker holds another plan than the in-place ops assume.
    WorkerOpsMismatch,
}

/// 409: the fence refused; nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Conflict {
    pub reason: ConflictReason,
    pub applied_plan_id: String,
    pub applied_token: Token,
    pub running_plan_id: String,
    pub worker_ops_plan_id: String,
    pub lkg_plan_id: String,
    /// The highest leader epoch that the agent has accepted; absent from agents that do
    /// not tell. A token of this epoch or above passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_epoch: Option<u64>,
}

/// 409: content that was neither sent nor is held; nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Sorted, never empty.
    pub missing: Vec<ManifestPath>,
}

/// One op's outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpResult {
    /// As the manifest named it.
    pub kind: String,
    /// Whether the worker holds its effect.
    pub ok: bool,
    /// HAProxy's words, or why it was not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// What became of the reload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// Whether one was asked of the master.
    pub performed: bool,
    /// Whether a new worker serves.
    pub ok: bool,
    /// The new worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_pid: Option<u32>,
    /// From the command to the new worker's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// HAProxy's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// When it will run, RFC 3339 with nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<String>,
}

/// What became of the rollback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollback {
    /// Whether the last known good set was put back.
    pub performed: bool,
    /// Whether it was reloaded too.
    pub reloaded: bool,
}

/// Where the time went, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Receiving and hashing parts, outside the apply lock.
    pub stage_ms: u64,
    /// Waiting for the apply lock, fence, planning.
    pub admit_ms: u64,
    /// Journal, intent, renames.
    pub write_ms: u64,
    /// Commands or the reload.
    pub ops_ms: u64,
    /// State, blob, bookkeeping.
    pub finish_ms: u64,
    /// From the first byte of the manifest to the answer.
    pub total_ms: u64,
}

/// 200: the apply ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ApplyResult {
    pub plan_id: String,
    pub ok: bool,
    pub mode: ResultMode,
    pub applied_plan_id: String,
    pub running_plan_id: String,
    pub worker_ops_plan_id: String,
    pub applied_token: Token,
    pub lkg_plan_id: String,
    pub haproxy: Haproxy,
    /// RFC 3339, UTC.
    pub at: String,
    pub timing: Timing,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub op_results: Vec<OpResult>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reload: Option<Reload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Of a success whose record could not be saved: why, and what that means. Absent once
    /// what is answered survives the agent's death.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsaved: Option<String>,
    /// Only when it changed since the last answer that carried it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_inventory: Option<RuntimeInventory>,
}
