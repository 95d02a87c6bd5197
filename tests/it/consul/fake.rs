//! Replies that are not what they should be: the copy stays, and the next read does not
//! wait on anything that they said.

use crate::kv::kit::{self, Watched, full};
use haptic_agent::http::basic::base64;
use haptic_agent::responder::kv::{
    ConsulConfig, ErrorKind, ReadResult, Source, SyncWait, Token, Weights,
};
use haptic_agent::responder::limits::MAX_KV_KEYS;
use haptic_agent::responder::stamp::Stamp;
use haptic_agent::responder::value::Value;
use haptic_agent::testkit::FakeConsul;
use haptic_agent::testkit::fake_consul::{Fault, Rights, Seen};
use std::fs;
use std::time::{Duration, Instant};

/// A fake with one drained row, and a watcher that has read it.
fn drained() -> (FakeConsul, Watched) {
    let consul = FakeConsul::start().unwrap();
    consul.put(&full("web/s1"), "drain");
    let watched = Watched::consul(consul.address()).synced();
    assert_eq!(watched.value("web/s1"), Some(Value::Drain));
    (consul, watched)
}

fn lists(consul: &FakeConsul) -> Vec<Seen> {
    let mut seen = consul.seen();
    seen.retain(Seen::is_list);
    seen
}

#[test]
fn overrides_come_and_go() {
    let consul = FakeConsul::start().unwrap();
    let watched = Watched::consul(consul.address()).synced();
    assert!(watched.copy().is_empty());
    consul.put(&full("canary"), "drain");
    watched.until_value("canary", Some(Value::Drain));
    consul.put(&full("web/s1"), "50%\n");
    watched.until_value("web/s1", Some(Value::Weight(50)));
    consul.put(&full("canary"), "maint");
    watched.until_value("canary", Some(Value::Maint));
    consul.delete(&full("canary"));
    watched.until_keys(&["web/s1"]);
    consul.delete(&full("web/s1"));
    watched.until_keys(&[]);
    consul.put("fleet/statement", "drain");
    consul.put("fleet", "drain");
    watched.until_more(ReadResult::Same, 2);
    assert!(watched.copy().is_empty());
    assert_eq!(watched.snapshot().hold, None);
    for error in [ErrorKind::Http, ErrorKind::Parse, ErrorKind::Acl] {
        assert_eq!(watched.snapshot().errors(error), 0);
    }
}

#[test]
fn requests_are_what_the_rules_say() {
    let (consul, watched) = drained();
    let mut config = kit::consul(consul.address());
    config.server.token = Token::Fixed("s3cret".to_owned());
    config.pace.wait = Duration::from_secs(55);
    drop(watched);
    let before = lists(&consul).len();
    let watched = Watched::start(Source::Consul(config)).synced();
    consul.put(&full("a"), "drain");
    watched.until_value("a", Some(Value::Drain));
    let seen = lists(&consul).split_off(before);
    assert_eq!(seen[0].target, "/v1/kv/fleet/state/?recurse");
    assert_eq!(
        seen[1].target,
        "/v1/kv/fleet/state/?recurse&index=2&wait=55000ms"
    );
    assert!(
        seen.iter()
            .all(|seen| seen.token.as_deref() == Some("s3cret"))
    );
    assert!(seen.iter().all(|seen| !seen.target.contains("s3cret")));
}

/// A list with a wrong index is believed, its index is not.
#[test]
fn an_index_that_is_none_is_not_waited_on() {
    let (consul, watched) = drained();
    for fault in [
        Fault::NoIndex,
        Fault::Index("0".to_owned()),
        Fault::Index("abc".to_owned()),
        Fault::Index("1".to_owned()),
        Fault::Index("18446744073709551616".to_owned()),
        Fault::Index(String::new()),
    ] {
        let spoiled = format!("{fault:?}");
        consul.spoil(fault);
        let before = lists(&consul).len();
        consul.put(&full("web/s2"), &format!("{}%", before % 999));
        // The first list after the write carries the fault, the one after it does not.
        watched.until("both lists", |_| {
            consul.faults_left() == 0 && lists(&consul).len() >= before + 3
        });
        let seen = lists(&consul);
        let at = seen.iter().rposition(|seen| !seen.waits()).unwrap();
        assert!(at >= before, "{spoiled}: {:?}", &seen[before..]);
        assert_eq!(watched.value("web/s1"), Some(Value::Drain));
    }
    consul.put(&full("web/s1"), "maint");
    watched.until_value("web/s1", Some(Value::Maint));
    assert_eq!(watched.snapshot().reads(ReadResult::Error), 0);
}

