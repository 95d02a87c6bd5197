//! What a changed set needs: nothing, files alone, runtime ops, or a reload, and why.
//!
//! Pure: a set and a state in, a decision out. Nothing is sent, no clock is asked, and
//! no configuration is parsed. Whatever is not known to be safe is a reload, so a wrong
//! decision here costs a reload and never leaves the worker with old content.

pub(crate) mod record;

pub use record::PLAN_SCHEMA_VERSION;

use serde::Serialize;

use super::fileset::FileSet;
use crate::wire::digest::ContentHash;
use crate::wire::manifest::{FileKind, Mode};
use crate::wire::op::Op;
use crate::wire::path::ManifestPath;
use crate::wire::state::State;

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

/// Why a decision is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The agent does not know what is applied.
    UnknownBaseline,
    /// The file differs, and HAProxy takes it only when it reads its files.
    NeedsReload,
    /// An op brings the change to the worker.
    Op,
    /// The difference means nothing to HAProxy.
    Meaningless,
    /// Nothing differs.
    Same,
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
#[must_use]
pub fn decide(set: &FileSet, state: &State) -> Decision {
    let mut files = Vec::new();
    for entry in set.files() {
        let held = state.files.get(entry.path);
        let same = held.is_some_and(|held| {
            held.size == entry.size && ContentHash::of(entry.content).matches(&held.digest)
        });
        if !same {
            files.push(FileChange {
                path: entry.path.clone(),
                change: match held {
                    Some(_) => Change::Changed,
                    None => Change::Added,
                },
                kind: Some(entry.kind),
                needs: Verdict::Reload,
            });
        }
    }
    let verdict = match files.is_empty() {
        true => Verdict::Noop,
        false => Verdict::Reload,
    };
    Decision {
        verdict,
        ops: Vec::new(),
        files,
        reasons: vec![Reason {
            path: None,
            needs: verdict,
            why: Why::NeedsReload,
            text: "not decided yet".to_owned(),
        }],
        send_all: state.applied_plan_id.is_empty(),
    }
}
