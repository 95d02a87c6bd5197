//! What a responder says of the rows that ask it, and what that says of a key. The
//! judgements are pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::sight::{Shown, Wanted, fetch};
use crate::http::client::Origin;
use crate::responder::stamp::Stamp;

/// A row that was not heard for so many of its intervals asks no more.
const GONE_INTERVALS: f64 = 10.0;
/// And never counts as gone before this.
const GONE_LEAST_SECONDS: f64 = 10.0;

/// What a responder says at `/-/coverage`, as far as it matters here.
#[derive(Debug, Deserialize)]
pub(super) struct Coverage {
    pub(super) store: StoreView,
    #[serde(default)]
    pub(super) rows: Vec<RowView>,
}

#[derive(Debug, Deserialize, Default)]
pub(super) struct StoreView {
    pub(super) synced: bool,
    #[serde(default)]
    pub(super) hold: Option<String>,
    #[serde(default)]
    pub(super) trouble: Option<String>,
    /// Since the store last said what is answered.
    #[serde(default)]
    pub(super) age_seconds: Option<f64>,
    /// The key that is no override.
    #[serde(default)]
    pub(super) marker: Option<String>,
    /// What is in force although the store does not say so.
    #[serde(default)]
    pub(super) kept: Vec<Kept>,
}

/// An override that a hold keeps.
#[derive(Debug, Deserialize)]
pub(super) struct Kept {
    key: String,
    value: String,
}

impl StoreView {
    /// The overrides that a hold keeps, in words.
    pub(super) fn kept(&self) -> Vec<String> {
        let kept = self.kept.iter();
        kept.map(|kept| format!("{} {}", kept.key, kept.value))
            .collect()
    }
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
    #[serde(default)]
    pub(super) haproxy: Option<ServerView>,
}

#[derive(Debug, Deserialize, Default)]
pub(super) struct ServerView {
    #[serde(default)]
    agent: String,
    #[serde(default)]
    agent_status: String,
}

/// What a row has to do with a key.
enum Part<'a> {
    /// It asks for it.
    Asks,
    /// It would have to follow, and does not ask.
    Mute(String),
    /// It does not ask at all, and nobody knows for what it would.
    Unknown(&'a str),
    None,
}

impl Coverage {
    /// Asks a responder.
    pub(super) fn of(origin: &Origin) -> Result<Self, String> {
        let failed = |what: String| {
            format!("{origin}: {what}; --responder takes the address of its --monitoring-addr")
        };
        let body = fetch(origin, "/-/coverage").map_err(failed)?;
        serde_json::from_slice(&body).map_err(|error| failed(format!("no coverage: {error}")))
    }

    /// The rows that still ask, by what the responder heard last and by what HAProxy says.
    pub(super) fn live(&self) -> impl Iterator<Item = &RowView> {
        let newest = self.newest();
        self.rows
            .iter()
            .filter(move |row| row.is_live(newest) && row.silence().is_none())
    }

    fn newest(&self) -> Option<u64> {
        self.rows.iter().filter_map(RowView::asked_at).max()
    }

    /// Every key that somebody asks for.
    pub(super) fn asked_keys(&self) -> impl Iterator<Item = &str> {
        let keys = self.live().flat_map(|row| row.request.iter());
        keys.map(String::as_str)
    }

    /// When somebody last asked for a key, or at all.
    pub(super) fn last_asked(&self, key: Option<&str>) -> Option<Stamp> {
        let asks = |row: &&RowView| key.is_none_or(|key| row.request.iter().any(|k| k == key));
        let last = self.live().filter(asks).filter_map(RowView::asked_at).max();
        last.and_then(Stamp::at)
    }

    /// How many rows are told what now, by the kind of answer.
    pub(super) fn answers(&self) -> BTreeMap<&str, usize> {
        let mut answers = BTreeMap::new();
        for row in self.live() {
            let verdict = match row.answer.as_deref() {
                Some(text) if text.ends_with('%') => "weight",
                Some(text) => text,
                None => continue,
            };
            *answers.entry(verdict).or_default() += 1;
        }
        answers
    }

    /// Rows of HAProxy's that do not ask here although they have an agent check.
    pub(super) fn silent(&self) -> usize {
        let states = self.rows.iter().filter_map(|row| row.state.as_deref());
        states
            .filter(|s| matches!(*s, "agent_off" | "not_asking"))
            .count()
    }

    /// Rows that a key is meant for and that do not ask, each with the reason.
    pub(super) fn mute(&self, key: &str) -> Vec<String> {
        let newest = self.newest();
        let parts = self.rows.iter().map(|row| row.part(key, newest));
        parts
            .filter_map(|part| match part {
                Part::Mute(why) => Some(why),
                Part::Asks | Part::Unknown(_) | Part::None => None,
            })
            .collect()
    }

    /// How far a key has come.
    pub(super) fn judge(&self, key: &str, wanted: Wanted) -> Shown {
        let newest = self.newest();
        let mut shown = Shown::default();
        for row in &self.rows {
            match row.part(key, newest) {
                Part::None => {}
                Part::Mute(why) => shown.mute.push(why),
                Part::Unknown(name) => shown.unknown.push(name.to_owned()),
                Part::Asks => row.judge(key, wanted, &mut shown),
            }
        }
        shown
    }

