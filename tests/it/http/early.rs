//! Answers that come while the client still sends. Closing with unread input resets the
//! connection, and a third of the clients then never see the answer.

use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use haptic_agent::http::Deadlines;

use super::kit::{Client, PATIENCE, Toy, until_equal};

const STREAMED_BYTES: usize = 60 * 1024 * 1024;
const CHUNK_BYTES: usize = 32 * 1024;

fn head(path: &str, chunked: bool) -> String {
    let framing = if chunked {
        "Transfer-Encoding: chunked".to_owned()
    } else {
        format!("Content-Length: {STREAMED_BYTES}")
    };
    format!("POST {path} HTTP/1.1\r\nHost: t\r\n{framing}\r\n\r\n")
}

/// Sends the body until it is sent or nobody takes it.
fn stream_body(mut to: impl Write, chunked: bool) -> bool {
    let mut chunk = Vec::new();
    if chunked {
        chunk.extend_from_slice(format!("{CHUNK_BYTES:x}\r\n").as_bytes());
    }
    chunk.resize(chunk.len() + CHUNK_BYTES, b'x');
    if chunked {
        chunk.extend_from_slice(b"\r\n");
    }
    for _ in 0..STREAMED_BYTES / CHUNK_BYTES {
        match to.write_all(&chunk) {
            Ok(()) => {}
            Err(error) => {
                let kinds = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
                assert!(kinds.contains(&error.kind()), "{error}");
                return false;
            }
        }
    }
    !chunked || to.write_all(b"0\r\n\r\n").is_ok()
}

/// A simple client: sends everything, and only then looks for an answer. It gives up
/// when it cannot send, as most libraries do.
fn sends_first(mut client: Client, path: &str, chunked: bool) -> Option<u16> {
    client.send(head(path, chunked));
    if !stream_body(&client.stream, chunked) {
        return None;
    }
    client.try_answer(false).ok().map(|answer| answer.status)
}

/// A client that sends and reads at the same time, and hangs up when it has its answer.
/// If sending fails before that, the answer is lost to it.
fn reads_meanwhile(mut client: Client, path: &str, chunked: bool) -> Option<u16> {
    client.send(head(path, chunked));
    let writer = client.stream.try_clone().unwrap();
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if !stream_body(writer, chunked) {
                failed.store(true, Ordering::SeqCst);
            }
        });
        let status = client.try_answer(false).ok().map(|answer| answer.status);
        let lost = failed.load(Ordering::SeqCst);
        let _gone_already = client.stream.shutdown(Shutdown::Both);
        status.filter(|_| !lost)
    })
}

#[test]
fn no_early_answer_is_lost() {
    stream_against_early_answers(3);
}

#[test]
#[ignore = "long; make soak runs it"]
fn no_early_answer_is_lost_in_hundreds_of_tries() {
    stream_against_early_answers(40);
}

/// So many tries of each kind of answer, framing and client.
fn stream_against_early_answers(tries: usize) {
    // The drain is about bytes here; a loaded machine may need longer for them.
    let toy = Toy::with(
        4,
        Deadlines {
            linger: PATIENCE,
            ..Deadlines::default()
        },
    );
    for (path, status) in [("/401", 401), ("/409", 409), ("/413", 413)] {
        for chunked in [true, false] {
            for turn in 0..tries {
                let got = sends_first(toy.connect(), path, chunked);
                assert_eq!(got, Some(status), "{path}, sends first, turn {turn}");
                let got = reads_meanwhile(toy.connect(), path, chunked);
                assert_eq!(got, Some(status), "{path}, reads meanwhile, turn {turn}");
            }
        }
    }
    until_equal("all ended", &toy.stats.open, 0);
}

/// A declared length is no promise: the drain ends with its time, not with the body.
#[test]
fn the_drain_of_an_endless_client_ends() {
    let toy = Toy::with(
        4,
        Deadlines {
            linger: Duration::from_millis(300),
            ..Deadlines::default()
        },
    );
    let mut client = toy.connect();
    client.send(head("/401", true));
    let mut writer = client.stream.try_clone().unwrap();
    let chunk = [b"8000\r\n".as_slice(), &[b'x'; 0x8000], b"\r\n"].concat();
    let mut ended = false;
    for _ in 0..1_000_000 {
        if writer.write_all(&chunk).is_err() {
            ended = true;
            break;
        }
    }
    assert!(ended, "the server never closed");
    until_equal("thread ended", &toy.stats.open, 0);
}
