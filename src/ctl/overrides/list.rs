//! `hapticctl overrides`: what is stored, since when, until when, by whom, whether anybody
//! asks for it, and whether what is answered is what is stored.
//!
//! Store and responders are not read at one moment, so a difference counts only if it is
//! there for longer than a change takes.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::super::view::Block;
use super::super::when::span;
use super::super::words::{counted, some};
use super::compare::{self, Keys, Side};
use super::coverage::Coverages;
use super::places::{self, ago};
use super::store::{Listed, Store, StoreChoice, StoreError, Stored};
use super::watch::{MAX_KEPT, MAX_NAMED};
use super::{Overrides, Report, act};
use crate::clock::{Clock as _, SystemClock, UnixNanos};
use crate::haproxy::Deadline;
use crate::haproxy::wait::Backoff;
use crate::responder::key::{self, is_addressable};
use crate::responder::stamp::Stamp;

/// How long an end has to be over before the key is deleted: clocks differ.
const SWEEP_AFTER_SECONDS: i64 = 60;

/// How long a difference between the store and what is answered may be one of a change that
/// is just being followed: a file is looked at five times a second, and one that is written
/// in place counts a second later.
const SETTLED: Duration = Duration::from_secs(3);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Lists, and sweeps first if that is asked for.
pub(super) fn run(store: &mut Store, task: &Overrides, sweep: bool) -> Report {
    let mut swept = Report::default();
    if sweep {
        match store.list() {
            Ok(listed) => sweep_over(store, &listed, task, &mut swept),
            Err(error) => return away(&error, task),
        }
    }
    let deadline = Deadline::after(SETTLED);
    let mut backoff = Backoff::default();
    loop {
        let listed = match store.list() {
            Ok(listed) => listed,
            Err(error) => return away(&error, task),
        };
        let seen = Coverages::of(&task.sights.responders);
        let (mut report, differs) = look(&listed, &seen, task);
        let pause = deadline.within(LOOK_EVERY);
        if !differs || deadline.passed() {
            report.head.splice(0..0, swept.head);
            report.trouble |= swept.trouble;
            return report;
        }
        while backoff.pause(pause) {}
    }
}

/// What is answered while the store cannot be read: the responders' copies.
pub(super) fn away(error: &StoreError, task: &Overrides) -> Report {
    let mut report = Report::failed(error.to_string());
    let seen = Coverages::of(&task.sights.responders);
    if !seen.any() {
        return report;
    }
    let now = SystemClock.wall();
    places::tell(&seen, &task.store, &mut report, now);
    let sides = Side::all(&seen);
    let blocks = compare::beside(|key| seen.markers().any(|m| m == key), &sides, now);
    report.keys.extend(blocks);
    report
}

/// Deletes what has been over for long enough.
fn sweep_over(store: &mut Store, listed: &Listed, task: &Overrides, swept: &mut Report) {
    let now = SystemClock.wall();
    for (key, stored) in &listed.keys {
        let left = stored.entry.until().map(|until| until.left(now));
        if left.is_none_or(|left| left > -SWEEP_AFTER_SECONDS) || task.marker.as_ref() == Some(key)
        {
            continue;
        }
        match store.delete(key, &stored.version) {
            Ok(()) => swept
                .head
                .push(format!("{key}: its time was over, deleted")),
            Err(StoreError::Changed) => {}
            Err(error) => {
                swept.trouble = true;
                swept.head.push(format!("{key}: not deleted: {error}"));
            }
        }
    }
}

/// One look at the store and the responders; true where these differ, which may be over at
/// the next look.
fn look(listed: &Listed, seen: &Coverages, task: &Overrides) -> (Report, bool) {
    let choice = &task.store;
    let now = SystemClock.wall();
    let mut report = Report::default();
    report
        .fields
        .insert("store".into(), choice.to_string().into());
    let mut differs = places::tell(seen, choice, &mut report, now);
    tell_ignored(&listed.ignored, &mut report);
    let mut markers: BTreeSet<&str> = seen.markers().collect();
    markers.extend(task.marker.as_deref());
    for marker in &markers {
        tell_marker(marker, listed, &mut report);
    }
    let keys = listed.keys.iter();
    let keys: Keys<'_> = keys
        .filter(|(key, _)| !markers.contains(key.as_str()))
        .map(|(key, stored)| (key.as_str(), stored))
        .collect();
    let sides = Side::all(seen);
    for (key, stored) in &keys {
        let mut block = row(key, stored, &sides, now);
        let invalid = stored.entry.stored().is_err();
        if invalid && markers.is_empty() && matches!(choice, StoreChoice::Consul { .. }) {
            block.next = Some(format!(
                "if it is the marker that the responders were given, say so: --kv-marker {key}"
            ));
        }
        differs |= compare::tell(key, stored, &keys, &sides, now, &mut block);
        report.keys.push(((*key).to_owned(), block));
    }
    for (key, why) in &listed.unreadable {
        let mut block = Block::new(false, "cannot be read");
        block.line(why);
        let on = compare::goes_on(key, &sides);
        match on.is_empty() {
            true => block.line("a responder that cannot read it either keeps what it knew of it, and counts a new one for nothing"),
            false => block.lines.extend(on),
        }
        block.field("error", why.as_str());
        report.keys.push((key.clone(), block));
    }
    let unreadable = |key: &str| listed.unreadable.iter().any(|(other, _)| other == key);
    let known = |key: &str| keys.contains_key(key) || markers.contains(key) || unreadable(key);
    let beside = compare::beside(known, &sides, now);
    differs |= !beside.is_empty();
    for (key, mut block) in beside {
        block.line("it is not in the store");
        report.keys.push((key, block));
    }
    report.keys.sort_by(|(a, _), (b, _)| a.cmp(b));
    if report.keys.is_empty() {
        report.head.push(format!("no overrides in {choice}"));
    }
    if differs {
        places::tell_spellings(seen, choice, &mut report);
    }
    (report, differs)
}