/// An index ahead of the server's hides a write until the wait is over, and no longer.
#[test]
fn an_index_ahead_hides_a_write_for_one_wait() {
    let (consul, watched) = drained();
    consul.spoil(Fault::Index("999999".to_owned()));
    watched.until("spoiled", |_| consul.faults_left() == 0);
    consul.put(&full("web/s1"), "maint");
    watched.until("waits on it", |_| {
        lists(&consul)
            .last()
            .unwrap()
            .target
            .contains("index=999999")
    });
    consul.put(&full("web/s1"), "ready");
    let begin = Instant::now();
    watched.until_value("web/s1", Some(Value::Ready));
    let pace = kit::quick();
    assert!(
        begin.elapsed() < pace.wait + pace.slack,
        "{:?}",
        begin.elapsed()
    );
}

/// A reaped tombstone lets the index of a list fall without any change.
#[test]
fn an_index_that_falls_by_reaping_changes_nothing() {
    let (consul, watched) = drained();
    consul.put(&full("web/s2"), "drain");
    consul.delete(&full("web/s2"));
    watched.until_keys(&["web/s1"]);
    consul.reap();
    watched.until_more(ReadResult::Same, 3);
    assert_eq!(watched.snapshot().hold, None);
    consul.delete(&full("web/s1"));
    watched.until_keys(&[]);
}

#[test]
fn replies_that_are_no_lists_leave_the_copy() {
    let (consul, watched) = drained();
    let body = |text: &str| Fault::Body(text.as_bytes().to_vec());
    let many: String = (0..16_385)
        .map(|n| format!(",{{\"Key\":\"fleet/state/k{n}\",\"Value\":null}}"))
        .collect();
    let table = [
        (body(""), ErrorKind::Parse),
        (body("null"), ErrorKind::Parse),
        (body("{}"), ErrorKind::Parse),
        (body("[{\"Key\":\"fleet/state/a\""), ErrorKind::Parse),
        (body("[{\"Key\":\"fleet/state/a\"}]"), ErrorKind::Parse),
        (
            body("[{\"Key\":\"other/a\",\"Value\":null}]"),
            ErrorKind::Parse,
        ),
        (body(&format!("[{}]", &many[1..])), ErrorKind::Parse),
        (Fault::Body(vec![b' '; (16 << 20) + 1]), ErrorKind::Parse),
        (Fault::Status(500, "rpc error".to_owned()), ErrorKind::Http),
        (
            Fault::Status(500, "No cluster leader".to_owned()),
            ErrorKind::Leader,
        ),
        (Fault::Status(503, String::new()), ErrorKind::Http),
        (Fault::Status(429, String::new()), ErrorKind::Http),
        (
            Fault::Status(400, "Bad request".to_owned()),
            ErrorKind::Http,
        ),
        (Fault::Status(301, String::new()), ErrorKind::Http),
        // Whatever answers so, it is no Consul.
        (Fault::Status(404, "not found".to_owned()), ErrorKind::Http),
        (
            Fault::Status(403, "Permission denied".to_owned()),
            ErrorKind::Acl,
        ),
        (Fault::Leaderless, ErrorKind::Leader),
    ];
    for (fault, kind) in table {
        let before = watched.snapshot().errors(kind);
        consul.spoil(fault.clone());
        watched.until(
            &format!("{kind} after {:.80}", format!("{fault:?}")),
            |now| now.errors(kind) == before + 1,
        );
        watched.until("well again", |now| now.trouble.is_none());
        assert_eq!(watched.keys(), ["web/s1"]);
    }
    let now = watched.snapshot();
    assert_eq!(now.reads(ReadResult::Changed), 1);
    assert_eq!(now.reads(ReadResult::Error), 17);
    assert_eq!(now.hold, None);
    // After each of them the next list did not wait.
    let seen = lists(&consul);
    let plain = seen.iter().filter(|seen| !seen.waits()).count();
    assert_eq!(plain, 1 + 17, "{seen:?}");
}

