//! May a reply that lacks keys of the copy be believed? Pure.
//!
//! Deleting a key must restore the row, even the last one. Lost rights, a rebuilt
//! server or a wrong answer must not. From the reply alone the two look the same, so
//! whatever is missing passes three gates: what Consul says about its filter, whether
//! anything was deleted since, and whether the missing keys may be read at all.
//!
//! A store that came back empty is written again sooner or later. What is written then is
//! followed; what was lost is kept beside it, key by key, until it is there again, so that
//! neither the first new override nor a restore that takes its time ends the others.

use std::collections::BTreeSet;

use super::status::Hold;
use crate::responder::copy::Copy;

/// How many missing keys are asked for one by one. Rights are given by prefix, so the
/// first ones speak for the others; all of them would cost a read a key.
pub(super) const MAX_PROBES: usize = 8;

/// A complete, well-formed reply.
#[derive(Debug)]
pub(super) struct Offer<'a> {
    /// What it has.
    pub(super) copy: &'a Copy,
    /// Whether it was a 404: nothing there at all.
    pub(super) absent: bool,
    /// Its index, if it had a usable one.
    pub(super) index: Option<u64>,
    /// Whether Consul says that it left something out.
    pub(super) filtered: bool,
    /// Whether the marker key is missing where one is required.
    pub(super) unmarked: bool,
}

/// What is current.
#[derive(Debug, Clone, Copy)]
pub(super) struct Current<'a> {
    /// The copy.
    pub(super) copy: &'a Copy,
    /// The index at which the store last said what the copy says, but for what it lost.
    pub(super) index: u64,
    /// What it lost, while the copy has that.
    pub(super) lost: Option<&'a Lost>,
}

/// Keys of the copy that went without having been deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) keys: BTreeSet<Box<str>>,
    /// The index at which they were there.
    pub(super) index: u64,
    /// The store has begun anew, so that its index says nothing of them any more.
    pub(super) rebuilt: bool,
}

/// What to do with an offer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It becomes the copy.
    Apply,
    /// The copy stays.
    Hold(Hold),
    /// Ask for these keys one by one, then [`after_probes`]. The empty key stands for
    /// the prefix itself.
    Probe(Vec<String>),
}

/// Judges an offer. Without a current copy nothing can be missing, but nothing at all
/// is believed only after a probe.
pub(super) fn judge(current: Option<Current<'_>>, offer: &Offer<'_>) -> Verdict {
    if offer.unmarked {
        return Verdict::Hold(Hold::Marker);
    }
    let Some(current) = current else {
        return match (offer.filtered, offer.absent) {
            (true, _) => Verdict::Hold(Hold::Filtered),
            (false, true) => Verdict::Probe(vec![String::new()]),
            (false, false) => Verdict::Apply,
        };
    };
    let kept = current.lost.filter(|_| keeps(current, offer));
    let mut missing = current.copy.missing_from(offer.copy);
    missing.retain(|key| kept.is_none_or(|lost| !lost.keys.contains(*key)));
    if missing.is_empty() {
        return Verdict::Apply;
    }
    if offer.filtered {
        return Verdict::Hold(Hold::Filtered);
    }
    // Every delete raises the index of an emptied prefix, and a filter leaves it. The
    // index of a list that has keys may fall by reaping and proves nothing.
    if offer.absent && offer.index.is_none_or(|index| index <= current.index) {
        return Verdict::Hold(Hold::Index);
    }
    let first = missing.into_iter().take(MAX_PROBES);
    Verdict::Probe(first.map(str::to_owned).collect())
}

/// Whether an offer that is applied leaves lost keys in the copy: it lacks some, and nothing
/// says that they were deleted.
pub(super) fn keeps(current: Current<'_>, offer: &Offer<'_>) -> bool {
    let Some(lost) = current.lost else {
        return false;
    };
    let same = lost.rebuilt || offer.index.is_none_or(|index| index <= lost.index);
    same && lost.keys.iter().any(|key| offer.copy.get(&**key).is_none())
}

/// What is lost with an offer that is held by its index.
pub(super) fn lose(current: Current<'_>, offer: &Offer<'_>) -> Lost {
    let missing = current.copy.missing_from(offer.copy);
    let before = current.lost;
    Lost {
        keys: missing.into_iter().map(Box::from).collect(),
        index: before.map_or(0, |lost| lost.index).max(current.index),
        rebuilt: before.is_some_and(|lost| lost.rebuilt)
            || offer.index.is_some_and(|index| index < current.index),
    }
}

/// The offered copy with the lost keys that it lacks beside it.
pub(super) fn beside(offered: Copy, current: Current<'_>) -> Copy {
    let lost = current.lost.into_iter().flat_map(|lost| &lost.keys);
    let kept = lost.filter_map(|key| {
        let entry = current.copy.get(&**key)?;
        Some((key.clone(), entry.clone()))
    });
    let offer = offered.iter();
    let offer = offer.map(|(key, entry)| (Box::from(key), entry.clone()));
    // Of two entries with one key the later one counts.
    Copy::new(
        kept.chain(offer).collect(),
        offered.index(),
        offered.read_at(),
    )
}

/// What one probe, a consistent read of one key, answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probe {
    /// 404: it is not there.
    Absent,
    /// 200: it is there after all.
    Present,
    /// 403, or no usable answer.
    Refused,
}

/// What the probes make of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probed {
    /// All are gone: the offer becomes the copy.
    Apply,
    /// The copy stays.
    Hold,
    /// One is there: the offer is out of date.
    ReadAgain,
}

/// Judges the answers; one refusal outweighs all others.
pub(super) fn after_probes(answers: &[Probe]) -> Probed {
    if answers.is_empty() || answers.contains(&Probe::Refused) {
        Probed::Hold
    } else if answers.contains(&Probe::Present) {
        Probed::ReadAgain
    } else {
        Probed::Apply
    }
}

#[cfg(test)]
mod tests;
