//! `hapticctl overrides`: what is stored, since when, until when, by whom, and whether
//! anybody asks for it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, json};

use super::super::view::Block;
use super::super::when::span;
use super::super::words::counted;
use super::Report;
use super::act;
use super::sight::{Coverage, Sights};
use super::store::{Store, StoreChoice, StoreError, Stored};
use crate::clock::{Clock as _, SystemClock, UnixNanos};
use crate::responder::key::is_addressable;

/// How long an end has to be over before the key is deleted: clocks differ.
const SWEEP_AFTER_SECONDS: i64 = 60;

/// Lists, and sweeps first if that is asked for.
pub(super) fn run(store: &mut Store, choice: &StoreChoice, sights: &Sights, sweep: bool) -> Report {
    let now = SystemClock.wall();
    let listed = match store.list() {
        Ok(listed) => listed,
        Err(error) => return Report::failed(error.to_string()),
    };
    let mut report = Report::default();
    report
        .fields
        .insert("store".into(), choice.to_string().into());
    let asked = asked(sights, &mut report);
    for (key, stored) in listed {
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
        let block = row(&key, &stored, asked.as_ref(), now);
        report.keys.push((key, block));
    }
    if report.keys.is_empty() {
        report.head.push(format!("no overrides in {choice}"));
    }
    report
}

/// How many rows ask for each key; `None` where nobody can be asked.
fn asked(sights: &Sights, report: &mut Report) -> Option<BTreeMap<String, usize>> {
    let mut asked: Option<BTreeMap<String, usize>> = None;
    let mut places = Map::new();
    for origin in &sights.responders {
        let name = origin.to_string();
        let trouble = match Coverage::of(origin) {
            Ok(coverage) => {
                let counts = asked.get_or_insert_default();
                for key in coverage.asked_keys() {
                    *counts.entry(key.to_owned()).or_default() += 1;
                }
                let store = coverage.store;
                match (store.synced, store.hold) {
                    (false, _) => Some("it has not read the store yet".to_owned()),
                    (true, Some(hold)) => Some(format!("it holds its copy back ({hold})")),
                    (true, None) => None,
                }
                .map(|what| match store.trouble {
                    Some(trouble) => format!("{what}: {trouble}"),
                    None => what,
                })
            }
            Err(what) => Some(what),
        };
        if let Some(trouble) = &trouble {
            report.trouble = true;
            report.head.push(format!("responder {name}: {trouble}"));
        }
        places.insert(name, json!({"trouble": trouble}));
    }
    if !places.is_empty() {
        report.fields.insert("responders".into(), places.into());
    }
    asked
}

fn row(
    key: &str,
    stored: &Stored,
    asked: Option<&BTreeMap<String, usize>>,
    now: UnixNanos,
) -> Block {
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
    let set = note.at.map(|at| match at.left(now).unsigned_abs() {
        0 => "set just now".to_owned(),
        age => format!("set {} ago", span(Duration::from_secs(age))),
    });
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
    } else if let Some(asked) = asked {
        let rows = asked.get(key).copied().unwrap_or(0);
        block.field("asked_by", rows);
        if rows == 0 {
            block.good = false;
            block.line("no row asks for it: misspelt, or its rows are gone");
        } else {
            block.line(format!("asked for by {}", counted(rows, "row")));
        }
    }
    if let Some(fields) = act::fields(Some(stored)).as_object() {
        block.fields.extend(fields.clone());
    }
    block
}
