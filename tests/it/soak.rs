//! The agent under `kill -9`, at any instant of an apply, beside a real HAProxy that
//! serves all the while.
//!
//! Two sets of 20 files take turns. The configuration answers with a letter of its own
//! and one from each map, so a worker that loaded a mix says so itself. After each kill
//! a new agent starts; then disk, state and worker must agree on one letter, and the next
//! apply must work.

// The figures of a run.
#![allow(clippy::print_stdout)]

mod leaders;

use crate::support::agent::{Agent, Apply, Setup, tree};
use crate::support::haproxy::{Haproxy, Version, preamble};
use crate::support::ports::Port;
use crate::support::traffic::{Load, Seen, get_port};
use crate::support::wait;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Bare reloads are added, up to so many, while they have failed fewer requests than the
/// run with the agent: 3.4 fails about one in a hundred of them.
const MOST_BARE_RELOADS: u32 = 1500;

/// Kills a version; the long run is asked for by name or by `HAPTIC_SOAK=1`.
const KILLS: u32 = 10;
const MANY_KILLS: u32 = 200;

const MAPS: usize = 19;

/// How long a worker that the agent has already seen may take to be the only one that
/// accepts.
const TURN: Duration = Duration::from_secs(5);

#[test]
fn killed_at_any_instant_beside_haproxy_3_0() {
    soak(Version::V3_0, asked_for(KILLS));
}

#[test]
fn killed_at_any_instant_beside_haproxy_3_4() {
    soak(Version::V3_4, asked_for(KILLS));
}

#[test]
#[ignore = "long; make soak runs it"]
fn killed_two_hundred_times_beside_haproxy_3_0() {
    soak(Version::V3_0, MANY_KILLS);
}

#[test]
#[ignore = "long; make soak runs it"]
fn killed_two_hundred_times_beside_haproxy_3_4() {
    soak(Version::V3_4, MANY_KILLS);
}

fn asked_for(kills: u32) -> u32 {
    match std::env::var("HAPTIC_SOAK") {
        Ok(value) if value == "1" => MANY_KILLS,
        Ok(_) | Err(_) => kills,
    }
}

/// The rate at which HAProxy itself fails requests, at the pace of the kills and at that of
/// reloads that are waited for. Measures, and asserts nothing but that traffic ran.
#[test]
#[ignore = "long; make soak runs it"]
fn bare_reloads_a_thousand_times_beside_haproxy_3_4() {
    let scene = Scene::start(Version::V3_4);
    for (pace, rounds) in [(Pace::Waited, 500), (Pace::AsIfKilled, 500)] {
        let bare = scene.bare(pace, rounds, Duration::from_millis(60));
        println!("3.4, {pace:?}: {bare}");
        assert!(bare.seen.good > u64::from(rounds), "{bare:?}");
    }
}

/// How long a bare reload may take.
const BARE: Duration = Duration::from_secs(60);

type Set = BTreeMap<String, Vec<u8>>;

/// 20 files that answer with one letter.
fn set(base: &Path, port: u16, letter: char) -> Set {
    let mut answer = letter.to_string();
    let mut files = Set::new();
    for n in 0..MAPS {
        answer.push_str(&format!("%[str(k),map(maps/{n}.map)]"));
        files.insert(
            format!("maps/{n}.map"),
            format!("k {letter}\n").into_bytes(),
        );
    }
    let config = format!(
        "{}frontend front\n    bind 127.0.0.1:{port}\n    http-request return status 200 content-type text/plain lf-string \"{answer}\"\n",
        preamble(base)
    );
    files.insert("haproxy.cfg".to_owned(), config.into_bytes());
    files
}

fn other(letter: char) -> char {
    if letter == 'A' { 'B' } else { 'A' }
}

fn request(base: &Path, port: u16, letter: char, agent: &Agent, seq: u64) -> Apply {
    let mut apply = Apply::new(&letter.to_string(), 1, seq).on(&agent.state());
    for (path, bytes) in set(base, port, letter) {
        apply = apply.file(&path, &bytes);
    }
    apply
}

