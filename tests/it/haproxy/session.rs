//! Sessions: exact answers for pipelined commands, and what happens when they break.

use super::*;
use crate::support::fake::{Fake, Peer};
use crate::support::haproxy::preamble;
use haptic_agent::clock::SystemClock;
use haptic_agent::haproxy::session::{Exchange, Outcome, SessionError, WINDOW_BYTES, go_on};
use haptic_agent::haproxy::{Command, ReloadOutcome, Reply, Session, reload};
use haptic_agent::wire::limits::MAX_PAYLOAD_BYTES;
use std::fs;
use std::ops::ControlFlow;
use std::time::Instant;

/// A frontend, a map and a backend with two servers.
fn routing(base: &Path) -> String {
    fs::create_dir_all(base.join("maps")).unwrap();
    fs::write(base.join("maps/host.map"), "a b\n").unwrap();
    format!(
        "{}frontend f\n    bind unix@{}/f.sock\n    use_backend %[path,map(maps/host.map,b)]\nbackend b\n    balance roundrobin\n    server s1 127.0.0.1:1\n    server s2 127.0.0.1:1\n",
        preamble(base),
        base.display()
    )
}

fn start(version: Version, base: &Path) -> Haproxy {
    Haproxy::start(version, base, &routing(base))
}

fn line(text: &str) -> Command {
    Command::line(text).unwrap()
}

fn all(session: &mut Session, commands: &[Command]) -> Exchange {
    session.exchange(commands, soon(), &mut |_, _| go_on())
}

fn texts(exchange: &Exchange) -> Vec<String> {
    assert!(exchange.broken.is_none(), "{:?}", exchange.broken);
    let text = |outcome: &Outcome| match outcome {
        Outcome::Answered(reply) => String::from_utf8_lossy(reply.body()).into_owned(),
        other => panic!("{other:?}"),
    };
    exchange.outcomes.iter().map(text).collect()
}

/// A small generator, so that a failing mix can be run again by its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Commands of every kind of answer: silent, tagged, refused, unknown, of several lines,
/// with payloads small and large, slow.
fn mix(dice: &mut Dice, count: usize, budget: usize) -> Vec<Command> {
    let command = |dice: &mut Dice| {
        let n = dice.roll(1000);
        match dice.roll(12) {
            0 => line(&format!("set server b/s1 weight {}", n % 257)),
            1 => line(&format!("set server b/s{} state ready", n % 4)),
            2 => line(&format!("set map maps/host.map k{n} v")),
            3 => line(&format!("add map maps/host.map k{} v{n}", n % 50)),
            4 => line(&format!("get map maps/host.map k{}", n % 50))
                .with_patience(Duration::from_secs(5)),
            5 => line("show cli level"),
            6 => line("frobnicate"),
            7 => line(&format!("wait {}us", n % 20)),
            8 => line("show servers state nowhere"),
            9 => line("set ssl cert none.pem"),
            10 | 11 => {
                let rows = 1 + n % 40;
                let body: String = (0..rows)
                    .map(|row| format!("p{row} value of {n}\n"))
                    .collect();
                let map = if n % 5 == 0 {
                    "maps/none.map"
                } else {
                    "maps/host.map"
                };
                Command::with_payload(&format!("add map {map}"), body.as_bytes(), budget).unwrap()
            }
            _ => unreachable!("a die of twelve sides"),
        }
    };
    (0..count).map(|_| command(dice)).collect()
}

/// An answer without what differs between two processes: addresses in memory.
fn comparable(text: &str) -> String {
    let words = text.split_inclusive([' ', ',', '\n']);
    words
        .map(|word| if word.starts_with("0x") { "0x" } else { word })
        .collect()
}

#[test]
fn pipelined_answers_equal_those_in_lockstep() {
    for version in Version::ALL {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (lockstep, pipelined) = (start(version, one.path()), start(version, two.path()));
        let mut first = Session::open(&worker_of(&lockstep), soon()).unwrap();
        let mut second = Session::open(&worker_of(&pipelined), soon()).unwrap();
        for seed in 1..=4 {
            let commands = mix(&mut Dice(seed * 0x9e37_79b9), 400, MAX_PAYLOAD_BYTES);
            let expected: Vec<_> = commands
                .iter()
                .flat_map(|command| texts(&all(&mut first, std::slice::from_ref(command))))
                .collect();
            let seen = texts(&all(&mut second, &commands));
            for (at, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
                assert_eq!(
                    comparable(seen),
                    comparable(expected),
                    "{version}, seed {seed}, command {at}: {}",
                    commands[at].text()
                );
            }
            assert!(expected.iter().any(String::is_empty));
            assert!(expected.iter().any(|text| text.starts_with("[6]: ")));
            assert!(expected.iter().any(|text| text.starts_with("[3]: ")));
        }
        let info = second.info(soon()).unwrap();
        assert_eq!(
            info,
            info_of(&pipelined),
            "{version}: the answers were in step"
        );
    }
}

