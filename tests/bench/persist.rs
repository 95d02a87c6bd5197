//! The share that the phases' persistence has in an apply that only changes a map.
//!
//! No switch of the product takes the persistence away, so it is repeated: after each
//! apply the bench does what that apply did to the state, with the store's own
//! [`StateFile`], in the same directory and with the same bytes: two notes, the whole
//! state with an intent in it, two notes, the whole state. The share is the median of
//! that over the median of the agent's own time.

use crate::loads::{Site, apply, noise, send, setup};
use crate::measure::Times;
use haptic_agent::store::disk::DiskFs;
use haptic_agent::store::mounts::Mounts;
use haptic_agent::store::state_file::{StateFile, Stored};
use haptic_agent::store::{Durability, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const ROUNDS: usize = 60;
const SIZES: [usize; 2] = [10, 100];
const MAP: &str = "maps/host.map";

/// A state as it lies on disk.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Saved(Value);

impl Stored for Saved {
    const FORMAT: u32 = 1;

    fn txn(&self) -> u64 {
        self.0["txn"].as_u64().unwrap()
    }
}

pub(crate) fn run() {
    for durability in ["full", "process"] {
        for size in SIZES {
            report(durability, size);
        }
    }
}

fn report(durability: &str, size: usize) {
    let site = Site::start(&["--routes", "5", "--maps", "4"]);
    let mut files = site.files.clone();
    for extra in 0..size.saturating_sub(files.len()) {
        files.push((
            format!("general/extra-{extra}"),
            noise(extra as u64 + 1, 300),
        ));
    }
    let agent = setup(&site.base, durability).start();
    let request = apply("first", &files, &agent.state()).request();
    let mut state = send(&agent, &request, "reload");
    let twin = Twin::beside(&site.base, durability);
    let (mut notes, mut whole) = (Times::default(), Times::default());
    for round in 0..ROUNDS {
        let changed = (
            MAP.to_owned(),
            format!("# round {round}\n{}", "route n\n".repeat(2500)).into_bytes(),
        );
        let mut request = apply(&format!("p{round}"), std::slice::from_ref(&changed), &state);
        for (path, bytes) in files.iter().filter(|(path, _)| path != MAP) {
            request = request.held(path, bytes);
        }
        state = send(&agent, &request.mode("auto").request(), "file_only");
        let (noted, saved) = twin.repeat();
        notes.take(noted);
        whole.take(saved);
    }
    let mut own = Times::default();
    for record in agent.records() {
        if record["mode"] == "file_only" {
            own.take(Duration::from_micros(record["total_us"].as_u64().unwrap()));
        }
    }
    let share = |of: Duration| 100.0 * of.as_secs_f64() / own.median().as_secs_f64();
    let (n, w) = (notes.median(), whole.median());
    println!(
        "  --durability {durability}, {size} files: {} µs of {} µs = {:.0} % (four notes {} µs = {:.0} %, the state twice {} µs = {:.0} %)",
        (n + w).as_micros(),
        own.median().as_micros(),
        share(n + w),
        n.as_micros(),
        share(n),
        w.as_micros(),
        share(w),
    );
}

/// A state file of the bench's own, beside the agent's.
struct Twin<'a> {
    base: &'a Path,
    file: StateFile,
}

impl<'a> Twin<'a> {
    fn beside(base: &'a Path, durability: &str) -> Self {
        let disk = DiskFs::open(base).unwrap();
        let mounts = Mounts::probe(&disk, base).unwrap();
        let durability = match durability {
            "full" => Durability::Full,
            _ => Durability::Process,
        };
        let store = Store::new(Arc::new(disk), mounts, durability);
        Self {
            base,
            file: StateFile::new(&store, ".bench-state.json"),
        }
    }

    /// How long the notes and the whole saves of the apply before took here.
    fn repeat(&self) -> (Duration, Duration) {
        let end = std::fs::read(self.base.join(".haptic-agent.json")).unwrap();
        let mut end: Value = serde_json::from_slice(&end).unwrap();
        // The worker as the notes carry it.
        let worker = end["worker"].clone();
        let note =
            |phase: &str| json!({"phase": phase, "worker": worker, "due": null, "failure": null});
        let last = end["last_apply"].take();
        let mut middle = end.clone();
        end["last_apply"].clone_from(&last);
        middle["phase"] = "backed_up".into();
        middle["last_apply"] = last;
        middle["intent"] = json!({
            "plan_id": end["applied_plan_id"], "token": end["applied_token"],
            "mode": "auto", "plan_schema_version": 1, "owned": end["owned"],
            "fold": end["fold"],
            "tree": {"files": [{"staged": "maps/.haptic-tmp/r0123456789abcdef-12/0", "path": MAP,
                "sha256": end["fold"]}]},
        });
        let (middle, end) = (Saved(middle), Saved(end));
        let (mut notes, mut whole) = (Times::default(), Times::default());
        let txn = end.txn();
        let mut noted = |phase: &str, txn| {
            notes.of(|| self.file.save_phase(txn, &note(phase)).unwrap());
        };
        noted("staged", txn);
        noted("verified", txn);
        whole.of(|| self.file.save(&middle).unwrap());
        noted("written", txn);
        noted("applied", txn);
        whole.of(|| self.file.save(&end).unwrap());
        (notes.total(), whole.total())
    }
}
