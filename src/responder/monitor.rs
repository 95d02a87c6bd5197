//! What people and scrapers see: metrics, health, and who asks for what.
//!
//! `/-/metrics`, `/-/liveness`, `/-/readiness` and `/-/coverage`, on a listener of the
//! responder's own or beside the daemon's metrics. Nothing here changes anything.

mod query;
mod shown;
mod why;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::answer::Verdict;
use super::confirm::{Confirm, View};
use super::copy::{Copy, CopyCell};
use super::coverage::{Coverage, Heard, RowState, unaddressable, unasked};
use super::kv::KvStatus;
use super::limits::{FRESH_TIME, WATCHER_LATE};
use super::metrics::{Metrics, Seen};
use super::serve::Health;
use crate::clock::{Clock, UnixNanos};
use crate::http::{Method, Request, Response, Service, Status};
use crate::metrics::{self as exposition, By, Gauge, Label as _};

use query::Query;
use shown::{
    Asked, Explained, Haproxy, Invalid, ShownRow, ShownServer, Store, Whole, kept, overrides,
};

use why::why;

pub use shown::Place;

/// Every path starts like this.
pub const PATHS: &str = "/-/";

/// Looks into a responder.
#[derive(Debug)]
pub struct Monitor {
    pub(super) metrics: Arc<Metrics>,
    pub(super) status: Arc<KvStatus>,
    pub(super) cell: Arc<CopyCell>,
    pub(super) coverage: Arc<Coverage>,
    pub(super) confirm: Option<Arc<Confirm>>,
    pub(super) health: Health,
    pub(super) place: Place,
    /// The key that every reply of the store has to have.
    pub(super) marker: Option<String>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Service for Monitor {
    fn call(&self, request: &mut Request<'_>) -> Response {
        self.answer(request.method(), request.path(), request.query())
    }
}

impl Monitor {
    /// Answers a request for one of the responder's paths; 404 for any other.
    #[must_use]
    pub fn answer(&self, method: &Method, path: &str, query: Option<&str>) -> Response {
        let answer = match path {
            "/-/metrics" => |this: &Self, _: Option<&str>| {
                let text = this.exposition(true);
                Response::bytes(Status::Ok, exposition::CONTENT_TYPE, text.into_bytes())
            },
            "/-/liveness" => |this: &Self, _: Option<&str>| this.liveness(),
            "/-/readiness" => |this: &Self, _: Option<&str>| this.readiness(),
            "/-/coverage" => Self::show_coverage,
            _ => return Response::text(Status::NotFound, "not found\n"),
        };
        match method {
            Method::Get | Method::Head => answer(self, query),
            Method::Post | Method::Other => {
                Response::text(Status::MethodNotAllowed, "method not allowed\n")
                    .header("Allow", "GET, HEAD")
            }
        }
    }

    /// The exposition; without the process's own figures where another one has them.
    #[must_use]
    pub fn exposition(&self, with_process: bool) -> String {
        let now = self.clock.now();
        let overrides: By<Verdict, Gauge> = By::default();
        let copy = self.cell.load();
        if let Some(copy) = &copy {
            let wall = self.clock.wall();
            for (_, entry) in copy.iter() {
                if let Some(value) = entry.value_at(wall) {
                    overrides.of(value.into()).inc();
                }
            }
        }
        let rows: By<RowState, Gauge> = By::default();
        if let Some(view) = self.confirm.as_ref().and_then(|confirm| confirm.last().0) {
            for state in RowState::ALL {
                rows.of(*state).set_len(view.count(*state));
            }
        }
        let listening_for = self.coverage.listening_for(now);
        let unasked = copy.map_or(0, |copy| {
            unasked(&copy, &self.coverage.rows(), listening_for, now).len()
        });
        let seen = Seen {
            kv: self.status.snapshot(),
            overrides,
            rows,
            unasked,
            evicted: self.coverage.evicted(),
        };
        self.metrics.render(&seen, with_process)
    }

    fn liveness(&self) -> Response {
        let late = self.status.overdue() > WATCHER_LATE;
        let watcher = late.then_some("the watcher of the store gives no sign of life");
        match self.health.trouble().or(watcher) {
            None => Response::text(Status::Ok, "ok\n"),
            Some(trouble) => Response::text(Status::ServiceUnavailable, &format!("{trouble}\n")),
        }
    }