/// Disk, state and worker agree, and nothing is left in the staging directory. The letter.
fn agreed(base: &Path, port: u16, agent: &Agent, what: &str) -> char {
    let disk = tree(base);
    let letter = ['A', 'B']
        .into_iter()
        .find(|letter| set(base, port, *letter) == disk)
        .unwrap_or_else(|| panic!("{what}: a mix on disk: {:?}", disk.keys()));
    for query in ["", "?verify=1"] {
        let state = agent.state_with(query);
        for role in [
            "applied_plan_id",
            "running_plan_id",
            "worker_ops_plan_id",
            "lkg_plan_id",
        ] {
            assert_eq!(state[role], letter.to_string(), "{what}: {role}: {state:#}");
        }
        assert_eq!(
            state["files"].as_object().unwrap().len(),
            MAPS + 1,
            "{what}"
        );
        assert!(
            state.get("invariant_violation").is_none(),
            "{what}: {state:#}"
        );
    }
    let want = letter.to_string().repeat(MAPS + 1);
    wait::until_ok(
        &format!("{what}: {letter} is served"),
        TURN,
        || match get_port(port, "any", "/") {
            Ok(answer) if answer.body == want => Ok(()),
            answer => Err(answer),
        },
    );
    let staged = base.join(".haptic-tmp");
    assert_eq!(std::fs::read_dir(staged).unwrap().count(), 0, "{what}");
    // Those go after the answer.
    let backups = base.join(".haptic-lkg");
    wait::until(&format!("{what}: no backup is left"), TURN, || {
        let left = std::fs::read_dir(&backups).unwrap().count();
        (left == 0).then_some(())
    });
    letter
}

/// The same numbers each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// How bare reloads follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Each is waited for.
    Waited,
    /// Of three the first is asked for by a client that leaves at some instant, and the
    /// second comes as soon as the master takes it: a killed agent, and the next one.
    AsIfKilled,
}

/// What bare reloads failed.
#[derive(Debug, Clone, Copy)]
struct Bare {
    reloads: u32,
    seen: Seen,
}

impl fmt::Display for Bare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { good, failed } = self.seen;
        write!(
            f,
            "{failed} of {} requests failed in {} bare reloads",
            good + failed,
            self.reloads
        )
    }
}

impl Bare {
    fn and(self, more: Self) -> Self {
        Self {
            reloads: self.reloads + more.reloads,
            seen: Seen {
                good: self.seen.good + more.seen.good,
                failed: self.seen.failed + more.seen.failed,
            },
        }
    }
}

/// HAProxy on the first set, and no agent yet.
struct Scene {
    haproxy: Haproxy,
    base: PathBuf,
    port: u16,
    _hold: Port,
    _dir: TempDir,
}

impl Scene {
    fn start(version: Version) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base");
        std::fs::create_dir(&base).unwrap();
        let hold = Port::reserve();
        let port = hold.number();
        put(&base, port, 'A');
        let config = std::fs::read_to_string(base.join("haproxy.cfg")).unwrap();
        Self {
            haproxy: Haproxy::start(version, &base, &config),
            base,
            port,
            _hold: hold,
            _dir: dir,
        }
    }

    /// Bare reloads of the same two sets under the same load, three a round: what HAProxy
    /// itself fails. It ends on the first set.
    fn bare(&self, pace: Pace, rounds: u32, within: Duration) -> Bare {
        let mut dice = Dice(0xba2e ^ u64::from(rounds));
        let load = Load::start(self.port, "any", "/");
        let mut letter = 'A';
        for _ in 0..rounds {
            letter = other(letter);
            put(&self.base, self.port, letter);
            match pace {
                Pace::Waited => self.reload(),
                Pace::AsIfKilled => {
                    // A 3.0 master refuses connects while it executes itself anew.
                    let left = wait::until("the master takes a reload", BARE, || {
                        let mut left = UnixStream::connect(self.haproxy.master_socket()).ok()?;
                        left.write_all(b"reload\n").ok().map(|()| left)
                    });
                    let most = u64::try_from(within.as_micros()).unwrap();
                    std::thread::sleep(Duration::from_micros(dice.below(most)));
                    drop(left);
                }
            }
            self.reload();
            letter = other(letter);
            put(&self.base, self.port, letter);
            self.reload();
        }
        if letter != 'A' {
            put(&self.base, self.port, 'A');
            self.reload();
        }
        Bare {
            reloads: 3 * rounds,
            seen: load.stop(),
        }
    }

    /// A reload, and its worker.
    fn reload(&self) {
        let before = self.haproxy.worker_pid();
        wait::until("the master takes a reload", BARE, || {
            let said = self.haproxy.ask_master("reload").ok()?;
            said.starts_with("Success=1").then_some(())
        });
        wait::until("another worker", BARE, || {
            let info = self.haproxy.ask("show info").ok()?;
            let pid = info.lines().find_map(|line| line.strip_prefix("Pid: "))?;
            (pid.trim() != before.to_string()).then_some(())
        });
    }
}

