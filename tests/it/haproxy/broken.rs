//! Peers that are silent, slow, cut, garbled or endless: bounded, and never a success.

use super::*;
use crate::support::fake::{Fake, Peer};
use haptic_agent::clock::SystemClock;
use haptic_agent::haproxy::master::ReloadReply;
use haptic_agent::haproxy::reload::EARLIER_WORKER;
use haptic_agent::haproxy::socket::SocketError;
use haptic_agent::haproxy::worker::DumpError;
use haptic_agent::haproxy::{Identity, ReloadOutcome, RuntimeInventory, reload};
use rustix::fd::OwnedFd;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

type Script = Box<dyn Fn(Peer) + Send + Sync>;

/// For what must end without an answer.
const SHORT: Duration = Duration::from_millis(200);
/// For what ends with one.
const LONG: Duration = Duration::from_secs(10);

fn info_text(pid: u32, stopping: u8) -> String {
    format!(
        "Name: HAProxy\nVersion: 3.4.7-1\nPid: {pid}\nStart_time_sec: 4102444800.5\nStopping: {stopping}\n\n"
    )
}

fn identity(pid: u32) -> Identity {
    Identity {
        pid,
        start_micros: 4_102_444_800_500_000,
    }
}

/// A script that answers the first line with `text` and closes.
fn say(text: impl Into<Vec<u8>>) -> impl Fn(Peer) + Send + Sync {
    let text = text.into();
    move |mut peer| {
        peer.line();
        peer.say(&text);
    }
}

/// A script that answers with `text` in single bytes and closes.
fn drip(text: impl Into<Vec<u8>>) -> impl Fn(Peer) + Send + Sync {
    let text = text.into();
    move |mut peer| {
        peer.line();
        for byte in &text {
            peer.say(std::slice::from_ref(byte));
        }
    }
}

/// A script that answers with `text` and then stays silent.
fn say_and_hang(text: impl Into<Vec<u8>>) -> impl Fn(Peer) + Send + Sync {
    let text = text.into();
    move |mut peer| {
        peer.line();
        peer.say(&text);
        peer.hang();
    }
}

/// A script that answers with `text` for ever.
fn forever(start: &'static [u8], text: &'static [u8]) -> impl Fn(Peer) + Send + Sync {
    move |mut peer| {
        peer.line();
        peer.say(start);
        while peer.say(text) {}
    }
}

fn with_fake<T>(
    script: impl Fn(Peer) + Send + Sync + 'static,
    ask: impl Fn(&Path) -> T,
) -> (T, Duration) {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::start(&socket_in(dir.path()), script);
    let started = Instant::now();
    (ask(fake.path()), started.elapsed())
}

fn info(path: &Path) -> Result<WorkerInfo, SocketError> {
    WorkerSocket::new(path.to_path_buf()).info(Deadline::after(SHORT))
}

fn patient_info(path: &Path) -> Result<WorkerInfo, SocketError> {
    WorkerSocket::new(path.to_path_buf()).info(soon())
}

#[test]
fn info_takes_whole_answers_only() {
    let whole = info_text(7, 0);
    let (good, _) = with_fake(say(whole.clone()), patient_info);
    assert_eq!(good.unwrap().identity, identity(7));
    let (slow, _) = with_fake(drip(whole.clone()), patient_info);
    assert_eq!(slow.unwrap().identity, identity(7));
    for cut in [0, 1, 14, 40, whole.len() - 2, whole.len() - 1] {
        let (cut_off, _) = with_fake(say(whole.get(..cut).unwrap().to_owned()), patient_info);
        assert!(cut_off.is_err(), "cut at {cut}: {cut_off:?}");
    }
}

#[test]
fn info_is_bounded_and_believes_nothing_else() {
    let table: [(&str, Script); 6] = [
        ("silent", Box::new(say_and_hang(""))),
        (
            "silent after the answer",
            Box::new(say_and_hang("Name: HAProxy\n")),
        ),
        ("closes at once", Box::new(|_| {})),
        ("garbage", Box::new(say(vec![0xff; 5000]))),
        (
            "another service",
            Box::new(say("HTTP/1.1 400 Bad Request\r\n\r\n")),
        ),
        ("endless", Box::new(forever(b"Name: HAProxy\n", b"x: y\n"))),
    ];
    for (what, script) in table {
        let (refused, took) = with_fake(script, info);
        assert!(refused.is_err(), "{what}: {refused:?}");
        assert!(took < Duration::from_secs(2), "{what}: {took:?}");
    }
}

