//! Whether a responder answers what the store says, and whether HAProxy shows what it was
//! answered: judged key by key, of one moment, purely.
//!
//! Three things can differ, and each is named by itself: the responder's copy from the
//! store, what a row was told from the copy, and what HAProxy shows from what it was told.

use std::collections::BTreeMap;

use serde_json::json;

use super::super::view::Block;
use super::super::words::counted;
use super::coverage::{CopiedKey, Coverage, Coverages, Index, PlaceView, RowView};
use super::store::{StoreChoice, Stored};
use super::watch::MAX_NAMED;
use crate::clock::UnixNanos;
use crate::http::client::Origin;
use crate::responder::kv::dir::store::shown_name;
use crate::responder::value::Value;

/// What is stored, by key, without markers.
pub(super) type Keys<'s> = BTreeMap<&'s str, &'s Stored>;

/// A responder beside the store.
pub(super) struct Side<'c> {
    origin: &'c Origin,
    coverage: &'c Coverage,
    /// Its rows by their keys.
    pub(super) rows: Index<'c>,
    copy: Option<BTreeMap<&'c str, &'c CopiedKey>>,
}

/// What became of one key at one responder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Rows that are answered its value.
    answered: usize,
    /// Of these, rows that HAProxy shows as answered.
    shown: usize,
    /// Of these, rows of which nobody knows what HAProxy shows.
    unseen: usize,
    /// Rows for which a key before it decides.
    elsewhere: usize,
    /// What is not as the store says.
    differs: Vec<String>,
}

impl<'c> Side<'c> {
    /// Those that answered.
    pub(super) fn all(seen: &'c Coverages) -> Vec<Self> {
        let sides = seen.named().map(|(origin, coverage)| Self {
            origin,
            coverage,
            rows: Index::of(coverage),
            copy: coverage.overrides.as_ref().map(|copy| {
                let keys = copy.keys.iter();
                keys.map(|copied| (copied.key.as_str(), copied)).collect()
            }),
        });
        sides.collect()
    }

    /// Whether it knows of rows, see [`Coverages::good`].
    pub(super) fn knows_rows(&self) -> bool {
        self.coverage.store.synced
    }

    /// What became of a key that is stored.
    fn judge(&self, key: &str, stored: &Stored, keys: &Keys<'_>, now: UnixNanos) -> Told {
        let mut told = Told::default();
        told.differs.extend(self.copy_differs(key, stored));
        for row in self.rows.asking(key) {
            let Some(place) = row.request.iter().position(|asked| asked == key) else {
                continue;
            };
            let says = |key: &String| keys.get(key.as_str())?.entry.value_at(now);
            let mut decides = row.request.iter().enumerate();
            let decider = decides.find_map(|(at, key)| Some((at, says(key)?)));
            match decider {
                Some((at, _)) if at < place => told.elsewhere += 1,
                Some((at, value)) if at == place => self.judge_row(row, key, value, &mut told),
                Some(_) | None if row.decided_by.as_deref() == Some(key) => {
                    told.differs.push(is_answered(row));
                }
                Some(_) | None => {}
            }
        }
        told
    }

    /// A row that has to be told `value` by `key`.
    fn judge_row(&self, row: &RowView, key: &str, value: Value, told: &mut Told) {
        let by_it = row.decided_by.as_deref() == Some(key);
        if !by_it || row.answer.as_deref() != Some(value.to_string().as_str()) {
            told.differs.push(is_answered(row));
            return;
        }
        told.answered += 1;
        match row.state.as_deref() {
            _ if self.coverage.blind().is_some() => told.unseen += 1,
            None => told.unseen += 1,
            Some("following" | "by_group") => told.shown += 1,
            Some(state) => {
                let standing = row.standing(state);
                told.differs
                    .push(format!("{} is answered {value} and is {standing}", row.row));
            }
        }
    }

