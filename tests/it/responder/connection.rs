//! Peers that are slow, silent, rude or gone.

use super::kit::{PATIENCE, Sockets, ask, connect, rest};
use crate::support::wait;
use haptic_agent::responder::limits::{
    CLOSE_TIME, MAX_KEYS, MAX_LINE_BYTES, MAX_UNENDED_BYTES, QUIET_TIME, READ_TIME,
};
use haptic_agent::responder::metrics::Silence;
use haptic_agent::responder::serve::Note;
use haptic_agent::responder::value::Value;
use haptic_agent::sys;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Slack for a machine that does other things.
const SLACK: Duration = Duration::from_millis(1500);

const HALF: [(&str, Value); 2] = [("web/s1", Value::Weight(50)), ("canary", Value::Drain)];

fn silent(sockets: &Sockets, why: Silence) -> u64 {
    sockets.metrics.silent.of(why).get()
}

/// A request in pieces with a flush after each, then what is answered.
fn ask_in(address: SocketAddr, pieces: &[&[u8]]) -> String {
    let mut stream = connect(address);
    for piece in pieces {
        stream.write_all(piece).unwrap();
    }
    rest(&mut stream)
}

#[test]
fn lines_as_they_come() {
    let sockets = Sockets::with(&HALF);
    let bytes: Vec<[u8; 1]> = b"web/s1 canary\n".iter().map(|byte| [*byte]).collect();
    let bytes: Vec<&[u8]> = bytes.iter().map(|byte| &byte[..]).collect();
    let table: [(&[&[u8]], &str, &str); 9] = [
        (&[b"web/s1 canary\n"], "ready 50%\n", "a line"),
        (&[b"web/s1 canary\r\n"], "ready 50%\n", "CR LF"),
        (&[b"web/s2 canary\n"], "drain\n", "the group"),
        (&[b"web/s2\n"], "ready 100%\n", "no key has a value"),
        (&bytes, "ready 50%\n", "byte by byte"),
        (
            &[b"web/s1\nweb/s2 canary\n"],
            "ready 50%\n",
            "the first line counts",
        ),
        (&[b"\xff\xfe\n"], "ready 100%\n", "bytes that are no text"),
        (
            &[b"web/s1"],
            "ready 50%\n",
            "no line feed: the time ends the line",
        ),
        (&[b"canary\r"], "drain\n", "no line feed, a CR"),
    ];
    for (pieces, want, what) in table {
        assert_eq!(ask_in(sockets.address, pieces), want, "{what}");
    }
}

/// The end of the peer's stream ends a line at once, long before the time does.
#[test]
fn an_early_end_of_the_stream_ends_the_line() {
    let sockets = Sockets::with(&HALF);
    let mut stream = connect(sockets.address);
    stream.write_all(b"web/s1 canary").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let start = Instant::now();
    assert_eq!(rest(&mut stream), "ready 50%\n");
    assert!(start.elapsed() < READ_TIME, "{:?}", start.elapsed());
}

/// Without a line feed the answer comes after a pause.
#[test]
fn a_pause_ends_a_line_without_a_line_feed() {
    let sockets = Sockets::with(&HALF);
    let start = Instant::now();
    assert_eq!(ask(sockets.address, "web/s1 canary"), "ready 50%\n");
    let took = start.elapsed();
    assert!(took >= QUIET_TIME, "{took:?}");
    assert!(took < READ_TIME + SLACK, "{took:?}");
}

/// What came in pieces and without a line feed may be cut: `web/s1` of `web/s10`, or without
/// the group that takes the row out. It is answered with nothing, which changes nothing.
#[test]
fn a_part_of_a_line_is_not_answered() {
    let sockets = Sockets::with(&HALF);
    // Two pieces, then a pause.
    let mut stream = connect(sockets.address);
    stream.write_all(b"web/s2 ").unwrap();
    thread::sleep(Duration::from_millis(5));
    stream.write_all(b"can").unwrap();
    assert_eq!(rest(&mut stream), "");
    // A byte every few milliseconds until the time is over.
    let mut stream = connect(sockets.address);
    let start = Instant::now();
    stream.write_all(b"web/s1 ").unwrap();
    while start.elapsed() < READ_TIME + SLACK && stream.write_all(b" ").is_ok() {
        thread::sleep(Duration::from_millis(5));
    }
    let took = start.elapsed();
    assert!(took < READ_TIME + CLOSE_TIME + SLACK, "{took:?}");
    // More than surely comes in one piece.
    let long = format!("web/s1 {}", "x".repeat(MAX_UNENDED_BYTES));
    assert_eq!(ask(sockets.address, &long), "");
    assert_eq!(silent(&sockets, Silence::Unended), 3);
    let replies = |value: Value| sockets.metrics.replies.of(value.into()).get();
    let all = replies(Value::Ready) + replies(Value::Weight(50)) + replies(Value::Drain);
    assert_eq!(all, 0);
    assert!(
        sockets.coverage.rows().is_empty(),
        "and nobody is known by it"
    );
    // With a line feed, or the end of the stream, the same pieces are a request.
    let mut stream = connect(sockets.address);
    for piece in [&b"web/s2 "[..], b"can", b"ary"] {
        stream.write_all(piece).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut stream), "drain\n");
    assert_eq!(ask(sockets.address, &format!("{long}\n")), "ready 50%\n");
}

