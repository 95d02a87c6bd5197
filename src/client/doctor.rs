//! What is wrong with a set, or will be a nuisance, before it is pushed.
//!
//! HAProxy judges a set when it reads it; this looks for what HAProxy does not say, or
//! says only at three in the morning: files that can never change without a reload
//! because the configuration spells them otherwise, map lines that a file and a command
//! read differently, certificates whose key is elsewhere, certificates and answers that have run out, a
//! socket that the agent will miss. Pure, like a decision, and
//! never a reason to refuse a push.

mod findings;
mod lines;
mod ocsp;
mod tls;

use std::time::SystemTime;

use serde::Serialize;

use self::findings::Findings;
use super::fileset::FileSet;
use crate::wire::path::ManifestPath;
use crate::wire::state::State;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// HAProxy will refuse the set, or is not there to take it.
    Error,
    /// Something is not what it looks like.
    Warning,
    /// A change of it costs a reload, or other small things.
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
    /// What was found; without its full stop, and without path and line in front.
    pub text: String,
    /// What to do next.
    pub next: String,
}

/// Looks at the set, and at what the running HAProxy calls its files. `now` tells what has
/// run out. The worst findings come first, then by path and line.
#[must_use]
pub fn doctor(set: &FileSet, state: &State, now: SystemTime) -> Vec<Finding> {
    let mut findings = Findings::of(set, state);
    for entry in set.files() {
        lines::look(&entry, set, &mut findings);
    }
    tls::look(set, now, &mut findings);
    findings.sorted()
}

#[cfg(test)]
mod tests;
