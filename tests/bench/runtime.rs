//! Changes without a reload: an apply against the same bytes written and renamed plainly
//! and the same commands said to the worker, on a fresh connection or, for the batches,
//! over a session that is kept open.
//!
//! The agent's time is its own, from the manifest to the answer; what a client sees has
//! the connection and the upload on top. By hand there is no fence, no journal, no state,
//! no check that the worker is the same, and nothing is compared afterwards.

use crate::VERSION;
use crate::loads::{File, Site, apply, noise, send, setup};
use crate::measure::{Times, compare, ms};
use crate::support::agent::{Agent, Apply};
use crate::support::haproxy::{Version, ask};
use crate::support::traffic::{Backend, get_port};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Files of a set: what the site needs and no more, or as many as a large one has.
const SETS: [usize; 2] = [0, LARGE_SET];
const LARGE_SET: usize = 100;
const MAP: &str = "maps/note-07.map";
const ENTRIES: usize = 1000;
const LARGE: usize = 50_000;
const SERVERS: usize = 10;
/// After the apply of a large map, until the agent has compared worker and file, which is
/// no part of either side's time. After a small one that is over before the next request
/// is made.
const SETTLE: Duration = Duration::from_millis(150);
/// The first rounds warm caches and are not counted.
const WARM: usize = 3;
/// A bare line, and a payload.
const LINE: usize = 12 * 1024;

pub(crate) fn run() {
    for durability in ["process", "full"] {
        println!("  --durability {durability}");
        for files in SETS {
            one_entry(durability, files, 300);
        }
        thousand(durability, 60);
        large(durability, 20);
        backend(durability, 60);
    }
}

/// A site of a hundred files with an agent, and the same by hand.
struct Pair {
    site: Site,
    hand: Site,
    agent: Agent,
    state: Value,
    files: Vec<File>,
    session: UnixStream,
    told: usize,
}

impl Pair {
    fn start(version: Version, durability: &str, map: &[u8], origin: u16, least: usize) -> Self {
        let origin = origin.to_string();
        let arguments = ["--routes", "50", "--maps", "29", "--origin-port", &origin];
        let (site, hand) = (Site::of(version, &arguments), Site::of(version, &arguments));
        let mut files = site.files.clone();
        for extra in 0..least.saturating_sub(files.len()) {
            files.push((format!("general/extra-{extra}"), noise(extra as u64, 4000)));
        }
        put(&mut files, MAP, map.to_vec());
        let agent = setup(&site.base, durability).start();
        let first = apply("first", &files, &agent.state()).request();
        let state = send(&agent, &first, "reload");
        fs::write(hand.base.join(MAP), map).unwrap();
        let answer = hand.haproxy.ask_master("reload").unwrap();
        assert!(answer.contains("Success=1"), "{answer}");
        crate::support::wait::until("the map is loaded", Duration::from_secs(10), || {
            let rows = hand.haproxy.ask(&format!("show map {MAP}")).ok()?;
            (rows.lines().count() > map.split(|b| *b == b'\n').count() / 2).then_some(())
        });
        let mut session = UnixStream::connect(hand.haproxy.worker_socket()).unwrap();
        session.write_all(b"prompt\n").unwrap();
        read_prompts(&mut session, 1);
        Self {
            site,
            hand,
            agent,
            state,
            files,
            session,
            told: 0,
        }
    }

    /// A request with these files changed, and these ops.
    fn request(&mut self, plan: &str, changed: &[File], ops: &[Value]) -> Vec<u8> {
        let mut request = Apply::new(plan, 1, 1).mode("auto").on(&self.state);
        for (path, bytes) in changed {
            request = request.file(path, bytes);
            put(&mut self.files, path, bytes.clone());
        }
        for (path, bytes) in &self.files {
            if !changed.iter().any(|file| file.0 == *path) {
                request = request.held(path, bytes);
            }
        }
        request
            .edit(|manifest| manifest["ops"] = json!(ops))
            .request()
    }

