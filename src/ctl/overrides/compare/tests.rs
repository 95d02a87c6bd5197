//! The three differences, and what is none.

use super::super::store::Version;
use super::*;
use crate::responder::copy::Entry;
use crate::responder::kv::Weights;
use crate::responder::note::Note;
use crate::responder::stamp::Stamp;

const NOW: UnixNanos = UnixNanos(1_767_323_045_000_000_000);

fn stored(value: &str, until: Option<u64>) -> Stored {
    Stored {
        entry: Entry::new(
            Weights::Set.parse(value.as_bytes()),
            until.and_then(Stamp::at),
        ),
        note: Note::default(),
        version: Version::Index(1),
    }
}

/// A coverage with this copy and one row `w/s1 canary`.
fn coverage(copy: &str, row: &str, haproxy: &str) -> Coverage {
    let text = format!(
        r#"{{"at": "2026-01-02T03:04:05.5Z", "store": {{"synced": true, "unreadable": {{"named": ["w%2Fs2", "odd"]}}}},
            "overrides": {{"keys": [{copy}], "left_out": 0}}, {haproxy}
            "rows": [{{"row": "w/s1", "request": ["w/s1", "canary"], "last_asked": "2026-01-02T03:04:05.1Z", {row}}}]}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn judge(key: &str, keys: &[(&str, Stored)], coverage: &Coverage) -> Told {
    let origin = Origin::parse("http://127.0.0.1:9778").unwrap();
    let keys: Keys<'_> = keys.iter().map(|(key, stored)| (*key, stored)).collect();
    let copy = coverage.overrides.as_ref().unwrap().keys.iter();
    let side = Side {
        origin: &origin,
        coverage,
        rows: Index::of(coverage),
        copy: Some(copy.map(|copied| (&*copied.key, copied)).collect()),
    };
    side.judge(key, keys.get(key).unwrap(), &keys, NOW)
}

#[test]
fn a_copy_that_is_not_the_store_is_named() {
    let row = r#""answer": "ready", "decided_by": null"#;
    let over = NOW.0 / 1_000_000_000;
    let over = u64::try_from(over).unwrap() - 5;
    let table: [(&str, Stored, &str, &str); 11] = [
        ("w/s3", stored("drain", None), "", "does not have it"),
        (
            "w/s2",
            stored("drain", None),
            "",
            "cannot read the key's file",
        ),
        (
            "odd",
            stored("drain", None),
            "",
            "cannot read the key's file",
        ),
        (
            "a",
            stored("drain", None),
            r#"{"key": "a", "value": "maint"}"#,
            "has maint",
        ),
        (
            "a",
            stored("50%", None),
            r#"{"key": "a", "invalid": "weights are kept"}"#,
            "weights are kept",
        ),
        (
            "a",
            stored("up", None),
            r#"{"key": "a", "value": "drain"}"#,
            "goes on with drain",
        ),
        (
            "a",
            stored("drain", Some(4_000_000_000)),
            r#"{"key": "a", "value": "drain"}"#,
            "without an end",
        ),
        (
            "a",
            stored("drain", None),
            r#"{"key": "a", "value": "drain", "until": "2027-01-01T00:00:00Z"}"#,
            "until 2027",
        ),
        (
            "a",
            stored("drain", None),
            r#"{"key": "a", "value": "drain"}"#,
            "",
        ),
        (
            "a",
            stored("up", None),
            r#"{"key": "a", "invalid": "health"}"#,
            "",
        ),
        (
            "a",
            stored("drain", Some(over)),
            &format!(
                r#"{{"key": "a", "value": "drain", "until": "{}"}}"#,
                Stamp::at(over).unwrap()
            ),
            "",
        ),
    ];
    for (key, entry, copy, says) in table {
        let told = judge(key, &[(key, entry)], &coverage(copy, row, ""));
        let said = told.differs.join("; ");
        assert_eq!(said.is_empty(), says.is_empty(), "{key} {copy}: {said}");
        assert!(said.contains(says), "{key} {copy}: {said}");
    }
}

#[test]
fn what_a_row_is_answered_and_shows_is_named() {
    let copy = r#"{"key": "canary", "value": "drain"}"#;
    let following = r#""answer": "drain", "decided_by": "canary", "state": "following""#;
    let dead = r#""haproxy": {"trouble": "refused"},"#;
    let asked = r#""haproxy": {},"#;
    // Row, HAProxy, rows answered, shown and unseen, what differs.
    let table = [
        (following, asked, (1, 1, 0), ""),
        (following, dead, (1, 0, 1), ""),
        (
            r#""answer": "drain", "decided_by": "canary""#,
            "",
            (1, 0, 1),
            "",
        ),
        (
            r#""answer": "ready", "decided_by": null"#,
            "",
            (0, 0, 0),
            "w/s1 is answered ready",
        ),
        (
            r#""answer": "drain", "decided_by": "canary", "state": "diverged", "why": "HAProxy holds it down""#,
            asked,
            (1, 0, 0),
            "w/s1 is answered drain and is diverged: HAProxy holds it down",
        ),
        (
            r#""answer": "drain", "decided_by": "canary", "state": "pending""#,
            asked,
            (1, 0, 0),
            "is pending",
        ),
        // One that is not heard any more is none of those that ask.
        (
            r#""answer": "ready", "decided_by": null, "last_asked": "2026-01-02T03:03:05.1Z""#,
            "",
            (0, 0, 0),
            "",
        ),
    ];
    for (row, haproxy, counts, says) in table {
        let row = match row.contains("last_asked") {
            true => row.to_owned(),
            false => format!(r#"{row}, "interval_seconds": 2.0"#),
        };
        let text = format!(
            r#"{{"at": "2026-01-02T03:04:05.5Z", "store": {{"synced": true}}, {haproxy}
                "overrides": {{"keys": [{copy}]}},
                "rows": [{{"row": "w/s1", "request": ["w/s1", "canary"] {}, {row}}}]}}"#,
            match row.contains("last_asked") {
                true => "",
                false => r#", "last_asked": "2026-01-02T03:04:05.1Z""#,
            }
        );
        let coverage: Coverage = serde_json::from_str(&text).unwrap();
        let told = judge("canary", &[("canary", stored("drain", None))], &coverage);
        assert_eq!((told.answered, told.shown, told.unseen), counts, "{row}");
        let said = told.differs.join("; ");
        assert_eq!(said.is_empty(), says.is_empty(), "{row}: {said}");
        assert!(said.contains(says), "{row}: {said}");
    }
}

