//! The real Consul: what it answers where a guess would undrain somebody.

use crate::kv::kit::{self, PREFIX, Watched, full};
use crate::support::consul::{Consul, Mode};
use haptic_agent::http::client::Method;
use haptic_agent::responder::key::kv_path;
use haptic_agent::responder::kv::{ConsulConfig, ErrorKind, Hold, ReadResult, Source, Token};
use haptic_agent::responder::stamp::Stamp;
use haptic_agent::responder::value::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// A token that the tests give rights to and take them from.
const TOKEN: &str = "01234567-89ab-cdef-0123-456789abcdef";
/// Another one.
const SUCCESSOR: &str = "fedcba98-7654-3210-fedc-ba9876543210";

fn read_all() -> String {
    format!("key_prefix \"{PREFIX}/\" {{ policy = \"read\" }}")
}

fn with_token(consul: &Consul, token: Token) -> Watched {
    let config = kit::consul(consul.address());
    let mut server = config.server.clone();
    server.token = token;
    Watched::start(Source::Consul(ConsulConfig { server, ..config }))
}

fn token_file(dir: &Path, token: &str) -> Token {
    let path = dir.join("token");
    fs::write(&path, format!("{token}\n")).unwrap();
    Token::File(path)
}

/// The whole life of a prefix: nothing yet, keys, none again, a server that starts empty.
#[test]
fn the_life_of_a_prefix() {
    let mut consul = Consul::start(Mode::Open);
    let watched = Watched::consul(consul.address()).synced();
    assert!(watched.copy().is_empty());
    consul.put("unrelated", "x");
    consul.put(&full("canary"), "drain");
    watched.until_value("canary", Some(Value::Drain));
    consul.put(&full("web/s1"), "50%\n");
    watched.until_value("web/s1", Some(Value::Weight(50)));
    consul.put(&full("canary"), "maint");
    watched.until_value("canary", Some(Value::Maint));
    consul.delete(&full("canary"));
    watched.until_keys(&["web/s1"]);
    let begin = Instant::now();
    consul.delete(&full("web/s1"));
    watched.until_keys(&[]);
    eprintln!("last key deleted -> empty copy: {:?}", begin.elapsed());
    assert_eq!(watched.snapshot().reads(ReadResult::Hold), 0);
    // The server dies and comes back empty: nobody is undrained.
    consul.put(&full("web/s1"), "drain");
    consul.put(&full("web/s2"), "drain");
    watched.until_keys(&["web/s1", "web/s2"]);
    consul.kill();
    watched.until_error(ErrorKind::Connect);
    assert_eq!(watched.value("web/s1"), Some(Value::Drain));
    consul.start_again();
    watched.until_held(Hold::Index);
    watched.until_more(ReadResult::Hold, 3);
    assert_eq!(watched.value("web/s1"), Some(Value::Drain));
    // A write is followed and ends nothing else, and so is its deletion.
    consul.put(&full("web/s3"), "maint");
    watched.until_keys(&["web/s1", "web/s2", "web/s3"]);
    consul.delete(&full("web/s3"));
    watched.until_keys(&["web/s1", "web/s2"]);
    assert_eq!(watched.value("web/s1"), Some(Value::Drain));
    assert_eq!(watched.snapshot().hold, Some(Hold::Index));
    // What was lost is said again, or is ended, key by key.
    consul.put(&full("web/s1"), "50%");
    watched.until_value("web/s1", Some(Value::Weight(50)));
    assert_eq!(watched.value("web/s2"), Some(Value::Drain));
    consul.put(&full("web/s2"), "ready");
    watched.until("followed again", |now| now.hold.is_none());
    consul.delete(&full("web/s1"));
    consul.delete(&full("web/s2"));
    watched.until_keys(&[]);
    assert_eq!(watched.snapshot().hold, None);
}