#[test]
fn what_names_no_key_or_too_many_is_closed_without_a_byte() {
    let sockets = Sockets::with(&HALF);
    let long_line = [b"x".repeat(MAX_LINE_BYTES), b"\n".to_vec()].concat();
    let fits = [b"x".repeat(MAX_LINE_BYTES - 1), b"\n".to_vec()].concat();
    let keys = |count: usize| format!("{}\n", "k ".repeat(count)).into_bytes();
    let mib = vec![b'x'; 1024 * 1024];
    let table: [(&[u8], &str, Option<Silence>); 9] = [
        (b"", "", Some(Silence::NoKey)),
        (b"\n", "", Some(Silence::NoKey)),
        (b" \t\r\n", "", Some(Silence::NoKey)),
        (&fits, "ready 100%\n", None),
        (&long_line, "", Some(Silence::TooLong)),
        (&keys(MAX_KEYS), "ready 100%\n", None),
        (&keys(MAX_KEYS + 1), "", Some(Silence::TooLong)),
        (&keys(1000), "", Some(Silence::TooLong)),
        (&mib, "", Some(Silence::TooLong)),
    ];
    for (request, want, why) in table {
        let before = why.map(|why| silent(&sockets, why));
        let mut stream = connect(sockets.address);
        // The responder may have closed long before a MiB is sent.
        let _cut_short = stream.write_all(request);
        assert_eq!(rest(&mut stream), want, "{} bytes", request.len());
        let after = why.map(|why| silent(&sockets, why));
        assert_eq!(after, before.map(|count| count + 1), "{why:?}");
    }
    assert_eq!(ask(sockets.address, "web/s1 canary\n"), "ready 50%\n");
}

/// A MiB behind the line feed takes the answer from nobody.
#[test]
fn bytes_behind_the_line_feed_do_not_cost_the_answer() {
    let sockets = Sockets::with(&HALF);
    let mut request = b"web/s1 canary\n".to_vec();
    request.resize(1024 * 1024, b'y');
    let mut stream = connect(sockets.address);
    let _cut_short = stream.write_all(&request);
    assert_eq!(rest(&mut stream), "ready 50%\n");
}

#[test]
fn without_a_copy_nothing_is_said() {
    let sockets = Sockets::unsynced();
    assert_eq!(ask_in(sockets.address, &[b"web/s1 canary\n"]), "");
    assert_eq!(silent(&sockets, Silence::Unsynced), 1);
    assert_eq!(sockets.metrics.replies.of(Value::Ready.into()).get(), 0);
    assert!(sockets.coverage.rows().is_empty());
}

/// Who says nothing is let go after the read time, who does not close after the close
/// time; neither side of a connection lasts.
#[test]
fn nobody_holds_a_connection() {
    let sockets = Sockets::with(&HALF);
    let start = Instant::now();
    let mut stream = connect(sockets.address);
    assert_eq!(rest(&mut stream), "");
    let took = start.elapsed();
    assert!(took >= READ_TIME && took < READ_TIME + SLACK, "{took:?}");

    let mut stream = connect(sockets.address);
    stream.write_all(b"web/s1\n").unwrap();
    let mut answer = [0u8; 10];
    stream.read_exact(&mut answer).unwrap();
    let start = Instant::now();
    assert_eq!(rest(&mut stream), "");
    let took = start.elapsed();
    assert!(took <= CLOSE_TIME + SLACK, "{took:?}");
    wait::until("no connection is left", PATIENCE, || {
        (sockets.metrics.connections.get() == 0).then_some(())
    });
}

/// Resets before, within and after the request, and after the answer: 200 of each, and
/// the next question is answered.
#[test]
fn a_reset_at_any_step_is_one_connection_less() {
    let sockets = Sockets::with(&HALF);
    let request = b"web/s1 canary\n";
    for round in 0..200 {
        for sent in [0, 1, request.len() - 1, request.len()] {
            let mut stream = connect(sockets.address);
            stream.write_all(&request[..sent]).unwrap();
            if sent == request.len() && round % 2 == 0 {
                let mut answer = [0u8; 4];
                stream.read_exact(&mut answer).unwrap();
            }
            sys::reset_on_close(&stream);
        }
    }
    assert_eq!(ask(sockets.address, "web/s1 canary\n"), "ready 50%\n");
    wait::until("no connection is left", PATIENCE, || {
        (sockets.metrics.connections.get() == 0).then_some(())
    });
    assert_eq!(sockets.metrics.panics.get(), 0);
    assert_eq!(sockets.metrics.accept_errors.get(), 0);
}