    fn readiness(&self) -> Response {
        let kv = self.status.snapshot();
        if kv.synced {
            return Response::text(Status::Ok, "ready\n");
        }
        let trouble = kv.trouble.unwrap_or_else(|| "no reply yet".to_owned());
        let text = format!("the store has not been read yet: {trouble}\n");
        Response::text(Status::ServiceUnavailable, &text)
    }

    fn show_coverage(&self, query: Option<&str>) -> Response {
        let Some(query) = Query::of(query) else {
            return Response::text(
                Status::BadRequest,
                "key= has a percent sign without two hex digits behind it\n",
            );
        };
        let confirm = self.confirm.as_ref().filter(|_| query.fresh);
        let fresh = confirm.map(|confirm| confirm.refresh(FRESH_TIME));
        let shown = match query.key {
            None => serde_json::to_vec_pretty(&self.whole(query.copy, fresh)),
            Some(key) => serde_json::to_vec_pretty(&self.explain(&key)),
        };
        match shown {
            Ok(mut json) => {
                json.push(b'\n');
                Response::json(Status::Ok, json)
            }
            // Only a map with keys that are no strings could fail, and there is none.
            Err(error) => Response::text(Status::InternalServerError, &format!("{error}\n")),
        }
    }

    fn whole(&self, with_copy: bool, fresh: Option<bool>) -> Whole {
        let now = self.clock.now();
        let heard = self.coverage.rows();
        let copy = self.cell.load();
        let (view, trouble) = match &self.confirm {
            Some(confirm) => confirm.last(),
            None => (None, None),
        };
        let states = RowState::ALL.iter().map(|state| {
            let count = view.as_ref().map_or(0, |view| view.count(*state));
            (state.as_str(), count)
        });
        let listening_for = self.coverage.listening_for(now);
        let copy = copy.as_deref();
        Whole {
            at: self.clock.wall().rfc3339(),
            store: self.store(copy),
            overrides: copy.filter(|_| with_copy).map(overrides),
            haproxy: self.confirm.as_ref().map(|_| Haproxy {
                looked_at: view.as_ref().map(|view| view.at.rfc3339()),
                trouble,
                fresh,
            }),
            states: states.collect(),
            rows: rows(&heard, view.as_deref()),
            unasked: copy.map_or_else(Vec::new, |copy| unasked(copy, &heard, listening_for, now)),
            unaddressable: copy.map_or_else(Vec::new, unaddressable),
            evicted: self.coverage.evicted(),
        }
    }

    fn store(&self, copy: Option<&Copy>) -> Store {
        let kv = self.status.snapshot();
        let age = kv.last_read.map(|at| {
            let nanos = (self.clock.wall().0 - at.0).max(0);
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).as_secs_f64()
        });
        let invalid = copy.into_iter().flat_map(Copy::iter);
        let invalid = invalid.filter_map(|(key, entry)| {
            let why = entry.stored().err()?.to_string();
            Some(Invalid {
                key: key.to_owned(),
                why,
            })
        });
        Store {
            place: self.place.clone(),
            synced: kv.synced,
            last_read: kv.last_read.map(UnixNanos::rfc3339),
            age_seconds: age,
            hold: kv.hold.map(|hold| hold.as_str()),
            trouble: kv.trouble,
            trouble_since: kv.trouble_since.map(UnixNanos::rfc3339),
            keys: kv.keys,
            invalid: invalid.collect(),
            marker: self.marker.clone(),
            kept: match (kv.hold, copy) {
                (Some(_), Some(copy)) => kept(copy, &kv.lost, self.clock.wall()),
                (Some(_), None) | (None, _) => Vec::new(),
            },
            unreadable: kv.unreadable.into(),
            ignored: kv.ignored.into(),
        }
    }

