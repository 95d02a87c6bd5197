//! A machine that runs out of things: descriptors, threads, memory in the kernel.

use std::io::Read;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use super::child::Process;
use super::kit::{Client, eventually};

/// Whether strace is there; required when `HAPTIC_REQUIRE_TOOLS` is set.
fn have_strace() -> bool {
    let have = Command::new("strace").arg("-V").output().is_ok();
    assert!(
        have || std::env::var_os("HAPTIC_REQUIRE_TOOLS").is_none(),
        "strace is required here"
    );
    if !have {
        println!("skipped: strace is not installed");
    }
    have
}

/// The toy server with a fault injected into a system call.
fn faulty(calls: &str, fault: &str) -> Process {
    let trace = format!("trace={calls}");
    let inject = format!("inject={calls}:{fault}");
    Process::start(
        &[
            "strace",
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            &trace,
            "-e",
            &inject,
        ],
        64,
    )
}

#[test]
fn the_descriptor_limit_is_survived_at_either_parity() {
    for limit in 40..44 {
        let script = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
        let process = Process::start(&["sh", "-c", &script], 500);
        for round in 0..3 {
            let mut crowd: Vec<Client> = (0..60).map(|_| process.connect()).collect();
            let mut last = crowd.pop().unwrap();
            let answer = last.answer();
            assert_eq!(answer.status, 503, "limit {limit}, round {round}");
            drop((crowd, last));
            let begin = Instant::now();
            eventually("served again", || match process.connect().try_get("/") {
                Ok(answer) if answer.status == 200 => Ok(()),
                other => Err(format!("{other:?}")),
            });
            let took = begin.elapsed();
            assert!(took < Duration::from_secs(2), "{took:?}");
        }
        assert!(process.stats()["errors"] >= 3);
        assert!(process.stats()["refused"] >= 3);
    }
}

#[test]
fn accept_errors_do_not_end_the_listener() {
    if !have_strace() {
        return;
    }
    // After EMFILE a second accept takes the connection to refuse it, so one in three.
    let table = [
        ("ECONNABORTED", 2),
        ("EPROTO", 2),
        ("ENOBUFS", 2),
        ("EPERM", 2),
        ("EINTR", 2),
        ("ENOMEM", 2),
        ("EMFILE", 3),
        ("ENFILE", 3),
    ];
    for (error, one_in) in table {
        let process = faulty("accept4", &format!("error={error}:when=1+{one_in}"));
        for _ in 0..10 {
            eventually("served", || match process.connect().try_get("/") {
                Ok(answer) if answer.status == 200 => Ok(()),
                other => Err(format!("{error}: {other:?}")),
            });
        }
        assert!(process.stats()["errors"] >= 5, "{error}");
    }
}

#[test]
fn a_listener_that_is_gone_ends_the_process_with_an_error() {
    if !have_strace() {
        return;
    }
    let mut process = faulty("accept4", "error=EBADF:when=3+");
    for _ in 0..2 {
        assert_eq!(process.connect().get("/").status, 200);
    }
    // Whether it is reset or refused depends on when the listener closes.
    let _reset_or_refused = TcpStream::connect(process.address);
    assert!(!process.wait().success());
}

#[test]
fn the_thread_limit_is_survived() {
    if !have_strace() {
        return;
    }
    let process = faulty("clone,clone3", "error=EAGAIN:when=4+2");
    let mut served = 0;
    let mut refused = 0;
    for _ in 0..20 {
        match process.connect().get("/").status {
            200 => served += 1,
            503 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert!(
        served >= 5 && refused >= 5,
        "{served} served, {refused} refused"
    );
    assert_eq!(process.stats()["panics"], 0);
    assert!(process.stats()["spawn"] >= 5);
}

#[test]
fn memory_stays_flat_whatever_is_sent() {
    let process = Process::start(&[], 64);
    assert_eq!(process.connect().get("/").status, 200);
    let before = process.stats()["rss"];
    let size = 63 * 1024 * 1024;
    let head = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n";
    let mut client = process.connect();
    client.send(format!(
        "POST /form HTTP/1.1\r\nHost: t\r\nContent-Type: multipart/form-data; boundary=b\r\n\
         Content-Length: {}\r\n\r\n{head}",
        head.len() + size + "\r\n--b--\r\n".len()
    ));
    let block = vec![b'\r'; 1024 * 1024];
    for _ in 0..63 {
        client.send(&block);
    }
    client.send("\r\n--b--\r\n");
    assert_eq!(client.answer().text(), format!("a None {size}\n"));
    let lengths = [
        "999999999999999999",
        "4611686018427387904",
        "9223372036854775813",
        "18446744073709551621",
    ];
    for length in lengths {
        let mut client = process.connect();
        client.send(format!(
            "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n"
        ));
        assert!([400, 413].contains(&client.answer().status));
    }
    let after = process.stats()["rss"];
    assert!(
        after < before + 4096,
        "{before} KiB before, {after} KiB after"
    );
}

#[test]
fn resets_leave_nothing_behind() {
    reset_again_and_again(200);
}

#[test]
#[ignore = "long; make soak runs it"]
fn two_thousand_resets_leave_nothing_behind() {
    reset_again_and_again(2000);
}

/// A close with unread input is a reset, which can meet the server anywhere.
fn reset_again_and_again(times: usize) {
    let process = Process::start(&[], 64);
    let settled = |wanted: Option<(u64, u64)>| {
        eventually("settled", || {
            let stats = process.stats();
            let counts = (stats["fds"], stats["threads"]);
            if stats["open"] == 1 && wanted.is_none_or(|wanted| wanted == counts) {
                Ok(counts)
            } else {
                Err(format!("{stats:?}"))
            }
        })
    };
    // The first requests settle what is allocated once.
    for _ in 0..10 {
        settled(None);
    }
    let before = settled(None);
    for turn in 0..times {
        let mut client = process.connect();
        match turn % 4 {
            0 => client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n"),
            1 => client.send("GET /big HTTP/1.1\r\nHost: t\r\n\r\n"),
            2 => client.send("POST /401 HTTP/1.1\r\nHost: t\r\nContent-Length: 99999\r\n\r\nabc"),
            _ => client.send("BAD\r\n\r\n"),
        }
        // One byte of the answer is here and will stay unread.
        assert_eq!(client.stream.peek(&mut [0u8; 1]).unwrap(), 1);
        let mut first = [0u8; 1];
        if turn % 2 == 0 {
            client.stream.read_exact(&mut first).unwrap();
        }
    }
    settled(Some(before));
    assert_eq!(process.stats()["panics"], 0);
}