#[test]
fn a_full_backlog_does_not_hold_a_connect() {
    let dir = tempfile::tempdir().unwrap();
    let path = socket_in(dir.path());
    let listener = unix_socket();
    let address = SocketAddrUnix::new(&path).unwrap();
    net::bind(&listener, &address).unwrap();
    net::listen(&listener, 1).unwrap();
    // Nobody accepts: the queue fills, and a blocking connect would then hang for ever.
    let held: Vec<_> = (0..64)
        .map_while(|_| {
            let client = unix_socket();
            net::connect(&client, &address).ok().map(|()| client)
        })
        .collect();
    assert!(!held.is_empty() && held.len() < 64, "{}", held.len());
    let started = Instant::now();
    let refused = info(&path);
    let took = started.elapsed();
    assert!(
        matches!(
            refused,
            Err(SocketError::Deadline {
                doing: "connecting",
                ..
            })
        ),
        "{refused:?}"
    );
    assert!(
        took >= SHORT / 2 && took < Duration::from_secs(2),
        "{took:?}"
    );
}

fn unix_socket() -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
}

#[test]
fn a_socket_says_what_is_wrong_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let missing = info(&dir.path().join("none.sock"));
    assert!(
        matches!(missing, Err(SocketError::Missing { .. })),
        "{missing:?}"
    );
    // Where its path is written differs.
    let worker = missing.unwrap_err().to_string();
    assert!(worker.contains("`stats socket` line"), "{worker}");
    let master = MasterSocket::new(dir.path().join("none.sock"));
    let master = master.show_proc(Deadline::after(SHORT)).unwrap_err();
    assert!(master.to_string().contains("behind -S"), "{master}");
    let stale = socket_in(dir.path());
    drop(UnixListener::bind(&stale).unwrap());
    let refused = info(&stale);
    assert!(
        matches!(refused, Err(SocketError::Refused { .. })),
        "{refused:?}"
    );
    let long = info(&dir.path().join("x".repeat(120)));
    assert!(
        matches!(long, Err(SocketError::PathTooLong { .. })),
        "{long:?}"
    );
}

#[test]
fn a_listing_without_its_end_is_no_listing() {
    let level = "\n[6]: admin\n\n[6]: 3.4.7\n\n";
    let read = |path: &Path| {
        RuntimeInventory::read(
            &WorkerSocket::new(path.to_path_buf()),
            Deadline::after(SHORT),
        )
    };
    for answer in [
        "\n",
        "\n\n",
        "\n# filename\ncerts/a.pem\n",
        "\nx\n\n[6]: 3.4",
        "\n[6]: Unknown command: 'show map'\n\n[6]: 3.4.7\n\n",
        "",
    ] {
        let script = move |mut peer: Peer| {
            let first = peer.number == 0;
            peer.line();
            peer.say(if first {
                level.as_bytes()
            } else {
                answer.as_bytes()
            });
        };
        let (refused, _) = with_fake(script, read);
        assert!(refused.is_err(), "{answer:?}: {refused:?}");
    }
    let dump = |path: &Path| {
        WorkerSocket::new(path.to_path_buf()).dump("show map", Deadline::after(SHORT))
    };
    let (silent, took) = with_fake(say_and_hang("\n1 (a)"), dump);
    assert!(
        matches!(silent, Err(DumpError::Socket(SocketError::Deadline { .. }))),
        "{silent:?}"
    );
    assert!(took < Duration::from_secs(2));
    let (cut, _) = with_fake(say("\n1 (a)"), dump);
    assert!(
        matches!(cut, Err(DumpError::Cut { bytes: 6, .. })),
        "{cut:?}"
    );
}

fn once(path: &Path) -> ReloadReply {
    MasterSocket::new(path.to_path_buf()).reload_once(Deadline::after(SHORT))
}

fn patient_once(path: &Path) -> ReloadReply {
    MasterSocket::new(path.to_path_buf()).reload_once(soon())
}

