//! Whether an override has arrived, as HAProxy itself shows it at its stats socket. What was
//! seen is judged by a pure function; what responders say is `coverage`'s.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::{Clock as _, SystemClock};
use crate::haproxy::server_stats;
use crate::haproxy::servers_state::{self, ServerRow};
use crate::haproxy::{Deadline, WorkerSocket};
use crate::http::client::{Cancel, Connection, Origin, Request, Until};
use crate::responder::value::Value;

/// How long one look may take.
pub(super) const LOOK: Duration = Duration::from_secs(5);
/// The longest coverage: 16 384 rows, and the keys of the copy.
const MAX_COVERAGE_BYTES: u64 = 64 * 1024 * 1024;
/// Bits of a server's admin state that an agent's words set.
const MAINT: u32 = 1;
const DRAIN: u32 = 8;
/// The greatest weight in HAProxy.
const MAX_WEIGHT: u32 = 256;
/// A bit of a server's agent state: it has one.
const AGENT_CONFIGURED: u32 = 2;

/// Where to look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sights {
    /// Stats sockets of HAProxy workers.
    pub haproxy: Vec<PathBuf>,
    /// Monitoring addresses of responders.
    pub responders: Vec<Origin>,
}

impl Sights {
    /// Whether there is nothing to look at.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.haproxy.is_empty() && self.responders.is_empty()
    }
}

/// What rows have to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The key decides, with this value.
    Value(Value),
    /// The key decides nothing. `weighed` when it set a weight before, which has to be
    /// back at its base.
    Gone { weighed: bool },
}

/// What one place shows of one key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Shown {
    /// Rows that ask for it.
    pub(super) asked: usize,
    /// Of these, rows for which a key before it decides.
    pub(super) elsewhere: usize,
    /// Rows that are not there yet, and why.
    pub(super) waiting: Vec<String>,
    /// Rows that it is meant for and that do not ask, and why.
    pub(super) mute: Vec<String>,
    /// Rows that do not ask, of which nobody knows whether it is meant for them.
    pub(super) unknown: Vec<String>,
    /// Rows that asked for it and do not any more, where nobody knows why.
    pub(super) gone: Vec<String>,
    /// What else there is to say.
    pub(super) notes: Vec<String>,
}

/// A row of a worker.
#[derive(Debug, Clone)]
pub(super) struct Row {
    server: ServerRow,
    /// As the statistics page has it.
    status: String,
}

/// All rows of a worker, within this time.
pub(super) fn rows(socket: &Path, time: Duration) -> Result<Vec<Row>, String> {
    let worker = WorkerSocket::new(socket.to_path_buf());
    let deadline = Deadline::after(time.min(LOOK));
    let named = |what: String| format!("{}: {what}", socket.display());
    let servers = servers_state::read_all(&worker, deadline);
    let servers = servers.map_err(|error| named(error.to_string()))?;
    let stats = server_stats::read(&worker, deadline);
    let stats = stats.map_err(|error| named(error.to_string()))?;
    let status: BTreeMap<(&str, &str), &str> = stats
        .iter()
        .map(|stat| ((&*stat.backend, &*stat.name), &*stat.status))
        .collect();
    let rows = servers.into_iter().map(|server| {
        let found = status.get(&(&*server.backend, &*server.name)).copied();
        Row {
            status: found.unwrap_or_default().to_owned(),
            server,
        }
    });
    Ok(rows.collect())
}

/// How far a key has come on a worker; `None` where it names no row of it.
pub(super) fn judge_rows(rows: &[Row], key: &str, wanted: Wanted) -> Option<Shown> {
    let Row {
        server: row,
        status,
    } = rows.iter().find(|row| {
        let (backend, name) = (&*row.server.backend, &*row.server.name);
        key.split_once('/') == Some((backend, name))
    })?;
    let share = |percent: u16| (row.base_weight * u32::from(percent) / 100).min(MAX_WEIGHT);
    let (admin, weight) = match wanted {
        Wanted::Value(Value::Drain) => (DRAIN, None),
        Wanted::Value(Value::Maint) => (MAINT, None),
        Wanted::Value(Value::Weight(percent)) => (0, Some(share(percent))),
        Wanted::Value(Value::Ready) => (0, None),
        Wanted::Gone { weighed } => (0, weighed.then(|| share(100))),
    };
    let is = row.admin & (MAINT | DRAIN);
    let mut shown = Shown {
        asked: 1,
        ..Shown::default()
    };
    let other = if is != admin {
        let state = match is {
            0 => "in service",
            MAINT => "in maint",
            _ => "in drain",
        };
        Some(format!("is {state}"))
    } else if weight.is_some_and(|weight| weight != row.weight) {
        let (weight, base) = (row.weight, row.base_weight);
        Some(format!("has weight {weight} of {base}"))
    } else if admin == 0 && status.starts_with("DOWN (agent)") {
        Some(format!(
            "is held DOWN as an agent's word (set server {key} agent up, at this socket, ends that)"
        ))
    } else {
        None
    };
    // Its health is its own affair, and whoever looks for traffic wants to know.
    if other.is_none() && admin == 0 && status.starts_with("DOWN") {
        shown.notes.push(format!(
            "{key} is as wanted, and {status} by its health check"
        ));
    }
    let silence = match (row.is_asked(), row.agent & AGENT_CONFIGURED) {
        (true, _) => None,
        (false, 0) => Some("it has no agent check".to_owned()),
        (false, _) => Some(format!(
            "its agent check is switched off (enable agent {key})"
        )),
    };
    match (other, silence) {
        (None, None) => {}
        (Some(other), None) => shown.waiting.push(format!("{key} {other}")),
        (Some(other), Some(why)) => {
            let text = format!("{key} {other} and does not ask: {why}");
            shown.mute.push(text);
        }
        (None, Some(why)) => shown.notes.push(format!(
            "{key} is as wanted by itself, and does not ask: {why}"
        )),
    }
    Some(shown)
}

