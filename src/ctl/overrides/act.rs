//! Setting and ending overrides.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::super::view::{Block, complain};
use super::super::when::span;
use super::Report;
use super::compare;
use super::coverage::Coverages;
use super::held;
use super::sight::{Sights, Wanted};
use super::store::{Change, Store, StoreChoice, StoreError, Stored, Version};
use super::watch;
use crate::clock::{Clock as _, SystemClock};
use crate::haproxy::Deadline;
use crate::haproxy::wait::Backoff;
use crate::responder::note::Note;
use crate::responder::stamp::Stamp;
use crate::responder::value::Value;

/// An override that is only a step to another one ends by itself so much later than
/// planned, in case this program does not live to take the next step.
const STEP_GRACE: Duration = Duration::from_secs(60);

/// Within this every responder that can has followed a change.
const FOLLOWED: Duration = Duration::from_secs(2);

/// The field of a key that has what was there before.
pub(super) const BEFORE: &str = "before";

/// What is to be set.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) value: Value,
    pub(super) lasts: Option<Duration>,
    pub(super) note: Note,
}

impl Order {
    fn change(&self) -> Change {
        let now = SystemClock.wall();
        let until = self.lasts.map(|time| Stamp::of(now.plus(time)));
        let note = Note {
            at: Some(Stamp::of(now)),
            ..self.note.clone()
        };
        Change {
            value: self.value,
            until,
            note,
        }
    }
}

/// How overrides end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// By way of maintenance, for so long at least.
    pub(super) ramp: Option<Duration>,
    /// How long to wait until it has arrived.
    pub(super) wait: Option<Duration>,
}

/// Writes a value under each key.
pub(super) fn set(
    store: &mut Store,
    choice: &StoreChoice,
    keys: &[String],
    order: &Order,
    marker: Option<&str>,
    sights: &Sights,
    wait: Option<Duration>,
) -> Report {
    let mut report = Report::default();
    let seen = Coverages::of(&sights.responders);
    watch::warn(&seen, choice, keys, true);
    let change = order.change();
    for key in keys {
        if is_marker(key, marker, &seen) {
            report.keys.push((key.clone(), refused(key, choice)));
            continue;
        }
        if let Value::Weight(percent) = order.value {
            watch::warn_of_no_weight(&seen, key, percent);
        }
        let block = match replace(store, key, &change) {
            Ok(before) => told(&change, before.as_ref()),
            Err(error) => failed(&error),
        };
        report.keys.push((key.clone(), block));
    }
    if let Some(time) = wait {
        let wanted = |_: &str| Wanted::Value(order.value);
        watch::until_shown(&mut report, sights, &wanted, time);
    }
    report
}

/// Deletes the override of each key.
pub(super) fn end(
    store: &mut Store,
    choice: &StoreChoice,
    keys: &[String],
    way: Way,
    marker: Option<&str>,
    sights: &Sights,
) -> Report {
    let Way { ramp, wait } = way;
    let mut report = Report::default();
    let seen = Coverages::of(&sights.responders);
    watch::warn(&seen, choice, keys, false);
    for key in keys.iter().filter(|key| is_marker(key, marker, &seen)) {
        report.keys.push((key.clone(), refused(key, choice)));
    }
    let steps = match ramp {
        Some(hold) => step_through_maint(store, keys, hold, sights, wait, &mut report),
        None => BTreeMap::new(),
    };
    let mut weighed = Vec::new();
    for key in keys {
        // What failed on the way stays failed.
        if report.keys.iter().any(|(done, _)| done == key) {
            continue;
        }
        let block = match delete(store, key, steps.get(key)) {
            Ok(Some(before)) => {
                if matches!(before.entry.stored(), Ok(Value::Weight(_))) {
                    weighed.push(key.clone());
                }
                let mut block = Block::new(true, format!("ended (was {})", words(&before)));
                block.field(BEFORE, fields(Some(&before)));
                block.field("after", Json::Null);
                block
            }
            Ok(None) => nothing_there(key, choice, sights),
            Err(error) => failed(&error),
        };
        report.keys.push((key.clone(), block));
    }
    held::tell(&mut report, store, &seen, keys);
    if let Some(time) = wait {
        let wanted = |key: &str| Wanted::Gone {
            weighed: weighed.iter().any(|other| other == key),
        };
        watch::until_shown(&mut report, sights, &wanted, time);
    }
    report
}

