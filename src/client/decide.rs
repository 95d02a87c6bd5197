//! What a changed set needs: nothing, files alone, runtime ops, or a reload, and why.
//!
//! Pure: a set and a state in, a decision out. Nothing is sent, no clock is asked, and
//! no configuration is parsed. Whatever is not known to be safe is a reload, so a wrong
//! decision here costs a reload and never leaves the worker with old content.

mod judge;
mod maps;
mod meaning;
pub(crate) mod mentions;
pub(crate) mod names;
mod phases;
pub(crate) mod record;
mod tls;

pub use judge::Why;
pub use record::{PLAN_SCHEMA_VERSION, pushed_by};

use std::collections::BTreeSet;

use serde::Serialize;

use self::judge::{Judge, differences};
use self::phases::Phases;
use self::record::Record;
use super::fileset::FileSet;
use crate::format::HaproxyVersion;
use crate::wire::digest::DigestKind;
use crate::wire::limits::{
    API_VERSION, MAX_OPS_PER_APPLY, MAX_PENDING_BACKEND_DELETES, MAX_PENDING_SERVER_DELETES,
};
use crate::wire::manifest::{FileKind, Mode};
use crate::wire::op::{Op, OpKind};
use crate::wire::path::ManifestPath;
use crate::wire::state::{HeldFile, State};

/// What an apply of the set has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The agent holds these files and the worker runs them.
    Noop,
    /// Files differ, and none of it is anything that HAProxy reads.
    FileOnly,
    /// The ops bring the running worker to where the files are.
    Runtime,
    /// HAProxy has to read the files anew.
    Reload,
}

/// How a file differs from what the agent holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Change {
    Added,
    Changed,
    Removed,
}

/// One file that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileChange {
    /// Which.
    pub path: ManifestPath,
    /// How.
    pub change: Change,
    /// What it is for; of a removed file that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<FileKind>,
    /// What it needs, were it the only change.
    pub needs: Verdict,
}

/// One reason, in plain words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// The file that it is about; none when it is about the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<ManifestPath>,
    /// What it amounts to.
    pub needs: Verdict,
    /// For programs.
    pub why: Why,
    /// For people; a sentence without its full stop, and without the path in front.
    pub text: String,
}

impl Reason {
    /// Whoever pushes wants a reload.
    pub(crate) fn asked() -> Self {
        Self {
            path: None,
            needs: Verdict::Reload,
            why: Why::Asked,
            text: "a reload was asked for".to_owned(),
        }
    }
}

/// What is to be done, and why.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decision {
    /// What the apply has to do.
    pub verdict: Verdict,
    /// The runtime commands, in their order; empty unless the verdict is `Runtime`. At
    /// most [`crate::wire::limits::MAX_OPS_PER_APPLY`].
    pub ops: Vec<Op>,
    /// The files that differ from what the agent holds, by path.
    pub files: Vec<FileChange>,
    /// Why; never empty. Those that decide come first.
    pub reasons: Vec<Reason>,
    /// The agent's records are no baseline: every file's content is to be sent.
    pub send_all: bool,
}

impl Decision {
    /// The manifest's mode for it.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self.verdict {
            Verdict::Noop | Verdict::FileOnly | Verdict::Runtime => Mode::Auto,
            Verdict::Reload => Mode::Reload,
        }
    }
}

/// Compares `set` with what `state` says, which must have been read with its plan.
///
/// The state's files and inventory are baseline enough for whole objects: a map, a
/// certificate, a CA file. What the plan blob adds (the records of declared backends,
/// comments told from content, single entries of maps) only ever makes a decision
/// cheaper, never a wrong one right; see [`FileSet::plan_blob`].
#[must_use]
pub fn decide(set: &FileSet, state: &State) -> Decision {
    let differences = differences(set, state);
    let ours = state.applied_plan_id == set.plan_id();
    let mut whole = blockers(state, ours && differences.is_empty());
    let send_all = state.applied_plan_id.is_empty() || state.api_version != API_VERSION;
    let version = state.haproxy.version.parse::<HaproxyVersion>();
    let record = Record::read(state);
    let mut ops = Vec::new();
    let mut found = Vec::new();
    match &version {
        Ok(version) => {
            let mut judge = Judge {
                set,
                state,
                version,
                record: record.as_ref(),
                differing: differences.iter().map(|one| one.path.as_str()).collect(),
                phases: Phases::default(),
                covered: BTreeSet::new(),
            };
            found = judge.all(&differences);
            ops = judge.phases.into_ops();
        }
        Err(_) if differences.is_empty() => {}
        Err(_) => whole.push((
            Why::Version,
            "the agent does not say which HAProxy it runs".to_owned(),
        )),
    }
    let reload = !whole.is_empty() || found.iter().any(|one| one.needs == Verdict::Reload);
    if !reload {
        whole.extend(too_many(&ops, state));
        whole.extend(unknown_op(&ops, state));
    }
    let per_file = found.iter().map(|one| one.needs).max();
    let verdict = match whole.is_empty() {
        true => per_file.unwrap_or(Verdict::Noop),
        false => Verdict::Reload,
    };
    if verdict != Verdict::Runtime {
        ops.clear();
    }
    let mut reasons: Vec<Reason> = whole
        .into_iter()
        .map(|(why, text)| Reason {
            path: None,
            needs: Verdict::Reload,
            why,
            text,
        })
        .collect();
    let mut files = Vec::with_capacity(differences.len());
    let mut found = found.into_iter();
    for one in &differences {
        let found = found.next();
        files.push(FileChange {
            path: one.path.clone(),
            change: one.change,
            kind: one.entry.as_ref().map(|entry| entry.kind),
            needs: found.as_ref().map_or(Verdict::Reload, |found| found.needs),
        });
        let Some(mut found) = found else { continue };
        if let Some(what) = state.in_the_way.get(one.path) {
            found.needs = Verdict::Reload;
            found.texts = vec![format!("on the agent's disk {what} stands in its place")];
        }
        reasons.extend(found.texts.into_iter().map(|text| Reason {
            path: Some(one.path.clone()),
            needs: found.needs,
            why: found.why,
            text,
        }));
    }
    if reasons.is_empty() {
        reasons.push(same(state, ours));
    }
    // Stable: within one verdict the order of the paths stays.
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.needs));
    Decision {
        verdict,
        ops,
        files,
        reasons,
        send_all,
    }
}

