//! Servers that come and go one after the other, while clients with lasting connections
//! ask all the time: not one request fails.

use super::rig::{Live, SOON};
use super::world::{Server, op};
use crate::support::haproxy::Version;
use crate::support::wait;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const CLIENTS: usize = 4;
const ROUNDS: usize = 12;

/// What all clients saw.
#[derive(Debug, Default)]
struct Seen {
    over: AtomicBool,
    good: AtomicUsize,
    bad: AtomicUsize,
}

/// Asks on one connection for as long as HAProxy keeps it, then on the next one.
fn ask(port: u16, seen: &Seen) {
    while !seen.over.load(Ordering::SeqCst) {
        if let Err(error) = connection(port, seen) {
            eprintln!("a client with a lasting connection: {error}");
            seen.bad.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn connection(port: u16, seen: &Seen) -> io::Result<()> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut reader = BufReader::new(&stream);
    while !seen.over.load(Ordering::SeqCst) {
        (&stream).write_all(b"GET / HTTP/1.1\r\nHost: b\r\n\r\n")?;
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if !line.starts_with("HTTP/1.1 200") {
            return Err(io::Error::other(format!("{line:?}")));
        }
        let (mut length, mut close) = (0, false);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            match line.split_once(": ") {
                Some(("content-length", value)) => {
                    length = value.parse().map_err(io::Error::other)?;
                }
                Some(("connection", "close")) => close = true,
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        seen.good.fetch_add(1, Ordering::SeqCst);
        if close {
            return Ok(());
        }
    }
    Ok(())
}

#[test]
fn servers_come_and_go_under_lasting_connections() {
    for version in Version::ALL {
        let mut live = Live::start(version);
        let before = live.identity();
        let (port, seen) = (live.world.http, Seen::default());
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| ask(port, &seen));
            }
            let mut last = "s1".to_owned();
            let mut answered = BTreeSet::new();
            for round in 0..ROUNDS {
                let next = format!("n{round}");
                let to = 1 + round % 3;
                let server = live.to(to);
                let world = &mut live.world;
                let mut ops: Vec<Value> = vec![
                    world.server_add("b", &next, server),
                    world.server_enable("b", &next),
                ];
                match round % 3 {
                    0 => ops.push(world.server_disable("b", &last)),
                    1 => ops.push(world.server_set_weight("b", &last, 0)),
                    _ => {}
                }
                ops.push(world.server_del("b", &last));
                let apply = live.apply("auto", &ops);
                apply.succeed(&live.agent, "runtime");
                let hits = live.upstreams[to].hits();
                wait::until("the new one is asked", SOON, || {
                    (live.upstreams[to].hits() > hits + 3).then_some(())
                });
                answered.insert(to);
                last = next;
                if round % 4 == 3 {
                    // Back to where everything began, by other ways.
                    let address = live.upstream(0);
                    let change = live.world.server_set_addr("b", &last, address);
                    let apply = live.apply("auto", &[change]);
                    apply.succeed(&live.agent, "runtime");
                    live.agrees("another address");
                }
            }
            live.agrees("all rounds are over");
            assert_eq!(answered.len(), 3, "{version}");
            seen.over.store(true, Ordering::SeqCst);
        });
        let (good, bad) = (seen.good.into_inner(), seen.bad.into_inner());
        assert_eq!(bad, 0, "{version}: {good} were good");
        assert!(good > ROUNDS, "{version}");
        assert_eq!(live.identity(), before, "{version}");
        live.serves("all rounds are over", false);
    }
}

/// Backends come, are used, and go, with requests on their way: none is lost that had
/// begun, and none fails while a backend is published.
#[test]
fn backends_come_and_go_with_requests_on_their_way() {
    let mut live = Live::start(Version::V3_4);
    let (before, load) = (live.identity(), live.load());
    for round in 0..6 {
        let slow = crate::support::slow::Slow::start();
        let one = Server::to(slow.address()).ready();
        let servers = super::world::Servers::from([("one".to_owned(), one)]);
        let ops = live.world.backend_comes("x", &servers);
        live.apply("auto", &ops).succeed(&live.agent, "runtime");
        let requests: Vec<_> = (0..3).map(|_| slow.request(live.world.http, "x")).collect();
        let ops = live.world.backend_goes("x");
        live.apply("auto", &ops).succeed(&live.agent, "runtime");
        if round % 2 == 1 {
            // Something else in the meantime.
            let set = op(
                "server_set_weight",
                json!({"backend": "b", "server": "s1", "weight": 1}),
            );
            live.apply("auto", &[set]).succeed(&live.agent, "runtime");
        }
        assert!(requests.iter().all(|request| !request.is_finished()));
        slow.let_go();
        for request in requests {
            let answer = request.join().unwrap().unwrap();
            assert_eq!((answer.status, &*answer.body), (200, "slow"));
        }
        live.agrees("the backend is gone");
    }
    assert_eq!(live.identity(), before);
    assert_eq!(load.stop().failed, 0);
}
