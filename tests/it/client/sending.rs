//! What the HTTP client sends: bodies in every framing, early answers, cancels, and over
//! unix sockets.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use haptic_agent::http::client::{
    Body, Cancel, Connection, Error, Method, Origin, Phase, Request, Until,
};

use super::script::{PATIENCE, Peer, drain, get, ok, request_head, soon};

const STREAMED_BYTES: usize = 60 * 1024 * 1024;

/// What arrived at the peer is what was to be sent, in every framing.
#[test]
fn request_bodies_arrive_as_they_are() {
    let sizes = [0, 1, 100, 65_535, 65_536, 65_537, 200_000];
    for size in sizes {
        let body: Vec<u8> = (0..=255_u8).cycle().take(size).collect();
        for framing in ["bytes", "length", "chunks"] {
            let wanted = body.clone();
            let peer = Peer::once(move |mut stream| {
                let head = request_head(&mut stream);
                let got = read_body(&mut stream, &head);
                let same = got == wanted;
                stream
                    .write_all(&ok(if same { "same" } else { "other" }))
                    .unwrap();
                drain(&mut stream);
            });
            let mut connection = peer.open();
            let mut source = Dribble(&body);
            let request = Request {
                method: Method::Put,
                target: "/x?y=z",
                fields: &[("X-One", "1")],
                body: match framing {
                    "bytes" => Body::Bytes(&body),
                    "length" => Body::Stream {
                        source: &mut source,
                        length: Some(size as u64),
                    },
                    _ => Body::Stream {
                        source: &mut source,
                        length: None,
                    },
                },
            };
            let answer = connection.send(request, Until::within(PATIENCE)).unwrap();
            assert_eq!(answer.collect(10).unwrap(), b"same", "{size} {framing}");
            assert!(connection.is_reusable());
        }
    }
}

/// A source that gives odd pieces.
struct Dribble<'b>(&'b [u8]);

impl Read for Dribble<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min(4_099);
        self.0.read(&mut buffer[..most])
    }
}

fn read_body(stream: &mut impl Read, head: &str) -> Vec<u8> {
    if let Some(length) = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
    {
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        return body;
    }
    assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
    let mut body = Vec::new();
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        let digits = std::str::from_utf8(&line[..line.len() - 2]).unwrap();
        let size = usize::from_str_radix(digits, 16).unwrap();
        let mut chunk = vec![0; size + 2];
        stream.read_exact(&mut chunk).unwrap();
        assert!(chunk.ends_with(b"\r\n"));
        chunk.truncate(size);
        if size == 0 {
            return body;
        }
        body.extend(chunk);
    }
}

#[test]
fn a_source_of_another_length_is_an_error_and_the_request_never_complete() {
    for (given, declared) in [(99_999, 100_000_u64), (100_001, 100_000), (1, 0)] {
        let peer = Peer::once(move |mut stream| {
            request_head_or_end(&mut stream);
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            assert!((rest.len() as u64) < declared.max(1), "all of it was sent");
        });
        let mut connection = peer.open();
        let body = vec![b'x'; given];
        let request = Request {
            method: Method::Post,
            target: "/",
            fields: &[],
            body: Body::Stream {
                source: &mut body.as_slice(),
                length: Some(declared),
            },
        };
        match connection.send(request, Until::within(PATIENCE)) {
            Err(Error::Source(_)) => {}
            other => panic!("{given} {declared}: {other:?}"),
        }
    }
}

fn request_head_or_end(stream: &mut impl Read) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        head.push(byte[0]);
    }
}

#[test]
fn what_cannot_be_sent_is_not_sent() {
    let table: [(&str, (&str, &str)); 6] = [
        ("", ("A", "b")),
        ("x", ("A", "b")),
        ("/a b", ("A", "b")),
        ("/a\r\nX: y", ("A", "b")),
        ("/", ("A b", "c")),
        ("/", ("A", "b\r\nC: d")),
    ];
    for (target, field) in table {
        let peer = Peer::once(|mut stream| {
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            assert_eq!(got, b"");
        });
        let request = Request {
            method: Method::Get,
            target,
            fields: &[field],
            body: Body::None,
        };
        match peer.open().send(request, Until::within(PATIENCE)) {
            Err(Error::Request(_)) => {}
            other => panic!("{target:?} {field:?}: {other:?}"),
        }
    }
}

/// An endless supply that counts what was taken.
struct Supply {
    taken: usize,
}

impl Read for Supply {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(STREAMED_BYTES - self.taken);
        buffer[..count].fill(b'x');
        self.taken += count;
        Ok(count)
    }
}

/// How a peer goes on after an early answer.
#[derive(Debug, Clone, Copy)]
enum After {
    Drains,
    StopsReading,
    Closes,
}

#[test]
fn an_early_answer_is_seen_while_60_mib_are_being_sent() {
    for after in [After::Drains, After::StopsReading, After::Closes] {
        for chunked in [false, true] {
            let (done, wait) = std::sync::mpsc::channel::<()>();
            let peer = Peer::once(move |mut stream| {
                request_head(&mut stream);
                stream.read_exact(&mut [0; 1000]).unwrap();
                stream
                    .write_all(b"HTTP/1.1 409 Conflict\r\nContent-Length: 3\r\n\r\nno\n")
                    .unwrap();
                match after {
                    After::Drains => drain(&mut stream),
                    After::StopsReading => {
                        let _ended = wait.recv_timeout(PATIENCE);
                    }
                    // With unread input this is a reset.
                    After::Closes => {}
                }
            });
            let mut connection = peer.open();
            let mut supply = Supply { taken: 0 };
            let request = Request {
                method: Method::Post,
                target: "/",
                fields: &[],
                body: Body::Stream {
                    source: &mut supply,
                    length: (!chunked).then_some(STREAMED_BYTES as u64),
                },
            };
            let answer = connection.send(request, Until::within(PATIENCE)).unwrap();
            assert_eq!(answer.status(), 409, "{after:?}");
            let body = answer.collect(100);
            match after {
                After::Drains | After::StopsReading => assert_eq!(body.unwrap(), b"no\n"),
                // It came in one segment with its head.
                After::Closes => assert_eq!(body.unwrap(), b"no\n"),
            }
            assert!(!connection.is_reusable(), "the peer is owed the rest");
            assert!(
                supply.taken < STREAMED_BYTES,
                "{after:?}: all of it was read"
            );
            drop(done);
        }
    }
}