/// Names of a directory that are no key's: meant as overrides, perhaps, and in force nowhere.
fn tell_ignored(ignored: &[String], report: &mut Report) {
    for name in ignored.iter().take(MAX_KEPT) {
        let meant = key::meant_name(name).map_or(String::new(), |meant| {
            format!("; the key that it may mean is spelled {meant}")
        });
        let line =
            format!("{name}: no key has a file of this name, so it counts for nothing{meant}");
        report.head.push(line);
    }
    if ignored.len() > MAX_KEPT {
        let more = ignored.len() - MAX_KEPT;
        report.head.push(format!("and {more} more such names"));
    }
    if !ignored.is_empty() {
        report.trouble = true;
        report.fields.insert("ignored".into(), ignored.into());
    }
}

fn tell_marker(marker: &str, listed: &Listed, report: &mut Report) {
    let there = listed.keys.iter().any(|(key, _)| key == marker);
    let place = json!({"key": marker, "there": there});
    report.fields.insert("marker".into(), place);
    if !there {
        report.trouble = true;
        report.head.push(format!(
            "the marker {marker} is missing, so responders that were given it believe nothing of this; write it when the keys are whole"
        ));
    }
}

/// When a sweep deletes what is over.
fn swept(until: Stamp, now: UnixNanos) -> String {
    let left = until.left(now).saturating_add(SWEEP_AFTER_SECONDS);
    match u64::try_from(left) {
        Ok(left @ 1..) => format!(
            "hapticctl overrides --sweep deletes it in {}: clocks differ, so an end counts as over everywhere after {SWEEP_AFTER_SECONDS} s",
            span(Duration::from_secs(left))
        ),
        Ok(0) | Err(_) => "hapticctl overrides --sweep deletes what is over".into(),
    }
}

fn row(key: &str, stored: &Stored, sides: &[Side<'_>], now: UnixNanos) -> Block {
    let sides = || sides.iter().filter(|side| side.knows_rows());
    let title = match stored.entry.stored() {
        Ok(value) => value.to_string(),
        Err(_) => "invalid, counts as absent".to_owned(),
    };
    let mut block = Block::new(true, title);
    if let Err(why) = stored.entry.stored() {
        block.good = false;
        block.line(why.to_string());
    }
    if let Some(until) = stored.entry.until() {
        let left = until.left(now);
        let time = span(Duration::from_secs(left.unsigned_abs()));
        if left > 0 {
            block.line(format!("until {until}, {time} from now"));
        } else {
            block.good = false;
            block.line(format!("its time was over {time} ago, at {until}"));
            block.next = Some(swept(until, now));
        }
        block.field("over", left <= 0);
    }
    let note = &stored.note;
    let set = note.at.map(|at| format!("set {}", ago(at, now)));
    let by = note.by.as_ref().map(|by| format!("by {by}"));
    let told: Vec<String> = [set, by].into_iter().flatten().collect();
    let why = note
        .why
        .as_ref()
        .map_or(String::new(), |why| format!(": {why}"));
    if !told.is_empty() || !why.is_empty() {
        block.line(format!("{}{why}", told.join(" ")));
    }
    if !is_addressable(key) {
        block.good = false;
        block.line("no request can name this key, so it decides nothing");
    } else if sides().next().is_some() {
        let rows: usize = sides().map(|side| side.rows.asking(key).count()).sum();
        let mute: Vec<String> = sides().flat_map(|side| side.rows.mute(key)).collect();
        block.field("asked_by", rows);
        block.field("not_asking", mute.as_slice());
        if rows > 0 {
            let last = sides().filter_map(|side| side.rows.last_asked(key)).max();
            let last = last.map_or(String::new(), |at| format!(", last {}", ago(at, now)));
            block.line(format!("asked for by {}{last}", counted(rows, "row")));
        } else if mute.is_empty() {
            block.good = false;
            let gone: Vec<String> = sides().flat_map(|side| side.rows.gone(key)).collect();
            block.line(match gone.is_empty() {
                true => "no row asks for it: misspelt, or its rows are gone".to_owned(),
                false => format!(
                    "no row asks for it any more; earlier it was {}",
                    some(&gone, MAX_NAMED)
                ),
            });
        }
        if !mute.is_empty() {
            block.good = false;
            block.line(some(&mute, MAX_NAMED));
        }
    }
    if let Some(fields) = act::fields(Some(stored)).as_object() {
        block.fields.extend(fields.clone());
    }
    block
}
