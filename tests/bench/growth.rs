//! How the cost of an apply grows with the files that it does not touch: one map of 2 KB
//! changes among 10, 100, 1000 and 4096 owned ones, the rounds of all sizes in turn.
//!
//! The agent's own time begins behind the manifest, whose parse is linear by nature and
//! is shown on its own; the look at every file runs beside that. The last figure has all
//! of it, and the bytes on the wire too.

use crate::loads::{File, Site, apply, noise, send, setup};
use crate::measure::Times;
use crate::support::agent::Agent;
use haptic_agent::wire::manifest::{Manifest, ReservedPaths};
use serde_json::Value;
use std::time::Duration;

const SIZES: [usize; 4] = [10, 100, 1000, 4096];
const ROUNDS: usize = 40;
/// The first ones are not counted.
const WARM: usize = 2;
const CHANGED: &str = "maps/host.map";
/// A directory of a controller does not hold everything.
const PER_DIRECTORY: usize = 256;

/// One agent that owns so many files.
struct Owner {
    agent: Agent,
    site: Site,
    files: Vec<File>,
    state: Value,
    parse: Times,
    /// From the request's first byte to the answer's last.
    whole: Times,
}

pub(crate) fn run() {
    for durability in ["full", "process"] {
        let mut owners: Vec<Owner> = SIZES.map(|size| Owner::start(size, durability)).into();
        for round in 0..ROUNDS + WARM {
            for owner in &mut owners {
                owner.round(round);
            }
        }
        let mut first = None;
        for (size, owner) in SIZES.iter().zip(&owners) {
            let own = owner.own();
            let median = own.median();
            let base = *first.get_or_insert(median);
            println!(
                "  --durability {durability}, {size} files: agent's own {} µs (9 of 10 within {} µs), ÷ {} files = {:.2}; the manifest's parse {} µs; request to answer {} µs",
                median.as_micros(),
                own.quantile(0.9).as_micros(),
                SIZES[0],
                median.as_secs_f64() / base.as_secs_f64(),
                owner.parse.median().as_micros(),
                owner.whole.median().as_micros(),
            );
        }
    }
}

impl Owner {
    fn start(size: usize, durability: &str) -> Self {
        let site = Site::start(&["--routes", "5", "--maps", "4"]);
        let mut files = site.files.clone();
        assert!(files.iter().any(|(path, _)| path == CHANGED));
        for extra in 0..size.saturating_sub(files.len()) {
            let path = format!("general/d{}/extra-{extra}", extra / PER_DIRECTORY);
            files.push((path, noise(extra as u64 + 1, 300)));
        }
        let agent = setup(&site.base, durability).start();
        let request = apply("first", &files, &agent.state()).request();
        let state = send(&agent, &request, "reload");
        Self {
            agent,
            site,
            files,
            state,
            parse: Times::default(),
            whole: Times::default(),
        }
    }

    fn round(&mut self, round: usize) {
        let changed = format!("# round {round}\n{}", "route n\n".repeat(250));
        let changed: File = (CHANGED.to_owned(), changed.into_bytes());
        let plan = format!("p{round}");
        let mut request = apply(&plan, std::slice::from_ref(&changed), &self.state);
        for (path, bytes) in self.files.iter().filter(|(path, _)| path != CHANGED) {
            request = request.held(path, bytes);
        }
        let request = request.mode("auto");
        let manifest = request.manifest.to_string();
        let reserved = ReservedPaths::default();
        let parsed = self
            .parse
            .of(|| Manifest::parse(manifest.as_bytes(), &reserved));
        assert!(parsed.is_ok(), "{parsed:?}");
        let request = request.request();
        let (agent, whole) = (&self.agent, &mut self.whole);
        self.state = whole.of(|| send(agent, &request, "file_only"));
        assert!(self.site.base.join(CHANGED).is_file());
    }

    fn own(&self) -> Times {
        let mut own = Times::default();
        let records = self.agent.records();
        let rounds = records.iter().filter(|r| r["mode"] == "file_only");
        for record in rounds.skip(WARM) {
            own.take(Duration::from_micros(record["total_us"].as_u64().unwrap()));
        }
        own
    }
}