#[test]
fn a_peer_that_dies_while_the_body_is_sent_is_a_reset() {
    let peer = Peer::once(|mut stream| {
        request_head(&mut stream);
        stream.read_exact(&mut [0; 1000]).unwrap();
    });
    let mut connection = peer.open();
    let request = Request {
        method: Method::Post,
        target: "/",
        fields: &[],
        body: Body::Stream {
            source: &mut Supply { taken: 0 },
            length: None,
        },
    };
    match connection.send(request, Until::within(PATIENCE)) {
        Err(Error::Reset(_)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cancel_ends_every_wait() {
    let cancel = Cancel::new();
    let until = Instant::now() + PATIENCE;
    // Waiting for an answer.
    let (asked, seen) = std::sync::mpsc::channel();
    let peer = Peer::once(move |mut stream| {
        request_head(&mut stream);
        asked.send(()).unwrap();
        drain(&mut stream);
    });
    let mut connection = Connection::open(&peer.origin(), until, &cancel).unwrap();
    let from = cancel.clone();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            seen.recv_timeout(PATIENCE).unwrap();
            from.cancel();
        });
        match get(&mut connection) {
            Err(Error::Cancelled) => {}
            other => panic!("{other:?}"),
        }
    });
    assert!(begun.elapsed() < PATIENCE / 2);
    // Later ones are cancelled before they begin.
    match Connection::open(&peer.origin(), until, &cancel) {
        Err(Error::Cancelled) => {}
        other => panic!("{other:?}"),
    }

    // Sending to somebody who takes nothing.
    let cancel = Cancel::new();
    let (asked, seen) = std::sync::mpsc::channel();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let peer = Peer::once(move |mut stream| {
        request_head(&mut stream);
        asked.send(()).unwrap();
        let _ended = wait.recv();
    });
    let mut connection = peer.open();
    connection.cancelled_by(&cancel).unwrap();
    std::thread::scope(|scope| {
        let from = cancel.clone();
        scope.spawn(move || {
            seen.recv_timeout(PATIENCE).unwrap();
            from.cancel();
        });
        let request = Request {
            method: Method::Post,
            target: "/",
            fields: &[],
            body: Body::Stream {
                source: &mut Supply { taken: 0 },
                length: None,
            },
        };
        match connection.send(request, Until::within(PATIENCE)) {
            Err(Error::Cancelled) => {}
            other => panic!("{other:?}"),
        }
    });
    drop(done);
}

#[test]
fn unix_sockets_speak_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            for word in ["one", "two"] {
                let head = request_head(&mut stream);
                assert!(head.contains("\r\nHost: localhost\r\n"), "{head}");
                stream.write_all(&ok(word)).unwrap();
            }
        });
        let origin = Origin::parse(&format!("unix://{}", path.display())).unwrap();
        let mut connection =
            Connection::open(&origin, Instant::now() + PATIENCE, &Cancel::new()).unwrap();
        assert_eq!(get(&mut connection).unwrap().1, b"one");
        assert_eq!(get(&mut connection).unwrap().1, b"two");
    });
}

#[test]
fn a_unix_socket_with_a_full_queue_does_not_hold_us() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("full.sock");
    let name = rustix::net::SocketAddrUnix::new(&path).unwrap();
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    rustix::net::bind(&socket, &name).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let origin = Origin::parse(&format!("unix://{}", path.display())).unwrap();
    let mut held = Vec::new();
    let timed_out =
        (0..10).any(
            |_| match Connection::open(&origin, Instant::now() + soon(), &Cancel::new()) {
                Ok(connection) => {
                    held.push(connection);
                    false
                }
                Err(Error::Timeout(Phase::Connect)) => true,
                Err(other) => panic!("{other:?}"),
            },
        );
    assert!(timed_out);
    // A cancel is noticed there too.
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let from = cancel.clone();
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            from.cancel();
        });
        match Connection::open(&origin, Instant::now() + PATIENCE, &cancel) {
            Err(Error::Cancelled) => {}
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn nothing_prints_a_credential() {
    let request = Request {
        method: Method::Get,
        target: "/",
        fields: &[("Authorization", "Basic geheim")],
        body: Body::None,
    };
    assert!(!format!("{request:?}").contains("geheim"));
}

#[test]
fn a_peer_that_takes_nothing_ends_the_sending() {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let peer = Peer::once(move |stream| {
        let _ended = wait.recv();
        drop(stream);
    });
    let mut connection = peer.open();
    let body = vec![b'x'; STREAMED_BYTES];
    let request = Request {
        method: Method::Post,
        target: "/",
        fields: &[],
        body: Body::Bytes(&body),
    };
    match connection.send(request, Until::within(soon())) {
        Err(Error::Timeout(Phase::Send)) => {}
        other => panic!("{other:?}"),
    }
    drop(done);
}
