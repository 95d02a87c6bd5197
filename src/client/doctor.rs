//! What is wrong with a set, or will be a nuisance, before it is pushed.

use serde::Serialize;

use super::fileset::FileSet;
use crate::wire::path::ManifestPath;
use crate::wire::state::State;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// HAProxy will refuse the set, or traffic suffers.
    Error,
    /// Something is not what it looks like.
    Warning,
    /// A change of it costs a reload.
    Note,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file; none when it is about the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<ManifestPath>,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// For programs: a stable word.
    pub code: &'static str,
    /// What was found; a sentence without its full stop, and without path and line.
    pub text: String,
    /// What to do next.
    pub next: String,
}

/// Looks at the set, and at what the running HAProxy calls its files. The worst findings
/// come first.
#[must_use]
pub fn doctor(_set: &FileSet, _state: &State) -> Vec<Finding> {
    Vec::new()
}