/// The key was not there: nothing to do, unless somebody answers by it all the same, out of
/// another store.
fn nothing_there(key: &str, choice: &StoreChoice, sights: &Sights) -> Block {
    let mut block = Block::new(true, "was not there, so there is nothing to end");
    block.line(format!("looked in {choice}"));
    block.field(BEFORE, Json::Null);
    block.field("after", Json::Null);
    block.field("store", choice.to_string());
    if sights.responders.is_empty() {
        return block;
    }
    // Somebody may have deleted it just now.
    let deadline = Deadline::after(FOLLOWED);
    let mut backoff = Backoff::default();
    loop {
        let answered = compare::answered_by(key, &Coverages::of(&sights.responders));
        if answered.is_empty() {
            return block;
        }
        if !backoff.pause(deadline) {
            block.good = false;
            block.next = Some(match answered.iter().any(|one| one.holds) {
                true => format!(
                    "it keeps what its store has lost: hapticctl ready {key} --pin --responder URL --wait 15s, and then hapticctl ready {key}, ends it"
                ),
                false => "name the store that it follows: --kv-dir, --consul-addr or --kv-prefix; hapticctl overrides --responder URL compares the two".to_owned(),
            });
            let what: Vec<String> = answered.into_iter().map(|one| one.what).collect();
            block.field("error", what.join("; "));
            block.lines.extend(what);
            return block;
        }
    }
}

/// Puts what is drained into maintenance and lets HAProxy notice. Keys that cannot go
/// this way are reported; of the others it returns what is stored now.
fn step_through_maint(
    store: &mut Store,
    keys: &[String],
    hold: Duration,
    sights: &Sights,
    wait: Option<Duration>,
    report: &mut Report,
) -> BTreeMap<String, Version> {
    let patience = hold + wait.unwrap_or_default() + STEP_GRACE;
    let mut stepped = Report::default();
    let mut steps = BTreeMap::new();
    for key in keys {
        if report.keys.iter().any(|(done, _)| done == key) {
            continue;
        }
        let step = match store.get(key) {
            Ok(None) => continue,
            Ok(Some(before)) => match before.entry.value_at(SystemClock.wall()) {
                // Leaving either is no change, or a ramp already.
                None | Some(Value::Maint) => continue,
                Some(Value::Drain | Value::Weight(0)) => {
                    let order = Order {
                        value: Value::Maint,
                        lasts: Some(patience),
                        note: Note {
                            why: Some("on the way back from drain".to_owned()),
                            ..before.note.clone()
                        },
                    };
                    step(store, key, &order.change(), &before.version)
                }
                Some(value @ (Value::Ready | Value::Weight(_))) => {
                    let mut block = Block::new(false, format!("stays {value}"));
                    block.line("it is in service, and a ramp would take it out first");
                    block.next = Some(format!("hapticctl ready {key}"));
                    block.field("error", "in service");
                    report.keys.push((key.clone(), block));
                    continue;
                }
            },
            Err(error) => Err(error),
        };
        match step {
            Ok(version) => {
                steps.insert(key.clone(), version);
                stepped.keys.push((key.clone(), Block::new(true, "maint")));
            }
            Err(error) => report.keys.push((key.clone(), failed(&error))),
        }
    }
    if !stepped.keys.is_empty() {
        complain(&format!(
            "in maint for {}, then back: do not interrupt",
            span(hold)
        ));
        let deadline = Deadline::after(hold);
        let mut backoff = Backoff::default();
        while backoff.pause(deadline) {}
        if let Some(time) = wait {
            let wanted = |_: &str| Wanted::Value(Value::Maint);
            watch::until_shown(&mut stepped, sights, &wanted, time);
        }
    }
    // A row that never showed maint comes back without a ramp; it comes back all the same.
    for (key, block) in &stepped.keys {
        if !block.good {
            complain(&format!(
                "{key} was not seen in maint, so it may come back without a ramp"
            ));
        }
    }
    steps
}