#[test]
fn rights_that_come_and_go() {
    let consul = Consul::start(Mode::DenyByDefault);
    consul.give(TOKEN, &read_all());
    consul.put(&full("a"), "drain");
    consul.put(&full("b"), "drain");
    let watched = with_token(&consul, Token::Fixed(TOKEN.to_owned())).synced();
    watched.until_keys(&["a", "b"]);
    // Gone: the list is a 404 with the index of before.
    consul.give(TOKEN, "");
    watched.until_held(Hold::Index);
    watched.until_more(ReadResult::Hold, 3);
    // Writes and deletes that it cannot see move the index.
    consul.put(&full("c"), "drain");
    watched.until_held(Hold::Probe);
    consul.delete(&full("c"));
    watched.until_more(ReadResult::Hold, 3);
    assert_eq!(watched.snapshot().hold, Some(Hold::Probe));
    assert_eq!(watched.value("a"), Some(Value::Drain));
    assert_eq!(watched.value("b"), Some(Value::Drain));
    // A part of them: what is missing may not be read.
    consul.give(
        TOKEN,
        &format!("key \"{}\" {{ policy = \"read\" }}", full("a")),
    );
    watched.until_more(ReadResult::Hold, 3);
    assert_eq!(watched.value("b"), Some(Value::Drain));
    consul.delete(&full("a"));
    watched.until_more(ReadResult::Hold, 3);
    assert_eq!(watched.value("a"), Some(Value::Drain));
    // Back: the state of now.
    consul.give(TOKEN, &read_all());
    watched.until_keys(&["b"]);
    consul.delete(&full("b"));
    watched.until_keys(&[]);
    assert_eq!(watched.snapshot().hold, None);
}

#[test]
fn tokens_that_come_and_go() {
    let consul = Consul::start(Mode::DenyByDefault);
    let dir = tempfile::tempdir().unwrap();
    consul.put(&full("a"), "drain");
    // Anonymous at the start: an empty list and a forbidden prefix.
    let anonymous = with_token(&consul, Token::None);
    anonymous.until_error(ErrorKind::Acl);
    assert!(anonymous.cell.load().is_none());
    drop(anonymous);
    consul.give(TOKEN, &read_all());
    let watched = with_token(&consul, token_file(dir.path(), TOKEN)).synced();
    assert_eq!(watched.value("a"), Some(Value::Drain));
    consul.take(TOKEN);
    watched.until_error(ErrorKind::Acl);
    assert_eq!(watched.value("a"), Some(Value::Drain));
    consul.give(SUCCESSOR, &read_all());
    token_file(dir.path(), SUCCESSOR);
    watched.until("well again", |now| now.trouble.is_none());
    consul.put(&full("a"), "maint");
    watched.until_value("a", Some(Value::Maint));
}

#[test]
fn a_cluster_without_a_leader() {
    let (one, two) = (Consul::start(Mode::Half), Consul::start(Mode::Half));
    let watched = Watched::consul(one.address());
    watched.until_error(ErrorKind::Leader);
    assert!(watched.cell.load().is_none());
    one.join(&two);
    let watched = watched.synced();
    one.put(&full("a"), "drain");
    watched.until_value("a", Some(Value::Drain));
    let mut two = two;
    two.kill();
    watched.until_error(ErrorKind::Leader);
    assert_eq!(watched.value("a"), Some(Value::Drain));
    assert_eq!(watched.snapshot().hold, None);
}

#[test]
fn a_server_that_hangs() {
    let consul = Consul::start(Mode::Open);
    consul.put(&full("a"), "drain");
    let mut config = kit::consul(consul.address());
    config.pace.plain = Duration::from_secs(1);
    config.pace.slack = Duration::from_millis(500);
    let watched = Watched::start(Source::Consul(config)).synced();
    consul.freeze();
    watched.until_error(ErrorKind::Timeout);
    assert_eq!(watched.value("a"), Some(Value::Drain));
    consul.thaw();
    watched.until("well again", |now| now.trouble.is_none());
    consul.put(&full("a"), "maint");
    watched.until_value("a", Some(Value::Maint));
}

#[test]
fn names_and_values_come_back_as_they_were_stored() {
    let consul = Consul::start(Mode::Open);
    let long = "n".repeat(512);
    let names = [
        "UPPER",
        "a b",
        "a%2Fb",
        "a#b",
        "a+b",
        "a;b",
        "a?b",
        "a\\b",
        "b/%/c",
        "lower",
        &long,
        "web/s1",
        "ü/日本",
    ];
    for (at, name) in names.iter().enumerate() {
        consul.put(&full(name), &format!("{at}%"));
    }
    consul.put(&full("folder/"), "");
    consul.put(&full("empty"), "");
    let watched = Watched::consul(consul.address()).synced();
    for (at, name) in names.iter().enumerate() {
        let percent = u16::try_from(at).unwrap();
        assert_eq!(watched.value(name), Some(Value::Weight(percent)), "{name}");
    }
    assert_eq!(watched.snapshot().invalid_values, 1, "the empty one");
    assert_eq!(watched.keys().len(), names.len() + 1);
    // The same value again is no change, another number of the writer's is one.
    let changed = watched.snapshot().reads(ReadResult::Changed);
    consul.put(&full("web/s1"), "11%");
    watched.until_more(ReadResult::Same, 2);
    assert_eq!(watched.snapshot().reads(ReadResult::Changed), changed);
    let end = Stamp::parse("2999-01-01T00:00:00Z").unwrap();
    let target = format!("{}?flags={}", kv_path(&full("web/s1")), end.to_flags());
    assert_eq!(consul.call(Method::Put, &target, b"11%").0, 200);
    watched.until_more(ReadResult::Changed, 1);
    assert_eq!(watched.copy().get("web/s1").unwrap().until(), Some(end));
    // The longest value that Consul takes.
    consul.put(&full("big"), &"x".repeat(512 * 1024));
    watched.until("one more is invalid", |now| now.invalid_values == 2);
}

