//! The HTTP client against peers that refuse, reset, stall, drip and lie.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use haptic_agent::http::client::{
    Body, Cancel, Connection, Error, Method, Origin, Phase, Request, Until,
};

use super::script::{PATIENCE, Peer, drain, get, request_head, reset_on_close};

const STREAMED_BYTES: usize = 60 * 1024 * 1024;

fn soon() -> Duration {
    Duration::from_millis(200)
}

fn ok(body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[test]
fn good_answers_are_read_whole() {
    let table: [(&str, &str, u16, &str); 10] = [
        (
            "a length",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            200,
            "ok",
        ),
        (
            "no reason",
            "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
            200,
            "ok",
        ),
        (
            "an empty body",
            "HTTP/1.1 404 No\r\ncontent-length:0\r\n\r\n",
            404,
            "",
        ),
        ("204", "HTTP/1.1 204 None\r\n\r\n", 204, ""),
        (
            "304 with a length",
            "HTTP/1.1 304 Same\r\nContent-Length: 7\r\n\r\n",
            304,
            "",
        ),
        (
            "chunks with an extension and a trailer",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3;a=b\r\nabc\r\n0A\r\n0123456789\r\n0\r\nX: y\r\n\r\n",
            200,
            "abc0123456789",
        ),
        (
            "no chunk",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            200,
            "",
        ),
        (
            "interim answers",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\ny",
            200,
            "y",
        ),
        (
            "1.0",
            "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nz",
            200,
            "z",
        ),
        (
            "padding",
            "HTTP/1.1 200 OK\r\nContent-Length:\t 1 \t\r\n\r\nz",
            200,
            "z",
        ),
    ];
    for (what, bytes, status, body) in table {
        let peer = Peer::answering(vec![bytes.into()]);
        let got = peer.get().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(
            (got.0, got.1.as_slice()),
            (status, body.as_bytes()),
            "{what}"
        );
        // Byte by byte it means the same.
        let peer = Peer::once(move |mut stream| {
            request_head(&mut stream);
            for byte in bytes.bytes() {
                stream.write_all(&[byte]).unwrap();
            }
            drain(&mut stream);
        });
        let got = peer.get().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(
            (got.0, got.1.as_slice()),
            (status, body.as_bytes()),
            "{what}"
        );
    }
}

#[test]
fn an_end_without_a_length_is_the_body_s_end() {
    let peer = Peer::once(|mut stream| {
        request_head(&mut stream);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\n\r\nall of it")
            .unwrap();
    });
    let mut connection = peer.open();
    assert_eq!(get(&mut connection).unwrap().1, b"all of it");
    assert!(!connection.is_reusable());
}

#[test]
fn answers_that_could_be_read_in_two_ways_are_refused() {
    let many_fields = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(65));
    let long_head = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(17 * 1024));
    let endless_head = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(17 * 1024));
    let interims = "HTTP/1.1 100 Continue\r\n\r\n".repeat(9);
    let long_trailer = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: {}\r\n\r\n",
        "x".repeat(5000)
    );
    let table: [(&str, &str); 24] = [
        ("another protocol", "SSH-2.0-OpenSSH_9.9\r\n"),
        ("HTTP/2", "HTTP/2 200 OK\r\n\r\n"),
        ("HTTP/1.2", "HTTP/1.2 200 OK\r\n\r\n"),
        ("no number", "HTTP/1.1 2x0 OK\r\n\r\n"),
        ("600", "HTTP/1.1 600 OK\r\n\r\n"),
        ("four digits", "HTTP/1.1 2000 OK\r\n\r\n"),
        ("an upgrade", "HTTP/1.1 101 Go\r\n\r\n"),
        (
            "two lengths",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        ),
        (
            "a list of lengths",
            "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\nx",
        ),
        (
            "a signed length",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx",
        ),
        (
            "an empty length",
            "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\nx",
        ),
        (
            "a huge length",
            "HTTP/1.1 200 OK\r\nContent-Length: 1000000000000000000\r\n\r\nx",
        ),
        (
            "length and chunks",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "gzip",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "chunks in 1.0",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("a folded field", "HTTP/1.1 200 OK\r\nA: b\r\n c: d\r\n\r\n"),
        (
            "a space before the colon",
            "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\nx",
        ),
        (
            "a bare line feed",
            "HTTP/1.1 200 OK\nContent-Length: 1\r\n\r\nx",
        ),
        ("a NUL", "HTTP/1.1 200 OK\r\nA: \0\r\n\r\n"),
        ("many fields", &many_fields),
        ("a long head", &long_head),
        ("a head without end", &endless_head),
        ("interim answers without end", &interims),
        ("long trailers", &long_trailer),
    ];
    for (what, bytes) in table {
        let peer = Peer::answering(vec![bytes.into()]);
        match peer.get() {
            Err(Error::Malformed(_)) => {}
            other => panic!("{what}: {other:?}"),
        }
    }
    for chunk in [
        "x\r\n",
        "\r\n",
        "-1\r\n",
        "123456789\r\n",
        "1 \r\nx",
        "1\r\nxy\r\n",
        "1\nx\n",
    ] {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let peer = Peer::answering(vec![format!("{head}{chunk}").into()]);
        match peer.get() {
            Err(Error::Malformed(_)) => {}
            other => panic!("{chunk:?}: {other:?}"),
        }
    }
}

