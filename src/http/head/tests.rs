//! Heads by table: what is read, and what is refused for which reason.

use super::*;

fn parse(text: &str) -> Result<Head, HeadError> {
    Head::parse(text.as_bytes())
}

/// A 1.1 head with a Host and these further lines.
fn with(lines: &str) -> Result<Head, HeadError> {
    parse(&format!("POST /p HTTP/1.1\r\nHost: t\r\n{lines}\r\n"))
}

#[test]
fn targets_and_methods_are_read_as_sent() {
    let table = [
        ("GET / HTTP/1.1", Method::Get, "/", None),
        ("HEAD /a HTTP/1.1", Method::Head, "/a", None),
        ("POST /v1/apply HTTP/1.1", Method::Post, "/v1/apply", None),
        ("get / HTTP/1.1", Method::Other, "/", None),
        ("M-SEARCH /a HTTP/1.1", Method::Other, "/a", None),
        ("GET /a?b=c?d HTTP/1.1", Method::Get, "/a", Some("b=c?d")),
        ("GET /? HTTP/1.1", Method::Get, "/", Some("")),
        ("GET //a/%2e%zz HTTP/1.1", Method::Get, "//a/%2e%zz", None),
        ("GET http://h:1/a?b HTTP/1.1", Method::Get, "/a", Some("b")),
        ("GET HTTPS://h HTTP/1.1", Method::Get, "/", None),
        ("GET http://h?b HTTP/1.1", Method::Get, "/", Some("b")),
    ];
    for (line, method, path, query) in table {
        let head = parse(&format!("{line}\r\nHost: t\r\n\r\n")).unwrap();
        assert_eq!(*head.method(), method, "{line}");
        assert_eq!(head.method_name(), line.split(' ').next().unwrap());
        assert_eq!((head.path(), head.query()), (path, query), "{line}");
    }
}

#[test]
fn fields_are_found_whatever_their_case() {
    let head = with("X-A: \t one\t \r\nx-a: two\r\nEmpty:\r\nUmlaut: \u{e4}\r\n").unwrap();
    assert_eq!(head.header("x-a"), Some(b"one".as_slice()));
    assert_eq!(head.header("EMPTY"), Some(b"".as_slice()));
    assert_eq!(head.header("umlaut"), Some("\u{e4}".as_bytes()));
    assert_eq!(head.header("x"), None);
    assert_eq!(head.fields().count(), 5);
}

#[test]
fn bodies_end_where_the_head_says() {
    let table = [
        ("", Framing::None),
        ("Content-Length: 0\r\n", Framing::Length(0)),
        ("content-length: 007\r\n", Framing::Length(7)),
        (
            "Content-Length: 999999999999999999\r\n",
            Framing::Length(999_999_999_999_999_999),
        ),
        ("Transfer-Encoding: chunked\r\n", Framing::Chunked),
        ("transfer-encoding:\tCHUNKED \r\n", Framing::Chunked),
    ];
    for (lines, framing) in table {
        assert_eq!(with(lines).unwrap().framing(), framing, "{lines:?}");
    }
}

#[test]
fn closing_and_continuing() {
    let table = [
        ("HTTP/1.1", "", false, false),
        ("HTTP/1.1", "Connection: keep-alive\r\n", false, false),
        ("HTTP/1.1", "Connection: closed\r\n", false, false),
        ("HTTP/1.1", "Connection: close\r\n", true, false),
        (
            "HTTP/1.1",
            "Connection: a\r\nConnection: b ,CLOSE\r\n",
            true,
            false,
        ),
        ("HTTP/1.1", "Expect: 100-Continue\r\n", false, true),
        ("HTTP/1.0", "", true, false),
        ("HTTP/1.0", "Connection: keep-alive\r\n", true, false),
        ("HTTP/1.0", "Expect: 100-continue\r\n", true, false),
    ];
    for (version, lines, close, go_on) in table {
        let head = parse(&format!("GET / {version}\r\nHost: t\r\n{lines}\r\n")).unwrap();
        assert_eq!(head.wants_close(), close, "{version} {lines:?}");
        assert_eq!(head.expects_continue(), go_on, "{version} {lines:?}");
    }
    assert!(parse("GET / HTTP/1.0\r\n\r\n").is_ok(), "1.0 needs no Host");
}

