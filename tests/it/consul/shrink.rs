//! Replies that lack keys: deletions are followed at once, everything that only looks
//! like one is held back.

use crate::kv::kit::{self, Watched, full};
use haptic_agent::responder::kv::{ErrorKind, Hold, ReadResult, Source};
use haptic_agent::responder::value::Value;
use haptic_agent::testkit::FakeConsul;
use haptic_agent::testkit::fake_consul::{Fault, Rights};

/// A fake with rows `a`, `b` and `c` in drain, and a watcher that has read them.
fn three() -> (FakeConsul, Watched) {
    let consul = FakeConsul::start().unwrap();
    for key in ["a", "b", "c"] {
        consul.put(&full(key), "drain");
    }
    let watched = Watched::consul(consul.address()).synced();
    watched.until_keys(&["a", "b", "c"]);
    (consul, watched)
}

fn all_drained(watched: &Watched) {
    for key in ["a", "b", "c"] {
        assert_eq!(watched.value(key), Some(Value::Drain), "{key}");
    }
}

#[test]
fn every_way_of_deleting_is_followed() {
    let (consul, watched) = three();
    consul.delete(&full("b"));
    watched.until_keys(&["a", "c"]);
    consul.delete(&full("a"));
    consul.delete(&full("c"));
    watched.until_keys(&[]);
    for key in ["a", "b", "c"] {
        consul.put(&full(key), "maint");
    }
    watched.until_keys(&["a", "b", "c"]);
    // All at once, between two reads.
    for key in ["a", "b", "c"] {
        consul.delete(&full(key));
    }
    watched.until_keys(&[]);
    assert_eq!(watched.snapshot().reads(ReadResult::Hold), 0);
}

/// What is written to a store that came back empty is followed, and ends nothing of what it
/// lost: neither the first new key, nor its deletion, nor a restore key by key.
#[test]
fn a_rebuilt_server_undrains_nobody() {
    let (consul, watched) = three();
    let read_before = watched.snapshot().last_read.unwrap();
    consul.wipe();
    watched.until_held(Hold::Index);
    watched.until_more(ReadResult::Hold, 4);
    all_drained(&watched);
    let trouble = watched.snapshot().trouble.unwrap();
    assert!(
        trouble.contains("rebuilt") && trouble.contains("a, b, c"),
        "{trouble}"
    );
    assert_eq!(
        watched.snapshot().last_read,
        Some(read_before),
        "its age grows"
    );
    let lost = |watched: &Watched| -> Vec<String> {
        let lost = watched.snapshot().lost;
        lost.iter().map(|key| key.to_string()).collect()
    };
    consul.put(&full("new"), "maint");
    watched.until_value("new", Some(Value::Maint));
    all_drained(&watched);
    assert_eq!(lost(&watched), ["a", "b", "c"]);
    assert_eq!(watched.snapshot().hold, Some(Hold::Index));
    consul.delete(&full("new"));
    watched.until_keys(&["a", "b", "c"]);
    all_drained(&watched);
    // The server has written more than the old one ever did.
    consul.set_index(1_000_000);
    consul.put(&full("new"), "50%");
    watched.until_value("new", Some(Value::Weight(50)));
    all_drained(&watched);
    // A key that comes back is the store's again, and deleted like any other.
    consul.put(&full("a"), "drain");
    watched.until("a is back", |now| !now.lost.contains("a"));
    consul.delete(&full("a"));
    watched.until_keys(&["b", "c", "new"]);
    // One that shall end is set to ready, and the hold ends with the last one.
    consul.put(&full("b"), "ready");
    watched.until_value("b", Some(Value::Ready));
    assert_eq!(lost(&watched), ["c"]);
    assert_eq!(watched.value("c"), Some(Value::Drain));
    consul.put(&full("c"), "maint");
    watched.until("followed again", |now| now.hold.is_none());
    assert_eq!(watched.value("c"), Some(Value::Maint));
    assert!(lost(&watched).is_empty());
    for key in ["b", "c", "new"] {
        consul.delete(&full(key));
    }
    watched.until_keys(&[]);
    assert_eq!(watched.snapshot().ended_with_hold, 0);
}

/// Emptied once more on the way back.
#[test]
fn a_server_that_is_rebuilt_twice_undrains_nobody() {
    let (consul, watched) = three();
    consul.wipe();
    watched.until_held(Hold::Index);
    consul.set_index(50);
    consul.put(&full("a"), "maint");
    watched.until_value("a", Some(Value::Maint));
    consul.wipe();
    watched.until("a is lost again", |now| now.lost.len() == 3);
    assert_eq!(watched.value("a"), Some(Value::Maint));
    assert_eq!(watched.value("c"), Some(Value::Drain));
}

/// Where the index never fell, the store may be the same: then a write shows what was
/// deleted behind a hold, and what ends with it is counted.
#[test]
fn what_ends_with_a_hold_is_counted() {
    let (consul, watched) = three();
    consul.set_rights(Rights::None);
    watched.until_held(Hold::Index);
    consul.delete(&full("b"));
    watched.until_held(Hold::Probe);
    all_drained(&watched);
    consul.set_rights(Rights::All);
    watched.until_keys(&["a", "c"]);
    assert_eq!(watched.snapshot().ended_with_hold, 1);
}