#[test]
fn chunks_and_the_longest_body_are_read() {
    let (consul, watched) = drained();
    consul.spoil(Fault::Chunked);
    watched.until("spoiled", |_| consul.faults_left() == 0);
    consul.put(&full("web/s2"), "drain");
    watched.until_keys(&["web/s1", "web/s2"]);
    let mut body = format!(
        "[{{\"Key\":\"{}\",\"Value\":\"{}\"}}",
        full("web/s1"),
        base64(b"drain")
    )
    .into_bytes();
    body.push(b',');
    body.extend(
        format!(
            "{{\"Key\":\"{}\",\"Value\":\"{}\"}}",
            full("web/s2"),
            base64(b"7%")
        )
        .bytes(),
    );
    body.resize((16 << 20) - 1, b' ');
    body.push(b']');
    consul.spoil(Fault::Body(body));
    watched.until_value("web/s2", Some(Value::Weight(7)));
    watched.until_value("web/s2", Some(Value::Drain));
    assert_eq!(watched.snapshot().reads(ReadResult::Error), 0);
}

/// Values that are none, and keys that nobody can ask for, cost nobody else anything.
#[test]
fn invalid_values_count_as_absent() {
    let consul = FakeConsul::start().unwrap();
    for (key, value) in [
        ("a", "down"),
        ("b", ""),
        ("c", "DRAIN \n"),
        ("folder/", ""),
        ("d", "1000%"),
        ("e", "50%"),
    ] {
        consul.put(&full(key), value);
    }
    let watched = Watched::consul(consul.address()).synced();
    assert_eq!(watched.keys(), ["a", "b", "c", "d", "e"]);
    assert_eq!(watched.snapshot().invalid_values, 3);
    assert_eq!(watched.snapshot().keys, 5);
    assert_eq!(watched.value("a"), None);
    assert_eq!(watched.value("c"), Some(Value::Drain));
    assert_eq!(watched.value("e"), Some(Value::Weight(50)));
    consul.put(&full("a"), "ready");
    watched.until_value("a", Some(Value::Ready));
    assert_eq!(watched.snapshot().invalid_values, 2);
    let config = kit::consul(consul.address());
    let keeping = Watched::start_with(Source::Consul(config), Weights::Keep).synced();
    assert_eq!(keeping.value("e"), None);
    assert_eq!(keeping.snapshot().invalid_values, 3);
}

#[test]
fn an_end_comes_with_its_value() {
    let consul = FakeConsul::start().unwrap();
    let end = Stamp::parse("2001-02-03T04:05:06Z").unwrap();
    consul.put_with_flags(&full("old"), "drain", end.to_flags());
    let far = Stamp::parse("2999-01-01T00:00:00Z").unwrap();
    consul.put_with_flags(&full("far"), "drain", far.to_flags());
    consul.put_with_flags(&full("foreign"), "drain", 42);
    let watched = Watched::consul(consul.address()).synced();
    assert_eq!(watched.value("old"), None);
    assert_eq!(watched.value("far"), Some(Value::Drain));
    assert_eq!(watched.value("foreign"), Some(Value::Drain));
    // A later write of any tool takes the end along.
    consul.put(&full("old"), "drain");
    watched.until_value("old", Some(Value::Drain));
}

