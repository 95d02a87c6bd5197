//! What the HTTP client makes of answers: whole, half, doubtful, late, too long.

use std::io::Write;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use haptic_agent::http::client::{Cancel, Connection, Error, Origin, Phase, Request, Until};

use super::script::{PATIENCE, Peer, drain, get, ok, request_head, reset_on_close, soon};

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