/// What the first key of a row says is what counts, as far as the store knows.
#[test]
fn a_key_before_it_decides() {
    let copy = r#"{"key": "canary", "value": "drain"}, {"key": "w/s1", "value": "ready"}"#;
    let row = r#""answer": "ready", "decided_by": "w/s1", "state": "following""#;
    let coverage = coverage(copy, row, "");
    let keys = || {
        [
            ("canary", stored("drain", None)),
            ("w/s1", stored("ready", None)),
        ]
    };
    let told = judge("canary", &keys(), &coverage);
    assert_eq!((told.elsewhere, told.answered), (1, 0));
    assert!(told.differs.is_empty(), "{told:?}");
    let told = judge("w/s1", &keys(), &coverage);
    assert_eq!((told.elsewhere, told.answered, told.shown), (0, 1, 1));
    // It is answered by a key that says nothing any more.
    let told = judge("w/s1", &[("w/s1", stored("up", None))], &coverage);
    assert!(
        told.differs
            .join(" ")
            .contains("is answered ready, by w/s1")
    );
}

#[test]
fn another_store_is_told_from_another_name_of_this_one() {
    use crate::responder::key::Prefix;
    use crate::responder::kv::ConsulServer;
    let consul = |address: &str, prefix: &str| PlaceView::Consul {
        address: address.to_owned(),
        prefix: prefix.to_owned(),
    };
    let directory = |path: &str| PlaceView::Directory {
        path: path.to_owned(),
    };
    let ours = StoreChoice::Consul {
        server: ConsulServer::new(Some("10.0.0.1:8500"), &|_| None).unwrap(),
        prefix: Prefix::new("a/b").unwrap(),
    };
    let here = StoreChoice::Directory("/kv".into());
    let table = [
        (&ours, consul("http://10.0.0.1:8500", "a/b/"), false, false),
        (&ours, consul("http://127.0.0.1:8500", "a/b/"), false, true),
        (&ours, consul("http://10.0.0.1:8500", "a/c/"), true, false),
        (&ours, directory("/kv"), true, false),
        (&here, directory("/kv"), false, false),
        (&here, directory("/mnt/kv"), false, true),
        (&here, consul("http://10.0.0.1:8500", "a/b/"), true, false),
    ];
    for (choice, place, other, perhaps) in table {
        assert_eq!(follows_another(choice, &place), other, "{place}");
        assert_eq!(may_be_another(choice, &place), perhaps, "{place}");
    }
}