/// What forbids everything but a reload, whatever the files say. `settled`: this very
/// plan is applied, file by file.
fn blockers(state: &State, settled: bool) -> Vec<(Why, String)> {
    let mut found = Vec::new();
    if state.applied_plan_id.is_empty() {
        found.push((
            Why::UnknownBaseline,
            "the agent does not know what is applied (it is new, the last set was refused, or something else wrote its files)".to_owned(),
        ));
        found.extend(silence(state));
        return found;
    }
    found.extend(silence(state));
    if let Some(degraded) = &state.degraded {
        found.push((
            Why::Degraded,
            format!(
                "the agent is degraded since {}, until a reload works: {}",
                degraded.since, degraded.reason
            ),
        ));
    }
    if let Some(due) = &state.reload_pending_at {
        if !settled {
            found.push((
                Why::ReloadPending,
                format!("a reload is due at {due} already, and this set joins it"),
            ));
        }
    } else if state.worker_ops_plan_id != state.applied_plan_id {
        found.push((
            Why::UnknownWorker,
            "the running HAProxy is not known to have what is applied (it was restarted, or an op failed)".to_owned(),
        ));
    }
    if settled {
        return found;
    }
    if state.api_version != API_VERSION {
        found.push((
            Why::ApiVersion,
            format!(
                "the agent speaks version {} of the contract and this program {API_VERSION}",
                state.api_version
            ),
        ));
    }
    let weak = |held: &HeldFile| held.digest.kind() != DigestKind::Sha256;
    if let Some((path, _)) = state.files.iter().find(|(_, held)| weak(held)) {
        found.push((
            Why::WeakDigest,
            format!(
                "another controller put the files there and named them by a digest that cannot tell them apart safely ({path} and maybe more)"
            ),
        ));
    }
    found
}

fn silence(state: &State) -> Option<(Why, String)> {
    let silent = state.worker.as_ref().filter(|worker| !worker.answers)?;
    let reason = silent.reason.as_deref().unwrap_or("its socket is silent");
    let since = &silent.since;
    Some((
        Why::NoAnswer,
        format!("HAProxy has not answered since {since}: {reason}"),
    ))
}

/// Nothing differs.
fn same(state: &State, ours: bool) -> Reason {
    let text = match (&state.reload_pending_at, ours) {
        (Some(due), _) => format!("the agent holds these files, and HAProxy loads them at {due}"),
        (None, true) => "the agent holds these files and HAProxy runs them".to_owned(),
        (None, false) => format!(
            "the agent holds these files and HAProxy runs them, as plan {}",
            state.applied_plan_id
        ),
    };
    Reason {
        path: None,
        needs: Verdict::Noop,
        why: Why::Same,
        text,
    }
}

/// More than one apply, or more than the agent's queues, can hold.
fn too_many(ops: &[Op], state: &State) -> Option<(Why, String)> {
    if ops.len() > MAX_OPS_PER_APPLY {
        return Some((
            Why::TooManyOps,
            format!(
                "it would take {} runtime commands; above {MAX_OPS_PER_APPLY} one reload is better",
                ops.len()
            ),
        ));
    }
    let waiting = &state.pending_deletes;
    [
        (OpKind::ServerDel, waiting.servers.len(), MAX_PENDING_SERVER_DELETES),
        (OpKind::BackendDel, waiting.backends.len(), MAX_PENDING_BACKEND_DELETES),
    ]
    .into_iter()
    .find_map(|(kind, waiting, most)| {
        let more = ops.iter().filter(|op| OpKind::parse(&op.kind) == Some(kind)).count();
        (more > 0 && waiting + more > most).then(|| {
            (
                Why::TooManyOps,
                format!("{more} deletes and {waiting} that wait for their sessions to end are more than {most}"),
            )
        })
    })
}

fn unknown_op(ops: &[Op], state: &State) -> Option<(Why, String)> {
    let missing = ops.iter().find(|op| !state.agent_ops.contains(&op.kind))?;
    Some((
        Why::MissingOp,
        format!(
            "the agent (version {}) knows no op {}",
            state.agent_version, missing.kind
        ),
    ))
}

#[cfg(test)]
mod tests;