#[test]
fn a_server_that_was_restored_is_followed() {
    let (consul, watched) = three();
    consul.wipe();
    for key in ["a", "b", "c"] {
        watched.until_held(Hold::Index);
        consul.put(&full(key), "maint");
        watched.until_value(key, Some(Value::Maint));
        let drained = ["a", "b", "c"].iter().filter(|other| **other > key);
        for other in drained {
            assert_eq!(
                watched.value(other),
                Some(Value::Drain),
                "{other} after {key}"
            );
        }
    }
    watched.until("followed again", |now| now.hold.is_none());
    watched.until_keys(&["a", "b", "c"]);
}

#[test]
fn lost_rights_undrain_nobody() {
    let (consul, watched) = three();
    consul.set_rights(Rights::None);
    watched.until_held(Hold::Index);
    all_drained(&watched);
    // Writes and deletes behind the filter move the index; the probe sees through it.
    consul.put(&full("d"), "drain");
    watched.until_held(Hold::Probe);
    consul.delete(&full("d"));
    watched.until_more(ReadResult::Hold, 4);
    assert_eq!(watched.snapshot().hold, Some(Hold::Probe));
    all_drained(&watched);
    consul.delete(&full("b"));
    watched.until_more(ReadResult::Hold, 4);
    all_drained(&watched);
    consul.set_rights(Rights::All);
    watched.until_keys(&["a", "c"]);
    assert_eq!(watched.snapshot().hold, None);
}

#[test]
fn rights_for_a_part_undrain_nobody() {
    let (consul, watched) = three();
    consul.set_rights(Rights::Below(vec![full("a"), full("b")]));
    watched.until_held(Hold::Probe);
    watched.until_more(ReadResult::Hold, 3);
    all_drained(&watched);
    let trouble = watched.snapshot().trouble.unwrap();
    assert!(trouble.contains("fleet/state/c"), "{trouble}");
    consul.set_rights(Rights::All);
    watched.until("well again", |now| now.hold.is_none());
    all_drained(&watched);
}

#[test]
fn a_newer_server_says_that_it_filters() {
    let (consul, watched) = three();
    consul.set_says_filtered(true);
    consul.set_rights(Rights::Below(vec![full("a")]));
    watched.until_held(Hold::Filtered);
    all_drained(&watched);
    consul.set_rights(Rights::None);
    watched.until_more(ReadResult::Hold, 3);
    all_drained(&watched);
    consul.set_rights(Rights::All);
    watched.until("well again", |now| now.hold.is_none());
    // Said of a list that lacks nothing it changes nothing.
    consul.spoil(Fault::Filtered);
    watched.until("spoiled", |_| consul.faults_left() == 0);
    consul.put(&full("d"), "drain");
    watched.until_keys(&["a", "b", "c", "d"]);
    assert_eq!(watched.snapshot().hold, None);
    // At the start it is the sign of a token that does not see all.
    consul.set_rights(Rights::Below(vec![full("a")]));
    let blind = Watched::consul(consul.address());
    blind.until_held(Hold::Filtered);
    assert!(blind.cell.load().is_none());
}

/// A list that lacks what is there when it is asked for: out of date, or wrong.
#[test]
fn a_list_that_contradicts_its_keys_is_read_again() {
    let (consul, watched) = three();
    for _ in 0..3 {
        consul.spoil(Fault::Body(b"[]".to_vec()));
        watched.until("spoiled", |_| consul.faults_left() == 0);
        watched.until_more(ReadResult::Same, 1);
        all_drained(&watched);
    }
    assert_eq!(watched.snapshot().reads(ReadResult::Hold), 0);
    // One that goes on contradicting is held back.
    for _ in 0..6 {
        consul.spoil(Fault::Body(b"[]".to_vec()));
    }
    watched.until_held(Hold::Probe);
    all_drained(&watched);
    watched.until("well again", |now| {
        now.hold.is_none() && now.trouble.is_none()
    });
    all_drained(&watched);
}

#[test]
fn a_failed_probe_holds() {
    let (consul, watched) = three();
    // The list comes from a server that lost its leader before the probe.
    consul.spoil(Fault::Body(b"[]".to_vec()));
    watched.until("spoiled", |_| consul.faults_left() == 0);
    consul.set_leader(false);
    watched.until_error(ErrorKind::Leader);
    all_drained(&watched);
    consul.set_leader(true);
    watched.until("well again", |now| {
        now.hold.is_none() && now.trouble.is_none()
    });
    all_drained(&watched);
}

#[test]
fn without_its_marker_nothing_is_believed() {
    let consul = FakeConsul::start().unwrap();
    consul.put(&full("a"), "drain");
    let mut config = kit::consul(consul.address());
    config.marker = Some(".marker".to_owned());
    let watched = Watched::start(Source::Consul(config));
    watched.until_held(Hold::Marker);
    assert!(watched.cell.load().is_none());
    consul.put(&full(".marker"), "anything");
    let watched = watched.synced();
    // The marker is neither an override nor an invalid one.
    assert_eq!(watched.keys(), ["a"]);
    assert_eq!(watched.snapshot().invalid_values, 0);
    // A rebuilt server whose index has passed the copy's looks like a deletion.
    consul.wipe();
    consul.set_index(1000);
    consul.put(&full("b"), "drain");
    watched.until_held(Hold::Marker);
    watched.until_more(ReadResult::Hold, 3);
    assert_eq!(watched.keys(), ["a"]);
    consul.put(&full(".marker"), "anything");
    watched.until_keys(&["b"]);
    consul.delete(&full("b"));
    watched.until_keys(&[]);
    // Deleting it is no deletion of anything else.
    consul.delete(&full(".marker"));
    watched.until_held(Hold::Marker);
}
