//! A second opinion: every head that we accept, httparse accepts with the same meaning.

use haptic_agent::http::head::{Head, Version};
use proptest::prelude::*;

fn method() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => Just(b"GET".to_vec()),
        2 => Just(b"POST".to_vec()),
        1 => "[A-Za-z!#$%&'*+.^_`|~-]{0,6}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..5),
    ]
}

fn target() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "/[!-~]{0,12}".prop_map(String::into_bytes),
        1 => "https?://[a-z:0-9]{0,5}(/[!-~]{0,5})?".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ]
}

fn version() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => Just(b"HTTP/1.1".to_vec()),
        2 => Just(b"HTTP/1.0".to_vec()),
        1 => "HTTP/[0-9.]{0,4}".prop_map(String::into_bytes),
    ]
}

fn field() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        3 => "[A-Za-z!#$%&'*+.^_`|~-]{1,8}",
        1 => Just("Content-Length".to_owned()),
        1 => Just("Transfer-Encoding".to_owned()),
        1 => Just("Expect".to_owned()),
        1 => "[ -~]{0,5}",
    ];
    let value = prop_oneof![
        3 => "[ -~\t]{0,12}".prop_map(String::into_bytes),
        1 => "[0-9]{1,20}".prop_map(String::into_bytes),
        1 => Just(b"chunked".to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ];
    let end = prop_oneof![
        12 => Just(b"\r\n".to_vec()),
        1 => Just(b"\n".to_vec()),
        1 => Just(b"\r".to_vec()),
    ];
    (
        name,
        prop_oneof![8 => Just(":"), 1 => Just(" :"), 1 => Just("")],
        value,
        end,
    )
        .prop_map(|(name, colon, value, end)| {
            [name.as_bytes(), colon.as_bytes(), &value, &end].concat()
        })
}

fn head() -> impl Strategy<Value = Vec<u8>> {
    let one_space =
        || prop_oneof![12 => Just(" "), 1 => Just("  "), 1 => Just("\t"), 1 => Just("")];
    let host = prop_oneof![8 => Just("Host: t\r\n"), 1 => Just("")];
    let fields = prop::collection::vec(field(), 0..6);
    let end = prop_oneof![8 => Just("\r\n"), 1 => Just("\n"), 1 => Just("")];
    (
        method(),
        one_space(),
        target(),
        one_space(),
        version(),
        host,
        fields,
        end,
    )
        .prop_map(
            |(method, first, target, second, version, host, fields, end)| {
                [
                    &method,
                    first.as_bytes(),
                    &target,
                    second.as_bytes(),
                    &version,
                    b"\r\n",
                    host.as_bytes(),
                    &fields.concat(),
                    end.as_bytes(),
                ]
                .concat()
            },
        )
}

/// Holds `text` against both parsers; whether ours accepted it.
fn compare(text: &[u8]) -> Result<bool, TestCaseError> {
    let Ok(ours) = Head::parse(text) else {
        return Ok(false);
    };
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut theirs = httparse::Request::new(&mut headers);
    let end = theirs.parse(text);
    prop_assert_eq!(end, Ok(httparse::Status::Complete(text.len())));
    prop_assert_eq!(theirs.method, Some(ours.method_name()));
    let version = match ours.version() {
        Version::Http10 => 0,
        Version::Http11 => 1,
    };
    prop_assert_eq!(theirs.version, Some(version));
    let mut target = match theirs.path.unwrap() {
        path if path.starts_with('/') => path.to_owned(),
        absolute => {
            let authority = &absolute[absolute.find("//").unwrap() + 2..];
            let at = authority.find(['/', '?']).unwrap_or(authority.len());
            authority[at..].to_owned()
        }
    };
    if !target.starts_with('/') {
        target.insert(0, '/');
    }
    let whole = match ours.query() {
        Some(query) => format!("{}?{query}", ours.path()),
        None => ours.path().to_owned(),
    };
    prop_assert_eq!(target, whole);
    let fields: Vec<(&str, &[u8])> = ours.fields().collect();
    let expected: Vec<(&str, &[u8])> = theirs
        .headers
        .iter()
        .map(|header| (header.name, header.value))
        .collect();
    prop_assert_eq!(fields, expected);
    Ok(true)
}

#[test]
fn what_we_accept_means_the_same_to_another_parser() {
    compare_many(4_000);
}

#[test]
#[ignore = "long; make soak runs it"]
fn what_we_accept_means_the_same_two_hundred_thousand_times() {
    compare_many(200_000);
}

fn compare_many(cases: u32) {
    let accepted = std::cell::Cell::new(0u32);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&head(), |text| {
            accepted.set(accepted.get() + u32::from(compare(&text)?));
            Ok(())
        })
        .unwrap();
    // A comparison of nothing would pass as well.
    assert!(accepted.get() > cases / 20, "{} of {cases}", accepted.get());
}