#[test]
fn half_answers_are_told_from_none() {
    let none = ["", "reset"];
    for how in none {
        let peer = Peer::once(move |mut stream| {
            request_head(&mut stream);
            if how == "reset" {
                reset_on_close(&stream);
            }
        });
        match peer.get() {
            Err(Error::Reset(source)) => assert_eq!(source.is_some(), how == "reset"),
            other => panic!("{how}: {other:?}"),
        }
    }
    let halves = [
        "H",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 100 Continue\r\n\r\nH",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n0\r\n",
    ];
    for half in halves {
        for reset in [false, true] {
            let peer = Peer::once(move |mut stream| {
                request_head(&mut stream);
                stream.write_all(half.as_bytes()).unwrap();
                if reset {
                    reset_on_close(&stream);
                }
            });
            match peer.get() {
                Err(Error::Cut(source)) => assert_eq!(source.is_some(), reset, "{half:?}"),
                other => panic!("{half:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn nobody_listening_is_refused() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for url in [
        format!("http://{closed}"),
        format!("http://localhost:{}", closed.port()),
        "unix:///nowhere/at/all.sock".to_owned(),
    ] {
        let origin = Origin::parse(&url).unwrap();
        let error =
            Connection::open(&origin, Instant::now() + PATIENCE, &Cancel::new()).unwrap_err();
        assert!(error.is_refused(), "{url}: {error:?}");
    }
}

#[test]
fn a_name_that_does_not_exist_is_not_a_refusal() {
    let origin = Origin::parse("http://no-such-host.invalid:1").unwrap();
    match Connection::open(&origin, Instant::now() + PATIENCE, &Cancel::new()) {
        Err(error @ Error::NotConnected(_)) => assert!(!error.is_refused(), "{error:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_wait_ends_at_its_instant() {
    // (what was sent before silence, what is waited for)
    let table = [
        ("", Phase::Head),
        ("HTTP/1.1 200 OK\r\n", Phase::Head),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
            Phase::Body,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            Phase::Body,
        ),
        ("HTTP/1.1 200 OK\r\n\r\nab", Phase::Body),
    ];
    for (bytes, phase) in table {
        let peer = Peer::answering(vec![bytes.into()]);
        let mut connection = peer.open();
        let begun = Instant::now();
        let outcome = connection
            .send(Request::get("/"), Until::within(soon()))
            .and_then(|answer| answer.collect(1000));
        match outcome {
            Err(Error::Timeout(got)) => assert_eq!(got, phase, "{bytes:?}"),
            other => panic!("{bytes:?}: {other:?}"),
        }
        assert!(begun.elapsed() >= soon());
        assert!(begun.elapsed() < PATIENCE / 2);
        assert!(!connection.is_reusable());
    }
    // A drip restarts nothing.
    let peer = Peer::once(|mut stream| {
        request_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nA: ").unwrap();
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let mut connection = peer.open();
    match connection.send(Request::get("/"), Until::within(soon())) {
        Err(Error::Timeout(Phase::Head)) => {}
        other => panic!("{other:?}"),
    }
    drop(connection);
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

#[test]
fn a_connection_is_used_again_and_only_when_it_may_be() {
    let peer = Peer::answering(vec![ok("one"), ok("two")]);
    let mut connection = peer.open();
    assert!(connection.is_reusable());
    assert_eq!(get(&mut connection).unwrap().1, b"one");
    assert!(connection.is_reusable());
    assert_eq!(get(&mut connection).unwrap().1, b"two");
    drop(connection);

    let unfit = [
        (
            "close",
            "HTTP/1.1 200 OK\r\nConnection: keep-alive, Close\r\nContent-Length: 0\r\n\r\n",
        ),
        ("1.0", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"),
        (
            "more than the answer",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1",
        ),
    ];
    for (what, bytes) in unfit {
        let peer = Peer::answering(vec![bytes.into()]);
        let mut connection = peer.open();
        get(&mut connection).unwrap();
        assert!(!connection.is_reusable(), "{what}");
    }

    // The peer hung up meanwhile.
    let (closed, wait) = std::sync::mpsc::channel();
    let peer = Peer::once(move |mut stream| {
        request_head(&mut stream);
        stream.write_all(&ok("")).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        closed.send(()).unwrap();
        drain(&mut stream);
    });
    let mut connection = peer.open();
    get(&mut connection).unwrap();
    wait.recv_timeout(PATIENCE).unwrap();
    let bound = Instant::now() + PATIENCE;
    while connection.is_reusable() {
        assert!(Instant::now() < bound, "the end was never seen");
    }
    drop(connection);

    // An answer that was not read to its end is in the way of the next.
    let peer = Peer::answering(vec![ok("one")]);
    let mut connection = peer.open();
    drop(
        connection
            .send(Request::get("/"), Until::within(PATIENCE))
            .unwrap(),
    );
    assert!(!connection.is_reusable());
    match connection.send(Request::get("/"), Until::within(PATIENCE)) {
        Err(Error::Request(_)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_body_beyond_its_limit_is_not_kept() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n5\r\nabcde\r\n0\r\n\r\n";
    for bytes in [ok("abcdeabcde"), chunked.into()] {
        let peer = Peer::answering(vec![bytes.clone()]);
        let mut connection = peer.open();
        let answer = connection
            .send(Request::get("/"), Until::within(PATIENCE))
            .unwrap();
        match answer.collect(9) {
            Err(Error::TooLarge { limit: 9 }) => {}
            other => panic!("{other:?}"),
        }
        drop(connection);
        let peer = Peer::answering(vec![bytes]);
        let mut connection = peer.open();
        let answer = connection
            .send(Request::get("/"), Until::within(PATIENCE))
            .unwrap();
        assert_eq!(answer.collect(10).unwrap(), b"abcdeabcde");
    }
}

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
