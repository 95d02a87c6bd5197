//! Check-and-set against a fake Consul: what was not read is not replaced.

// The condition on this module hides from the lint that it is one of tests.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::store::{Change, Store, StoreChoice, StoreError, Version};
use crate::clock::UnixNanos;
use crate::responder::key::Prefix;
use crate::responder::kv::ConsulServer;
use crate::responder::note::Note;
use crate::responder::stamp::Stamp;
use crate::responder::value::Value;
use crate::testkit::FakeConsul;

fn store(consul: &FakeConsul) -> Store {
    let address = consul.address().to_string();
    let server = ConsulServer::new(Some(&address), &|_| None).unwrap();
    let prefix = Prefix::new("p").unwrap();
    Store::open(&StoreChoice::Consul { server, prefix }).unwrap()
}

fn change(value: Value, why: Option<&str>) -> Change {
    Change {
        value,
        until: None,
        note: Note {
            by: None,
            why: why.map(str::to_owned),
            at: Some(Stamp::of(UnixNanos(1))),
        },
    }
}

#[test]
fn what_changed_meanwhile_is_not_replaced() {
    let consul = FakeConsul::start().unwrap();
    let mut store = store(&consul);
    for why in [None, Some("because")] {
        // Nothing was there, and now something is.
        assert_eq!(store.get("a").unwrap(), None);
        consul.put("p/a", "drain");
        let error = store
            .put("a", &change(Value::Maint, why), None)
            .unwrap_err();
        assert!(matches!(error, StoreError::Changed), "{error}");
        // Something was there, and now another thing is.
        let before = store.get("a").unwrap().unwrap();
        consul.put("p/a", "ready");
        let version = Some(&before.version);
        let error = store
            .put("a", &change(Value::Maint, why), version)
            .unwrap_err();
        assert!(matches!(error, StoreError::Changed), "{error}");
        let error = store.delete("a", &before.version).unwrap_err();
        assert!(matches!(error, StoreError::Changed), "{error}");
        assert_eq!(consul.get("p/a").unwrap().value, b"ready");
        assert_eq!(consul.get(".notes/p/a"), None);
        // What was read is replaced.
        let before = store.get("a").unwrap().unwrap();
        store
            .put("a", &change(Value::Maint, why), Some(&before.version))
            .unwrap();
        let after = store.get("a").unwrap().unwrap();
        assert_eq!(after.entry.stored(), Ok(Value::Maint));
        assert_eq!(after.note.why.as_deref(), why);
        assert!(matches!(after.version, Version::Index(index) if index > 1));
        store.delete("a", &after.version).unwrap();
        assert_eq!(store.list().unwrap().keys, []);
    }
}
