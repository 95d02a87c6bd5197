//! Waiting until overrides have arrived, and what is said before a write: misspelt keys,
//! rows that do not ask, a store that has lost keys.

use std::time::Duration;

use serde_json::json;

use super::super::view::{Block, complain};
use super::super::words::{counted, some};
use super::Report;
use super::compare;
use super::coverage::{Coverage, Coverages, StoreView};
use super::places;
use super::sight::{self, Shown, Sights, Wanted};
use super::store::StoreChoice;
use crate::clock::{Clock as _, SystemClock, UnixNanos};
use crate::haproxy::Deadline;
use crate::haproxy::wait::Backoff;
use crate::http::client::Origin;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// What a look gets at least, however short the wait is.
const ONE_LOOK: Duration = Duration::from_secs(1);
/// Rows that are named; the rest is counted.
pub(super) const MAX_NAMED: usize = 4;
/// Overrides that a hold keeps and that are named.
pub(super) const MAX_KEPT: usize = 16;

/// Says on standard error what is to be known before a write: keys that no row asks for,
/// rows that do not ask, and what a store has lost. The write goes on:
/// a row may be enrolled later. With `unasked` it is told of keys that no row asks for, too.
pub(super) fn warn(seen: &Coverages, choice: &StoreChoice, keys: &[String], unasked: bool) {
    for other in compare::others(choice, seen) {
        complain(&other);
    }
    for (origin, said) in &seen.all {
        match said {
            Ok(coverage) => {
                if !warn_of_lost(origin, &coverage.store) && coverage.store.synced {
                    if let Some(trouble) = places::trouble_of(&coverage.store, now()) {
                        complain(&format!("responder {origin}: {trouble}"));
                    }
                }
                for what in coverage.silence().into_iter().chain(coverage.blindness()) {
                    complain(&format!("responder {origin}: {what}"));
                }
            }
            Err(what) => complain(what),
        }
    }
    if !seen.any() {
        return;
    }
    let asked = seen.asked_keys();
    for key in keys {
        let mute: Vec<String> = seen.good().flat_map(|c| c.mute(key)).collect();
        if !mute.is_empty() {
            complain(&some(&mute, MAX_NAMED));
        } else if unasked && !asked.contains(key.as_str()) {
            let meant = hint(nearest(key, asked.iter().copied()));
            complain(&format!("no row asks for {key}{meant}"));
        }
    }
}

/// Says on standard error which rows a share of their weight takes out altogether.
pub(super) fn warn_of_no_weight(seen: &Coverages, key: &str, percent: u16) {
    let starved: Vec<String> = seen.good().flat_map(|c| c.starved(key, percent)).collect();
    if !starved.is_empty() {
        let starved = some(&starved, MAX_NAMED);
        complain(&format!(
            "{percent}% is less than 1 of the weight of {starved}, and that is no traffic at all; give server lines a weight of 100"
        ));
    }
}

fn now() -> UnixNanos {
    SystemClock.wall()
}

/// Says what a rebuilt store has lost, where new writes are followed all the same; true if
/// that is so.
fn warn_of_lost(origin: &Origin, store: &StoreView) -> bool {
    let kept = store.kept();
    let lost = store.hold.as_deref() == Some("index") && !kept.is_empty();
    if lost {
        let kept = some(&kept, MAX_KEPT);
        complain(&format!(
            "{origin} still answers what the store has lost: {kept}; hapticctl overrides --responder {origin} says more"
        ));
    }
    lost
}

/// In words, what may have been meant.
pub(super) fn hint(near: Option<&str>) -> String {
    near.map_or(String::new(), |near| format!("; did you mean {near}?"))
}

/// Looks until every good key of the report has arrived, or the time is over; what has
/// not arrived is not good any more.
pub(super) fn until_shown(
    report: &mut Report,
    sights: &Sights,
    wanted: &dyn Fn(&str) -> Wanted,
    time: Duration,
) {
    let deadline = Deadline::after(time);
    let mut told = false;
    loop {
        let looks = look(report, sights, wanted, deadline);
        let mute = looks.iter().flat_map(|(_, look)| &look.shown.mute);
        let mute: Vec<String> = mute.cloned().collect();
        // Of what a responder knows of them it has been told before the write.
        let news = sights.responders.is_empty() && !std::mem::replace(&mut told, true);
        if news && !mute.is_empty() && !deadline.passed() {
            let mute = some(&mute, MAX_NAMED);
            complain(&format!("{mute}; waiting for it all the same"));
        }
        let done = looks.iter().all(|(_, look)| look.is_there());
        if done || deadline.passed() {
            for (at, look) in looks {
                if let Some((key, block)) = report.keys.get_mut(at) {
                    look.tell(key, block, sights, done);
                }
            }
            return;
        }
        let pause = deadline.within(LOOK_EVERY);
        let mut backoff = Backoff::default();
        while backoff.pause(pause) {}
    }
}

/// What all places show of one key.
#[derive(Debug, Default)]
struct Look {
    shown: Shown,
    /// Places that cannot be asked.
    blind: Vec<String>,
    /// Responders that do not follow their store, which is no matter if it has arrived.
    troubles: Vec<String>,
    /// Workers that have no row of this name.
    without: usize,
    /// A responder was asked which rows ask for it.
    knows_rows: bool,
    /// Nothing has to arrive but that it decides nothing.
    ends: bool,
}

