//! What is refused, and that the refusal arrives.

use std::net::Shutdown;
use std::sync::atomic::Ordering;

use super::kit::{Toy, until_equal};

#[test]
fn bad_heads_are_answered_and_closed() {
    let toy = Toy::start();
    let long_line = format!("GET /{} HTTP/1.1\r\n", "a".repeat(5000));
    let long_head = format!("GET / HTTP/1.1\r\nHost: t\r\nA: {}", "b".repeat(17_000));
    let many = format!("GET / HTTP/1.1\r\nHost: t\r\n{}\r\n", "a: b\r\n".repeat(64));
    let table = [
        ("GET / HTTP/1.1\r\n\r\n", 400, "Host"),
        ("GET / HTTP/1.1\nHost: t\n\n", 400, "CR LF"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03", 400, "control"),
        (
            "GET / HTTP/1.1\r\nHost: t\r\nA: b\r\n c\r\n\r\n",
            400,
            "folded",
        ),
        ("GET / HTTP/1.1\r\nHost: t\r\nHost: t\r\n\r\n", 400, "Host"),
        (
            "GET / HTTP/1.1\r\nHost: t\r\nExpect: x\r\n\r\n",
            417,
            "100-continue",
        ),
        (
            "GET / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip\r\n\r\n",
            501,
            "chunked",
        ),
        (
            "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            400,
            "without a Content-Length",
        ),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "HTTP/1.1"),
        (&long_line, 431, "4096"),
        (&long_head, 431, "16384"),
        (&many, 431, "64"),
    ];
    for (text, status, words) in table {
        let mut client = toy.connect();
        client.send(text);
        let answer = client.answer();
        assert_eq!(answer.status, status, "{text:?}");
        assert!(answer.text().contains(words), "{text:?}: {}", answer.text());
        assert!(answer.closes());
        client.stream.shutdown(Shutdown::Write).unwrap();
        assert!(client.ended(), "{text:?}");
    }
    assert_eq!(toy.stats.requests.load(Ordering::SeqCst), 0);
}

/// Numbers that overflow a sum of lengths abort a server that adds before it compares.
#[test]
fn absurd_lengths_are_refused() {
    let toy = Toy::start();
    let table = [
        ("4611686018427387904", 400),
        ("9223372036854775813", 400),
        ("18446744073709551621", 400),
        ("999999999999999999", 413),
        ("67108865", 413),
    ];
    for (length, status) in table {
        for path in ["/echo", "/401"] {
            let mut client = toy.connect();
            client.send(format!(
                "POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\nabc"
            ));
            let status = if path == "/401" && status == 413 {
                401
            } else {
                status
            };
            assert_eq!(client.answer().status, status, "{length} to {path}");
            client.stream.shutdown(Shutdown::Write).unwrap();
            assert!(client.ended());
        }
    }
    assert_eq!(toy.connect().get("/").status, 200);
    let mut client = toy.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n");
    assert_eq!(client.answer().status, 413);
}

#[test]
fn a_body_that_is_cut_off_is_no_body() {
    let toy = Toy::start();
    let length = "Content-Length: 10\r\n\r\n012345678";
    let chunked =
        "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\n01234\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n";
    for body in [length, chunked] {
        let framing = body.find("\r\n\r\n").unwrap() + 4;
        for cut in framing..body.len() {
            let mut client = toy.connect();
            client.send(format!(
                "POST /echo HTTP/1.1\r\nHost: t\r\n{}",
                &body[..cut]
            ));
            client.stream.shutdown(Shutdown::Write).unwrap();
            let answer = client.answer();
            assert_eq!(answer.status, 400, "{:?}", &body[..cut]);
            assert_eq!(answer.text(), "the request body ended early");
            assert!(client.ended());
        }
    }
    let mut client = toy.connect();
    client.send(format!("POST /echo HTTP/1.1\r\nHost: t\r\n{chunked}"));
    assert_eq!(client.answer().text(), "01234abc");
}

#[test]
fn a_form_that_is_cut_off_is_no_form() {
    let toy = Toy::start();
    let form = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nxyz\r\n--b--\r\n";
    let head =
        "POST /form HTTP/1.1\r\nHost: t\r\nContent-Type: multipart/form-data; boundary=b\r\n";
    // The body is complete, the form is not.
    for cut in 0..form.len() - 2 {
        let mut client = toy.connect();
        client.send(format!(
            "{head}Content-Length: {cut}\r\n\r\n{}",
            &form[..cut]
        ));
        let answer = client.answer();
        assert_eq!(answer.status, 400, "{:?}", &form[..cut]);
        assert!(
            answer.text().contains("closing delimiter"),
            "{}",
            answer.text()
        );
    }
    // The form is complete, the body is not.
    let mut client = toy.connect();
    client.send(format!(
        "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{form}\r\n",
        form.len()
    ));
    client.stream.shutdown(Shutdown::Write).unwrap();
    let answer = client.answer();
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (400, "the request body ended early")
    );
}

#[test]
fn chunks_that_can_be_read_in_two_ways_are_refused() {
    let toy = Toy::start();
    let extension = format!("1;{}\r\n", "x".repeat(257));
    let trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(700));
    let table = [
        ("g\r\n", "no digits"),
        ("\r\n", "no digits"),
        (" 1\r\na\r\n", "no digits"),
        ("-1\r\na\r\n", "no digits"),
        ("000000001\r\na\r\n", "more than 8"),
        ("0x1\r\na\r\n", "does not end"),
        ("1 \r\na\r\n", "does not end"),
        ("1\na\r\n", "does not end"),
        ("1\r\r\na\r\n", "does not end"),
        ("1;a\nb\r\na\r\n", "control byte"),
        ("1\r\nab\r\n", "does not end"),
        ("1\r\na\n0\r\n\r\n", "does not end"),
        ("0\r\na: b\n\r\n", "control byte"),
        ("0\r\na: b\r\r\n", "does not end"),
        (&extension, "too long"),
        (&trailers, "too long"),
    ];
    for (chunks, words) in table {
        let mut client = toy.connect();
        client.send(format!(
            "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
        ));
        let answer = client.answer();
        assert_eq!(answer.status, 400, "{chunks:?}");
        assert!(
            answer.text().contains(words),
            "{chunks:?}: {}",
            answer.text()
        );
        assert!(answer.closes());
    }
}

#[test]
fn chunk_borders_may_be_anywhere() {
    let toy = Toy::start();
    let text = b"POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n\
                 1\r\na\r\nA;x=\"y\"\r\n0123456789\r\n000\r\nTrailer: z\r\n\r\n";
    let mut client = toy.connect();
    for byte in text {
        client.send([*byte]);
    }
    let answer = client.answer();
    assert_eq!(answer.text(), "a0123456789");
    assert!(!answer.closes());
}

#[test]
fn nothing_is_left_open_by_any_of_it() {
    let toy = Toy::start();
    for text in [
        "",
        "GET",
        "GET / HTTP/1.1\r\n",
        "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\na",
    ] {
        let mut client = toy.connect();
        client.send(text);
    }
    until_equal("all accepted", &toy.stats.accepted, 4);
    until_equal("all closed", &toy.stats.open, 0);
}
