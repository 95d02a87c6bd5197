//! What a large store costs the process: printed, with bounds that only a mistake would
//! break. Run with `make soak`, alone and optimised.

use super::kit::{PATIENCE, ask};
use super::process::Respond;
use crate::support::consul::{Consul, Mode};
use crate::support::wait;
use haptic_agent::http::client::Method;
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};

const PREFIX: &str = "fleet/state";
const KEYS: usize = 100_000;
/// Consul takes no more in one transaction.
const AT_ONCE: usize = 64;

/// A line of the process's status, in MiB.
fn mib(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line
        .unwrap()
        .trim_start_matches(':')
        .trim()
        .split(' ')
        .next();
    kib.unwrap().parse::<u64>().unwrap() / 1024
}

fn key(n: usize) -> String {
    format!("be_service_{}/server-{n:06}", n % 97)
}

#[test]
#[ignore = "a figure: writes a hundred thousand keys"]
fn a_hundred_thousand_keys_from_end_to_end() {
    let consul = Consul::start(Mode::Open);
    let begin = Instant::now();
    let all: Vec<usize> = (0..KEYS).collect();
    for some in all.chunks(AT_ONCE) {
        let set = some.iter().map(|n| {
            let name = format!("{PREFIX}/{}", key(*n));
            json!({"KV": {"Verb": "set", "Key": name, "Value": "ZHJhaW4="}})
        });
        let body = serde_json::Value::from_iter(set).to_string();
        let (status, said) = consul.call(Method::Put, "/v1/txn", body.as_bytes());
        assert_eq!(status, 200, "{said}");
    }
    println!("{KEYS} keys written in {:?}", begin.elapsed());

    // With the default it is refused, and says how.
    let address = consul.address().to_string();
    let start = |flags: &[&str]| {
        Respond::with(&[&["-kv-prefix", PREFIX], flags].concat())
            .env("CONSUL_HTTP_ADDR", &address)
            .start()
    };
    let refused = start(&[]);
    wait::until("a reason", PATIENCE, || {
        let said = refused.get("/-/readiness").text();
        said.contains("--kv-max-keys").then_some(())
    });
    drop(refused);

    let begin = Instant::now();
    let respond = start(&["-kv-max-keys", "100000"]);
    let empty = mib(respond.pid(), "VmRSS");
    respond.wait_synced();
    println!(
        "ready {:?} after the start; resident {} MiB (just started {empty} MiB), at most {} MiB",
        begin.elapsed(),
        mib(respond.pid(), "VmRSS"),
        mib(respond.pid(), "VmHWM")
    );
    assert_eq!(
        ask(respond.checks(), &format!("{}\n", key(77_777))),
        "drain\n"
    );
    // One key changes, and another one is asked for all the time meanwhile.
    let mut times = Vec::new();
    let mut answers: Vec<Duration> = Vec::new();
    for turn in 0..10 {
        let (value, want) = match turn % 2 {
            0 => ("maint", "maint\n"),
            _ => ("drain", "drain\n"),
        };
        consul.put(&format!("{PREFIX}/{}", key(5)), value);
        let begin = Instant::now();
        while ask(respond.checks(), &format!("{}\n", key(5))) != want {
            assert!(begin.elapsed() < PATIENCE);
            let asked = Instant::now();
            assert_eq!(ask(respond.checks(), &format!("{}\n", key(6))), "drain\n");
            answers.push(asked.elapsed());
        }
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    answers.sort_unstable();
    println!(
        "one key written -> answered: median {:?}, most {:?}; {} answers meanwhile: median {:?}, p99 {:?}, most {:?}",
        times[5],
        times[9],
        answers.len(),
        answers[answers.len() / 2],
        answers[answers.len() * 99 / 100],
        answers[answers.len() - 1]
    );
    println!(
        "after ten changes: resident {} MiB, at most {} MiB",
        mib(respond.pid(), "VmRSS"),
        mib(respond.pid(), "VmHWM")
    );
    let begin = Instant::now();
    let size = respond.get("/-/coverage").body.len();
    println!("/-/coverage: {size} bytes in {:?}", begin.elapsed());
    assert!(mib(respond.pid(), "VmHWM") < 400);
    assert!(times[5] < Duration::from_secs(3));
}
