//! Connections that fail: the copy stays, each failure is counted as what it is, and
//! the watcher comes back by itself.

use crate::kv::kit::{self, PREFIX, Watched, full};
use crate::support::proxy::{Proxy, Way};
use haptic_agent::responder::kv::{ErrorKind, ReadResult, Source};
use haptic_agent::responder::value::Value;
use haptic_agent::testkit::FakeConsul;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// A fake behind a proxy, and a watcher of it that loses patience soon.
fn behind() -> (FakeConsul, Proxy, Watched) {
    let consul = FakeConsul::start().unwrap();
    consul.put(&full("web/s1"), "drain");
    let proxy = Proxy::start(consul.address());
    let mut config = kit::consul(proxy.address());
    config.pace.plain = Duration::from_millis(1500);
    config.pace.slack = Duration::from_millis(500);
    let watched = Watched::start(Source::Consul(config)).synced();
    assert_eq!(watched.value("web/s1"), Some(Value::Drain));
    (consul, proxy, watched)
}

#[test]
fn each_failure_is_counted_as_what_it_is() {
    let (consul, proxy, watched) = behind();
    let table = [
        (Way::Close, ErrorKind::Connect),
        (Way::CutAfter(0), ErrorKind::Connect),
        (Way::ResetAfter(0), ErrorKind::Connect),
        (Way::CutAfter(30), ErrorKind::Parse),
        (Way::ResetAfter(30), ErrorKind::Parse),
        (Way::CutAfter(300), ErrorKind::Parse),
        (Way::Hang, ErrorKind::Timeout),
        (
            Way::LateAfter(20, Duration::from_secs(3)),
            ErrorKind::Timeout,
        ),
    ];
    for (turn, (way, kind)) in table.into_iter().enumerate() {
        let before = watched.snapshot().errors(kind);
        proxy.set(way);
        // The cut of the waiting query may count as one, so two are awaited.
        watched.until(&format!("{kind} by {way:?}"), |now| {
            now.errors(kind) >= before + 2
        });
        assert_eq!(watched.value("web/s1"), Some(Value::Drain));
        consul.put(&full("web/s2"), &format!("{turn}%"));
        proxy.set(Way::Pass);
        let value = Value::Weight(u16::try_from(turn).unwrap());
        watched.until_value("web/s2", Some(value));
        watched.until("well again", |now| now.trouble.is_none());
    }
    assert_eq!(watched.snapshot().reads(ReadResult::Hold), 0);
}

#[test]
fn slow_bytes_within_the_time_are_a_reply() {
    let (consul, proxy, watched) = behind();
    proxy.set(Way::Drip);
    watched.until_more(ReadResult::Same, 1);
    consul.put(&full("web/s1"), "maint");
    watched.until_value("web/s1", Some(Value::Maint));
    // All but the last byte, and that one shortly before the time is up.
    let whole = reply_bytes(&consul);
    proxy.set(Way::LateAfter(whole - 1, Duration::from_millis(900)));
    let before = watched.snapshot().errors(ErrorKind::Timeout);
    let seen = consul.seen().len();
    watched.until_more(ReadResult::Same, 1);
    assert_eq!(
        watched.snapshot().errors(ErrorKind::Timeout),
        before,
        "{:?} {whole}",
        &consul.seen()[seen..]
    );
}

/// The length of a whole reply of the fake to a plain list.
fn reply_bytes(consul: &FakeConsul) -> usize {
    let mut stream = TcpStream::connect(consul.address()).unwrap();
    let request = format!("GET /v1/kv/{PREFIX}/?recurse HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let text = String::from_utf8(head.clone()).unwrap();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    head.len() + length.unwrap().parse::<usize>().unwrap()
}

#[test]
fn a_server_that_is_not_there_is_waited_for() {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap();
    drop(held);
    let watched = Watched::consul(address);
    watched.until_error(ErrorKind::Connect);
    assert!(watched.cell.load().is_none());
    let trouble = watched.snapshot().trouble.unwrap();
    assert!(trouble.contains(&address.to_string()), "{trouble}");
}

/// A connection that was closed while nothing was asked is no failure.
#[test]
fn a_kept_connection_that_was_closed_costs_nothing() {
    let (consul, proxy, watched) = behind();
    for turn in 0..5 {
        consul.put(&full("web/s2"), &format!("{turn}%"));
        watched.until_value("web/s2", Some(Value::Weight(turn)));
    }
    assert!(proxy.taken() <= 3, "{} connections", proxy.taken());
    assert_eq!(watched.snapshot().reads(ReadResult::Error), 0);
}