    /// Sends it: the client's time and the agent's.
    fn apply(&mut self, request: &[u8], seen: &mut Times, own: &mut Times) {
        self.state = seen.of(|| send(&self.agent, request, "runtime"));
        let results = self.state["op_results"].as_array().unwrap();
        assert!(results.iter().all(|r| r["ok"] == true), "{results:?}");
        let records = self.agent.records();
        let mut new = records.iter().skip(self.told);
        let done = new.rfind(|record| record["mode"] == "runtime");
        own.take(Duration::from_micros(
            done.unwrap()["total_us"].as_u64().unwrap(),
        ));
        self.told = records.len();
    }

    /// Writes beside and renames, without a sync.
    fn write(&self, files: &[File], sync: bool) {
        for (path, bytes) in files {
            let (beside, at) = (self.hand.base.join("beside"), self.hand.base.join(path));
            let mut file = fs::File::create(&beside).unwrap();
            file.write_all(bytes).unwrap();
            if sync {
                file.sync_all().unwrap();
            }
            fs::rename(&beside, &at).unwrap();
            if sync {
                fs::File::open(at.parent().unwrap())
                    .unwrap()
                    .sync_all()
                    .unwrap();
            }
        }
    }

    /// Commands over the kept session, one write, all answers read.
    fn say(&mut self, commands: &[String]) {
        self.session
            .write_all(commands.concat().as_bytes())
            .unwrap();
        read_prompts(&mut self.session, commands.len());
    }
}

fn put(files: &mut Vec<File>, path: &str, bytes: Vec<u8>) {
    match files.iter_mut().find(|file| file.0 == path) {
        Some(file) => file.1 = bytes,
        None => files.push((path.to_owned(), bytes)),
    }
}

/// Reads until so many prompts have come.
fn read_prompts(session: &mut UnixStream, count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = [0; 16 * 1024];
    while all.windows(3).filter(|three| three == b"\n> ").count() < count {
        let read = session.read(&mut buffer).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&buffer[..read]);
    }
    all
}

/// So many entries, of which `change` says the value.
fn map(entries: usize, change: impl Fn(usize) -> usize) -> Vec<u8> {
    let mut text = String::new();
    for n in 0..entries {
        let _ = writeln!(text, "route-{n:06} n{:05}", change(n));
    }
    text.into_bytes()
}

fn set(n: usize, value: usize) -> Value {
    json!({"kind": "map_set", "path": MAP, "key": format!("route-{n:06}"), "value": format!("n{value:05}")})
}

fn set_line(n: usize, value: usize) -> String {
    format!("set map {MAP} route-{n:06} n{value:05}")
}

fn print(what: &str, seen: &Times, own: &Times, by_hand: &Times) {
    let told = format!(
        "    {what}: agent {} (99 of 100 within {}), seen by the client {}\n  ",
        ms(own.median()),
        ms(own.quantile(0.99)),
        ms(seen.median()),
    );
    print!("{told}");
    compare("  agent ÷ by hand", own, by_hand);
}

/// One entry of a map of 20 KB.
fn one_entry(durability: &str, least: usize, rounds: usize) {
    let mut pair = Pair::start(VERSION, durability, &map(ENTRIES, |_| 0), 1, least);
    let files = pair.files.len();
    let (mut seen, mut own, mut hand) = (Times::default(), Times::default(), Times::default());
    for round in 1..=rounds + WARM {
        let file = [(
            MAP.to_owned(),
            map(ENTRIES, |n| if n == 500 { round } else { 0 }),
        )];
        let request = pair.request(&format!("p{round}"), &file, &[set(500, round)]);
        let (mut client, mut agent, mut other) =
            (Times::default(), Times::default(), Times::default());
        let line = set_line(500, round);
        let socket = pair.hand.haproxy.worker_socket();
        other.of(|| {
            pair.write(&file, durability == "full");
            let answer = ask(&socket, &line).unwrap();
            assert!(answer.trim().is_empty(), "{answer}");
        });
        pair.apply(&request, &mut client, &mut agent);
        if round > WARM {
            seen.take(client.median());
            own.take(agent.median());
            hand.take(other.median());
        }
    }
    let what = format!("one entry of a map among {files} files");
    print(&what, &seen, &own, &hand);
}