/// The body of one page of a responder's monitoring, within this time.
pub(super) fn fetch(origin: &Origin, target: &str, time: Duration) -> Result<Vec<u8>, String> {
    let end = SystemClock.now() + time.min(LOOK);
    let mut connection =
        Connection::open(origin, end, &Cancel::new()).map_err(|error| error.to_string())?;
    let answer = connection
        .send(Request::get(target), Until::all(end))
        .map_err(|error| error.to_string())?;
    match answer.status() {
        200 => answer
            .collect(MAX_COVERAGE_BYTES)
            .map_err(|error| error.to_string()),
        status => Err(format!("it answers {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(admin: u32, weight: u32, agent: u32, status: &str) -> Row {
        let server = ServerRow {
            backend: "w".to_owned(),
            name: "s1".to_owned(),
            admin,
            weight,
            base_weight: 30,
            address: "-".to_owned(),
            port: "0".to_owned(),
            agent,
            agent_at: ("-".to_owned(), "0".to_owned()),
        };
        Row {
            server,
            status: status.to_owned(),
        }
    }

    /// `agent down` at the socket is stronger than what the responder says.
    #[test]
    fn a_row_that_is_held_down_is_not_in_service() {
        let gone = Wanted::Gone { weighed: false };
        let value = Wanted::Value;
        for wanted in [gone, value(Value::Ready), value(Value::Weight(100))] {
            let shown = judge_rows(&[row(0, 30, 23, "DOWN (agent)")], "w/s1", wanted).unwrap();
            assert_eq!(shown.waiting.len(), 1, "{wanted:?}");
            assert!(shown.waiting[0].contains("set server w/s1 agent up"));
            // Health is another matter: said, and no reason to wait.
            let shown = judge_rows(&[row(0, 30, 23, "DOWN 1/2")], "w/s1", wanted).unwrap();
            assert!(shown.waiting.is_empty(), "{wanted:?}");
            assert!(shown.notes[0].contains("health check"), "{wanted:?}");
        }
        // Out is out.
        let down = row(8, 30, 23, "DOWN (agent)");
        let shown = judge_rows(&[down], "w/s1", value(Value::Drain)).unwrap();
        assert!(shown.waiting.is_empty() && shown.notes.is_empty());
    }

    #[test]
    fn a_worker_shows_admin_state_and_weight() {
        let server = |admin, weight| row(admin, weight, 23, "UP");
        let value = Wanted::Value;
        let table = [
            (server(8, 30), value(Value::Drain), true),
            (server(0, 30), value(Value::Drain), false),
            (server(9, 30), value(Value::Drain), false),
            (server(1, 30), value(Value::Maint), true),
            (server(1 | 4, 30), value(Value::Maint), true),
            (server(0, 15), value(Value::Weight(50)), true),
            (server(0, 30), value(Value::Weight(50)), false),
            (server(8, 15), value(Value::Weight(50)), false),
            (server(0, 256), value(Value::Weight(999)), true),
            (server(0, 15), value(Value::Ready), true),
            (server(16, 30), Wanted::Gone { weighed: true }, true),
            (server(0, 15), Wanted::Gone { weighed: true }, false),
            (server(0, 15), Wanted::Gone { weighed: false }, true),
            (server(8, 30), Wanted::Gone { weighed: false }, false),
        ];
        for (row, wanted, there) in table {
            let text = format!("{row:?} {wanted:?}");
            let shown = judge_rows(&[row], "w/s1", wanted).unwrap();
            assert_eq!(shown.waiting.is_empty(), there, "{text}");
            assert!(shown.mute.is_empty() && shown.notes.is_empty(), "{text}");
        }
        assert!(judge_rows(&[server(0, 1)], "canary", value(Value::Drain)).is_none());
        assert!(judge_rows(&[server(0, 1)], "w/s2", value(Value::Drain)).is_none());
    }

    #[test]
    fn a_row_that_is_not_asked_about_says_so() {
        let server = |agent, admin| row(admin, 30, agent, "UP");
        let drain = Wanted::Value(Value::Drain);
        for (agent, why) in [(18, "switched off"), (0, "no agent check")] {
            let shown = judge_rows(&[server(agent, 0)], "w/s1", drain).unwrap();
            assert!(shown.waiting.is_empty() && shown.mute.len() == 1);
            assert!(shown.mute[0].contains(why) && shown.mute[0].contains("in service"));
            let shown = judge_rows(&[server(agent, 8)], "w/s1", drain).unwrap();
            assert!(shown.mute.is_empty() && shown.notes.len() == 1, "{shown:?}");
            assert!(shown.notes[0].contains(why));
        }
    }
}
