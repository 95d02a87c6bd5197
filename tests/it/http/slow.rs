//! Clients that take their time, or everybody's.

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use haptic_agent::http::Deadlines;
use haptic_agent::sys;

use super::kit::{Client, Toy, eventually, short, until_equal};

#[test]
fn a_silent_connection_is_closed_without_a_word() {
    let toy = Toy::with(8, short());
    let mut client = toy.connect();
    let begin = Instant::now();
    assert!(client.ended());
    assert!(begin.elapsed() >= Duration::from_millis(250));
    let mut client = toy.connect();
    assert_eq!(client.get("/").status, 200);
    let begin = Instant::now();
    assert!(client.ended());
    assert!(begin.elapsed() >= Duration::from_millis(450));
}

/// Each byte restarts a read, so a limit for each read alone never ends this.
#[test]
fn a_head_that_drips_is_refused_at_its_deadline() {
    let toy = Toy::with(8, short());
    let mut client = toy.connect();
    let mut writer = client.stream.try_clone().unwrap();
    let dripper = std::thread::spawn(move || {
        let text = format!("GET / HTTP/1.1\r\nHost: t\r\nA: {}", "b".repeat(200));
        for byte in text.bytes() {
            if writer.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let begin = Instant::now();
    let answer = client.answer();
    assert_eq!(answer.status, 408);
    let took = begin.elapsed();
    assert!((500..2000).contains(&took.as_millis()), "{took:?}");
    drop(client);
    dripper.join().unwrap();
}

#[test]
fn a_body_that_stops_is_refused_at_its_stall_limit() {
    let toy = Toy::with(8, short());
    for framing in [
        "Content-Length: 10\r\n\r\nab",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nab",
    ] {
        let mut client = toy.connect();
        client.send(format!("POST /echo HTTP/1.1\r\nHost: t\r\n{framing}"));
        let answer = client.answer();
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (400, "the request body stopped coming")
        );
    }
}

#[test]
fn a_body_that_drips_is_refused_at_its_deadline() {
    let toy = Toy::with(8, short());
    let mut client = toy.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\n");
    let mut writer = client.stream.try_clone().unwrap();
    let dripper = std::thread::spawn(move || {
        for _ in 0..1000 {
            if writer.write_all(b"x").is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let answer = client.answer();
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (400, "the request body took too long")
    );
    drop(client);
    dripper.join().unwrap();
}

#[test]
fn a_client_that_never_reads_loses_its_thread() {
    let toy = Toy::with(8, short());
    let mut clients: Vec<Client> = (0..8).map(|_| toy.connect()).collect();
    for client in &mut clients {
        // More than the kernel buffers of both sides hold.
        client.send("GET /big HTTP/1.1\r\nHost: t\r\n\r\n".repeat(4));
    }
    until_equal("served", &toy.stats.open, 8);
    until_equal("given up", &toy.stats.open, 0);
    assert_eq!(toy.connect().get("/").status, 200);
}

/// The deadline of an answer is about progress: a slow reader of a large one is fine.
#[test]
fn a_slow_reader_that_makes_progress_gets_everything() {
    let toy = Toy::with(
        8,
        Deadlines {
            write: Duration::from_secs(60),
            ..short()
        },
    );
    let mut client = toy.connect();
    client.send("GET /big HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    let mut total = 0;
    let mut buffer = vec![0u8; 512 * 1024];
    loop {
        match client.stream.read(&mut buffer).unwrap() {
            0 => break,
            count => total += count,
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(total > 10 * 1024 * 1024, "{total}");
}

/// Five hundred connections that want nothing, against 64 slots.
#[test]
fn a_good_request_is_answered_in_a_crowd_and_the_crowd_ends() {
    sys::raise_nofile_limit(1200).unwrap();
    let toy = Toy::with(
        64,
        Deadlines {
            first_byte: Duration::from_secs(2),
            head: Duration::from_secs(3),
            ..short()
        },
    );
    let mut regular = toy.connect();
    assert_eq!(regular.get("/").status, 200);
    let mut crowd: Vec<Client> = (0..500).map(|_| toy.connect()).collect();
    let mut dripping = Vec::new();
    for (number, client) in crowd.iter_mut().enumerate() {
        match number % 3 {
            0 => {}
            1 => {
                let _shut_already = client.stream.write(b"GET / HTTP/1.1\r\nHo");
            }
            _ => dripping.push(client.stream.try_clone().unwrap()),
        }
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                for stream in &mut dripping {
                    let _shut_already = stream.write(b"x");
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        for _ in 0..50 {
            let begin = Instant::now();
            assert_eq!(toy.connect().get("/").status, 200);
            let took = begin.elapsed();
            assert!(took < Duration::from_secs(2), "{took:?}");
        }
        assert!(toy.stats.open.load(Ordering::SeqCst) <= 64);
        for client in &mut crowd {
            // Some of them get a 408 or a 400 first.
            client
                .stream
                .set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            let mut rest = Vec::new();
            match client.stream.read_to_end(&mut rest) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
            }
        }
        over.store(true, Ordering::SeqCst);
    });
    until_equal("all threads ended", &toy.stats.open, 0);
    assert!(toy.stats.evicted.load(Ordering::SeqCst) >= 400);
    assert_eq!(toy.stats.panics.load(Ordering::SeqCst), 0);
}

#[test]
fn when_all_are_busy_a_newcomer_is_told_to_come_back() {
    let toy = Toy::with(2, Deadlines::default());
    let mut held = [toy.connect(), toy.connect()];
    for client in &mut held {
        client.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    until_equal("both busy", &toy.stats.requests, 2);
    for _ in 0..40 {
        let mut client = toy.connect();
        client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 20000\r\n\r\n");
        client.send([b'x'; 20_000]);
        let answer = client.answer();
        assert_eq!(answer.status, 503);
        assert!(answer.head.contains("\r\nRetry-After: 1\r\n"));
        assert!(answer.closes());
    }
    assert_eq!(toy.stats.evicted.load(Ordering::SeqCst), 0);
    drop(held);
    eventually("served again", || match toy.connect().try_get("/") {
        Ok(answer) if answer.status == 200 => Ok(()),
        other => Err(format!("{other:?}")),
    });
}
