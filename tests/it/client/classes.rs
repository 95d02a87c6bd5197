//! The client's classes and retries, against peers that are scripted byte by byte.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use haptic_agent::client::{
    Cancel, Client, ClientConfig, Credentials, Error, Part, Refused, StateRead, Transport,
};
use haptic_agent::http::client::Error as HttpError;
use haptic_agent::wire::digest::{ContentHash, DigestKind};
use haptic_agent::wire::limits::MAX_PLAN_BLOB_BYTES;
use haptic_agent::wire::manifest::{File, FileKind, Manifest, Mode, Token};
use haptic_agent::wire::path::ManifestPath;

use super::script::{PATIENCE, Peer, drain, request_head, reset_on_close};

pub(super) fn path(text: &str) -> ManifestPath {
    ManifestPath::parse(text).unwrap()
}

/// A manifest of mode `reload` with these files.
pub(super) fn manifest(plan_id: &str, files: &[(&str, &[u8])]) -> Manifest {
    Manifest {
        plan_id: plan_id.into(),
        plan_schema_version: 1,
        token: Token {
            leader_epoch: 1,
            render_seq: 1,
        },
        expected_prev_plan_id: String::new(),
        expected_prev_token: Token::default(),
        expected_worker_ops_plan_id: None,
        worker_ops_plan_id: None,
        validated_plan_id: None,
        files: files
            .iter()
            .map(|(name, bytes)| File {
                path: path(name),
                digest: ContentHash::of(bytes).digest(DigestKind::Sha256),
                size: bytes.len() as u64,
                kind: FileKind::General,
                reload_on_change: false,
            })
            .collect(),
        ops: Vec::new(),
        in_place_ops: Vec::new(),
        mode: Mode::Reload,
    }
}

fn client(peer: &Peer) -> Client {
    let credentials = Credentials::new("controller", "s3cret").unwrap();
    Client::new(ClientConfig::new(&peer.origin().to_string(), credentials).unwrap())
}

fn answer(status: u16, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A source that counts what is read from it.
struct Counting(Arc<AtomicUsize>, &'static [u8]);

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.1.read(buffer)?;
        self.0.fetch_add(count, Ordering::SeqCst);
        Ok(count)
    }
}

