//! May a reply that lacks keys of the copy be believed? Pure.
//!
//! Deleting a key must restore the row, even the last one. Lost rights, a rebuilt
//! server or a wrong answer must not. From the reply alone the two look the same, so
//! whatever is missing passes three gates: what Consul says about its filter, whether
//! anything was deleted since, and whether the missing keys may be read at all.

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
    /// The index at which the store last said what the copy says.
    pub(super) index: u64,
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
    let missing = current.copy.missing_from(offer.copy);
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
mod tests {
    use super::*;
    use crate::clock::UnixNanos;
    use crate::responder::copy::Entry;
    use crate::responder::value::Value;

    fn copy(keys: &[&str]) -> Copy {
        let entry = || Entry::new(Ok(Value::Drain), None);
        let entries = keys.iter().map(|key| (Box::from(*key), entry())).collect();
        Copy::new(entries, 0, UnixNanos(0))
    }

    fn probe(keys: &[&str]) -> Verdict {
        Verdict::Probe(keys.iter().map(|key| (*key).to_owned()).collect())
    }

    /// One reply to a copy that has `a` and `b`, read at index 10.
    #[derive(Clone, Copy)]
    struct Reply {
        keys: &'static [&'static str],
        absent: bool,
        index: Option<u64>,
        filtered: bool,
        unmarked: bool,
    }

    const FULL: Reply = Reply {
        keys: &["a", "b"],
        absent: false,
        index: Some(11),
        filtered: false,
        unmarked: false,
    };
    const GONE: Reply = Reply {
        keys: &[],
        absent: true,
        ..FULL
    };

    fn judged(current: Option<&Copy>, reply: Reply) -> Verdict {
        let copy = copy(reply.keys);
        let offer = Offer {
            copy: &copy,
            absent: reply.absent,
            index: reply.index,
            filtered: reply.filtered,
            unmarked: reply.unmarked,
        };
        judge(current.map(|copy| Current { copy, index: 10 }), &offer)
    }

    #[test]
    fn replies_to_a_copy() {
        let hold = Verdict::Hold;
        let table = [
            ("all there", FULL, Verdict::Apply),
            (
                "one more",
                Reply {
                    keys: &["a", "b", "c"],
                    ..FULL
                },
                Verdict::Apply,
            ),
            (
                "all there, index back",
                Reply {
                    index: Some(2),
                    ..FULL
                },
                Verdict::Apply,
            ),
            (
                "all there, no index",
                Reply {
                    index: None,
                    ..FULL
                },
                Verdict::Apply,
            ),
            (
                "all there of a filtered list",
                Reply {
                    filtered: true,
                    ..FULL
                },
                Verdict::Apply,
            ),
            (
                "all there but the marker",
                Reply {
                    unmarked: true,
                    ..FULL
                },
                hold(Hold::Marker),
            ),
            (
                "one missing",
                Reply {
                    keys: &["b"],
                    ..FULL
                },
                probe(&["a"]),
            ),
            (
                "one missing, reaped",
                Reply {
                    keys: &["b"],
                    index: Some(3),
                    ..FULL
                },
                probe(&["a"]),
            ),
            (
                "one missing, another new",
                Reply {
                    keys: &["a", "c"],
                    ..FULL
                },
                probe(&["b"]),
            ),
            (
                "one missing of a filtered list",
                Reply {
                    keys: &["b"],
                    filtered: true,
                    ..FULL
                },
                hold(Hold::Filtered),
            ),
            (
                "an empty list",
                Reply { keys: &[], ..FULL },
                probe(&["a", "b"]),
            ),
            ("all gone by a delete", GONE, probe(&["a", "b"])),
            (
                "all gone at the same index",
                Reply {
                    index: Some(10),
                    ..GONE
                },
                hold(Hold::Index),
            ),
            (
                "all gone at an earlier index",
                Reply {
                    index: Some(1),
                    ..GONE
                },
                hold(Hold::Index),
            ),
            (
                "all gone without an index",
                Reply {
                    index: None,
                    ..GONE
                },
                hold(Hold::Index),
            ),
            (
                "all gone and filtered",
                Reply {
                    filtered: true,
                    ..GONE
                },
                hold(Hold::Filtered),
            ),
            (
                "all gone with the marker",
                Reply {
                    unmarked: true,
                    ..GONE
                },
                hold(Hold::Marker),
            ),
        ];
        for (what, reply, verdict) in table {
            assert_eq!(judged(Some(&copy(&["a", "b"])), reply), verdict, "{what}");
        }
    }

    #[test]
    fn replies_to_an_empty_copy_lack_nothing() {
        for reply in [
            FULL,
            GONE,
            Reply {
                index: Some(1),
                ..GONE
            },
        ] {
            assert_eq!(judged(Some(&copy(&[])), reply), Verdict::Apply);
        }
    }

    #[test]
    fn first_replies() {
        let table = [
            ("content", FULL, Verdict::Apply),
            (
                "content, filtered",
                Reply {
                    filtered: true,
                    ..FULL
                },
                Verdict::Hold(Hold::Filtered),
            ),
            (
                "content without the marker",
                Reply {
                    unmarked: true,
                    ..FULL
                },
                Verdict::Hold(Hold::Marker),
            ),
            ("nothing", GONE, probe(&[""])),
            (
                "nothing, filtered",
                Reply {
                    filtered: true,
                    ..GONE
                },
                Verdict::Hold(Hold::Filtered),
            ),
            (
                "nothing without the marker",
                Reply {
                    unmarked: true,
                    ..GONE
                },
                Verdict::Hold(Hold::Marker),
            ),
        ];
        for (what, reply, verdict) in table {
            assert_eq!(judged(None, reply), verdict, "{what}");
        }
    }

    #[test]
    fn no_more_probes_than_the_limit() {
        let keys: Vec<String> = (0..100).map(|n| format!("k{n:03}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        assert_eq!(judged(Some(&copy(&keys)), GONE), probe(&keys[..MAX_PROBES]));
    }

    #[test]
    fn one_refused_probe_outweighs_the_others() {
        use Probe::{Absent, Present, Refused};
        let table: [(&[Probe], Probed); 7] = [
            (&[Absent], Probed::Apply),
            (&[Absent, Absent], Probed::Apply),
            (&[Absent, Refused], Probed::Hold),
            (&[Refused, Present], Probed::Hold),
            (&[Present, Refused], Probed::Hold),
            (&[Absent, Present], Probed::ReadAgain),
            (&[], Probed::Hold),
        ];
        for (answers, probed) in table {
            assert_eq!(after_probes(answers), probed, "{answers:?}");
        }
    }
}
