//! HAProxy as an apply sees it: five questions, a batch and a reload.
//!
//! The trait exists so that the step machine can be driven against a model, with every
//! crash point enumerated. [`Sockets`] is the only implementation that talks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::haproxy::batch::{Batch, BatchReport, OpenSession};
use crate::haproxy::deletes::{self, Pass, Policy, Queue};
use crate::haproxy::identity::{Identity, WorkerInfo};
use crate::haproxy::inventory::RuntimeInventory;
use crate::haproxy::master::MasterSocket;
use crate::haproxy::ops::{Content, Touched};
use crate::haproxy::readback::{self, Object, Verdict, Void};
use crate::haproxy::reload::{self, ReloadOutcome};
use crate::haproxy::session::{Opening, Session};
use crate::haproxy::wait::Deadline;
use crate::haproxy::worker::{AskedInfo, WorkerSocket};

/// How long one look at a socket may take. A worker under load answers in
/// milliseconds; one that does not answer for this long is as good as gone.
pub const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long all five listings may take together; the largest have thousands of rows.
pub const INVENTORY_TIMEOUT: Duration = Duration::from_secs(10);

/// What an apply needs of HAProxy. Errors are an operator's words; none of these calls
/// outlasts its own deadline.
pub trait Haproxy: Send + Sync + fmt::Debug {
    /// Who answers on the worker's stats socket.
    ///
    /// # Errors
    /// Nobody does, or not as HAProxy.
    fn worker(&self) -> Result<WorkerInfo, String>;

    /// Whether the master answers `show proc`.
    ///
    /// # Errors
    /// It does not.
    fn master(&self) -> Result<(), String>;

    /// What the worker has loaded.
    ///
    /// # Errors
    /// A listing was refused, cut or not understood.
    fn inventory(&self) -> Result<RuntimeInventory, String>;

    /// Begins to ask who answers, so that other work can be done until the answer is
    /// there. `to_run`: a batch follows, and the connection is kept for it.
    fn look(&self, to_run: bool) -> Look;

    /// Runs a batch on the worker `expected`, in the session of a look if there is one. It
    /// comes back when all went well.
    fn run(
        &self,
        batch: &Batch,
        session: &mut Option<OpenSession>,
        expected: Identity,
        queue: &mut Queue,
    ) -> BatchReport;

    /// One pass over the deletes that wait.
    fn delete(&self, queue: &mut Queue, policy: Policy) -> Pass;

    /// Compares what a batch touched with the files and with what its ops said.
    ///
    /// # Errors
    /// Another worker than `expected` answers.
    fn read_back(
        &self,
        expected: Identity,
        touched: &Touched,
        content: &dyn Content,
        queue: &Queue,
    ) -> Result<Vec<(Object, Verdict)>, Void>;

    /// Reloads what is on disk. `before` is the worker known to run now.
    fn reload(&self, before: Option<Identity>) -> ReloadOutcome;
}

/// A question to the worker that is under way.
#[derive(Debug)]
pub enum Look {
    /// It is answered already.
    Known(Result<WorkerInfo, String>),
    /// On a connection of its own.
    Asked(AskedInfo),
    /// In a session that can be kept.
    Opening(Opening),
}

impl Look {
    /// The answer, and the session if one was opened.
    ///
    /// # Errors
    /// Nobody answers, or not as HAProxy.
    pub fn answer(self) -> (Result<WorkerInfo, String>, Option<OpenSession>) {
        match self {
            Self::Known(answer) => (answer, None),
            Self::Asked(mut asked) => {
                let answer = asked.answer(Deadline::after(LOOK_TIMEOUT));
                (answer.map_err(|error| words(&error)), None)
            }
            Self::Opening(opening) => match opening.finish(Deadline::after(LOOK_TIMEOUT)) {
                Ok((session, info)) => (Ok(info.clone()), Some(OpenSession::new(session, info))),
                Err(error) => (Err(words(&error)), None),
            },
        }
    }
}

/// The two unix sockets.
#[derive(Debug)]
pub struct Sockets {
    worker: WorkerSocket,
    master: MasterSocket,
    reload_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl Sockets {
    /// Over the given sockets; a reload takes at most `reload_timeout`.
    #[must_use]
    pub fn new(
        worker: WorkerSocket,
        master: MasterSocket,
        reload_timeout: Duration,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            worker,
            master,
            reload_timeout,
            clock,
        }
    }
}

impl Haproxy for Sockets {
    fn worker(&self) -> Result<WorkerInfo, String> {
        self.worker
            .info(Deadline::after(LOOK_TIMEOUT))
            .map_err(|error| words(&error))
    }

    fn master(&self) -> Result<(), String> {
        match self.master.show_proc(Deadline::after(LOOK_TIMEOUT)) {
            Ok(_) => Ok(()),
            Err(error) => Err(words(&error)),
        }
    }

    fn inventory(&self) -> Result<RuntimeInventory, String> {
        RuntimeInventory::read(&self.worker, Deadline::after(INVENTORY_TIMEOUT))
            .map_err(|error| words(&error))
    }

    fn look(&self, to_run: bool) -> Look {
        let deadline = Deadline::after(LOOK_TIMEOUT);
        let failed = |error: &dyn std::error::Error| Look::Known(Err(words(error)));
        if to_run {
            Session::begin(&self.worker, deadline)
                .map_or_else(|error| failed(&error), Look::Opening)
        } else {
            let asked = self.worker.ask_info(deadline);
            asked.map_or_else(|error| failed(&error), Look::Asked)
        }
    }

    fn run(
        &self,
        batch: &Batch,
        session: &mut Option<OpenSession>,
        expected: Identity,
        queue: &mut Queue,
    ) -> BatchReport {
        batch.run_in(session, &self.worker, expected, queue, &*self.clock)
    }

    fn delete(&self, queue: &mut Queue, policy: Policy) -> Pass {
        deletes::pass(queue, &self.worker, policy, &*self.clock)
    }

    fn read_back(
        &self,
        expected: Identity,
        touched: &Touched,
        content: &dyn Content,
        queue: &Queue,
    ) -> Result<Vec<(Object, Verdict)>, Void> {
        readback::read_back(
            &self.worker,
            expected,
            touched,
            content,
            queue,
            &*self.clock,
        )
    }

    fn reload(&self, before: Option<Identity>) -> ReloadOutcome {
        reload::reload(
            &self.master,
            &self.worker,
            before,
            self.reload_timeout,
            &*self.clock,
        )
    }
}

/// An error and its causes in one line.
pub(super) fn words(error: &dyn std::error::Error) -> String {
    crate::error::Chain(error).to_string()
}