/// Puts a set on disk as the agent does, each file by a rename.
fn put(base: &Path, port: u16, letter: char) {
    for (path, bytes) in set(base, port, letter) {
        let path = base.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let staged = base.join(".put");
        std::fs::write(&staged, bytes).unwrap();
        std::fs::rename(&staged, &path).unwrap();
    }
}

fn soak(version: Version, kills: u32) {
    let scene = Scene::start(version);
    let (base, port) = (scene.base.clone(), scene.port);
    let setup = Setup::new(&base).with("--reload-interval-min", "0");
    let mut agent = setup.start();
    let mut seq = 1;
    let mut dice = Dice(0x5eed ^ u64::from(kills));
    let mut letter = 'A';
    let began = Instant::now();
    request(&base, port, letter, &agent, seq).succeed(&agent, "reload");
    let usual = u64::try_from(began.elapsed().as_micros())
        .unwrap()
        .max(20_000);
    // About as many reloads as the run will make.
    let pace = |rounds| scene.bare(Pace::AsIfKilled, rounds, Duration::from_micros(usual));
    let load = Load::start(port, "any", "/");
    let (mut forward, mut back, mut answered) = (0, 0, 0);
    for kill in 0..kills {
        let what = format!("{version}, kill {kill}");
        seq += 1;
        let wanted = other(letter);
        let bytes = request(&base, port, wanted, &agent, seq).request();
        let api = agent.api();
        let client = std::thread::spawn(move || {
            // Whatever comes: the agent dies under it.
            let mut stream = TcpStream::connect(api).ok()?;
            stream.write_all(&bytes).ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.contains("\"ok\":true").then_some(())
        });
        let instant = Instant::now() + Duration::from_micros(dice.below(usual + usual / 4));
        while Instant::now() < instant {
            std::thread::yield_now();
        }
        agent.kill();
        let acked = client.join().unwrap().is_some();
        agent = setup.start();
        let found = agreed(&base, port, &agent, &what);
        if acked {
            answered += 1;
            assert_eq!(found, wanted, "{what}: an answered apply is gone");
        }
        if found == wanted {
            forward += 1;
        } else {
            back += 1;
        }
        seq += 1;
        letter = other(found);
        request(&base, port, letter, &agent, seq).succeed(&agent, "reload");
        assert_eq!(agreed(&base, port, &agent, &what), letter);
    }
    let seen = load.stop();
    println!(
        "{version}: {kills} kills in {:?}: {forward} applies finished ({answered} had been answered), {back} not begun; {} requests, {} failed",
        began.elapsed(),
        seen.good,
        seen.failed
    );
    agent.kill();
    // A kill in the middle of a reload makes two of them follow each other within
    // milliseconds, and once in some hundred of those 3.4 resets a connection. What HAProxy
    // fails at that pace without an agent is what the run may fail, and no more.
    put(&base, port, 'A');
    scene.reload();
    let mut bare = pace(kills);
    while seen.failed > bare.seen.failed && bare.reloads < MOST_BARE_RELOADS {
        bare = bare.and(pace(kills));
    }
    println!("{version}: {bare}");
    assert!(
        seen.failed <= bare.seen.failed,
        "{version}: {seen:?}, {bare}"
    );
    assert!(seen.good > u64::from(kills), "{seen:?}");
}
