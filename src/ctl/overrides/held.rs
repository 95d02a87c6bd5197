//! What keeps a row out although its override has ended: another key of its request.
//!
//! Which keys a row asks for only a responder knows. With one it is said row by row; without
//! one it is only said which keys are left that might.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};

use super::super::view::Block;
use super::super::words::{counted, some};
use super::Report;
use super::act;
use super::coverage::{Coverages, Other};
use super::store::{Store, Stored};
use super::watch::{MAX_NAMED, hint, nearest};
use crate::clock::{Clock as _, SystemClock};
use crate::responder::value::Value;

/// Adds to each good key of the report what keeps its rows out, or what may have been meant
/// where there was nothing to end.
pub(super) fn tell(report: &mut Report, store: &mut Store, seen: &Coverages, ended: &[String]) {
    // The overrides have ended; without this list it only cannot be said what else there is.
    let Ok(left) = store.list() else { return };
    let left: BTreeMap<String, Stored> = left.keys.into_iter().collect();
    let ended: BTreeSet<&str> = ended.iter().map(String::as_str).collect();
    let asked = seen.asked_keys();
    for (key, block) in &mut report.keys {
        if !block.good {
            continue;
        }
        let nothing = block.fields.get(act::BEFORE).is_some_and(Json::is_null);
        let mute = || seen.good().any(|coverage| !coverage.mute(key).is_empty());
        if nothing && !asked.contains(key.as_str()) && !mute() {
            misspelt(key, block, &left, &asked, seen.any());
        }
        if seen.any() {
            by_rows(key, block, &left, seen, &ended);
        } else {
            by_names(key, block, &left);
        }
    }
}

/// Nothing was there to end. Where a responder is asked and no row asks for the key either,
/// or where another key is spelled almost like it, that one may have been meant.
fn misspelt(
    key: &str,
    block: &mut Block,
    left: &BTreeMap<String, Stored>,
    asked: &BTreeSet<&str>,
    looked: bool,
) {
    let known = left.keys().map(String::as_str).chain(asked.iter().copied());
    let near = nearest(key, known);
    let meant = hint(near);
    if looked {
        block.line(format!(
            "nothing is stored under {key}, and no row asks for it{meant}"
        ));
    } else if near.is_some() {
        block.line(format!("nothing is stored under {key}{meant}"));
    }
    if let Some(near) = near {
        block.field("meant", near);
    }
}

/// What an override says now, if it takes anything out.
fn takes_out(stored: &Stored) -> Option<Value> {
    let value = stored.entry.value_at(SystemClock.wall())?;
    (!matches!(value, Value::Ready | Value::Weight(100..))).then_some(value)
}

fn by_rows(
    key: &str,
    block: &mut Block,
    left: &BTreeMap<String, Stored>,
    seen: &Coverages,
    ended: &BTreeSet<&str>,
) {
    // The first that has a value decides, also if it takes nothing out.
    let says = |other: &str| left.get(other)?.entry.value_at(SystemClock.wall());
    let others = seen.good().flat_map(|c| c.others(key, ended, says));
    let held: Vec<Other<'_, Value>> = others
        .filter(|other| left.get(other.key).and_then(takes_out).is_some())
        .collect();
    if held.is_empty() {
        return;
    }
    let fields = held
        .iter()
        .map(|other| json!({"row": other.row, "key": other.key, "value": other.value.to_string()}));
    block.field("held_by", fields.collect::<Vec<_>>());
    let mut by_key: BTreeMap<(&str, bool), (Value, Vec<String>)> = BTreeMap::new();
    for other in &held {
        let place = by_key.entry((other.key, other.behind));
        let (_, rows) = place.or_insert((other.value, Vec::new()));
        rows.push(other.row.to_owned());
    }
    for ((other, _), (value, rows)) in &by_key {
        let count = counted(rows.len(), "row");
        let rows = some(rows, MAX_NAMED);
        block.line(format!(
            "{other} ({value}) still decides for {count}: {rows}"
        ));
    }
    if held.iter().any(|other| other.behind) {
        let others: BTreeSet<&str> = by_key.keys().filter(|k| k.1).map(|k| k.0).collect();
        let others = others.into_iter().collect::<Vec<_>>().join(" ");
        block.next = Some(format!(
            "hapticctl ready {key} --pin outweighs that; hapticctl ready {others} ends it for all its rows"
        ));
    }
    // A row of this name was to be in service, and is not.
    if held.iter().any(|other| other.row == key) {
        block.good = false;
    }
}

fn by_names(key: &str, block: &mut Block, left: &BTreeMap<String, Stored>) {
    if !key.contains('/') {
        return;
    }
    let groups = left.iter().filter(|(other, _)| !other.contains('/'));
    let groups = groups.filter_map(|(other, stored)| {
        let value = takes_out(stored)?;
        Some(format!("{other} ({value})"))
    });
    let groups: Vec<String> = groups.collect();
    if !groups.is_empty() {
        let groups = some(&groups, MAX_NAMED);
        block.line(format!(
            "still stored: {groups}; if the row asks for one of them it stays out, unless hapticctl ready {key} --pin outweighs it (--responder URL tells)"
        ));
    }
}
