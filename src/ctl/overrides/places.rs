//! How responders do, for `hapticctl overrides`: how old the copy of each is, what it is
//! asked and answers, what is wrong with it, and whether it follows this store at all.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, json};

use super::super::when::span;
use super::super::words::{counted, some};
use super::Report;
use super::compare;
use super::coverage::{Coverage, Coverages, PlaceView, StoreView};
use super::store::StoreChoice;
use super::watch::MAX_KEPT;
use crate::clock::UnixNanos;
use crate::http::client::Origin;
use crate::responder::stamp::Stamp;

/// How each responder does: how old its copy is, what it is asked and answers, what is wrong
/// with it, and what it answers although the store does not say so. True where the next look
/// may show something better.
pub(super) fn tell(
    seen: &Coverages,
    choice: &StoreChoice,
    report: &mut Report,
    now: UnixNanos,
) -> bool {
    let mut passing = false;
    let mut places = Map::new();
    for (origin, said) in &seen.all {
        let (trouble, place) = match said {
            Ok(coverage) => {
                report.head.push(doing(origin, coverage, now));
                let trouble = trouble_of(&coverage.store, now);
                let kept = coverage.store.kept();
                let blind = coverage.blindness();
                let (strangers, astray) = (coverage.strangers(), coverage.astray());
                let rows: Vec<&String> = strangers.iter().chain(&astray).collect();
                passing |= blind.is_some() || !rows.is_empty();
                let place = json!({
                    "trouble": trouble,
                    "trouble_since": coverage.store.trouble_since,
                    "store": coverage.store.place.as_ref().map(ToString::to_string),
                    "haproxy_trouble": coverage.blind(),
                    "foreign": strangers,
                    "diverged": astray,
                    "age_seconds": coverage.store.age_seconds,
                    "rows": coverage.live().count(),
                    "answers": coverage.answers(),
                    "last_asked": coverage.last_asked().map(|at| at.to_string()),
                    "not_asking": coverage.silent(),
                    "kept": kept,
                });
                if !kept.is_empty() {
                    let kept = some(&kept, MAX_KEPT);
                    report.head.push(format!("  it still answers: {kept}"));
                }
                let more = rows.len().saturating_sub(MAX_KEPT);
                for what in blind.iter().chain(rows.into_iter().take(MAX_KEPT)) {
                    report.trouble = true;
                    report.head.push(format!("responder {origin}: {what}"));
                }
                if more > 0 {
                    report.head.push(format!("and {more} more such rows"));
                }
                (trouble, place)
            }
            // It begins with its address.
            Err(what) => {
                report.trouble = true;
                report.head.push(format!("responder {what}"));
                (None, json!({"trouble": what, "kept": []}))
            }
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
    for other in compare::others(choice, seen) {
        report.trouble = true;
        report.head.push(other);
    }
    passing
}

/// Where keys differ: responders whose store is spelled otherwise, which may be why.
pub(super) fn tell_spellings(seen: &Coverages, choice: &StoreChoice, report: &mut Report) {
    for (origin, coverage) in seen.named() {
        let place = coverage.store.place.as_ref();
        let other = |place: &&PlaceView| {
            compare::may_be_another(choice, place) && !is_one_directory(choice, place)
        };
        let Some(place) = place.filter(other) else {
            continue;
        };
        report.head.push(format!(
            "responder {origin} follows {place}, and this is {choice}: is that the same store?"
        ));
    }
}

/// Whether both paths lead to one directory of this machine.
fn is_one_directory(choice: &StoreChoice, place: &PlaceView) -> bool {
    match (choice, place) {
        (StoreChoice::Directory(ours), PlaceView::Directory { path }) => {
            let ours = ours.canonicalize().ok();
            ours.is_some() && ours == Path::new(path).canonicalize().ok()
        }
        (StoreChoice::Directory(_), PlaceView::Consul { .. }) | (StoreChoice::Consul { .. }, _) => {
            false
        }
    }
}

/// What a responder does at the moment, in a line.
fn doing(origin: &Origin, coverage: &Coverage, now: UnixNanos) -> String {
    let mut text = format!("responder {origin}: ");
    text += &match coverage.store.age_seconds.map(Duration::try_from_secs_f64) {
        Some(Ok(age)) if age < Duration::from_secs(1) => "its copy is current".to_owned(),
        // Consul answers when something changes, or after a minute.
        Some(Ok(age)) if coverage.store.trouble.is_none() => {
            format!("its copy is current, confirmed {} ago", span(age))
        }
        Some(Ok(age)) => format!("its copy is from {} ago", span(age)),
        Some(Err(_)) | None => "it has no copy".to_owned(),
    };
    let rows = counted(coverage.live().count(), "row");
    let ask = coverage.live().count() == 1;
    text += &format!(", {rows} {}", if ask { "asks" } else { "ask" });
    if let Some(last) = coverage.last_asked() {
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

pub(super) fn ago(at: Stamp, now: UnixNanos) -> String {
    match at.left(now).unsigned_abs() {
        0 => "just now".to_owned(),
        age => format!("{} ago", span(Duration::from_secs(age))),
    }
}

/// What is wrong between a responder and its store, in words, and since when.
pub(super) fn trouble_of(store: &StoreView, now: UnixNanos) -> Option<String> {
    let what = match (store.synced, &store.hold, &store.trouble) {
        (false, _, _) => "it has not read the store yet, and so answers no check".to_owned(),
        (true, Some(hold), _) => format!("it holds its copy back ({hold})"),
        (true, None, Some(_)) => {
            "it cannot read the store, and goes on with its last copy".to_owned()
        }
        (true, None, None) => return None,
    };
    let since = store.trouble_since.as_deref();
    let since = since.and_then(super::coverage::second_of);
    let since = since.map_or(String::new(), |at| {
        format!(", since {at} ({})", ago(at, now))
    });
    Some(match &store.trouble {
        Some(trouble) => format!("{what}{since}: {trouble}"),
        None => format!("{what}{since}"),
    })
}