#[test]
fn request_lines_that_are_refused() {
    let table = [
        ("", HeadError::RequestLine),
        ("GET /", HeadError::RequestLine),
        ("GET  / HTTP/1.1", HeadError::RequestLine),
        ("GET / HTTP/1.1 ", HeadError::RequestLine),
        ("GET / a HTTP/1.1", HeadError::RequestLine),
        (" / HTTP/1.1", HeadError::RequestLine),
        ("GET\t/ HTTP/1.1", HeadError::RequestLine),
        ("GE(T / HTTP/1.1", HeadError::Method),
        ("G\u{e4}T / HTTP/1.1", HeadError::Method),
        ("GET a HTTP/1.1", HeadError::Target),
        ("GET * HTTP/1.1", HeadError::Target),
        ("GET ?a HTTP/1.1", HeadError::Target),
        ("CONNECT h:80 HTTP/1.1", HeadError::Target),
        ("GET ftp://h/ HTTP/1.1", HeadError::Target),
        ("GET http:///a HTTP/1.1", HeadError::Target),
        ("GET http:/a HTTP/1.1", HeadError::Target),
        ("GET /\t HTTP/1.1", HeadError::Target),
        ("GET /\u{e4} HTTP/1.1", HeadError::Target),
        ("GET / http/1.1", HeadError::Version),
        ("GET / HTTP/1", HeadError::Version),
        ("GET / HTTP/1.11", HeadError::Version),
        ("GET / HTTP/1.x", HeadError::Version),
        ("GET / HTTP/0.9", HeadError::VersionUnknown),
        ("GET / HTTP/1.2", HeadError::VersionUnknown),
        ("PRI * HTTP/2.0", HeadError::VersionUnknown),
    ];
    for (line, why) in table {
        let refused = parse(&format!("{line}\r\nHost: t\r\n\r\n")).unwrap_err();
        assert_eq!(refused, why, "{line:?}");
    }
}

#[test]
fn fields_that_are_refused() {
    let table = [
        ("A : b\r\n", HeadError::FieldName),
        ("A\t: b\r\n", HeadError::FieldName),
        (": b\r\n", HeadError::FieldName),
        ("A\r\n", HeadError::FieldName),
        ("A b: c\r\n", HeadError::FieldName),
        ("\u{e4}: c\r\n", HeadError::FieldName),
        ("A: b\r\n c\r\n", HeadError::Folded),
        ("A: b\r\n\tc: d\r\n", HeadError::Folded),
        ("A: b\0\r\n", HeadError::ControlByte),
        ("A: \x7f\r\n", HeadError::ControlByte),
        ("A: \x1b[0m\r\n", HeadError::ControlByte),
        ("A: b\nB: c\r\n", HeadError::BareLineBreak),
        ("A: b\rB: c\r\n", HeadError::BareLineBreak),
        ("A: b\r\r\n", HeadError::BareLineBreak),
        ("Host: t\r\n", HeadError::Host),
        (
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            HeadError::LengthTwice,
        ),
        ("Content-Length: 5, 5\r\n", HeadError::Length),
        ("Content-Length:\r\n", HeadError::Length),
        ("Content-Length: +5\r\n", HeadError::Length),
        ("Content-Length: -5\r\n", HeadError::Length),
        ("Content-Length: 0x5\r\n", HeadError::Length),
        ("Content-Length: 5 5\r\n", HeadError::Length),
        // 2^62, 2^63 + 5 and 2^64 + 5: none has 18 digits.
        ("Content-Length: 4611686018427387904\r\n", HeadError::Length),
        ("Content-Length: 9223372036854775813\r\n", HeadError::Length),
        (
            "Content-Length: 18446744073709551621\r\n",
            HeadError::Length,
        ),
        ("Content-Length: 0000000000000000005\r\n", HeadError::Length),
        ("Transfer-Encoding: gzip\r\n", HeadError::EncodingUnknown),
        (
            "Transfer-Encoding: gzip, chunked\r\n",
            HeadError::EncodingUnknown,
        ),
        (
            "Transfer-Encoding: chunked, chunked\r\n",
            HeadError::EncodingUnknown,
        ),
        (
            "Transfer-Encoding: chunked;q=1\r\n",
            HeadError::EncodingUnknown,
        ),
        (
            "Transfer-Encoding: \u{b}chunked\r\n",
            HeadError::ControlByte,
        ),
        ("Transfer-Encoding:\r\n", HeadError::EncodingUnknown),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            HeadError::EncodingMisplaced,
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            HeadError::EncodingMisplaced,
        ),
        (
            "Content-Length: 5\r\nTransfer-Encoding: identity\r\n",
            HeadError::EncodingMisplaced,
        ),
        ("Transfer-Encoding:\r\n chunked\r\n", HeadError::Folded),
        ("Expect: 100\r\n", HeadError::Expect),
        ("Expect: 200-ok\r\n", HeadError::Expect),
    ];
    for (lines, why) in table {
        assert_eq!(with(lines).unwrap_err(), why, "{lines:?}");
    }
    let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(parse(old).unwrap_err(), HeadError::EncodingMisplaced);
    assert_eq!(
        parse("GET / HTTP/1.1\r\n\r\n").unwrap_err(),
        HeadError::Host
    );
}