/// As many ops as an apply has, as `;` lines by hand.
fn thousand(durability: &str, rounds: usize) {
    let mut pair = Pair::start(VERSION, durability, &map(ENTRIES, |_| 0), 1, LARGE_SET);
    let (mut seen, mut own, mut hand) = (Times::default(), Times::default(), Times::default());
    for round in 1..=rounds + WARM {
        let file = [(MAP.to_owned(), map(ENTRIES, |_| round))];
        let ops: Vec<Value> = (0..ENTRIES).map(|n| set(n, round)).collect();
        let request = pair.request(&format!("p{round}"), &file, &ops);
        let (mut client, mut agent, mut other) =
            (Times::default(), Times::default(), Times::default());
        let mut lines: Vec<String> = Vec::new();
        for n in 0..ENTRIES {
            let command = set_line(n, round);
            match lines.last_mut() {
                Some(line) if line.len() + command.len() + 2 < LINE => {
                    line.push(';');
                    line.push_str(&command);
                }
                Some(_) | None => lines.push(command),
            }
        }
        let socket = pair.hand.haproxy.worker_socket();
        other.of(|| {
            pair.write(&file, durability == "full");
            for line in &lines {
                let answer = ask(&socket, line).unwrap();
                assert!(answer.trim().is_empty(), "{answer}");
            }
        });
        pair.apply(&request, &mut client, &mut agent);
        if round > WARM {
            seen.take(client.median());
            own.take(agent.median());
            hand.take(other.median());
        }
    }
    print("1000 ops, by hand as `;` lines", &seen, &own, &hand);
}

/// A whole map of 50 000 entries.
fn large(durability: &str, rounds: usize) {
    let mut pair = Pair::start(VERSION, durability, &map(LARGE, |_| 0), 1, LARGE_SET);
    let (mut seen, mut own, mut hand) = (Times::default(), Times::default(), Times::default());
    for round in 1..=rounds + WARM {
        let file = [(MAP.to_owned(), map(LARGE, |n| n * round % 99_991))];
        let ops = [json!({"kind": "map_replace", "path": MAP})];
        let request = pair.request(&format!("p{round}"), &file, &ops);
        let (mut client, mut agent, mut other) =
            (Times::default(), Times::default(), Times::default());
        pair.apply(&request, &mut client, &mut agent);
        thread::sleep(SETTLE);
        other.of(|| {
            pair.write(&file, durability == "full");
            replace_by_hand(&mut pair.session, &file[0].1);
        });
        if round > WARM {
            seen.take(client.median());
            own.take(agent.median());
            hand.take(other.median());
        }
    }
    print("a map of 50 000 entries replaced", &seen, &own, &hand);
}

fn replace_by_hand(session: &mut UnixStream, map: &[u8]) {
    writeln!(session, "prepare map {MAP}").unwrap();
    let answer = String::from_utf8(read_prompts(session, 1)).unwrap();
    let version = answer.split("created: ").nth(1).unwrap();
    let version: u32 = version.split('\n').next().unwrap().parse().unwrap();
    let room = LINE - 100;
    let mut rest = map;
    while !rest.is_empty() {
        let most = rest.get(..room).unwrap_or(rest);
        let end = most.iter().rposition(|&b| b == b'\n').unwrap() + 1;
        let head = format!("add map @{version} {MAP} <<END\n");
        let payload = [head.as_bytes(), &rest[..end], b"END\n"].concat();
        session.write_all(&payload).unwrap();
        read_prompts(session, 1);
        rest = &rest[end..];
    }
    writeln!(session, "commit map @{version} {MAP}").unwrap();
    read_prompts(session, 1);
}

