//! What a responder says of the rows that ask it, and what that says of a key. The
//! judgements are pure.

mod index;
mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::sight::{LOOK, Shown, Wanted, fetch};
use super::watch;
use crate::http::client::Origin;
use crate::responder::stamp::Stamp;

pub(super) use index::Index;
pub(super) use shape::{CopiedKey, Coverage, PlaceView, RowView, StoreView};

/// A row that was not heard for so many of its intervals asks no more.
const GONE_INTERVALS: f64 = 10.0;
/// And never counts as gone before this.
const GONE_LEAST_SECONDS: f64 = 10.0;

/// What a row has to do with a key.
enum Part<'a> {
    /// It asks for it.
    Asks,
    /// It would have to follow, and does not ask.
    Mute(String),
    /// It does not ask at all, and nobody knows for what it would.
    Unknown(&'a str),
    /// It asked for it, and does not any more; nobody knows why.
    Gone(&'a str),
    None,
}

impl Coverage {
    /// Asks a responder, which looks at its HAProxy first.
    pub(super) fn within(origin: &Origin, time: Duration) -> Result<Self, String> {
        Self::read(origin, "/-/coverage?fresh", time)
    }

    /// The same, with what its copy says of each key.
    pub(super) fn with_copy(origin: &Origin) -> Result<Self, String> {
        Self::read(origin, "/-/coverage?fresh&copy", LOOK)
    }

    fn read(origin: &Origin, target: &str, time: Duration) -> Result<Self, String> {
        let failed = |what: String| {
            format!("{origin}: {what}; --responder takes the address of its --monitoring-addr")
        };
        let body = fetch(origin, target, time).map_err(failed)?;
        serde_json::from_slice(&body).map_err(|error| failed(format!("no coverage: {error}")))
    }

    /// The rows that still ask, by what the responder heard last and by what HAProxy says.
    pub(super) fn live(&self) -> impl Iterator<Item = &RowView> {
        let newest = self.newest();
        self.rows
            .iter()
            .filter(move |row| row.is_live(newest) && row.silence().is_none())
    }

    /// Its present; where it does not say that, when it was last asked.
    fn newest(&self) -> Option<u64> {
        let asked = self.rows.iter().filter_map(RowView::asked_at).max();
        let at = self.at.as_deref().and_then(second_of);
        at.map(Stamp::seconds).max(asked)
    }

    /// Why it answers nothing at all, if it does not.
    pub(super) fn silence(&self) -> Option<String> {
        let store = &self.store;
        let trouble = store.trouble.as_deref().unwrap_or("no reply yet");
        (!store.synced)
            .then(|| format!("it has not read the store yet, and so answers no check: {trouble}"))
    }

    /// Why it cannot say what HAProxy shows, if it was to.
    pub(super) fn blind(&self) -> Option<&str> {
        let haproxy = self.haproxy.as_ref()?;
        let late = haproxy.fresh == Some(false);
        let late =
            late.then_some("it was not looked at in time, and the last look is an older one");
        haproxy.trouble.as_deref().or(late)
    }

    /// The same for people.
    pub(super) fn blindness(&self) -> Option<String> {
        self.blind().map(|trouble| {
            format!("its HAProxy cannot be asked, so what that shows is not known: {trouble}")
        })
    }

    /// Rows that ask by a name that HAProxy does not have, each with what it sends and what
    /// it may have meant.
    pub(super) fn strangers(&self) -> Vec<String> {
        let state = |row: &RowView, states: &[&str]| {
            row.state
                .as_deref()
                .is_some_and(|state| states.contains(&state))
        };
        let lost = self
            .rows
            .iter()
            .filter(|row| row.name_is_of_a_row() && state(row, &["by_group", "not_asking"]));
        let lost: Vec<&str> = lost.map(|row| row.row.as_str()).collect();
        let strange = self.rows.iter().filter(|row| state(row, &["foreign"]));
        let told = strange.map(|row| {
            let why = row
                .why
                .as_deref()
                .unwrap_or("HAProxy has no server of that name");
            let near = watch::nearest(&row.row, lost.iter().copied());
            format!("{}: {why}{}", row.row, watch::hint(near))
        });
        told.collect()
    }

    /// Rows without any override that HAProxy shows otherwise than they are answered.
    pub(super) fn astray(&self) -> Vec<String> {
        let free = self.live().filter(|row| row.decided_by.is_none());
        let astray = free.filter_map(|row| {
            let state = row.state.as_deref().filter(|state| *state == "diverged")?;
            let answer = row.answer.as_deref()?;
            let standing = row.standing(state);
            Some(format!(
                "{} is answered {answer} and is {standing}",
                row.row
            ))
        });
        match self.blind() {
            None => astray.collect(),
            Some(_) => Vec::new(),
        }
    }

    /// Every key that somebody asks for.
    pub(super) fn asked_keys(&self) -> impl Iterator<Item = &str> {
        let keys = self.live().flat_map(|row| row.request.iter());
        keys.map(String::as_str)
    }

    /// When somebody last asked.
    pub(super) fn last_asked(&self) -> Option<Stamp> {
        let last = self.live().filter_map(RowView::asked_at).max();
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
                Part::Asks | Part::Unknown(_) | Part::Gone(_) | Part::None => None,
            })
            .collect()
    }

    /// Rows that a share of their weight leaves without any traffic, because it is cut to a
    /// whole number, each with its weight.
    pub(super) fn starved(&self, key: &str, percent: u16) -> Vec<String> {
        let asking = self
            .live()
            .filter(|row| row.request.iter().any(|k| k == key));
        let starved = asking.filter_map(|row| {
            let base = row.haproxy.as_ref()?.base_weight;
            let none = percent > 0 && base > 0 && base * u32::from(percent) < 100;
            none.then(|| format!("{} (weight {base})", row.row))
        });
        starved.collect()
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
                Part::Gone(name) => shown.gone.push(name.to_owned()),
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

/// The second of a moment that has a fraction.
pub(super) fn second_of(moment: &str) -> Option<Stamp> {
    Stamp::parse(&format!("{}Z", moment.get(..19)?))
}

impl RowView {
    fn asked_at(&self) -> Option<u64> {
        second_of(self.last_asked.as_deref()?).map(Stamp::seconds)
    }

    /// Backend and server, and no group.
    fn name_is_of_a_row(&self) -> bool {
        self.row.contains('/')
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
            (None, _) if asked => Part::Gone(&self.row),
            (None, _) => Part::None,
        }
    }

    /// A state with its reason.
    pub(super) fn standing(&self, state: &str) -> String {
        match &self.why {
            Some(why) => format!("{state}: {why}"),
            None => state.to_owned(),
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
                let by = self.decided_by.as_deref().filter(|by| *by != key);
                let by = by.map_or(String::new(), |by| format!(" by {by}"));
                let text = format!("{row} is still answered {answer}{by}");
                shown.waiting.push(text);
            }
            None | Some("following" | "by_group") => {}
            Some(state) => {
                let text = format!("{row} is answered {answer} and is {}", self.standing(state));
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
    /// Asks each of them, also for its copy.
    pub(super) fn of(responders: &[Origin]) -> Self {
        let all = responders.iter();
        Self {
            all: all
                .map(|origin| (origin.clone(), Coverage::with_copy(origin)))
                .collect(),
        }
    }

    /// Those that answered, by name.
    pub(super) fn named(&self) -> impl Iterator<Item = (&Origin, &Coverage)> {
        let all = self.all.iter();
        all.filter_map(|(origin, said)| Some((origin, said.as_ref().ok()?)))
    }

    /// Those that know of rows. One that has not read the store yet is silent towards them,
    /// and takes down none.
    pub(super) fn good(&self) -> impl Iterator<Item = &Coverage> {
        let answered = self.named().map(|(_, coverage)| coverage);
        answered.filter(|coverage| coverage.store.synced)
    }

    /// Whether there is one of these.
    pub(super) fn any(&self) -> bool {
        self.good().next().is_some()
    }

    /// Keys that are no overrides.
    pub(super) fn markers(&self) -> impl Iterator<Item = &str> {
        self.named()
            .filter_map(|(_, coverage)| coverage.store.marker.as_deref())
    }

    /// Every key that somebody asks for.
    pub(super) fn asked_keys(&self) -> BTreeSet<&str> {
        self.good().flat_map(Coverage::asked_keys).collect()
    }
}

#[cfg(test)]
mod tests;
