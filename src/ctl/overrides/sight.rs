//! Whether an override has arrived: asked of responders (their coverage) and of HAProxy
//! itself (its stats socket). What was seen is judged by pure functions.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::clock::{Clock as _, SystemClock};
use crate::haproxy::servers_state::{self, ServerRow};
use crate::haproxy::{Deadline, WorkerSocket};
use crate::http::client::{Cancel, Connection, Origin, Request, Until};
use crate::responder::stamp::Stamp;
use crate::responder::value::Value;

/// How long one look may take.
const LOOK: Duration = Duration::from_secs(5);
/// The longest coverage: 16 384 rows.
const MAX_COVERAGE_BYTES: u64 = 32 * 1024 * 1024;
/// A row that was not heard for so many of its intervals asks no more.
const GONE_INTERVALS: f64 = 10.0;
/// And never counts as gone before this.
const GONE_LEAST_SECONDS: f64 = 10.0;
/// Bits of a server's admin state that an agent's words set.
const MAINT: u32 = 1;
const DRAIN: u32 = 8;
/// The greatest weight in HAProxy.
const MAX_WEIGHT: u32 = 256;

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
}

/// What a responder says at `/-/coverage`, as far as it matters here.
#[derive(Debug, Deserialize)]
pub(super) struct Coverage {
    pub(super) store: StoreView,
    #[serde(default)]
    pub(super) rows: Vec<RowView>,
}

#[derive(Debug, Deserialize)]
pub(super) struct StoreView {
    pub(super) synced: bool,
    #[serde(default)]
    pub(super) hold: Option<String>,
    #[serde(default)]
    pub(super) trouble: Option<String>,
}

#[derive(Debug, Deserialize, Default)]
pub(super) struct RowView {
    pub(super) row: String,
    #[serde(default)]
    pub(super) state: Option<String>,
    #[serde(default)]
    pub(super) request: Vec<String>,
    #[serde(default)]
    pub(super) answer: Option<String>,
    #[serde(default)]
    pub(super) decided_by: Option<String>,
    #[serde(default)]
    pub(super) last_asked: Option<String>,
    #[serde(default)]
    pub(super) interval_seconds: Option<f64>,
}

impl Coverage {
    /// Asks a responder.
    pub(super) fn of(origin: &Origin) -> Result<Self, String> {
        let end = SystemClock.now() + LOOK;
        let failed = |what: String| {
            format!("{origin}: {what}; --responder takes the address of its --monitoring-addr")
        };
        let body = fetch(origin, "/-/coverage", end).map_err(failed)?;
        serde_json::from_slice(&body).map_err(|error| failed(format!("no coverage: {error}")))
    }

    /// The rows that still ask, by what the responder heard last.
    pub(super) fn live(&self) -> impl Iterator<Item = &RowView> {
        let newest = self.rows.iter().filter_map(RowView::asked_at).max();
        self.rows
            .iter()
            .filter(move |row| match (row.asked_at(), newest) {
                (Some(at), Some(newest)) => {
                    let interval = row.interval_seconds.unwrap_or(0.0);
                    let gone = (interval * GONE_INTERVALS).max(GONE_LEAST_SECONDS);
                    // Whole seconds of this century fit a double.
                    #[allow(clippy::cast_precision_loss)]
                    let silent = newest.saturating_sub(at) as f64;
                    silent < gone
                }
                (None, _) | (Some(_), None) => false,
            })
    }

    /// Every key that somebody asks for.
    pub(super) fn asked_keys(&self) -> impl Iterator<Item = &str> {
        let keys = self.live().flat_map(|row| row.request.iter());
        keys.map(String::as_str)
    }

    /// How far a key has come.
    pub(super) fn judge(&self, key: &str, wanted: Wanted) -> Shown {
        let mut shown = Shown::default();
        for row in self.live() {
            let Some(place) = row.request.iter().position(|asked| asked == key) else {
                continue;
            };
            shown.asked += 1;
            let decider = row
                .decided_by
                .as_ref()
                .and_then(|by| row.request.iter().position(|asked| asked == by));
            if decider.is_some_and(|decider| decider < place) {
                shown.elsewhere += 1;
                continue;
            }
            let ours = decider == Some(place);
            let told = match wanted {
                Wanted::Value(value) => {
                    ours && row.answer.as_deref() == Some(value.to_string().as_str())
                }
                Wanted::Gone { .. } => !ours,
            };
            let answer = row.answer.as_deref().unwrap_or("nothing");
            match row.state.as_deref() {
                _ if !told => shown
                    .waiting
                    .push(format!("{} is still answered {answer}", row.row)),
                None | Some("following" | "by_group") => {}
                Some(state) => shown
                    .waiting
                    .push(format!("{} is answered {answer} and is {state}", row.row)),
            }
        }
        shown
    }
}

impl RowView {
    fn asked_at(&self) -> Option<u64> {
        let text = self.last_asked.as_deref()?.get(..19)?;
        Stamp::parse(&format!("{text}Z")).map(Stamp::seconds)
    }
}

