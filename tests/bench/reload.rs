//! A 5 MiB configuration and 29 maps: an apply with a reload against the same files
//! written plainly and the same reload asked for on the master socket by hand.

use crate::loads::{Site, apply, send, setup};
use crate::measure::{Times, compare};
use crate::support::haproxy::Haproxy;
use crate::support::wait;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

const ROUNDS: usize = 15;
/// The first ones warm caches and are not counted.
const WARM: usize = 2;
const SITE: [&str; 4] = ["--config-bytes", "5242880", "--maps", "29"];

pub(crate) fn run() {
    for durability in ["full", "process"] {
        let (agent_s, hand) = (Site::start(&SITE), Site::start(&SITE));
        let agent = setup(&agent_s.base, durability).start();
        let mut state = agent.state();
        let (mut by_agent, mut by_hand) = (Times::default(), Times::default());
        let mut legs: Vec<Value> = Vec::new();
        for round in 0..ROUNDS + WARM {
            let plan = format!("p{round}");
            let request = apply(&plan, &agent_s.round(round), &state).request();
            let old = agent_s.haproxy.worker_pid();
            let mut one = Times::default();
            state = one.of(|| send(&agent, &request, "reload"));
            gone(old);

            let files = hand.round(round);
            let old = hand.haproxy.worker_pid();
            let mut other = Times::default();
            other.of(|| {
                for (path, bytes) in &files {
                    fs::write(hand.base.join(path), bytes).unwrap();
                }
                reload_by_hand(&hand.haproxy, old);
            });
            gone(old);
            if round >= WARM {
                by_agent.take(one.median());
                by_hand.take(other.median());
                let mut timing = state["timing"].clone();
                timing["reload_ms"] = state["reload"]["took_ms"].clone();
                legs.push(timing);
            }
        }
        compare(&format!("--durability {durability}"), &by_agent, &by_hand);
        for leg in [
            "stage_ms",
            "admit_ms",
            "write_ms",
            "ops_ms",
            "reload_ms",
            "finish_ms",
        ] {
            let mut times = Times::default();
            for timing in &legs {
                times.take(Duration::from_millis(timing[leg].as_u64().unwrap()));
            }
            print!("    {leg} {}", times.median().as_millis());
        }
        println!();
    }
}

/// What a script would do, only faster: the command, its answer, then the worker's own word.
fn reload_by_hand(haproxy: &Haproxy, old: u32) {
    let answer = haproxy.ask_master("reload").unwrap();
    assert!(answer.contains("Success=1"), "{answer}");
    loop {
        let info = haproxy.ask("show info").unwrap_or_default();
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid: "));
        if pid.is_some_and(|pid| pid.trim() != old.to_string()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The old worker's end is not part of either.
fn gone(pid: u32) {
    wait::until("the old worker ends", Duration::from_secs(20), || {
        let status = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
        status.is_err().then_some(())
    });
}