#[test]
fn a_token_that_was_rotated_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    fs::write(&file, "first\n").unwrap();
    let consul = FakeConsul::start().unwrap();
    consul.set_token(Some("first"));
    consul.put(&full("web/s1"), "drain");
    let config = kit::consul(consul.address());
    let mut server = config.server.clone();
    server.token = Token::File(file.clone());
    let watched = Watched::start(Source::Consul(ConsulConfig { server, ..config })).synced();
    consul.set_token(Some("second"));
    watched.until_error(ErrorKind::Acl);
    assert_eq!(watched.value("web/s1"), Some(Value::Drain));
    fs::remove_file(&file).unwrap();
    watched.until("says that the file is gone", |now| {
        now.trouble
            .as_deref()
            .is_some_and(|t| t.contains("token file"))
    });
    fs::write(&file, "second\n").unwrap();
    watched.until("well again", |now| now.trouble.is_none());
    consul.put(&full("web/s1"), "maint");
    watched.until_value("web/s1", Some(Value::Maint));
}

#[test]
fn at_the_start_nothing_is_known_until_something_is() {
    let consul = FakeConsul::start().unwrap();
    consul.put(&full("web/s1"), "drain");
    consul.set_leader(false);
    let watched = Watched::consul(consul.address());
    watched.until_error(ErrorKind::Leader);
    consul.set_leader(true);
    consul.set_rights(Rights::Unknown);
    watched.until_error(ErrorKind::Acl);
    // Without rights the list looks empty.
    consul.set_rights(Rights::None);
    watched.until_error(ErrorKind::Acl);
    assert!(watched.cell.load().is_none());
    assert_eq!(
        watched.status.wait_synced(Some(Duration::ZERO)),
        SyncWait::Late
    );
    consul.set_rights(Rights::All);
    let watched = watched.synced();
    assert_eq!(watched.value("web/s1"), Some(Value::Drain));
}

#[test]
fn a_watcher_stops_at_once() {
    let consul = FakeConsul::start().unwrap();
    let mut config = kit::consul(consul.address());
    config.pace.wait = Duration::from_secs(600);
    let mut watched = Watched::start(Source::Consul(config)).synced();
    watched.until("waiting", |_| lists(&consul).last().unwrap().waits());
    assert_eq!(watched.status.overdue(), Duration::ZERO);
    let begin = Instant::now();
    watched.watcher.stop();
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
    // A watcher that never synced tells who waits for it.
    consul.set_rights(Rights::Unknown);
    let mut watched = Watched::consul(consul.address());
    watched.until_error(ErrorKind::Acl);
    watched.watcher.stop();
    assert_eq!(watched.status.wait_synced(None), SyncWait::Stopped);
}

/// A store that is larger than it should be is refused as a whole, by a limit that can be
/// set, and what the copy has stays.
#[test]
fn the_number_of_keys_is_a_setting() {
    let consul = FakeConsul::start().unwrap();
    let at_most = |max_keys| {
        Watched::start(Source::Consul(ConsulConfig {
            max_keys,
            ..kit::consul(consul.address())
        }))
    };
    for n in 0..MAX_KV_KEYS {
        consul.put(&full(&format!("be/s{n}")), "drain");
    }
    let watched = at_most(MAX_KV_KEYS).synced();
    assert_eq!(watched.copy().len(), MAX_KV_KEYS);
    consul.put(&full("one-more"), "drain");
    watched.until_error(ErrorKind::Parse);
    let trouble = watched.snapshot().trouble.unwrap();
    assert!(trouble.contains("more than 16384 keys"), "{trouble}");
    assert!(trouble.contains("--kv-max-keys"), "{trouble}");
    assert_eq!(watched.copy().len(), MAX_KV_KEYS);
    assert_eq!(
        at_most(MAX_KV_KEYS + 1).synced().copy().len(),
        MAX_KV_KEYS + 1
    );
    // Values make a body long, too.
    consul.wipe();
    for n in 0..20 {
        consul.put(&full(&format!("long{n}")), &"x".repeat(100_000));
    }
    let small = at_most(100);
    small.until_error(ErrorKind::Parse);
    let trouble = small.snapshot().trouble.unwrap();
    assert!(trouble.contains("--kv-max-keys"), "{trouble}");
}
