//! Waiting until overrides have arrived, and the guard against misspelt keys.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::super::view::{Block, complain};
use super::super::words::{counted, some};
use super::Report;
use super::sight::{self, Coverage, Shown, Sights, Wanted};
use crate::haproxy::Deadline;
use crate::haproxy::wait::Backoff;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Rows that are named; the rest is counted.
const MAX_NAMED: usize = 4;

/// Says on standard error which keys no row asks for. The write goes on: a row may be
/// enrolled later.
pub(super) fn warn_of_unasked(sights: &Sights, keys: &[String]) {
    let mut asked = BTreeSet::new();
    let mut looked = false;
    for origin in &sights.responders {
        match Coverage::of(origin) {
            Ok(coverage) => {
                looked = true;
                asked.extend(coverage.asked_keys().map(str::to_owned));
            }
            Err(what) => complain(&what),
        }
    }
    if !looked {
        return;
    }
    for key in keys.iter().filter(|key| !asked.contains(*key)) {
        let meant = nearest(key, &asked);
        let meant = meant.map_or(String::new(), |near| format!("; did you mean {near}?"));
        complain(&format!("no row asks for {key}{meant}"));
    }
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
    loop {
        let looks = look(report, sights, wanted);
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
    /// Workers that have no row of this name.
    without: usize,
}

impl Look {
    fn add(&mut self, shown: Shown) {
        self.shown.asked += shown.asked;
        self.shown.elsewhere += shown.elsewhere;
        self.shown.waiting.extend(shown.waiting);
    }

    fn is_there(&self) -> bool {
        self.blind.is_empty() && self.shown.waiting.is_empty() && self.shown.asked > 0
    }

    fn tell(self, key: &str, block: &mut Block, sights: &Sights, done: bool) {
        let Shown {
            asked,
            elsewhere,
            waiting,
        } = self.shown;
        block.field(
            "rows",
            json!({"asked": asked, "elsewhere": elsewhere, "waiting": waiting}),
        );
        if elsewhere > 0 {
            let rows = counted(elsewhere, "row");
            block.line(format!("a key before it decides for {rows}"));
        }
        if done || (self.blind.is_empty() && waiting.is_empty() && asked > 0) {
            let rows = counted(asked - elsewhere, "row");
            block.line(format!("shown by {rows}"));
            return;
        }
        block.good = false;
        for what in &self.blind {
            block.line(what);
        }
        if asked == 0 && self.blind.is_empty() {
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
            block.next = Some(
                "the coverage of the responder (/-/coverage) says of each row what it asks and does"
                    .into(),
            );
        }
    }
}

fn look(report: &Report, sights: &Sights, wanted: &dyn Fn(&str) -> Wanted) -> Vec<(usize, Look)> {
    let good = report.keys.iter().enumerate();
    let mut looks: Vec<(usize, &str, Look)> = good
        .filter(|(_, (_, block))| block.good)
        .map(|(at, (key, _))| (at, key.as_str(), Look::default()))
        .collect();
    for origin in &sights.responders {
        let coverage = Coverage::of(origin);
        for (_, key, look) in &mut looks {
            match &coverage {
                Ok(coverage) => look.add(coverage.judge(key, wanted(key))),
                Err(what) => look.blind.push(what.clone()),
            }
        }
    }
    for socket in &sights.haproxy {
        let rows = sight::rows(socket);
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
fn nearest<'k>(key: &str, asked: &'k BTreeSet<String>) -> Option<&'k str> {
    let most = (key.len() / 3).max(1);
    asked
        .iter()
        .map(|other| (crate::cli::distance(key, other), other.as_str()))
        .filter(|(edits, _)| *edits <= most)
        .min()
        .map(|(_, other)| other)
}