/// A backend with ten servers, added, published and routed, on 3.4; then its first 200.
fn backend(durability: &str, rounds: usize) {
    let origin = Backend::start("origin");
    let to = origin.address();
    let mut pair = Pair::start(
        Version::V3_4,
        durability,
        &map(ENTRIES, |_| 0),
        to.port(),
        LARGE_SET,
    );
    let config =
        |base: &Path| String::from_utf8(fs::read(base.join("haproxy.cfg")).unwrap()).unwrap();
    let mut hosts = fs::read_to_string(pair.site.base.join("maps/host.map")).unwrap();
    let (mut config, mut other_config) = (config(&pair.site.base), config(&pair.hand.base));
    let (mut seen, mut own, mut hand) = (Times::default(), Times::default(), Times::default());
    let (mut live, mut live_by_hand) = (Times::default(), Times::default());
    for round in 1..=rounds + WARM {
        let name = format!("site_new-{round}");
        let host = format!("new-{round}.example");
        let mut section = format!("\nbackend {name} from site\n    balance roundrobin\n");
        let mut ops = vec![
            json!({"kind": "backend_add", "backend": name, "profile": "site", "mode": "http"}),
        ];
        let mut lines = vec![format!("add backend {name} from site mode http\n")];
        for n in 0..SERVERS {
            let server = json!({"backend": name, "server": format!("s{n}")});
            let mut add = server.clone();
            add["kind"] = json!("server_add");
            add["address"] = json!(to.ip().to_string());
            add["port"] = json!(to.port());
            let mut enable = server;
            enable["kind"] = json!("server_enable");
            ops.extend([add, enable]);
            lines.push(format!("add server {name}/s{n} {to}\n"));
            lines.push(format!("enable server {name}/s{n}\n"));
            let _ = writeln!(section, "    server s{n} {to}");
        }
        ops.push(json!({"kind": "backend_publish", "backend": name}));
        lines.push(format!("publish backend {name}\n"));
        ops.push(json!({"kind": "map_add", "path": "maps/host.map", "key": host, "value": format!("new-{round}")}));
        lines.push(format!("add map maps/host.map {host} new-{round}\n"));
        let _ = writeln!(hosts, "{host} new-{round}");
        config.push_str(&section);
        other_config.push_str(&section);
        let set = |config: &str| {
            [
                ("haproxy.cfg".to_owned(), config.as_bytes().to_vec()),
                ("maps/host.map".to_owned(), hosts.as_bytes().to_vec()),
            ]
        };
        let request = pair.request(&format!("p{round}"), &set(&config), &ops);
        let (mut client, mut agent, mut other) =
            (Times::default(), Times::default(), Times::default());
        let port = pair.site.port();
        let first = until_first(port, &host, || {
            pair.apply(&request, &mut client, &mut agent)
        });
        let port = pair.hand.port();
        let files = set(&other_config);
        let first_by_hand = until_first(port, &host, || {
            other.of(|| {
                pair.write(&files, durability == "full");
                pair.say(&lines);
            });
        });
        if round > WARM {
            seen.take(client.median());
            own.take(agent.median());
            hand.take(other.median());
            live.take(first);
            live_by_hand.take(first_by_hand);
        }
    }
    print("a backend with 10 servers on 3.4", &seen, &own, &hand);
    compare(
        "    sending a route → its first 200 on 3.4",
        &live,
        &live_by_hand,
    );
}

/// From the start of `work` to the first 200 for that host, asked for all the time.
fn until_first(port: u16, host: &str, work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            loop {
                let answer = get_port(port, host, "/");
                if answer.is_ok_and(|answer| answer.status == 200) {
                    return started.elapsed();
                }
                assert!(started.elapsed() < Duration::from_secs(20));
            }
        });
        work();
        asking.join().unwrap()
    })
}