#[test]
fn a_reload_reply_needs_its_verdict_and_nothing_more() {
    let success = |reply: &ReloadReply| matches!(reply, ReloadReply::Success { .. });
    for text in [
        "Success=1\n--\n",
        "Success=1\n--\nlog\n",
        "Success=1\n--\n[NOTICE]   (1) : x",
    ] {
        assert!(success(&with_fake(say(text), patient_once).0), "{text:?}");
        assert!(success(&with_fake(drip(text), patient_once).0), "{text:?}");
        let (open, took) = with_fake(say_and_hang(text), patient_once);
        assert!(success(&open), "{text:?}: {open:?}");
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
    let busy = "Success=0\n--\nAnother reload is still in progress.\n";
    let (busy, took) = with_fake(say_and_hang(busy), patient_once);
    assert!(matches!(busy, ReloadReply::Busy), "{busy:?}");
    assert!(
        took < Duration::from_millis(900),
        "a busy master is not waited for: {took:?}"
    );
    let (refused, _) = with_fake(
        say("Success=0\n--\n[ALERT]    (1) : config : x\n"),
        patient_once,
    );
    assert!(
        matches!(refused, ReloadReply::Refused { .. }),
        "{refused:?}"
    );
}

#[test]
fn anything_else_is_no_verdict() {
    for text in [
        "",
        "Success=",
        "Success=1",
        "Success=1\n",
        "Success=1\n-",
        "success=1\n--\n",
        "Loading\nSuccess=1\n--\n",
        "Success=2\n--\n",
        "\u{0}",
    ] {
        for hang in [false, true] {
            let (reply, took) = if hang {
                with_fake(say_and_hang(text), once)
            } else {
                with_fake(say(text), once)
            };
            assert!(
                matches!(reply, ReloadReply::NoVerdict { .. }),
                "{text:?}: {reply:?}"
            );
            assert!(took < Duration::from_secs(2), "{text:?}: {took:?}");
        }
    }
}

#[test]
fn an_endless_log_is_cut_and_its_verdict_stands() {
    let (reply, took) = with_fake(
        forever(b"Success=0\n--\n", b"[WARNING]  (1) : w\n"),
        |path| MasterSocket::new(path.to_path_buf()).reload_once(soon()),
    );
    let ReloadReply::Refused { log } = reply else {
        panic!("{reply:?}");
    };
    assert!(log.text().len() <= 1024 * 1024);
    assert!(log.words().len() <= 4096);
    assert!(took < Duration::from_secs(5), "{took:?}");
    let (reply, took) = with_fake(forever(b"", b"x"), once);
    assert!(matches!(reply, ReloadReply::NoVerdict { .. }));
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// A master and a worker, both fake; the worker's pid is what `pid` holds.
struct Pair {
    _dir: tempfile::TempDir,
    master: Fake,
    worker: Fake,
}

impl Pair {
    fn start(
        pid: &Arc<AtomicU32>,
        stopping: u8,
        master: impl Fn(Peer) + Send + Sync + 'static,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pid = Arc::clone(pid);
        let worker = Fake::start(&dir.path().join("w.sock"), move |mut peer| {
            peer.line();
            peer.say(info_text(pid.load(Ordering::SeqCst), stopping).as_bytes());
        });
        let master = Fake::start(&dir.path().join("m.sock"), master);
        Self {
            _dir: dir,
            master,
            worker,
        }
    }

    fn reload(&self, before: Option<u32>) -> (ReloadOutcome, Duration) {
        self.reload_within(SHORT, before)
    }

    fn reload_within(&self, timeout: Duration, before: Option<u32>) -> (ReloadOutcome, Duration) {
        let started = Instant::now();
        let outcome = reload(
            &MasterSocket::new(self.master.path().to_path_buf()),
            &WorkerSocket::new(self.worker.path().to_path_buf()),
            before.map(identity),
            timeout,
            &SystemClock,
        );
        (outcome, started.elapsed())
    }
}

fn pid(number: u32) -> Arc<AtomicU32> {
    Arc::new(AtomicU32::new(number))
}

const GOOD: &str = "Success=1\n--\n";

/// Pids of an old worker are below this, and its start is long ago.
const YOUNG: u32 = 100;

impl Pair {
    /// A worker's socket at which `old` answers a few times, then `young`.
    fn with_an_earlier_reload(old: u32, young: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let looks = AtomicU32::new(0);
        let worker = Fake::start(&dir.path().join("w.sock"), move |mut peer| {
            peer.line();
            let pid = match looks.fetch_add(1, Ordering::SeqCst) {
                0..5 => old,
                _ => young,
            };
            let text = info_text(pid, 0);
            let text = match pid < YOUNG {
                true => text.replace("4102444800.5", "1000.5"),
                false => text,
            };
            peer.say(text.as_bytes());
        });
        let master = Fake::start(&dir.path().join("m.sock"), say(GOOD));
        Self {
            _dir: dir,
            master,
            worker,
        }
    }
}

#[test]
fn a_worker_of_an_earlier_reload_is_not_taken_for_the_new_one() {
    let pid_of = |outcome: &ReloadOutcome| match outcome {
        ReloadOutcome::Loaded { worker, .. } => worker.identity.pid,
        other => panic!("{other:?}"),
    };
    let pair = Pair::with_an_earlier_reload(8, 109);
    let (outcome, _) = pair.reload_within(LONG, Some(7));
    assert_eq!(pid_of(&outcome), 109);
    // A clock that was set back makes every worker look like that one: it is believed in
    // the end, and at once where there is no more time.
    let pair = Pair::with_an_earlier_reload(8, 8);
    let (outcome, took) = pair.reload_within(LONG, Some(7));
    assert_eq!(pid_of(&outcome), 8);
    assert!(took >= EARLIER_WORKER, "{took:?}");
    let pair = Pair::with_an_earlier_reload(8, 8);
    let (outcome, took) = pair.reload(Some(7));
    assert_eq!(pid_of(&outcome), 8);
    assert!(took < EARLIER_WORKER, "{took:?}");
}

#[test]
fn success_is_not_believed_without_another_worker() {
    let pair = Pair::start(&pid(7), 0, say(GOOD));
    let (outcome, took) = pair.reload(Some(7));
    assert!(
        matches!(outcome, ReloadOutcome::Unconfirmed { .. }),
        "{outcome:?}"
    );
    assert!(
        took >= SHORT / 2 && took < Duration::from_secs(3),
        "{took:?}"
    );

    let pair = Pair::start(&pid(8), 1, say(GOOD));
    for before in [Some(7), None] {
        let (outcome, _) = pair.reload(before);
        assert!(
            matches!(outcome, ReloadOutcome::Unconfirmed { .. }),
            "stopping: {outcome:?}"
        );
    }
    let pair = Pair::start(&pid(8), 0, say(GOOD));
    for before in [Some(7), None] {
        let (outcome, _) = pair.reload_within(LONG, before);
        assert!(
            matches!(outcome, ReloadOutcome::Loaded { .. }),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_lost_verdict_is_asked_for_again() {
    // The first answer is lost although the reload was carried out, the second says so.
    let running = pid(7);
    let next = Arc::clone(&running);
    let pair = Pair::start(&running, 0, move |mut peer| {
        peer.line();
        next.fetch_add(1, Ordering::SeqCst);
        if peer.number > 0 {
            peer.say(GOOD.as_bytes());
        }
    });
    let (outcome, _) = pair.reload_within(LONG, Some(7));
    let ReloadOutcome::Loaded { worker, .. } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(worker.identity, identity(9));
    assert_eq!(pair.master.served(), 2);
}

#[test]
fn verdicts_lost_for_good_leave_the_identity() {
    let pair = Pair::start(&pid(7), 0, say(""));
    let (outcome, took) = pair.reload_within(Duration::from_secs(1), Some(7));
    assert!(
        matches!(outcome, ReloadOutcome::Unconfirmed { .. }),
        "{outcome:?}"
    );
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(pair.master.served(), 3, "given again, and not for ever");

    let pair = Pair::start(&pid(8), 0, say(""));
    let (outcome, _) = pair.reload_within(LONG, Some(7));
    assert!(
        matches!(outcome, ReloadOutcome::Loaded { .. }),
        "{outcome:?}"
    );
    let (outcome, _) = pair.reload(None);
    assert!(
        matches!(outcome, ReloadOutcome::Unconfirmed { .. }),
        "{outcome:?}"
    );
}

#[test]
fn a_refusal_after_a_lost_verdict_counts_only_for_the_same_worker() {
    let refuse_second = |mut peer: Peer| {
        peer.line();
        if peer.number > 0 {
            peer.say(b"Success=0\n--\n[ALERT]    (1) : config : x\n");
        }
    };
    let (outcome, _) = Pair::start(&pid(7), 0, refuse_second).reload_within(LONG, Some(7));
    assert!(
        matches!(
            outcome,
            ReloadOutcome::Refused {
                verdict_on_files: true,
                ..
            }
        ),
        "{outcome:?}"
    );
    let (outcome, _) = Pair::start(&pid(8), 0, refuse_second).reload_within(LONG, Some(7));
    assert!(
        matches!(outcome, ReloadOutcome::Unconfirmed { .. }),
        "{outcome:?}"
    );
}

#[test]
fn a_busy_master_is_asked_until_the_deadline() {
    let busy = "Success=0\n--\nAnother reload is still in progress.\n";
    let pair = Pair::start(&pid(7), 0, say(busy));
    let (outcome, took) = pair.reload(Some(7));
    assert!(
        matches!(outcome, ReloadOutcome::Unreachable { .. }),
        "{outcome:?}"
    );
    assert!(
        took >= SHORT / 2 && took < Duration::from_secs(3),
        "{took:?}"
    );
    assert!(pair.master.served() > 3, "{}", pair.master.served());
}

#[test]
fn a_silent_master_ends_with_the_deadline() {
    let pair = Pair::start(&pid(7), 0, say_and_hang(""));
    let (outcome, took) = pair.reload(Some(7));
    assert!(
        matches!(outcome, ReloadOutcome::Unconfirmed { .. }),
        "{outcome:?}"
    );
    assert!(took < Duration::from_secs(3), "{took:?}");
}
