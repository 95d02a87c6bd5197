//! `hapticctl overrides`: what is stored, since when, until when, by whom, and whether
//! anybody asks for it.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, json};

use super::super::view::Block;
use super::super::when::span;
use super::super::words::{counted, some};
use super::act;
use super::coverage::{Coverage, Coverages, StoreView};
use super::store::{Listed, Store, StoreError, Stored};
use super::watch::{MAX_KEPT, MAX_NAMED};
use super::{Overrides, Report};
use crate::clock::{Clock as _, SystemClock, UnixNanos};
use crate::http::client::Origin;
use crate::responder::key::{self, is_addressable};
use crate::responder::stamp::Stamp;

/// How long an end has to be over before the key is deleted: clocks differ.
const SWEEP_AFTER_SECONDS: i64 = 60;

/// Lists, and sweeps first if that is asked for.
pub(super) fn run(store: &mut Store, task: &Overrides, sweep: bool) -> Report {
    let choice = &task.store;
    let now = SystemClock.wall();
    let listed = match store.list() {
        Ok(listed) => listed,
        Err(error) => return Report::failed(error.to_string()),
    };
    let mut report = Report::default();
    report
        .fields
        .insert("store".into(), choice.to_string().into());
    let seen = Coverages::of(&task.sights.responders);
    tell_responders(&seen, &mut report, now);
    tell_ignored(&listed.ignored, &mut report);
    let mut markers: BTreeSet<&str> = seen.markers().collect();
    markers.extend(task.marker.as_deref());
    for marker in &markers {
        tell_marker(marker, &listed, &mut report);
    }
    for (key, stored) in listed.keys {
        if markers.contains(key.as_str()) {
            continue;
        }
        let left = stored.entry.until().map(|until| until.left(now));
        if sweep && left.is_some_and(|left| left <= -SWEEP_AFTER_SECONDS) {
            match store.delete(&key, &stored.version) {
                Ok(()) => {
                    report
                        .head
                        .push(format!("{key}: its time was over, deleted"));
                    continue;
                }
                Err(StoreError::Changed) => continue,
                Err(error) => {
                    report.trouble = true;
                    report.head.push(format!("{key}: not deleted: {error}"));
                }
            }
        }
        let block = row(&key, &stored, &seen, now);
        report.keys.push((key, block));
    }
    for (key, why) in listed.unreadable {
        let mut block = Block::new(false, "cannot be read");
        block.line(&why);
        block.line("a responder that cannot read it either keeps what it knew of it, and counts a new one for nothing");
        block.field("error", why);
        report.keys.push((key, block));
    }
    report.keys.sort_by(|(a, _), (b, _)| a.cmp(b));
    if report.keys.is_empty() {
        report.head.push(format!("no overrides in {choice}"));
    }
    report
}

/// How each responder does: how old its copy is, what it is asked and answers, what is wrong
/// with it, and what it answers although the store does not say so.
fn tell_responders(seen: &Coverages, report: &mut Report, now: UnixNanos) {
    let mut places = Map::new();
    for (origin, said) in &seen.all {
        let (trouble, place) = match said {
            Ok(coverage) => {
                report.head.push(doing(origin, coverage, now));
                let trouble = trouble_of(&coverage.store);
                let kept = coverage.store.kept();
                let place = json!({
                    "trouble": trouble,
                    "age_seconds": coverage.store.age_seconds,
                    "rows": coverage.live().count(),
                    "answers": coverage.answers(),
                    "last_asked": coverage.last_asked(None).map(|at| at.to_string()),
                    "not_asking": coverage.silent(),
                    "kept": kept,
                });
                if !kept.is_empty() {
                    let kept = some(&kept, MAX_KEPT);
                    report.head.push(format!("  it still answers: {kept}"));
                }
                (trouble, place)
            }
            Err(what) => (Some(what.clone()), json!({"trouble": what, "kept": []})),
        };
        if let Some(trouble) = &trouble {
            report.trouble = true;
            report.head.push(format!("responder {origin}: {trouble}"));
        }
        places.insert(origin.to_string(), place);
    }
    if !places.is_empty() {
        report.fields.insert("responders".into(), places.into());
    }
}

/// What a responder does at the moment, in a line.
fn doing(origin: &Origin, coverage: &Coverage, now: UnixNanos) -> String {
    let mut text = format!("responder {origin}: ");
    text += &match coverage.store.age_seconds.map(Duration::try_from_secs_f64) {
        Some(Ok(age)) if age < Duration::from_secs(1) => "its copy is current".to_owned(),
        Some(Ok(age)) => format!("its copy is from {} ago", span(age)),
        Some(Err(_)) | None => "it has no copy".to_owned(),
    };
    let rows = counted(coverage.live().count(), "row");
    let ask = coverage.live().count() == 1;
    text += &format!(", {rows} {}", if ask { "asks" } else { "ask" });
    if let Some(last) = coverage.last_asked(None) {
        text += &format!(", last {}", ago(last, now));
    }
    let answers = coverage.answers();
    let answers: Vec<String> = answers
        .iter()
        .map(|(word, n)| format!("{n} {word}"))
        .collect();
    if !answers.is_empty() {
        text += &format!(": {}", answers.join(", "));
    }
    match coverage.silent() {
        0 => text,
        silent => format!("{text}; {} with an agent check not", counted(silent, "row")),
    }
}

fn ago(at: Stamp, now: UnixNanos) -> String {
    match at.left(now).unsigned_abs() {
        0 => "just now".to_owned(),
        age => format!("{} ago", span(Duration::from_secs(age))),
    }
}

fn trouble_of(store: &StoreView) -> Option<String> {
    let what = match (store.synced, &store.hold) {
        (false, _) => "it has not read the store yet".to_owned(),
        (true, Some(hold)) => format!("it holds its copy back ({hold})"),
        (true, None) => return None,
    };
    Some(match &store.trouble {
        Some(trouble) => format!("{what}: {trouble}"),
        None => what,
    })
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

fn row(key: &str, stored: &Stored, seen: &Coverages, now: UnixNanos) -> Block {
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
            block.next = Some("hapticctl overrides --sweep deletes what is over".into());
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
    } else if seen.any() {
        let rows = seen.good().flat_map(Coverage::asked_keys);
        let rows = rows.filter(|asked| *asked == key).count();
        let mute: Vec<String> = seen.good().flat_map(|c| c.mute(key)).collect();
        block.field("asked_by", rows);
        block.field("not_asking", mute.as_slice());
        if rows > 0 {
            let last = seen.good().filter_map(|c| c.last_asked(Some(key))).max();
            let last = last.map_or(String::new(), |at| format!(", last {}", ago(at, now)));
            block.line(format!("asked for by {}{last}", counted(rows, "row")));
        } else if mute.is_empty() {
            block.good = false;
            block.line("no row asks for it: misspelt, or its rows are gone");
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