    /// For each row that asks for `key`: the first other key of its request that `says`
    /// something, what it says, and whether it stands behind. `ended` say nothing.
    pub(super) fn others<'c, V>(
        &'c self,
        key: &str,
        ended: &BTreeSet<&str>,
        says: impl Fn(&str) -> Option<V>,
    ) -> Vec<Other<'c, V>> {
        let others = self.live().filter_map(|row| {
            let place = row.request.iter().position(|asked| asked == key)?;
            let left = row.request.iter().enumerate();
            let mut left = left.filter(|(_, asked)| !ended.contains(asked.as_str()));
            left.find_map(|(at, other)| {
                let value = says(other)?;
                Some(Other {
                    row: &row.row,
                    key: other,
                    value,
                    behind: at > place,
                })
            })
        });
        others.collect()
    }
}

/// A key that decides for a row in place of another one.
#[derive(Debug)]
pub(super) struct Other<'c, V> {
    pub(super) row: &'c str,
    pub(super) key: &'c str,
    pub(super) value: V,
    /// It stands behind the other in the request, which would outweigh it.
    pub(super) behind: bool,
}

impl RowView {
    fn asked_at(&self) -> Option<u64> {
        let text = self.last_asked.as_deref()?.get(..19)?;
        Stamp::parse(&format!("{text}Z")).map(Stamp::seconds)
    }

    fn is_live(&self, newest: Option<u64>) -> bool {
        let (Some(at), Some(newest)) = (self.asked_at(), newest) else {
            return false;
        };
        let interval = self.interval_seconds.unwrap_or(0.0);
        let gone = (interval * GONE_INTERVALS).max(GONE_LEAST_SECONDS);
        // Whole seconds of this century fit a double.
        #[allow(clippy::cast_precision_loss)]
        let silent = newest.saturating_sub(at) as f64;
        silent < gone
    }

    /// Why HAProxy does not ask for this row, if it does not.
    fn silence(&self) -> Option<String> {
        let row = &self.row;
        match self.state.as_deref()? {
            "agent_off" => Some(format!(
                "{row} does not ask: its agent check is switched off (enable agent {row})"
            )),
            "not_enrolled" => Some(format!("{row} does not ask: it has no agent check")),
            "not_asking" => {
                let how = match &self.haproxy {
                    Some(server) if !server.agent_status.is_empty() => {
                        format!(" ({} at {})", server.agent_status, server.agent)
                    }
                    Some(_) | None => String::new(),
                };
                Some(format!(
                    "{row} does not ask here: its agent check is on and does not arrive{how}"
                ))
            }
            _ => None,
        }
    }

    fn part(&self, key: &str, newest: Option<u64>) -> Part<'_> {
        let named = self.row == key;
        let asked = self.request.iter().any(|asked| asked == key);
        match (self.silence(), self.state.as_deref()) {
            // Without an agent check it has left the group that it once asked for.
            (Some(why), Some("not_enrolled")) if named => Part::Mute(why),
            (Some(_), Some("not_enrolled")) => Part::None,
            (Some(why), _) if named || asked => Part::Mute(why),
            // A group: it may be of it.
            (Some(_), _) if self.request.is_empty() && !key.contains('/') => {
                Part::Unknown(&self.row)
            }
            (Some(_), _) => Part::None,
            (None, Some("by_group")) if named && !asked => {
                Part::Mute(format!("{key} asks, but not with this key of its own"))
            }
            (None, _) if asked && self.is_live(newest) => Part::Asks,
            (None, _) => Part::None,
        }
    }

    fn judge(&self, key: &str, wanted: Wanted, shown: &mut Shown) {
        let place = self.request.iter().position(|asked| asked == key);
        shown.asked += 1;
        let by = self.decided_by.as_ref();
        let decider = by.and_then(|by| self.request.iter().position(|asked| asked == by));
        if decider.is_some_and(|decider| Some(decider) < place) {
            shown.elsewhere += 1;
            return;
        }
        let ours = decider.is_some() && decider == place;
        let told = match wanted {
            Wanted::Value(value) => {
                ours && self.answer.as_deref() == Some(value.to_string().as_str())
            }
            Wanted::Gone { .. } => !ours,
        };
        let row = &self.row;
        let answer = self.answer.as_deref().unwrap_or("nothing");
        match self.state.as_deref() {
            _ if !told => {
                let text = format!("{row} is still answered {answer}");
                shown.waiting.push(text);
            }
            None | Some("following" | "by_group") => {}
            Some(state) => {
                let text = format!("{row} is answered {answer} and is {state}");
                shown.waiting.push(text);
            }
        }
    }
}

/// What all responders said at one moment.
#[derive(Debug)]
pub(super) struct Coverages {
    pub(super) all: Vec<(Origin, Result<Coverage, String>)>,
}

impl Coverages {
    /// Asks each of them.
    pub(super) fn of(responders: &[Origin]) -> Self {
        let all = responders.iter();
        Self {
            all: all
                .map(|origin| (origin.clone(), Coverage::of(origin)))
                .collect(),
        }
    }

    /// Those that answered.
    pub(super) fn good(&self) -> impl Iterator<Item = &Coverage> {
        self.all.iter().filter_map(|(_, said)| said.as_ref().ok())
    }

    /// Whether one of them answered.
    pub(super) fn any(&self) -> bool {
        self.good().next().is_some()
    }

    /// Keys that are no overrides.
    pub(super) fn markers(&self) -> impl Iterator<Item = &str> {
        self.good()
            .filter_map(|coverage| coverage.store.marker.as_deref())
    }

    /// Every key that somebody asks for.
    pub(super) fn asked_keys(&self) -> BTreeSet<&str> {
        self.good().flat_map(Coverage::asked_keys).collect()
    }
}

#[cfg(test)]
mod tests;