    fn explain(&self, key: &str) -> Explained {
        let wall = self.clock.wall();
        let copy = self.cell.load();
        let entry = copy.as_ref().and_then(|copy| copy.get(key).cloned());
        let view = self.confirm.as_ref().and_then(|confirm| confirm.last().0);
        let heard = self.coverage.rows();
        let asks = |(_, row): &&(String, Heard)| row.keys().any(|k| k == key.as_bytes());
        let asking: Vec<(String, Heard)> = heard.iter().filter(asks).cloned().collect();
        let mut asked_by = rows(&asking, None);
        if let Some(view) = &view {
            let asking: HashMap<&str, &Heard> = by_name(&asking);
            for row in &mut asked_by {
                let heard = asking.get(row.row.as_str()).copied();
                let state = state_of(&row.row, heard, view);
                row.state = state.map(RowState::as_str);
                row.why = state.and_then(|s| why(&row.row, s, heard, view.rows.get(&row.row)));
            }
        }
        let value = entry.as_ref().and_then(|entry| entry.value_at(wall));
        let invalid = entry
            .as_ref()
            .and_then(|entry| entry.stored().err().cloned());
        let until = entry.as_ref().and_then(|entry| entry.until());
        let decides = |row: &&ShownRow| row.decided_by.as_deref() == Some(key);
        let decided = asked_by.iter().filter(decides).count();
        let says = match (&copy, &entry, value) {
            (None, _, _) => "the store has not been read yet, so no row is answered".to_owned(),
            (Some(_), None, _) => format!("{key} is not in the store and changes nothing"),
            (Some(_), Some(_), None) => match &invalid {
                Some(why) => format!("{key} counts as absent: {why}"),
                None => format!("{key} counts as absent: its time is over"),
            },
            (Some(_), Some(_), Some(value)) => format!("{key} says {value}"),
        };
        let asked = match (asked_by.len(), value) {
            (0, _) => "no row asks for it".to_owned(),
            (count, None) => format!("rows that ask for it: {count}"),
            (count, Some(_)) => format!(
                "rows that ask for it: {count}, of which it decides {decided}; a key before it in the request wins"
            ),
        };
        Explained {
            key: key.to_owned(),
            in_store: entry.is_some(),
            value: value.map(|value| value.to_string()),
            invalid: invalid.map(|why| why.to_string()),
            until: until.map(|until| until.to_string()),
            summary: format!("{says}; {asked}"),
            haproxy: view
                .as_ref()
                .and_then(|view| view.rows.get(key))
                .map(ShownServer::from),
            asked_by,
        }
    }
}

/// The rows that ask and those that HAProxy has, by name.
fn rows(heard: &[(String, Heard)], view: Option<&View>) -> Vec<ShownRow> {
    let by_name = by_name(heard);
    let seen = view.iter().flat_map(|view| view.rows.keys());
    let silent = seen
        .map(String::as_str)
        .filter(|name| !by_name.contains_key(name));
    let mut names: Vec<&str> = by_name.keys().copied().chain(silent).collect();
    names.sort_unstable();
    let shown = names.into_iter().map(|name| {
        let heard = by_name.get(name);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let heard = heard.copied();
        let seen = view.and_then(|view| view.rows.get(name));
        let state = view.and_then(|view| state_of(name, heard, view));
        ShownRow {
            row: name.to_owned(),
            state: state.map(RowState::as_str),
            why: state.and_then(|state| why(name, state, heard, seen)),
            decided_by: heard.and_then(|row| row.deciding_key()).map(text),
            asked: heard.map(|row| Asked {
                request: row.keys().map(text).collect(),
                answer: row.value.to_string(),
                first_asked: row.first.rfc3339(),
                last_asked: row.last.rfc3339(),
                interval_seconds: row.interval().map(|time| time.as_secs_f64()),
                count: row.count,
            }),
            haproxy: seen.map(ShownServer::from),
        }
    });
    shown.collect()
}

fn by_name(heard: &[(String, Heard)]) -> HashMap<&str, &Heard> {
    let named = heard.iter().map(|(name, row)| (name.as_str(), row));
    named.collect()
}

/// What the last look says of a row. A look from before the row's present answer says
/// nothing about that one.
fn state_of(name: &str, heard: Option<&Heard>, view: &View) -> Option<RowState> {
    let told_since = heard.is_some_and(|row| view.is_older_than(row.changed_at));
    Some(match view.rows.get(name) {
        Some(row) => match row.state {
            RowState::Following | RowState::Diverged if told_since => RowState::Pending,
            state => state,
        },
        // It names a group and no row, so which ones ask like this is not known.
        None if !name.contains('/') && heard.is_some_and(|row| view.was_asking(row)) => {
            RowState::ByGroup
        }
        None if view.foreign.iter().any(|foreign| foreign == name) => RowState::Foreign,
        None => return None,
    })
}