    /// How its copy of a key differs from the store.
    fn copy_differs(&self, key: &str, stored: &Stored) -> Option<String> {
        let copy = self.copy.as_ref()?;
        let cut = self.coverage.overrides.as_ref()?.left_out > 0;
        let copied = copy.get(key).copied();
        let until = stored.entry.until().map(|until| until.to_string());
        match (stored.entry.stored(), copied) {
            (Ok(_), None) if cut => None,
            (Ok(_), None) if self.cannot_read(key) => {
                Some("its responder cannot read the key's file".to_owned())
            }
            (Ok(_), None) => Some("its responder does not have it".to_owned()),
            (Ok(value), Some(copied)) => match (&copied.value, &copied.invalid) {
                (Some(theirs), _) if *theirs != value.to_string() => {
                    Some(format!("its responder has {theirs}"))
                }
                (Some(_), _) if copied.until != until => Some(match &copied.until {
                    Some(theirs) => format!("its responder has it until {theirs}"),
                    None => "its responder has it without an end".to_owned(),
                }),
                (Some(_), _) => None,
                (None, Some(why)) => Some(format!("to its responder it counts as absent: {why}")),
                (None, None) => Some("to its responder it counts as absent".to_owned()),
            },
            (Err(_), Some(copied)) => {
                let theirs = copied.value.as_ref()?;
                Some(format!("its responder goes on with {theirs}"))
            }
            (Err(_), None) => None,
        }
    }

    fn cannot_read(&self, key: &str) -> bool {
        let name = shown_name(key);
        self.coverage.store.unreadable.named.contains(&name)
    }

    /// What it has of a key that is in force, and how many rows are told so by it.
    fn in_force(&self, key: &str) -> Option<(&str, usize)> {
        let value = self.copy.as_ref()?.get(key)?.value.as_deref()?;
        let rows = self.rows.asking(key);
        let rows = rows.filter(|row| row.decided_by.as_deref() == Some(key));
        Some((value, rows.count()))
    }

    /// The keys that it has with a value whose time is not over.
    fn keys(&self, now: UnixNanos) -> impl Iterator<Item = &'c str> {
        let over = move |copied: &CopiedKey| {
            let until = copied.until.as_deref();
            let until = until.and_then(crate::responder::stamp::Stamp::parse);
            until.is_some_and(|until| until.has_come(now))
        };
        let copy = self.copy.iter().flatten();
        let valued = copy.filter(move |(_, copied)| copied.value.is_some() && !over(copied));
        valued.map(|(key, _)| *key)
    }
}

fn is_answered(row: &RowView) -> String {
    let answer = row.answer.as_deref().unwrap_or("nothing");
    match &row.decided_by {
        Some(by) => format!("{} is answered {answer}, by {by}", row.row),
        None => format!("{} is answered {answer}", row.row),
    }
}

