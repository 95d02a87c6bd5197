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
    let current = current.map(|copy| Current {
        copy,
        index: 10,
        lost: None,
    });
    judge(current, &offer)
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

/// A copy `a`, `b` read at index 10 whose store came back empty at `back`, and then has
/// `keys` at `index`.
fn after_loss(back: u64, keys: &[&str], index: Option<u64>) -> (Verdict, bool) {
    let old = copy(&["a", "b"]);
    let nothing = copy(&[]);
    let current = Current {
        copy: &old,
        index: 10,
        lost: None,
    };
    let empty = Offer {
        copy: &nothing,
        absent: true,
        index: Some(back),
        filtered: false,
        unmarked: false,
    };
    assert_eq!(judge(Some(current), &empty), Verdict::Hold(Hold::Index));
    let lost = lose(current, &empty);
    assert_eq!(lost.keys.len(), 2);
    let next = copy(keys);
    let offer = Offer {
        copy: &next,
        absent: keys.is_empty(),
        index,
        ..empty
    };
    let current = Current {
        lost: Some(&lost),
        index: if lost.rebuilt { back } else { 10 },
        ..current
    };
    (judge(Some(current), &offer), keeps(current, &offer))
}

#[test]
fn what_a_rebuilt_store_lost_is_kept_until_it_is_there_again() {
    type Case<'a> = (&'a [&'a str], u64, bool);
    let table: [Case<'_>; 6] = [
        (&[], 3, true),
        (&["c"], 5, true),
        (&["a"], 5, true),
        (&["b", "c"], 5, true),
        // Writes alone do not make it the old store again.
        (&["c"], 500, true),
        (&["a", "b"], 5, false),
    ];
    for (keys, index, kept) in table {
        let judged = after_loss(3, keys, Some(index));
        assert_eq!(judged, (Verdict::Apply, kept), "{keys:?} at {index}");
    }
    assert_eq!(after_loss(3, &["c"], None), (Verdict::Apply, true));
}

/// At the same index the store may be the same and the rights gone: later writes show what
/// was deleted, and the probe whether it may be seen.
#[test]
fn what_a_store_of_the_same_index_lacks_is_asked_for_once_it_was_written() {
    assert_eq!(after_loss(10, &[], Some(10)), (Verdict::Apply, true));
    assert_eq!(after_loss(10, &[], Some(11)), (probe(&["a", "b"]), false));
    assert_eq!(after_loss(10, &["a"], Some(12)), (probe(&["b"]), false));
    assert_eq!(
        after_loss(10, &["a", "b"], Some(12)),
        (Verdict::Apply, false)
    );
}

/// In its new life the store is judged like any other, and may be lost again.
#[test]
fn deletions_in_the_new_life_are_told_from_what_was_lost() {
    let current_copy = copy(&["a", "b", "new"]);
    let lost = Lost {
        keys: ["a", "b"].into_iter().map(Box::from).collect(),
        index: 10,
        rebuilt: true,
    };
    let current = Current {
        copy: &current_copy,
        index: 5,
        lost: Some(&lost),
    };
    let nothing = copy(&[]);
    let gone = |index| Offer {
        copy: &nothing,
        absent: true,
        index: Some(index),
        filtered: false,
        unmarked: false,
    };
    assert_eq!(judge(Some(current), &gone(6)), probe(&["new"]));
    assert!(keeps(current, &gone(6)));
    assert_eq!(judge(Some(current), &gone(2)), Verdict::Hold(Hold::Index));
    assert_eq!(lose(current, &gone(2)).keys.len(), 3);
    // What is followed then has both.
    let merged = beside(copy(&["c"]), current);
    let keys: Vec<_> = merged.iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["a", "b", "c"]);
}
