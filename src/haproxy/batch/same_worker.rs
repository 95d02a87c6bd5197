//! Whether the worker at the other end is the expected one: before a batch, inside its
//! session, and on a connection of its own afterwards.
//!
//! A session stays with the worker that it was opened to; only a new connection shows
//! whether another one has come.

use super::OpenSession;
use super::run::{Runner, Stop, broken};
use crate::error::Chain;
use crate::haproxy::identity::{Identity, WorkerInfo};
use crate::haproxy::reply::Reply;
use crate::haproxy::session::{self, Session, SessionError};
use crate::haproxy::wait::{Deadline, pause};
use crate::haproxy::worker::{AskedInfo, WorkerSocket};
use std::time::Duration;

/// How long one look at the worker may take.
pub(super) const LOOK_PATIENCE: Duration = Duration::from_secs(5);

/// Looks, and the pause between them, while a former worker still takes connections:
/// it does so for milliseconds after a reload.
const FORMER_LOOKS: usize = 10;
const FORMER_PAUSE: Duration = Duration::from_millis(10);

/// A session with the expected worker that HAProxy has not closed meanwhile.
pub(super) fn usable(open: Option<OpenSession>, expected: Identity) -> Option<OpenSession> {
    let mut open = open?;
    let same = open.info.identity == expected && !open.info.stopping;
    (same && open.session.is_quiet()).then_some(open)
}

/// A session, tried again while a former worker takes the connection; nothing has been
/// sent to it.
pub(super) fn open(
    worker: &WorkerSocket,
    expected: Identity,
    deadline: Deadline,
) -> Result<OpenSession, SessionError> {
    let mut looks = 1;
    loop {
        let deadline = deadline.within(LOOK_PATIENCE);
        let (session, info) = Session::begin(worker, deadline)?.finish(deadline)?;
        if looks == FORMER_LOOKS || !info.identity.is_older_than(expected) {
            return Ok(OpenSession::new(session, info));
        }
        looks += 1;
        pause(FORMER_PAUSE);
    }
}

/// Whether it is that worker and stays.
pub(super) fn is_expected(info: &WorkerInfo, expected: Identity) -> Result<(), String> {
    if info.identity != expected {
        return Err(format!(
            "another worker answers: {} instead of {expected}",
            info.identity
        ));
    }
    match info.stopping {
        true => Err(format!("the worker, {expected}, is leaving")),
        false => Ok(()),
    }
}

impl Runner<'_> {
    /// The last answer of the session proves its order; the new connection proves that
    /// it was not a worker of yesterday.
    pub(super) fn same_worker(&mut self, expected: Identity) -> Result<(), Stop> {
        let reply = self.ask_line(session::INFO)?;
        self.is_same(&reply, expected)
    }

    pub(super) fn is_same(&mut self, reply: &Reply, expected: Identity) -> Result<(), Stop> {
        let inside = self.session.who(reply).map_err(|error| broken(&error))?;
        is_expected(&inside, expected).map_err(Stop::WorkerChanged)
    }

    /// Asks on a connection of its own, `asked` if the question is on its way; it is given
    /// back with the answer, because closing it wakes HAProxy.
    pub(super) fn outside(
        &self,
        expected: Identity,
        mut asked: Option<AskedInfo>,
    ) -> Result<(WorkerInfo, AskedInfo), Stop> {
        let lost = |error| Stop::Unknown(Chain(&error).to_string());
        let mut looks = 1;
        loop {
            let deadline = self.deadline.within(LOOK_PATIENCE);
            let mut asked = match asked.take() {
                Some(asked) => asked,
                None => self.worker.ask_info(deadline).map_err(lost)?,
            };
            let info = asked.answer(deadline).map_err(lost)?;
            if looks == FORMER_LOOKS || !info.identity.is_older_than(expected) {
                is_expected(&info, expected).map_err(Stop::WorkerChanged)?;
                return Ok((info, asked));
            }
            looks += 1;
            pause(FORMER_PAUSE);
        }
    }
}