/// Adds to the block of a stored key what responders and HAProxy make of it; true where that
/// is something else than what is stored.
pub(super) fn tell(
    key: &str,
    stored: &Stored,
    keys: &Keys<'_>,
    sides: &[Side<'_>],
    now: UnixNanos,
    block: &mut Block,
) -> bool {
    let mut sum = Told::default();
    for side in sides {
        let told = side.judge(key, stored, keys, now);
        sum.answered += told.answered;
        sum.shown += told.shown;
        sum.unseen += told.unseen;
        sum.elsewhere += told.elsewhere;
        let named = told.differs.into_iter().map(|what| match sides.len() {
            1 => what,
            _ => format!("{}: {what}", side.origin),
        });
        sum.differs.extend(named);
    }
    block.field("answered", sum.answered);
    block.field("shown", sum.shown);
    block.field("elsewhere", sum.elsewhere);
    block.field("differs", sum.differs.as_slice());
    if sum.elsewhere > 0 {
        let rows = counted(sum.elsewhere, "row");
        block.line(format!("a key before it decides for {rows}"));
    }
    if sum.differs.is_empty() {
        if sum.answered > 0 {
            let rows = counted(sum.answered, "row");
            block.line(match (sum.shown, sum.unseen) {
                (_, 0) => format!("answered to {rows}, and HAProxy shows it"),
                (0, _) => format!("answered to {rows}; what HAProxy shows is not known"),
                (shown, _) => format!("answered to {rows}; HAProxy is known to show {shown}"),
            });
        }
        return false;
    }
    block.good = false;
    for what in sum.differs.iter().take(MAX_NAMED) {
        block.line(format!("differs: {what}"));
    }
    if sum.differs.len() > MAX_NAMED {
        block.line(format!("and {} more differ", sum.differs.len() - MAX_NAMED));
    }
    true
}

/// What responders answer although it is not stored, or the store cannot be read: a block for
/// each such key that `known` does not name.
pub(super) fn beside(
    known: impl Fn(&str) -> bool,
    sides: &[Side<'_>],
    now: UnixNanos,
) -> BTreeMap<String, Block> {
    let mut blocks: BTreeMap<String, Block> = BTreeMap::new();
    for side in sides {
        for key in side.keys(now).filter(|key| !known(key)) {
            let Some((value, rows)) = side.in_force(key) else {
                continue;
            };
            let block = blocks.entry(key.to_owned()).or_insert_with(|| {
                let mut block = Block::new(false, value);
                block.field("stored", false);
                block
            });
            let told = match rows {
                0 => "to no row that asks now".to_owned(),
                rows => format!("to {}", counted(rows, "row")),
            };
            let origin = side.origin;
            block.line(format!(
                "responder {origin} answers {value} all the same, {told}"
            ));
            let places = block
                .fields
                .entry("answered_by")
                .or_insert_with(|| json!({}));
            if let Some(places) = places.as_object_mut() {
                places.insert(origin.to_string(), json!({"value": value, "rows": rows}));
            }
        }
    }
    blocks
}

/// The keys that a responder has in force, in words, for a file that cannot be read here.
pub(super) fn goes_on(key: &str, sides: &[Side<'_>]) -> Vec<String> {
    let on = sides.iter().filter_map(|side| {
        let (value, rows) = side.in_force(key)?;
        let rows = counted(rows, "row");
        Some(format!(
            "responder {} goes on with {value}, for {rows}",
            side.origin
        ))
    });
    on.collect()
}

/// Where a responder certainly follows another store than this one: the kind or the prefix.
/// An address or a path may be another name of the same.
fn follows_another(choice: &StoreChoice, place: &PlaceView) -> bool {
    match (choice, place) {
        (StoreChoice::Consul { prefix, .. }, PlaceView::Consul { prefix: theirs, .. }) => {
            prefix.with_slash() != *theirs
        }
        (StoreChoice::Directory(_), PlaceView::Directory { .. }) => false,
        (StoreChoice::Consul { .. }, PlaceView::Directory { .. })
        | (StoreChoice::Directory(_), PlaceView::Consul { .. }) => true,
    }
}

/// The responders that certainly follow another store, in words.
pub(super) fn others(choice: &StoreChoice, seen: &Coverages) -> Vec<String> {
    let others = seen.named().filter_map(|(origin, coverage)| {
        let place = coverage.store.place.as_ref()?;
        follows_another(choice, place).then(|| another(origin, place, choice))
    });
    others.collect()
}

/// The same of one that does.
fn another(origin: &Origin, place: &PlaceView, choice: &StoreChoice) -> String {
    format!("responder {origin} follows another store: {place}, and this is {choice}")
}

/// Whether a place is spelled otherwise than this store, though it may be the same.
pub(super) fn may_be_another(choice: &StoreChoice, place: &PlaceView) -> bool {
    !follows_another(choice, place) && choice.to_string() != place.to_string()
}

/// A responder that has a value for a key that is not stored.
#[derive(Debug)]
pub(super) struct Answering {
    /// What it answers, in words.
    pub(super) what: String,
    /// Whether it knows that its store has lost keys, and keeps them.
    pub(super) holds: bool,
}

/// The responders that have a value for a key.
pub(super) fn answered_by(key: &str, seen: &Coverages) -> Vec<Answering> {
    let sides = Side::all(seen);
    let answered = sides.iter().filter_map(|side| {
        let (value, _) = side.in_force(key)?;
        let store = &side.coverage.store;
        let place = store.place.as_ref();
        let place = place.map_or(String::new(), |place| format!(", and follows {place}"));
        Some(Answering {
            what: format!(
                "responder {} answers {value} by it all the same{place}",
                side.origin
            ),
            holds: store.hold.is_some(),
        })
    });
    answered.collect()
}

#[cfg(test)]
mod tests;