#[test]
fn a_payload_of_the_whole_budget_is_taken() {
    for version in Version::ALL {
        let dir = tempfile::tempdir().unwrap();
        let haproxy = start(version, dir.path());
        let budget = MAX_PAYLOAD_BYTES;
        let mut session = Session::open(&worker_of(&haproxy), soon()).unwrap();
        // Short lines are echoed most on 3.0, long ones do not fit a slice.
        for width in [4, 100, 9000] {
            let row = |n: usize| format!("k{n} {}\n", "v".repeat(width));
            let mut body = String::new();
            let mut rows = 0;
            while body.len() + row(rows).len() + 60 < budget {
                body.push_str(&row(rows));
                rows += 1;
            }
            let commands = [
                line("clear map maps/host.map"),
                Command::with_payload("add map maps/host.map", body.as_bytes(), budget).unwrap(),
                line("show cli level"),
            ];
            let seen = texts(&all(&mut session, &commands));
            assert_eq!(seen, ["", "", "[6]: admin\n"], "{version}, {width}");
            let dump = worker_of(&haproxy)
                .dump("show map maps/host.map", soon())
                .unwrap();
            let listed = String::from_utf8(dump).unwrap().lines().count();
            assert_eq!(listed, rows, "{version}, {width}");
        }
    }
}

#[test]
fn nothing_is_sent_after_a_refusal() {
    for version in Version::ALL {
        let dir = tempfile::tempdir().unwrap();
        let haproxy = start(version, dir.path());
        let mut session = Session::open(&worker_of(&haproxy), soon()).unwrap();
        let mut commands = vec![line("set server nowhere/x state maint")];
        commands.extend((0..2000).map(|n| line(&format!("set map maps/host.map k{n} v"))));
        let exchange = session.exchange(&commands, soon(), &mut |at, reply: &Reply| match at == 0
            && !reply.is_silent()
        {
            true => ControlFlow::Break(()),
            false => go_on(),
        });
        assert!(
            exchange.broken.is_none(),
            "{version}: {:?}",
            exchange.broken
        );
        let sent: usize = exchange
            .outcomes
            .iter()
            .zip(&commands)
            .filter(|(outcome, _)| **outcome != Outcome::NotSent)
            .map(|(_, command)| command.bytes().len())
            .sum();
        assert!(sent <= WINDOW_BYTES, "{version}: {sent} bytes were sent");
        assert!(!exchange.outcomes.contains(&Outcome::Unknown), "{version}");
        assert_eq!(exchange.outcomes.last(), Some(&Outcome::NotSent));
        session.info(soon()).unwrap();
    }
}

#[test]
fn a_session_from_before_a_reload_knows_that_it_is_old() {
    on_each(|version, haproxy| {
        let before = info_of(haproxy).identity;
        let mut session = Session::open(&worker_of(haproxy), soon()).unwrap();
        assert!(!session.info(soon()).unwrap().stopping);
        let timeout = Duration::from_secs(20);
        let outcome = reload(
            &master_of(haproxy),
            &worker_of(haproxy),
            Some(before),
            timeout,
            &SystemClock,
        );
        assert!(
            matches!(outcome, ReloadOutcome::Loaded { .. }),
            "{version}: {outcome:?}"
        );
        let old = session.info(soon()).unwrap();
        assert!(old.stopping, "{version}");
        assert_eq!(old.identity, before, "{version}");
    });
}

#[test]
fn a_worker_that_dies_leaves_unknown_outcomes() {
    on_each(|version, haproxy| {
        let mut session = Session::open(&worker_of(haproxy), soon()).unwrap();
        let commands = [
            line("show cli level"),
            line("wait 8s").with_patience(Duration::from_secs(9)),
            line("show cli level"),
        ];
        let exchange = session.exchange(&commands, soon(), &mut |_, _| {
            haproxy.kill();
            go_on()
        });
        assert!(
            matches!(exchange.outcomes[0], Outcome::Answered(_)),
            "{version}"
        );
        assert_eq!(
            exchange.outcomes[1..],
            [Outcome::Unknown, Outcome::Unknown],
            "{version}"
        );
        assert!(exchange.broken.is_some(), "{version}");
        let after = all(&mut session, &commands);
        assert_eq!(after.outcomes, vec![Outcome::NotSent; 3], "{version}");
        assert!(
            matches!(after.broken, Some(SessionError::Over)),
            "{version}"
        );
    });
}

const PROMPT: &[u8] = b"\n> ";

/// Opens as HAProxy does and then goes on with `then`.
fn opening(then: impl Fn(&mut Peer) + Send + Sync) -> impl Fn(Peer) + Send + Sync {
    move |mut peer| {
        for _ in 0..2 {
            peer.line();
            peer.say(PROMPT);
        }
        then(&mut peer);
    }
}