impl Look {
    fn add(&mut self, shown: Shown) {
        self.shown.asked += shown.asked;
        self.shown.elsewhere += shown.elsewhere;
        self.shown.waiting.extend(shown.waiting);
        self.shown.mute.extend(shown.mute);
        self.shown.unknown.extend(shown.unknown);
        self.shown.gone.extend(shown.gone);
        self.shown.notes.extend(shown.notes);
    }

    fn is_there(&self) -> bool {
        self.blind.is_empty()
            && self.shown.waiting.is_empty()
            && self.shown.mute.is_empty()
            && (self.shown.asked > 0 || self.affects_nobody())
    }

    /// The override is gone, and no row had anything to do with it.
    fn affects_nobody(&self) -> bool {
        self.ends && self.knows_rows && self.shown.asked == 0 && self.shown.unknown.is_empty()
    }

    fn tell(self, key: &str, block: &mut Block, sights: &Sights, done: bool) {
        let there = self.is_there();
        let nobody = there && self.affects_nobody();
        let Shown {
            asked,
            elsewhere,
            waiting,
            mute,
            unknown,
            gone,
            notes,
        } = self.shown;
        block.field(
            "rows",
            json!({
                "asked": asked, "elsewhere": elsewhere, "waiting": waiting,
                "not_asking": mute, "unknown": unknown, "gone": gone,
            }),
        );
        for note in notes {
            block.line(note);
        }
        if !unknown.is_empty() {
            let rows = counted(unknown.len(), "row");
            block.line(format!(
                "{rows} of HAProxy's do not ask, and may be of this group: {}",
                some(&unknown, MAX_NAMED)
            ));
        }
        if elsewhere > 0 {
            let rows = counted(elsewhere, "row");
            block.line(format!("a key before it decides for {rows}"));
        }
        if !gone.is_empty() {
            let rows = counted(gone.len(), "row");
            block.line(format!(
                "asked for earlier, and not any more, by {rows}: {}",
                some(&gone, MAX_NAMED)
            ));
        }
        if nobody {
            block.line("no row asks for it, so none has to follow");
            return;
        }
        if done || there {
            let rows = counted(asked - elsewhere, "row");
            block.line(format!("shown by {rows}"));
            return;
        }
        block.good = false;
        for what in self.blind.iter().chain(&self.troubles) {
            block.line(what);
        }
        for why in mute.iter().take(MAX_NAMED) {
            block.line(why);
        }
        if mute.len() > MAX_NAMED {
            block.line(format!(
                "and {} more that do not ask",
                mute.len() - MAX_NAMED
            ));
        }
        if !mute.is_empty() {
            block.next = Some(
                "have HAProxy ask for these rows: until then no key reaches them, whatever it says"
                    .into(),
            );
        } else if asked == 0 && self.blind.is_empty() {
            block.line("no row shows it, because none asks for it");
            block.next = Some(match sights.responders.is_empty() {
                true => format!(
                    "{key} is no backend/server of that HAProxy; a group is seen through a responder only, with --responder URL"
                ),
                false => "check the spelling against agent-send in HAProxy's configuration".into(),
            });
        }
        if !waiting.is_empty() {
            let late = counted(waiting.len(), "row");
            block.line(format!("{late} not there: {}", some(&waiting, MAX_NAMED)));
            block.next.get_or_insert_with(|| {
                "the coverage of the responder (/-/coverage) says of each row what it asks and does"
                    .into()
            });
        }
    }
}

/// At most as long as the wait has left, and one look has time for itself.
fn look(
    report: &Report,
    sights: &Sights,
    wanted: &dyn Fn(&str) -> Wanted,
    deadline: Deadline,
) -> Vec<(usize, Look)> {
    let time = || deadline.remaining().unwrap_or_default().max(ONE_LOOK);
    let good = report.keys.iter().enumerate();
    let mut looks: Vec<(usize, &str, Look)> = good
        .filter(|(_, (_, block))| block.good)
        .map(|(at, (key, _))| {
            let look = Look {
                ends: matches!(wanted(key), Wanted::Gone { .. }),
                ..Look::default()
            };
            (at, key.as_str(), look)
        })
        .collect();
    for origin in &sights.responders {
        let coverage = Coverage::within(origin, time());
        for (_, key, look) in &mut looks {
            match &coverage {
                Ok(coverage) => {
                    let silence = coverage.silence();
                    if silence.is_none() {
                        look.add(coverage.judge(key, wanted(key)));
                        look.knows_rows = true;
                    }
                    let trouble = places::trouble_of(&coverage.store, now());
                    if let Some(trouble) = trouble.filter(|_| silence.is_none()) {
                        look.troubles.push(format!("responder {origin}: {trouble}"));
                    }
                    for what in silence.into_iter().chain(coverage.blindness()) {
                        look.blind.push(format!("responder {origin}: {what}"));
                    }
                }
                Err(what) => look.blind.push(what.clone()),
            }
        }
    }
    for socket in &sights.haproxy {
        let rows = sight::rows(socket, time());
        for (_, key, look) in &mut looks {
            match &rows {
                Ok(rows) => match sight::judge_rows(rows, key, wanted(key)) {
                    Some(shown) => look.add(shown),
                    None => look.without += 1,
                },
                Err(what) => look.blind.push(what.clone()),
            }
        }
    }
    looks.into_iter().map(|(at, _, look)| (at, look)).collect()
}

/// The key that is spelled most like it.
pub(super) fn nearest<'k>(key: &str, others: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let most = (key.len() / 3).max(1);
    others
        .map(|other| (crate::cli::distance(key, other), other))
        .filter(|(edits, _)| *edits <= most)
        .min()
        .map(|(_, other)| other)
}
