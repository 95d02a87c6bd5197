//! The rows of a coverage by the keys that they have to do with, so that a long list of keys
//! costs what it is long, and not that times the rows.

use std::collections::HashMap;

use super::{Coverage, Part, RowView};
use crate::responder::stamp::Stamp;

/// An index of one coverage.
#[derive(Debug)]
pub(in crate::ctl::overrides) struct Index<'c> {
    newest: Option<u64>,
    rows: HashMap<&'c str, Vec<&'c RowView>>,
}

impl<'c> Index<'c> {
    /// Of all its rows, whether they ask still or do not.
    pub(in crate::ctl::overrides) fn of(coverage: &'c Coverage) -> Self {
        let mut rows: HashMap<&str, Vec<&RowView>> = HashMap::new();
        for row in &coverage.rows {
            let mut keys: Vec<&str> = row.request.iter().map(String::as_str).collect();
            keys.push(&row.row);
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                rows.entry(key).or_default().push(row);
            }
        }
        Self {
            newest: coverage.newest(),
            rows,
        }
    }

    /// The rows that ask for a key, see [`Coverage::live`].
    pub(in crate::ctl::overrides) fn asking(&self, key: &str) -> impl Iterator<Item = &'c RowView> {
        let asks = move |row: &&&RowView| row.request.iter().any(|asked| asked == key);
        let live = self.of_key(key).filter(asks).copied();
        live.filter(|row| row.is_live(self.newest) && row.silence().is_none())
    }

    /// When somebody last asked for a key.
    pub(in crate::ctl::overrides) fn last_asked(&self, key: &str) -> Option<Stamp> {
        let last = self.asking(key).filter_map(RowView::asked_at).max();
        last.and_then(Stamp::at)
    }

    /// Rows that a key is meant for and that do not ask, each with the reason.
    pub(in crate::ctl::overrides) fn mute(&self, key: &str) -> Vec<String> {
        let parts = self.of_key(key).map(|row| row.part(key, self.newest));
        let mute = parts.filter_map(|part| match part {
            Part::Mute(why) => Some(why),
            Part::Asks | Part::Unknown(_) | Part::Gone(_) | Part::None => None,
        });
        mute.collect()
    }

    /// Rows that asked for a key and do not any more.
    pub(in crate::ctl::overrides) fn gone(&self, key: &str) -> Vec<String> {
        let parts = self.of_key(key).map(|row| row.part(key, self.newest));
        let gone = parts.filter_map(|part| match part {
            Part::Gone(name) => Some(name.to_owned()),
            Part::Asks | Part::Mute(_) | Part::Unknown(_) | Part::None => None,
        });
        gone.collect()
    }

    fn of_key(&self, key: &str) -> impl Iterator<Item = &&'c RowView> {
        self.rows.get(key).into_iter().flatten()
    }
}