fn on_fake(
    script: impl Fn(Peer) + Send + Sync + 'static,
    patience: Duration,
) -> (Exchange, Duration) {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::start(&socket_in(dir.path()), script);
    let worker = WorkerSocket::new(fake.path().to_path_buf());
    let mut session = Session::open(&worker, soon()).unwrap();
    let payload = Command::with_payload("b", b"x", 12_288).unwrap();
    let commands = [line("a"), payload.with_patience(patience), line("c")]
        .map(|command| command.with_patience(patience));
    let started = Instant::now();
    let exchange = all(&mut session, &commands);
    (exchange, started.elapsed())
}

const SHORT: Duration = Duration::from_millis(200);

#[test]
fn every_way_to_break_leaves_unknown_outcomes_in_time() {
    type Case = (&'static str, usize, Box<dyn Fn(&mut Peer) + Send + Sync>);
    let read_all = |peer: &mut Peer| {
        for _ in 0..5 {
            peer.line();
        }
    };
    let table: [Case; 8] = [
        ("closes at once", 0, Box::new(|_| {})),
        (
            "closes after one answer",
            1,
            Box::new(move |peer| {
                read_all(peer);
                peer.say(b"[6]: x\n\n> ");
            }),
        ),
        (
            "cut in an answer",
            1,
            Box::new(move |peer| {
                read_all(peer);
                peer.say(b"[6]: x\n\n> [3]: too big\n");
            }),
        ),
        ("silent", 0, Box::new(|peer| peer.hang())),
        (
            "silent after one answer",
            1,
            Box::new(move |peer| {
                read_all(peer);
                peer.say(PROMPT);
                peer.hang();
            }),
        ),
        (
            "echoes without end",
            1,
            Box::new(move |peer| {
                read_all(peer);
                peer.say(PROMPT);
                while peer.say(b"+ ") {}
            }),
        ),
        (
            "an answer without end",
            0,
            Box::new(move |peer| {
                read_all(peer);
                while peer.say(b"xxxxxxxxxxxxxxx\n") {}
            }),
        ),
        (
            "more answers than commands",
            3,
            Box::new(move |peer| {
                read_all(peer);
                peer.say(b"\n> \n> \n> \n> ");
            }),
        ),
    ];
    for (what, answered, script) in table {
        let (exchange, took) = on_fake(opening(script), SHORT);
        assert!(exchange.broken.is_some(), "{what}");
        assert!(took < Duration::from_secs(3), "{what}: {took:?}");
        for (at, outcome) in exchange.outcomes.iter().enumerate() {
            match outcome {
                Outcome::Answered(_) => assert!(at < answered, "{what}: {at}"),
                Outcome::Unknown | Outcome::NotSent => assert!(at >= answered, "{what}: {at}"),
            }
        }
    }
}

#[test]
fn the_last_words_without_a_prompt_are_kept() {
    let (exchange, _) = on_fake(
        opening(|peer| {
            for _ in 0..5 {
                peer.line();
            }
            peer.say(b"[3]: The command is too big for the buffer size.\n");
        }),
        SHORT,
    );
    let Some(SessionError::Ended { words }) = exchange.broken else {
        panic!("{:?}", exchange.broken);
    };
    assert!(words.contains("too big"), "{words}");
}

#[test]
fn what_is_no_session_is_not_opened() {
    let table: [(&str, &[u8]); 4] = [
        ("another service", b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        ("a master", b"\nmaster> \nmaster> "),
        ("a permission", b"\n> [3]: Permission denied\n\n> "),
        ("nothing", b""),
    ];
    for (what, answer) in table {
        let dir = tempfile::tempdir().unwrap();
        let fake = Fake::start(&socket_in(dir.path()), move |mut peer: Peer| {
            peer.line();
            peer.say(answer);
            peer.hang();
        });
        let worker = WorkerSocket::new(fake.path().to_path_buf());
        let opened = Session::open(&worker, Deadline::after(SHORT));
        assert!(opened.is_err(), "{what}");
    }
    on_each(|version, haproxy| {
        let master = WorkerSocket::new(haproxy.master_socket());
        let opened = Session::open(&master, Deadline::after(SHORT));
        assert!(opened.is_err(), "{version}");
    });
}

#[test]
fn answers_in_single_bytes_are_answers() {
    let (exchange, _) = on_fake(
        opening(|peer| {
            for _ in 0..5 {
                peer.line();
            }
            for byte in b"a\n> b\n\n> + + \n> [6]: c\n\n> " {
                peer.say(std::slice::from_ref(byte));
            }
            peer.hang();
        }),
        Duration::from_secs(5),
    );
    assert_eq!(texts(&exchange), ["a\n> b\n", "", "[6]: c\n"]);
}
