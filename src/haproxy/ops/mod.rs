//! From the controller's ops to commands that are safe by construction.
//!
//! An op enters as strings. What leaves is a [`Batch`](super::batch::Batch): commands
//! whose every word passed the rule of its field, each with the one answer that counts
//! as success. Everything is decided before the first byte is sent; one op that breaks
//! a rule, that this HAProxy does not know, or that does not fit makes the whole batch
//! not executable, and the files are reloaded instead.
//!
//! Nothing is rewritten to make it fit, no file is opened (content is handed in), and
//! nothing is sent from here.

mod compile;
pub(crate) mod expect;
mod plan;
pub(crate) mod program;
pub(crate) mod touched;
mod typed;

pub use compile::{Content, compile};
pub use touched::{MapCheck, Touched, TouchedBackend, TouchedServer};

use std::error::Error;
use std::fmt;

/// What became of one op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The worker holds its effect.
    Ok(Note),
    /// A delete: traffic is stopped, the removal waits in the queue.
    Deferred,
    /// A field breaks its rule; nothing was sent.
    Invalid,
    /// This HAProxy cannot do it; nothing was sent.
    Unsupported,
    /// It does not fit into one command; nothing was sent.
    TooBig,
    /// Too many deletes are waiting; nothing was sent.
    QueueFull,
    /// HAProxy refused.
    Rejected,
    /// Something of that name exists, and nobody knows what it looks like.
    NameCollision,
    /// Connections or streams are still there.
    Busy,
    /// Somebody else's certificate transaction is open and stays so.
    ForeignTransaction,
    /// HAProxy says success and serves the old certificate.
    NotApplied,
    /// Several rows could be meant.
    Ambiguous,
    /// Another worker answers now, or this one is leaving.
    WorkerChanged,
    /// No trustworthy answer: done or not.
    Unknown,
    /// Not sent.
    NotRun,
}

/// More about a success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// Done now.
    Done,
    /// It was so before.
    Unchanged,
    /// There was nothing to remove.
    Absent,
}

impl Outcome {
    /// Whether the worker holds, or will hold without more ado, what the op asked for.
    #[must_use]
    pub fn is_ok(self) -> bool {
        matches!(self, Self::Ok(_) | Self::Deferred)
    }

    /// Whether it was tried, or would have been, and did not succeed.
    #[must_use]
    pub fn is_failure(self) -> bool {
        !self.is_ok() && self != Self::NotRun
    }

    /// Whether HAProxy did not do it, as opposed to nobody knowing.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        self.is_failure() && !matches!(self, Self::Unknown | Self::WorkerChanged)
    }

    /// A stable lower-case word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok(Note::Done) => "ok",
            Self::Ok(Note::Unchanged) => "unchanged",
            Self::Ok(Note::Absent) => "absent",
            Self::Deferred => "deferred",
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::TooBig => "too_big",
            Self::QueueFull => "queue_full",
            Self::Rejected => "rejected",
            Self::NameCollision => "name_collision",
            Self::Busy => "busy",
            Self::ForeignTransaction => "foreign_transaction",
            Self::NotApplied => "not_applied",
            Self::Ambiguous => "ambiguous",
            Self::WorkerChanged => "worker_changed",
            Self::Unknown => "unknown",
            Self::NotRun => "not_run",
        }
    }
}

/// Why a batch cannot run: the first op at fault. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotExecutable {
    /// Its place.
    pub index: usize,
    /// Its kind, as the controller wrote it.
    pub kind: String,
    /// One of `Invalid`, `Unsupported`, `TooBig`, `QueueFull`.
    pub outcome: Outcome,
    /// The field and its rule, or the limit.
    pub words: String,
}

impl fmt::Display for NotExecutable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "op {} ({}) cannot be run: {}",
            self.index, self.kind, self.words
        )
    }
}

impl Error for NotExecutable {}

/// What is wrong with one op, before its place is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) outcome: Outcome,
    pub(crate) words: String,
}

impl Fault {
    pub(crate) fn invalid(words: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::Invalid,
            words: words.into(),
        }
    }

    pub(crate) fn unsupported(words: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::Unsupported,
            words: words.into(),
        }
    }

    pub(crate) fn too_big(words: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::TooBig,
            words: words.into(),
        }
    }
}

impl From<crate::format::Fault> for Fault {
    fn from(fault: crate::format::Fault) -> Self {
        use crate::format::FaultKind as K;
        Self {
            outcome: match fault.kind {
                K::Invalid => Outcome::Invalid,
                K::Unsupported => Outcome::Unsupported,
                K::TooBig => Outcome::TooBig,
            },
            words: fault.words,
        }
    }
}

impl From<super::command::CommandFault> for Fault {
    fn from(fault: super::command::CommandFault) -> Self {
        use super::command::CommandFault as C;
        let outcome = match &fault {
            C::TooManyWords { .. }
            | C::LineTooLong { .. }
            | C::PayloadLineTooLong { .. }
            | C::PayloadTooBig { .. } => Outcome::TooBig,
            C::Empty
            | C::NotForASession { .. }
            | C::Byte { .. }
            | C::PayloadMark
            | C::EmptyPayload
            | C::Terminator => Outcome::Invalid,
        };
        Self {
            outcome,
            words: fault.to_string(),
        }
    }
}
