//! `GET /v1/state`: what this HAProxy holds and runs, as the agent knows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::manifest::Token;
use super::path::ManifestPath;
use super::result::ApplyResult;

/// The running worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Haproxy {
    /// Digits only, `3.4.7`.
    pub version: String,
    /// As HAProxy says it, `3.4.7-1`.
    pub full_version: String,
    /// Process id of the worker last seen; 0 if none answered yet.
    pub worker_pid: u32,
    /// When that worker started, microseconds since the Unix epoch.
    pub worker_start_time_unix_micros: u64,
}

/// Whether the worker answers its socket, as the agent saw it last: it looks with every
/// apply, with every `verify=1`, and every few seconds in between.
///
/// What the other fields say of the worker is what was known when it last answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerAnswer {
    /// It did.
    pub answers: bool,
    /// The first look that found it so, RFC 3339; never before the agent's start.
    pub since: String,
    /// What the latest look met, in an operator's words; present while it does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A file the agent put there, as last observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldFile {
    /// Of the kind that the last manifest used for this path.
    pub digest: Digest,
    /// In bytes.
    pub size: u64,
}

/// What can be changed at runtime, by the names HAProxy uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeInventory {
    /// Moves when one of the lists changed.
    pub generation: u64,
    /// Map files.
    pub maps: Vec<String>,
    /// Files whose lines are an ACL's patterns, which no op changes. Empty from agents
    /// that do not list them.
    #[serde(default)]
    pub acl_files: Vec<String>,
    /// Certificates.
    pub certs: Vec<String>,
    /// CA files.
    pub ca_files: Vec<String>,
    /// CRL files.
    pub crl_files: Vec<String>,
    /// crt-lists.
    pub crt_lists: Vec<String>,
}

/// Removals that still wait for connections to end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingDeletes {
    /// `backend/server`.
    pub servers: Vec<String>,
    /// Backend names.
    pub backends: Vec<String>,
}

/// What is wrong, since when; present until a reload works again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Degraded {
    /// RFC 3339, UTC.
    pub since: String,
    /// In an operator's words.
    pub reason: String,
}

/// The state document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// [`super::limits::API_VERSION`].
    pub api_version: u32,
    /// Of the binary.
    pub agent_version: String,
    /// Of the applied plan's blob.
    pub plan_schema_version: i64,
    /// The op kinds this agent knows.
    pub agent_ops: Vec<String>,
    /// Additive abilities; none today.
    pub features: Vec<String>,
    /// The worker.
    pub haproxy: Haproxy,
    /// Whether that worker answers; absent in a state of an agent from before this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerAnswer>,
    /// Successful applies so far.
    pub generation: u64,
    /// What disk holds; `""` when that is unknown.
    pub applied_plan_id: String,
    /// What the worker loaded.
    pub running_plan_id: String,
    /// That, plus the runtime ops since.
    pub worker_ops_plan_id: String,
    /// Of the last accepted apply.
    pub applied_token: Token,
    /// What a rollback goes back to.
    pub lkg_plan_id: String,
    /// Names below the base directory that the agent keeps for itself; empty from agents
    /// that do not tell.
    #[serde(default)]
    pub reserved_paths: Vec<String>,
    /// Where the agent looks for the worker's socket, absolute; absent from agents that do
    /// not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_socket: Option<String>,
    /// Whether the applied plan's blob is here.
    pub applied_plan_stored: bool,
    /// The files the agent owns.
    pub files: BTreeMap<ManifestPath, HeldFile>,
    /// What stands in the place of an owned file and is none, as last observed: `a
    /// directory`, `a symbolic link`. Such a path is not among `files`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub in_the_way: BTreeMap<ManifestPath, String>,
    /// What the worker has loaded.
    pub runtime_inventory: RuntimeInventory,
    /// Removals still waiting.
    pub pending_deletes: PendingDeletes,
    /// The blob in base64, only while it belongs to the applied plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_plan: Option<String>,
    /// When the pending reload is due, RFC 3339 with nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reload_pending_at: Option<String>,
    /// The latest apply's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_apply: Option<ApplyResult>,
    /// Name of the latest invariant that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invariant_violation: Option<String>,
    /// Present while disk and worker may differ from what was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<Degraded>,
    /// Present while the agent cannot save its own state: all that is told here holds, and
    /// some of it might not survive the agent's death.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsaved: Option<Degraded>,
}
