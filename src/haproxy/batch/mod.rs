//! One batch of ops in one session with the worker, and what became of each op.
//!
//! Before, inside and after: the same worker must answer, and one that is not leaving.
//! A session stays with the worker that it was opened to, so a new connection must find
//! the same one. The first refusal stops the sending; what is outstanding is still read
//! and reported as it came. After an answer that cannot be trusted nothing is sent
//! again and nothing is cleaned up: a reload of the files is the remedy for all of it.

mod certs;
pub(crate) mod crt_lists;
mod maps;
mod run;
mod same_worker;
mod servers;

use super::deletes::{DeleteRequest, Key, Queue};
use super::identity::{Identity, WorkerInfo};
use super::ops::program::Segment;
use super::ops::{Outcome, Touched};
use super::session::Session;
use super::worker::{AskedInfo, WorkerSocket};
use crate::clock::Clock;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a batch may take in all: the waits that the contract allows, and as much
/// again as a thousand ops take on the slowest machine seen, many times over.
pub const BATCH_PATIENCE: Duration = Duration::from_secs(60);

/// Ops that passed every check, as commands. Made by [`compile`](super::ops::compile).
#[derive(Debug, Clone)]
pub struct Batch {
    pub(crate) kinds: Vec<String>,
    pub(crate) segments: Vec<Segment>,
    /// Deletes that are left to the queue, with the op that asks for them.
    pub(crate) deferred: Vec<(usize, DeleteRequest)>,
    /// Waiting deletes of objects that are wanted again.
    pub(crate) cancels: Vec<Key>,
    /// Ops that a delete after them carries out.
    pub(crate) absorbed: BTreeSet<usize>,
    pub(crate) touched: Touched,
}

impl Batch {
    /// How many ops it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// What it changes, for the read-back.
    #[must_use]
    pub fn touched(&self) -> &Touched {
        &self.touched
    }

    /// Runs it on the worker `expected`. Blocks for at most [`BATCH_PATIENCE`] and some
    /// seconds. `queue` is held for as long, so that nothing is deleted meanwhile; its
    /// entries for objects that are wanted again go, and new ones come when everything
    /// else succeeded.
    pub fn run(
        &self,
        worker: &WorkerSocket,
        expected: Identity,
        queue: &mut Queue,
        clock: &dyn Clock,
    ) -> BatchReport {
        self.run_in(&mut None, worker, expected, queue, clock)
    }

    /// [`run`](Self::run) in a session that the caller has already looked at. One that is
    /// not with the expected worker, or was closed meanwhile, is replaced. It is handed back
    /// when everything succeeded, for the caller to close when it has time: closing wakes
    /// HAProxy. Whoever reloads must have closed it.
    pub fn run_in(
        &self,
        open: &mut Option<OpenSession>,
        worker: &WorkerSocket,
        expected: Identity,
        queue: &mut Queue,
        clock: &dyn Clock,
    ) -> BatchReport {
        run::run(self, open, worker, expected, queue, clock)
    }
}

/// A session and the worker at its other end.
#[derive(Debug)]
pub struct OpenSession {
    /// Nothing but the question who answers was said in it.
    pub session: Session,
    /// That answer.
    pub info: WorkerInfo,
    /// The connection on which the same was asked once more, answered; closed with this.
    pub(super) _outside: Option<AskedInfo>,
}

impl OpenSession {
    /// Over a session in which that answer came.
    #[must_use]
    pub fn new(session: Session, info: WorkerInfo) -> Self {
        Self {
            session,
            info,
            _outside: None,
        }
    }
}

/// What became of one op.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpOutcome {
    /// As the controller named it.
    pub kind: String,
    /// What became of it.
    pub outcome: Outcome,
    /// HAProxy's own words, or why there are none; empty when there is nothing to say.
    pub words: String,
}

/// How a batch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Every op is `ok` or `deferred`, on the worker that was expected.
    Complete {
        /// The worker, as a new connection found it afterwards.
        worker: WorkerInfo,
    },
    /// The worker is the expected one and did not do all: reload the files.
    Refused {
        /// The first op that failed.
        index: usize,
    },
    /// What the worker holds is not known: reload the files, forget the baseline.
    Unknown {
        /// What happened.
        words: String,
    },
    /// Another worker answers, or this one is leaving: reload, forget the baseline.
    WorkerChanged {
        /// What was seen.
        words: String,
    },
}

/// What became of a batch.
#[derive(Debug, Clone)]
pub struct BatchReport {
    /// One for each op, in their order.
    pub results: Vec<OpOutcome>,
    /// How it ended.
    pub ended: Ended,
    /// Whether any command of an op may have reached a worker and changed it. A certificate
    /// or CA file that HAProxy refused within its transaction has not.
    pub reached_worker: bool,
    /// Deletes that are in the queue now because of this batch.
    pub deletes: Vec<Key>,
}