#[test]
fn answers_have_their_classes() {
    let conflict = r#"{"reason":"prev_mismatch","applied_plan_id":"p9","applied_token":{"leader_epoch":3,"render_seq":4},"running_plan_id":"p9","worker_ops_plan_id":"p9","lkg_plan_id":"p8","new":1}"#;
    let long = format!(
        "{{\"stage\":\"manifest\",\"message\":\"{}\"}}",
        "x".repeat(10_000)
    );
    // (status, body, what the error's text says)
    let table = [
        (
            409,
            conflict,
            "plan \"p9\" is applied now, by epoch 3 and sequence 4",
        ),
        (
            409,
            r#"{"missing":["maps/a.map"]}"#,
            "maps/a.map among them",
        ),
        (409, r#"{"reason":"from_the_future"}"#, "answered 409"),
        (409, "", "answered 409"),
        (
            400,
            r#"{"stage":"manifest","message":"no"}"#,
            "400, stage manifest: no",
        ),
        (401, "wrong\n", "does not take these credentials"),
        (
            413,
            r#"{"stage":"parts","message":"big"}"#,
            "413, stage parts: big",
        ),
        (
            503,
            r#"{"stage":"busy","message":"later"}"#,
            "503, stage busy: later",
        ),
        (302, "", "answered 302"),
        (201, "{}", "answered 201"),
        (400, &long, "answered 400"),
        (200, "not json", "not what the contract says"),
        (200, "{}", "not what the contract says"),
    ];
    for (status, body, said) in table {
        let peer = Peer::answering(vec![answer(status, body)]);
        let error = client(&peer)
            .apply(&manifest("p", &[]), &mut [], None)
            .unwrap_err();
        let text = error.to_string();
        assert!(text.contains(said), "{status} {body:.40}: {text}");
        match (&error, status) {
            (Error::Conflict(conflict), 409) => assert_eq!(conflict.applied_plan_id, "p9"),
            (Error::Missing(paths), 409) => assert_eq!(paths, &[path("maps/a.map")]),
            (Error::Transport(Transport::Answer(_)), 200) => {}
            (Error::Http { status: got, body }, _) => {
                assert_eq!(*got, status);
                assert!(body.len() <= 4096, "{}", body.len());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_lost_connection_is_tried_again_as_often_as_the_contract_says() {
    // Never an answer: 1 + 3 tries.
    let begun = Instant::now();
    let tries = Arc::new(AtomicUsize::new(0));
    let seen = tries.clone();
    let peer = Peer::serving(4, move |_, mut stream| {
        request_head(&mut stream);
        seen.fetch_add(1, Ordering::SeqCst);
        reset_on_close(&stream);
    });
    match client(&peer).state(StateRead::default()) {
        Err(Error::Transport(Transport::Http(HttpError::Reset(_)))) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(tries.load(Ordering::SeqCst), 4);
    assert!(begun.elapsed() >= Duration::from_millis(300));

    // The second one answers.
    let peer = Peer::serving(2, |turn, mut stream| {
        request_head(&mut stream);
        if turn == 1 {
            stream.write_all(&answer(404, "")).unwrap();
            drain(&mut stream);
        }
    });
    match client(&peer).state(StateRead::default()) {
        Err(Error::Http { status: 404, .. }) => {}
        other => panic!("{other:?}"),
    }

    // Half an answer is no lost connection, nor is nonsense.
    for bytes in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
        "SSH-2.0\r\n\r\n",
    ] {
        let peer = Peer::once(move |mut stream| {
            request_head(&mut stream);
            stream.write_all(bytes.as_bytes()).unwrap();
        });
        match client(&peer).state(StateRead::default()) {
            Err(Error::Transport(Transport::Http(HttpError::Cut(_) | HttpError::Malformed(_)))) => {
            }
            other => panic!("{bytes}: {other:?}"),
        }
    }
}

#[test]
fn an_apply_is_tried_again_only_while_no_byte_of_a_part_was_read() {
    static BYTES: [u8; 200_000] = [b'x'; 200_000];
    // The connection ends before the head is through: with parts, the first buffer has
    // bytes of theirs.
    for parts in [false, true] {
        let tries = Arc::new(AtomicUsize::new(0));
        let seen = tries.clone();
        let peer = Peer::serving(if parts { 1 } else { 2 }, move |turn, mut stream| {
            request_head(&mut stream);
            seen.fetch_add(1, Ordering::SeqCst);
            if turn == 1 {
                stream.write_all(&answer(404, "")).unwrap();
                drain(&mut stream);
            }
        });
        let read = Arc::new(AtomicUsize::new(0));
        let files: Vec<(&str, &[u8])> = match parts {
            true => vec![("big", &BYTES)],
            false => Vec::new(),
        };
        let mut given: Vec<Part<'_>> = files
            .iter()
            .map(|_| Part::new(path("big"), Counting(read.clone(), &BYTES)))
            .collect();
        let error = client(&peer)
            .apply(&manifest("p", &files), &mut given, Some(b"blob"))
            .unwrap_err();
        match (error, parts) {
            (Error::Http { status: 404, .. }, false) => {
                assert_eq!(tries.load(Ordering::SeqCst), 2);
            }
            (Error::Transport(Transport::Http(HttpError::Reset(_))), true) => {
                assert!(read.load(Ordering::SeqCst) > 0);
            }
            (other, _) => panic!("{parts}: {other:?}"),
        }
    }
}

/// An agent that comes up within the retries is found; what was refused cost no byte of
/// a part.
#[test]
fn a_refused_connection_is_tried_again() {
    let address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let credentials = Credentials::new("controller", "s3cret").unwrap();
    let client = Client::new(ClientConfig::new(&format!("http://{address}"), credentials).unwrap());
    let begun = Instant::now();
    match client.state(StateRead::default()) {
        Err(Error::Transport(Transport::Http(error))) => assert!(error.is_refused()),
        other => panic!("{other:?}"),
    }
    assert!(begun.elapsed() >= Duration::from_millis(300));
    let read = Arc::new(AtomicUsize::new(0));
    let mut parts = [Part::new(path("a"), Counting(read.clone(), b"one"))];
    client
        .apply(&manifest("p", &[("a", b"one")]), &mut parts, None)
        .unwrap_err();
    assert_eq!(read.load(Ordering::SeqCst), 0);
}

#[test]
fn limits_are_asserted_before_a_byte_is_sent() {
    // Nobody listens there: an attempt would be a refused connection instead.
    let credentials = Credentials::new("controller", "s3cret").unwrap();
    let client = Client::new(ClientConfig::new("http://127.0.0.1:1", credentials).unwrap());
    let many: Vec<(String, &[u8])> = (0..4097)
        .map(|i| (format!("f{i}"), b"".as_slice()))
        .collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|(n, b)| (n.as_str(), *b)).collect();
    let blob = vec![0; usize::try_from(MAX_PLAN_BLOB_BYTES).unwrap() + 1];
    let mut ops = manifest("p", &[]);
    ops.ops = vec![haptic_agent::wire::op::Op::default(); 1001];
    let mut huge_op = manifest("p", &[]);
    huge_op.ops = vec![haptic_agent::wire::op::Op {
        value: Some("x".repeat(9 << 20)),
        ..Default::default()
    }];
    let mut big = manifest("p", &[("a", b""), ("b", b"")]);
    big.files[0].size = 40 << 20;
    big.files[1].size = 25 << 20;
    let mut full = manifest("p", &[("a", b"")]);
    full.files[0].size = 64 << 20;
    type Row<'a> = (Manifest, Vec<Part<'a>>, Option<&'a [u8]>, &'a str);
    let table: Vec<Row<'_>> = vec![
        (manifest("", &[]), vec![], None, "plan_id must not be empty"),
        (manifest("p", &many), vec![], None, "4097 files"),
        (ops, vec![], None, "1001 ops"),
        (huge_op, vec![], None, "the manifest is"),
        (big, vec![], None, "bytes of files"),
        (
            manifest("p", &[("a", b""), ("a", b"")]),
            vec![],
            None,
            "listed twice",
        ),
        (manifest("p", &[]), vec![], Some(&blob), "the plan blob is"),
        (
            full,
            vec![Part::new(path("a"), std::io::empty())],
            None,
            "the request would be",
        ),
        (
            manifest("p", &[]),
            vec![Part::new(path("a"), std::io::empty())],
            None,
            "does not list it",
        ),
        (
            manifest("p", &[("a", b"")]),
            vec![
                Part::new(path("a"), std::io::empty()),
                Part::new(path("a"), std::io::empty()),
            ],
            None,
            "sent twice",
        ),
    ];
    for (manifest, mut parts, plan, said) in table {
        match client.apply(&manifest, &mut parts, plan) {
            Err(error @ Error::Refused(_)) => {
                assert!(error.to_string().contains(said), "{said}: {error}");
            }
            other => panic!("{said}: {other:?}"),
        }
    }
    // A manifest without the content is as large as it may be.
    let mut full = manifest("p", &[("a", b"")]);
    full.files[0].size = 64 << 20;
    match client.apply(&full, &mut [], None) {
        Err(Error::Refused(Refused::BodyBytes(_))) => panic!("nothing of it would be sent"),
        Err(Error::Transport(_)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_part_of_another_size_never_arrives_whole() {
    static BYTES: [u8; 100_000] = [b'x'; 100_000];
    for declared in [99_999, 100_001] {
        let peer = Peer::once(move |mut stream| {
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            assert!(!got.ends_with(b"--\r\n"), "the closing delimiter was sent");
        });
        let mut manifest = manifest("p", &[("a", &BYTES)]);
        manifest.files[0].size = declared;
        let mut parts = [Part::new(path("a"), BYTES.as_slice())];
        match client(&peer).apply(&manifest, &mut parts, None) {
            Err(Error::Source { path, .. }) => assert_eq!(path.as_str(), "a"),
            other => panic!("{declared}: {other:?}"),
        }
    }
}

#[test]
fn an_early_answer_ends_the_upload() {
    let bytes = vec![b'x'; 60 << 20];
    for (status, body) in [(401, "no\n"), (409, r#"{"missing":["a"]}"#)] {
        let peer = Peer::once(move |mut stream| {
            request_head(&mut stream);
            stream.read_exact(&mut [0; 5_000]).unwrap();
            stream.write_all(&answer(status, body)).unwrap();
        });
        let mut parts = [Part::new(path("a"), bytes.as_slice())];
        let manifest = manifest("p", &[("a", &bytes)]);
        match client(&peer).apply(&manifest, &mut parts, None) {
            Err(Error::Http { status: 401, .. } | Error::Missing(_)) => {}
            other => panic!("{status}: {other:?}"),
        }
    }
}

#[test]
fn one_connection_serves_many_requests_and_a_dead_one_is_not_used() {
    let peer = Peer::serving(2, |turn, mut stream| {
        // The first one is closed by the peer after two requests.
        for _ in 0..2 {
            let head = request_head(&mut stream);
            assert!(
                head.contains("\r\nAuthorization: Basic Y29udHJvbGxlcjpzM2NyZXQ=\r\n"),
                "{head}"
            );
            stream.write_all(&answer(404, "no")).unwrap();
        }
        if turn == 1 {
            drain(&mut stream);
        }
    });
    let client = client(&peer);
    for _ in 0..4 {
        match client.state(StateRead {
            verify: true,
            plan: true,
        }) {
            Err(Error::Http { status: 404, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_cancel_ends_a_call_and_leaves_the_client_to_others() {
    let (asked, seen) = std::sync::mpsc::channel();
    let peer = Peer::serving(2, move |turn, mut stream| {
        request_head(&mut stream);
        if turn == 0 {
            asked.send(()).unwrap();
        } else {
            stream.write_all(&answer(404, "")).unwrap();
        }
        drain(&mut stream);
    });
    let client = client(&peer);
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let from = cancel.clone();
        scope.spawn(move || {
            seen.recv_timeout(PATIENCE).unwrap();
            from.cancel();
        });
        let error = client
            .cancelled_by(&cancel)
            .state(StateRead::default())
            .unwrap_err();
        assert!(error.is_cancelled(), "{error:?}");
    });
    match client.state(StateRead::default()) {
        Err(Error::Http { status: 404, .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_debug_form_of_a_client_has_no_secret() {
    let credentials = Credentials::new("controller", "s3cret").unwrap();
    let client = Client::new(ClientConfig::new("http://127.0.0.1:1", credentials).unwrap());
    let shown = format!("{client:?}");
    assert!(
        !shown.contains("s3cret") && !shown.contains("Y29udHJvbGxlcjpzM2NyZXQ="),
        "{shown}"
    );
}