/// A prefix is text: `state` is the start of `statement`, too.
#[test]
fn neighbours_of_the_prefix_do_not_count() {
    let consul = Consul::start(Mode::Open);
    consul.put("fleet/statement/a", "drain");
    consul.put("fleet/.notes/state/a", "{}");
    consul.put("fleet/state", "drain");
    let watched = Watched::consul(consul.address()).synced();
    assert!(watched.copy().is_empty());
    consul.put(&full("a"), "drain");
    watched.until_keys(&["a"]);
    consul.delete(&full("a"));
    watched.until_keys(&[]);
}

#[test]
fn a_unix_socket() {
    let consul = Consul::start(Mode::Open);
    consul.put(&full("a"), "drain");
    let address = format!("unix://{}", consul.socket().display());
    let config = ConsulConfig::new(None, PREFIX, None, &|name| {
        (name == "CONSUL_HTTP_ADDR").then(|| address.clone())
    });
    let config = ConsulConfig {
        pace: kit::quick(),
        ..config.unwrap()
    };
    let mut watched = Watched::start(Source::Consul(config)).synced();
    consul.put(&full("a"), "maint");
    watched.until_value("a", Some(Value::Maint));
    let begin = Instant::now();
    watched.watcher.stop();
    assert!(begin.elapsed() < Duration::from_secs(2));
}

/// 919 rows written one by one as fast as Consul takes them.
#[test]
fn a_flood_of_writes() {
    let consul = Consul::start(Mode::Open);
    let watched = Watched::consul(consul.address()).synced();
    let before = watched.snapshot();
    let begin = Instant::now();
    for row in 0..919 {
        consul.put(&full(&format!("web/s{row}")), "drain");
    }
    let written = begin.elapsed();
    watched.until("all rows", |now| now.keys == 919);
    let seconds = begin.elapsed().as_secs_f64();
    let now = watched.snapshot();
    let reads = [ReadResult::Changed, ReadResult::Same]
        .map(|result| now.reads(result) - before.reads(result))
        .iter()
        .sum::<u64>();
    eprintln!("919 writes took {written:?}; {reads} reads in {seconds:.2} s");
    assert!(
        reads as f64 <= 20.0 * seconds + 2.0,
        "{reads} reads in {seconds} s"
    );
    assert_eq!(now.errors(ErrorKind::Http), 0);
}

/// From the answer to a write to the copy that has it.
#[test]
fn a_change_is_in_the_copy_within_milliseconds() {
    let consul = Consul::start(Mode::Open);
    consul.put(&full("a"), "0%");
    let mut config = kit::consul(consul.address());
    config.pace = haptic_agent::responder::kv::ConsulPace::default();
    let watched = Watched::start(Source::Consul(config)).synced();
    let mut taken = Vec::new();
    for turn in 1..=40_u16 {
        // The pause between two reads is over, and the query waits.
        let quiet = Instant::now() + Duration::from_millis(80);
        while Instant::now() < quiet {
            std::thread::yield_now();
        }
        let begin = Instant::now();
        consul.put(&full("a"), &format!("{turn}%"));
        let wanted = Some(Value::Weight(turn));
        while watched.value("a") != wanted {
            assert!(begin.elapsed() < kit::PATIENCE);
            std::thread::yield_now();
        }
        taken.push(begin.elapsed());
    }
    taken.sort();
    eprintln!(
        "write -> copy, n = {}: least {:?}, median {:?}, most {:?}",
        taken.len(),
        taken[0],
        taken[taken.len() / 2],
        taken[taken.len() - 1]
    );
    assert!(taken[taken.len() / 2] < Duration::from_millis(50));
}