/// 500 peers that say nothing beside real questions: a question waits at most for a few
/// read times, and all are answered.
#[test]
fn silent_peers_delay_a_question_but_do_not_stop_it() {
    let sockets = Sockets::with(&HALF);
    let silent: Vec<TcpStream> = (0..500).map(|_| connect(sockets.address)).collect();
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    let mut asked = 0;
    // As often as a fleet of 919 rows does every 2 s, for 2 s.
    while start.elapsed() < Duration::from_secs(2) {
        let question = Instant::now();
        assert_eq!(ask(sockets.address, "web/s1 canary\n"), "ready 50%\n");
        slowest = slowest.max(question.elapsed());
        asked += 1;
        thread::sleep(Duration::from_micros(2174).saturating_sub(question.elapsed()));
    }
    drop(silent);
    println!("500 silent peers: {asked} questions, slowest {slowest:?}");
    // 500 / 128 threads × 200 ms is 0.8 s.
    assert!(slowest < Duration::from_millis(800) + SLACK, "{slowest:?}");
    assert!(asked > 50, "{asked}");
}

/// Connections of this port that the kernel still keeps after their end.
fn time_waits(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{port:04X}");
    let lines = table.lines().skip(1);
    lines
        .filter(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let (local, remote) = (fields.next().unwrap(), fields.next().unwrap());
            let state = fields.next().unwrap();
            state == "06" && (local.ends_with(&port) || remote.ends_with(&port))
        })
        .count()
}

#[test]
fn a_thousand_questions_leave_no_time_wait() {
    let sockets = Sockets::with(&HALF);
    for _ in 0..1000 {
        assert_eq!(ask(sockets.address, "web/s1 canary\n"), "ready 50%\n");
    }
    let left = time_waits(sockets.address.port());
    println!("TIME_WAIT after 1000 questions: {left}");
    assert!(left <= 5, "{left}");
}

/// More connections than threads at once: those that nobody took yet wait in the kernel
/// and none is refused, up to the backlog.
#[test]
fn connections_wait_in_the_backlog() {
    let sockets = Sockets::with(&HALF);
    let most: usize = std::fs::read_to_string("/proc/sys/net/core/somaxconn")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let count = 4000.min(most);
    let start = Instant::now();
    let mut waiting: Vec<TcpStream> = Vec::with_capacity(count);
    for _ in 0..count {
        let stream = TcpStream::connect_timeout(&sockets.address, Duration::from_millis(900));
        waiting.push(stream.unwrap());
    }
    println!("{count} connections in {:?}", start.elapsed());
    for stream in &mut waiting {
        // Some have waited too long by now and were let go.
        let _gone = stream.write_all(b"web/s1 canary\n");
    }
    for stream in &waiting {
        sys::reset_on_close(stream);
    }
    drop(waiting);
    assert_eq!(ask(sockets.address, "web/s1 canary\n"), "ready 50%\n");
}

/// What changed is said once, with the key that decided; single questions are not.
#[test]
fn changes_of_an_answer_are_noted_once() {
    let sockets = Sockets::with(&HALF);
    for _ in 0..3 {
        ask(sockets.address, "web/s9 canary\n");
    }
    wait::until("three questions are taken down", PATIENCE, || {
        let rows = sockets.coverage.rows();
        (rows.first()?.1.count == 3).then_some(())
    });
    assert!(
        sockets.notes.try_recv().is_err(),
        "the first answer is no change"
    );
    sockets
        .cell
        .swap(std::sync::Arc::new(super::kit::copy(&[])));
    for _ in 0..3 {
        ask(sockets.address, "web/s9 canary\n");
    }
    match sockets.notes.recv_timeout(PATIENCE).unwrap() {
        Note::Told(change) => {
            assert_eq!(&*change.row, b"web/s9");
            assert_eq!((change.from, change.to), (Value::Drain, Value::Ready));
            assert_eq!(change.key, None);
        }
        other => panic!("{other:?}"),
    }
    assert!(sockets.notes.try_recv().is_err());
    assert_eq!(sockets.metrics.transitions.get(), 1);
}

/// A stop finishes what is open and ends all threads within a connection's time.
#[test]
fn a_stop_is_quick_and_final() {
    let mut sockets = Sockets::with(&HALF);
    let mut open = connect(sockets.address);
    wait::until("the connection is taken", PATIENCE, || {
        (sockets.metrics.connections.get() == 1).then_some(())
    });
    let stopper = thread::spawn({
        let address = sockets.address;
        move || {
            let start = Instant::now();
            open.write_all(b"web/s1 canary\n").unwrap();
            (rest(&mut open), start.elapsed(), address)
        }
    });
    let start = Instant::now();
    sockets.serving.stop();
    assert!(
        start.elapsed() < Duration::from_secs(1) + SLACK,
        "{:?}",
        start.elapsed()
    );
    let (answer, ..) = stopper.join().unwrap();
    assert_eq!(answer, "ready 50%\n", "the open connection was finished");
    assert!(TcpStream::connect_timeout(&sockets.address, Duration::from_millis(200)).is_err());
}
