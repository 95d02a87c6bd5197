//! Connections of one client that wait for their next request.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::http::client::{Cancel, Connection, Error, Origin};

/// Idle connections of one client; more are closed. A controller asks an agent one
/// thing at a time, and at most a second thread beside it.
const MAX_IDLE: usize = 2;

/// How long a connection may wait. Below the agent's 120 s, so that a request is not
/// sent into a connection that is being closed.
const MAX_IDLE_TIME: Duration = Duration::from_secs(60);

/// See the module. The lock is held for list operations only.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl Pool {
    /// A connection that stands, or a new one.
    pub(super) fn take(
        &self,
        origin: &Origin,
        until: Instant,
        cancel: &Cancel,
    ) -> Result<Connection, Error> {
        while let Some((mut connection, since)) = self.pop() {
            if since.elapsed() < MAX_IDLE_TIME && connection.is_reusable() {
                connection.cancelled_by(cancel)?;
                return Ok(connection);
            }
        }
        Connection::open(origin, until, cancel)
    }

    /// Keeps a connection for the next request, if it can serve one.
    pub(super) fn put(&self, mut connection: Connection) {
        // A cancel meant for one call must not end another one's.
        let fit = connection.is_reusable() && connection.cancelled_by(&Cancel::new()).is_ok();
        if !fit {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push((connection, Instant::now()));
        }
    }

    fn pop(&self) -> Option<(Connection, Instant)> {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}