/// All rows of a worker.
pub(super) fn rows(socket: &Path) -> Result<Vec<ServerRow>, String> {
    let worker = WorkerSocket::new(socket.to_path_buf());
    servers_state::read_all(&worker, Deadline::after(LOOK))
        .map_err(|error| format!("{}: {error}", socket.display()))
}

/// How far a key has come on a worker; `None` where it names no row of it.
pub(super) fn judge_rows(rows: &[ServerRow], key: &str, wanted: Wanted) -> Option<Shown> {
    let row = rows
        .iter()
        .find(|row| key.split_once('/') == Some((row.backend.as_str(), row.name.as_str())))?;
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
    if is != admin {
        let state = match is {
            0 => "in service",
            MAINT => "in maint",
            _ => "in drain",
        };
        shown.waiting.push(format!("{key} is {state}"));
    } else if weight.is_some_and(|weight| weight != row.weight) {
        let text = format!("{key} has weight {} of {}", row.weight, row.base_weight);
        shown.waiting.push(text);
    }
    Some(shown)
}

fn fetch(origin: &Origin, target: &str, end: Instant) -> Result<Vec<u8>, String> {
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

    fn row(
        request: &[&str],
        decided_by: Option<&str>,
        answer: &str,
        state: Option<&str>,
    ) -> RowView {
        RowView {
            row: request[0].to_owned(),
            state: state.map(str::to_owned),
            request: request.iter().map(|key| (*key).to_owned()).collect(),
            answer: Some(answer.to_owned()),
            decided_by: decided_by.map(str::to_owned),
            last_asked: Some("2026-01-02T03:04:05.000000006Z".to_owned()),
            interval_seconds: Some(2.0),
        }
    }

    fn coverage(rows: Vec<RowView>) -> Coverage {
        Coverage {
            store: StoreView {
                synced: true,
                hold: None,
                trouble: None,
            },
            rows,
        }
    }

    const S1: &[&str] = &["w/s1", "canary"];

    #[test]
    fn rows_follow_a_group_unless_their_own_key_decides() {
        let drain = Wanted::Value(Value::Drain);
        let table = [
            (row(S1, Some("canary"), "drain", None), 0, 0),
            (row(S1, Some("canary"), "drain", Some("following")), 0, 0),
            (row(S1, Some("canary"), "drain", Some("pending")), 0, 1),
            (row(S1, Some("canary"), "drain", Some("diverged")), 0, 1),
            (row(S1, Some("canary"), "maint", None), 0, 1),
            (row(S1, None, "ready", None), 0, 1),
            (row(S1, Some("w/s1"), "ready", Some("following")), 1, 0),
            (row(S1, Some("w/s1"), "drain", Some("pending")), 1, 0),
        ];
        for (row, elsewhere, waiting) in table {
            let text = format!("{row:?}");
            let shown = coverage(vec![row]).judge("canary", drain);
            assert_eq!(shown.asked, 1);
            assert_eq!(shown.elsewhere, elsewhere, "{text}");
            assert_eq!(shown.waiting.len(), waiting, "{text}");
        }
    }

    #[test]
    fn a_key_that_is_gone_decides_nothing() {
        let gone = Wanted::Gone { weighed: false };
        let waiting = |row| coverage(vec![row]).judge("canary", gone).waiting.len();
        assert_eq!(waiting(row(S1, Some("canary"), "drain", None)), 1);
        assert_eq!(waiting(row(S1, None, "ready", None)), 0);
        assert_eq!(waiting(row(S1, None, "ready", Some("pending"))), 1);
        assert_eq!(
            waiting(row(S1, Some("w/s1"), "drain", Some("following"))),
            0
        );
    }

    #[test]
    fn rows_that_left_do_not_count() {
        let mut old = row(&["w/s2", "canary"], None, "ready", None);
        old.last_asked = Some("2026-01-02T03:03:05Z".to_owned());
        let mut slow = row(&["w/s3", "canary"], Some("canary"), "drain", None);
        slow.last_asked = Some("2026-01-02T03:03:05Z".to_owned());
        slow.interval_seconds = Some(60.0);
        let silent = RowView {
            row: "w/s4".to_owned(),
            state: Some("not_asking".to_owned()),
            ..RowView::default()
        };
        let new = row(S1, Some("canary"), "drain", None);
        let coverage = coverage(vec![old, slow, silent, new]);
        let shown = coverage.judge("canary", Wanted::Value(Value::Drain));
        assert_eq!((shown.asked, shown.waiting.len()), (2, 0));
        assert!(!coverage.asked_keys().any(|key| key == "w/s2"));
    }

    #[test]
    fn a_worker_shows_admin_state_and_weight() {
        let server = |admin, weight| ServerRow {
            backend: "w".to_owned(),
            name: "s1".to_owned(),
            admin,
            weight,
            base_weight: 30,
            address: "-".to_owned(),
            port: "0".to_owned(),
            agent: 0,
            agent_at: ("-".to_owned(), "0".to_owned()),
        };
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
        }
        assert!(judge_rows(&[server(0, 1)], "canary", value(Value::Drain)).is_none());
        assert!(judge_rows(&[server(0, 1)], "w/s2", value(Value::Drain)).is_none());
    }
}
