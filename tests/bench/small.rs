//! The everyday apply: one map of 20 KB changes among 100 files, nothing else happens.

use crate::loads::{File, Site, apply, noise, send, setup};
use crate::measure::{Times, ms};
use std::fmt::Write as _;
use std::time::Duration;

const ROUNDS: usize = 60;
const FILES: usize = 100;
const MAP_BYTES: usize = 20_000;

pub(crate) fn run() {
    for durability in ["full", "process"] {
        let site = Site::start(&["--routes", "50", "--maps", "29"]);
        let mut files = site.files.clone();
        for extra in 0..FILES - files.len() {
            files.push((format!("general/extra-{extra}"), noise(extra as u64, 4000)));
        }
        let agent = setup(&site.base, durability).start();
        let mut state = send(
            &agent,
            &apply("first", &files, &agent.state()).request(),
            "reload",
        );
        let mut seen = Times::default();
        for round in 0..ROUNDS {
            let map = ("maps/note-07.map".to_owned(), map(round));
            let others: Vec<&File> = files.iter().filter(|(path, _)| *path != map.0).collect();
            let mut request = apply(&format!("p{round}"), std::slice::from_ref(&map), &state);
            for (path, bytes) in others {
                request = request.held(path, bytes);
            }
            let request = request.mode("auto").request();
            state = seen.of(|| send(&agent, &request, "file_only"));
        }
        let mut own = Times::default();
        for record in agent.records() {
            if record["mode"] == "file_only" {
                own.take(Duration::from_micros(record["total_us"].as_u64().unwrap()));
            }
        }
        println!(
            "  --durability {durability}: seen by the client {} (9 of 10 within {}), agent's own {} µs (9 of 10 within {} µs)",
            ms(seen.median()),
            ms(seen.quantile(0.9)),
            own.median().as_micros(),
            own.quantile(0.9).as_micros(),
        );
    }
}

fn map(round: usize) -> Vec<u8> {
    let mut text = format!("# round {round}\n");
    let mut line = 0;
    while text.len() < MAP_BYTES {
        line += 1;
        let _ = writeln!(text, "route-{line:05} n{}", line * round % 9973);
    }
    text.into_bytes()
}
