//! How long HAProxy answers before the agent says that it is ready.

use crate::VERSION;
use crate::loads::{scratch, setup};
use crate::measure::{Times, ms};
use crate::support::agent::get;
use crate::support::haproxy::{Haproxy, ask, minimal};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;

pub(crate) fn run() {
    let mut times = Times::default();
    for _ in 0..ROUNDS {
        let dir = scratch();
        let base = dir.path().join("base");
        std::fs::create_dir(&base).unwrap();
        let config = minimal(&base);
        let agent = setup(&base, "full").spawn();
        let started = {
            let base = base.clone();
            thread::spawn(move || Haproxy::start(VERSION, &base, &config))
        };
        let socket = base.join("worker.sock");
        until(|| ask(&socket, "show info").is_ok_and(|info| info.starts_with("Name: HAProxy")));
        let answered = Instant::now();
        until(|| get(agent.api(), "/readyz", None).status == 200);
        times.take(answered.elapsed());
        drop(started.join().unwrap());
    }
    println!(
        "  ready {} after the first answer (9 of 10 within {}, slowest {})",
        ms(times.median()),
        ms(times.quantile(0.9)),
        ms(times.quantile(1.0)),
    );
}

fn until(mut look: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !look() {
        assert!(Instant::now() < end, "not within 30 s");
        thread::sleep(Duration::from_micros(300));
    }
}
