//! From the start of the process to ready, with 4096 files of 64 MiB together, after a
//! `kill -9` at rest and after one in the phase `written`.
//!
//! The second one ends with a reload, which is HAProxy's: its time is in the answer that
//! the recovery leaves, and is shown beside. By hand means that the same files are read
//! and hashed once with the agent's own hasher, by one thread.

use crate::loads::{File, Site, apply, noise, send, setup};
use crate::measure::{Times, ms};
use crate::support::agent::Agent;
use haptic_agent::wire::digest::ContentHash;
use serde_json::Value;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

const FILES: usize = 4096;
const BYTES: usize = 64 * 1024 * 1024;
const PER_DIRECTORY: usize = 256;
const ROUNDS: usize = 7;
/// Kills that may come too late for the phase.
const TRIES: usize = 50;

pub(crate) fn run() {
    let site = Site::start(&["--routes", "5", "--maps", "4"]);
    let mut files = site.files.clone();
    let own: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    let extra = FILES - files.len();
    let length = (BYTES - own) / extra;
    for n in 0..extra {
        let path = format!("general/d{}/{n}", n / PER_DIRECTORY);
        files.push((path, noise(n as u64 + 1, length)));
    }
    files.sort_by_key(|(path, _)| (path == "haproxy.cfg", path.clone()));
    let setup = setup(&site.base, "full");
    let mut agent = setup.start();
    // A body of 64 MiB has no room for its own framing.
    let (early, late) = files.split_at(files.len() / 2);
    let mut first = apply("early", late, &agent.state());
    let state = send(&agent, &first.request(), "reload");
    first = apply("first", early, &state);
    for (path, bytes) in late {
        first = first.held(path, bytes);
    }
    send(&agent, &first.request(), "reload");
    drop(first);

    let (mut by_hand, mut rest) = (Times::default(), Times::default());
    for _ in 0..ROUNDS {
        by_hand.of(|| {
            for (path, _) in &files {
                let bytes = std::fs::read(site.base.join(path)).unwrap();
                std::hint::black_box(ContentHash::of(&bytes));
            }
        });
        agent.kill();
        agent = rest.of(|| setup.start());
        assert_eq!(agent.state_with("?plan=0")["running_plan_id"], "first");
    }
    println!(
        "  from rest: ready {} after the start (slowest {}); the files read and hashed by hand {}",
        ms(rest.median()),
        ms(rest.quantile(1.0)),
        ms(by_hand.median()),
    );

    let (mut written, mut reloads) = (Times::default(), Times::default());
    for try_ in 0..TRIES {
        let plan = format!("w{try_}");
        if !cut(&mut agent, &site.base, &plan, &changed(&files, try_)) {
            agent = setup.start();
            continue;
        }
        let mut one = Times::default();
        agent = one.of(|| setup.start());
        let state = agent.state_with("?plan=0");
        let last = &state["last_apply"];
        if state["running_plan_id"] == plan.as_str() && last["reload"]["performed"] == true {
            written.take(one.median());
            let took = last["reload"]["took_ms"].as_u64().unwrap_or_default();
            reloads.take(Duration::from_millis(took));
        }
        if written.count() == ROUNDS {
            break;
        }
    }
    assert!(written.count() > 0, "no kill met the phase");
    println!(
        "  from the phase written: ready {} after the start (slowest {}, {} kills), of which the reload {}",
        ms(written.median()),
        ms(written.quantile(1.0)),
        written.count(),
        ms(reloads.median()),
    );
}

/// The configuration changes, and nothing that takes long to send.
fn changed(files: &[File], round: usize) -> Vec<File> {
    let mut files = files.to_vec();
    let config = &mut files.last_mut().unwrap().1;
    config.extend_from_slice(format!("# round {round}\n").as_bytes());
    files
}

/// Sends an apply with a reload and kills the agent once the set is written. False if the
/// phase was gone by then.
fn cut(agent: &mut Agent, base: &Path, plan: &str, files: &[File]) -> bool {
    let state = agent.state_with("?plan=0");
    let (config, held) = files.split_last().unwrap();
    let mut request = apply(plan, std::slice::from_ref(config), &state);
    for (path, bytes) in held {
        request = request.held(path, bytes);
    }
    let before = note(base);
    let mut stream = TcpStream::connect(agent.api()).unwrap();
    stream.write_all(&request.request()).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        // The note of the apply before may still lie there.
        let now = note(base).filter(|now| Some(now) != before.as_ref());
        let phase = now.as_ref().and_then(|now| now["phase"]["phase"].as_str());
        if matches!(phase, Some("written" | "reloaded")) {
            break;
        }
        assert!(Instant::now() < end, "{plan}: never written");
    }
    agent.kill();
    note(base).is_some_and(|note| note["phase"]["phase"] == "written")
}

/// The phase noted last, if it can be read right now: the last whole line.
fn note(base: &Path) -> Option<Value> {
    let bytes = std::fs::read(base.join(".haptic-agent.json.phase")).ok()?;
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let last = lines.rfind(|line| line.ends_with(b"\n"))?;
    serde_json::from_slice(last).ok()
}