#[test]
fn bounds_are_exact() {
    let line = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: t\r\n\r\n", "a".repeat(length));
    // "GET /", the letters, " HTTP/1.1" and a CR are the request line's bytes.
    let most = MAX_REQUEST_LINE_BYTES - "GET / HTTP/1.1\r".len();
    assert!(parse(&line(most)).is_ok());
    assert_eq!(
        parse(&line(most + 1)).unwrap_err(),
        HeadError::RequestLineTooLong
    );

    let fields = |count: usize| "a: b\r\n".repeat(count);
    assert!(with(&fields(MAX_FIELDS - 1)).is_ok());
    assert_eq!(
        with(&fields(MAX_FIELDS)).unwrap_err(),
        HeadError::TooManyFields
    );

    let filled = |total: usize| {
        let frame = "POST /p HTTP/1.1\r\nHost: t\r\na: \r\n\r\n".len();
        with(&format!("a: {}\r\n", "b".repeat(total - frame)))
    };
    assert!(filled(INPUT_BYTES).is_ok());
    assert_eq!(filled(INPUT_BYTES + 1).unwrap_err(), HeadError::TooLong);
}

#[test]
fn a_scan_in_pieces_ends_where_a_scan_of_the_whole_does() {
    let text = b"GET / HTTP/1.1\r\nHost: t\r\nA: b\r\n\r\nGET /next";
    for cut in 0..text.len() {
        let mut scanner = Scanner::default();
        let first = scanner.scan(&text[..cut]).unwrap();
        let end = first.or_else(|| scanner.scan(text).unwrap());
        assert_eq!(end, Some(text.len() - "GET /next".len()), "cut at {cut}");
    }
    // A bad byte is refused when it comes, not when the head is complete.
    let early: [(&[u8], HeadError); 4] = [
        (b"GET / HTTP/1.1\n", HeadError::BareLineBreak),
        (b"\x16\x03\x01", HeadError::ControlByte),
        (b"\r\n", HeadError::RequestLine),
        (b"GET /\rx", HeadError::BareLineBreak),
    ];
    for (bytes, why) in early {
        assert_eq!(Scanner::default().scan(bytes), Err(why));
    }
    let endless = vec![b'a'; MAX_REQUEST_LINE_BYTES + 1];
    assert_eq!(
        Scanner::default().scan(&endless),
        Err(HeadError::RequestLineTooLong)
    );
}

#[test]
fn every_refusal_has_its_status() {
    let table = [
        (HeadError::ControlByte, 400),
        (HeadError::BareLineBreak, 400),
        (HeadError::RequestLine, 400),
        (HeadError::RequestLineTooLong, 431),
        (HeadError::Method, 400),
        (HeadError::Target, 400),
        (HeadError::Version, 400),
        (HeadError::VersionUnknown, 505),
        (HeadError::TooLong, 431),
        (HeadError::TooManyFields, 431),
        (HeadError::FieldName, 400),
        (HeadError::Folded, 400),
        (HeadError::Host, 400),
        (HeadError::LengthTwice, 400),
        (HeadError::Length, 400),
        (HeadError::EncodingUnknown, 501),
        (HeadError::EncodingMisplaced, 400),
        (HeadError::Expect, 417),
        (HeadError::Late, 408),
    ];
    for (error, code) in table {
        assert_eq!(error.status().code(), code, "{error}");
    }
}