/// Replaces what was read, and reads what is there then.
fn step(
    store: &mut Store,
    key: &str,
    change: &Change,
    before: &Version,
) -> Result<Version, StoreError> {
    store.put(key, change, Some(before))?;
    match store.get(key)? {
        Some(now) if now.entry.stored() == Ok(change.value) => Ok(now.version),
        Some(_) | None => Err(StoreError::Changed),
    }
}

/// Reads, then replaces exactly that.
fn replace(store: &mut Store, key: &str, change: &Change) -> Result<Option<Stored>, StoreError> {
    let before = store.get(key)?;
    store.put(key, change, before.as_ref().map(|stored| &stored.version))?;
    Ok(before)
}

/// Deletes what is there, or only what was left there by a step.
fn delete(
    store: &mut Store,
    key: &str,
    left: Option<&Version>,
) -> Result<Option<Stored>, StoreError> {
    let Some(before) = store.get(key)? else {
        return Ok(None);
    };
    store.delete(key, left.unwrap_or(&before.version))?;
    Ok(Some(before))
}

fn is_marker(key: &str, marker: Option<&str>, seen: &Coverages) -> bool {
    marker == Some(key) || seen.markers().any(|other| other == key)
}

/// The marker is not written here: without it responders believe nothing.
fn refused(key: &str, choice: &StoreChoice) -> Block {
    let mut block = Block::new(false, "not changed");
    let why = "it is the marker (--kv-marker), which says that the store is whole, and no override";
    block.line(why);
    block.field("error", why);
    let how = match choice {
        StoreChoice::Consul { prefix, .. } => {
            format!(": consul kv put {}{key} 1", prefix.with_slash())
        }
        StoreChoice::Directory(_) => String::new(),
    };
    block.next = Some(format!(
        "a store that was rebuilt gets it back by hand, last of all{how}"
    ));
    block
}

fn told(change: &Change, before: Option<&Stored>) -> Block {
    let was = before.map_or("absent".to_owned(), words);
    let until = change.until.map_or(String::new(), |until| {
        let left = change
            .note
            .at
            .map_or(0, |at| until.seconds().saturating_sub(at.seconds()));
        format!(
            " until {until}, {} from now",
            span(Duration::from_secs(left))
        )
    });
    let mut block = Block::new(true, format!("{}{until} (was {was})", change.value));
    block.field(BEFORE, fields(before));
    block.field(
        "after",
        json!({
            "value": change.value.to_string(),
            "until": change.until.map(|until| until.to_string()),
            "by": change.note.by,
            "why": change.note.why,
        }),
    );
    block
}

fn failed(error: &StoreError) -> Block {
    let mut block = Block::new(false, "not changed");
    if let StoreError::Unknown { .. } = error {
        block.title = "may have been changed".to_owned();
    }
    block.line(error.to_string());
    block.field("error", error.to_string());
    block
}

/// An override in a few words.
pub(super) fn words(stored: &Stored) -> String {
    let mut text = match stored.entry.stored() {
        Ok(value) => value.to_string(),
        Err(_) => "an invalid value".to_owned(),
    };
    if let Some(until) = stored.entry.until() {
        text += &format!(" until {until}");
    }
    if let Some(by) = &stored.note.by {
        text += &format!(", by {by}");
    }
    if let Some(why) = &stored.note.why {
        text += &format!(": {why}");
    }
    text
}

/// An override for programs.
pub(super) fn fields(stored: Option<&Stored>) -> Json {
    let Some(stored) = stored else {
        return Json::Null;
    };
    let (value, invalid) = match stored.entry.stored() {
        Ok(value) => (Some(value.to_string()), None),
        Err(why) => (None, Some(why.to_string())),
    };
    json!({
        "value": value,
        "invalid": invalid,
        "until": stored.entry.until().map(|until| until.to_string()),
        "by": stored.note.by,
        "why": stored.note.why,
        "at": stored.note.at.map(|at| at.to_string()),
    })
}
