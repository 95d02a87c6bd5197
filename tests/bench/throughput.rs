//! 64 MiB in one apply without a reload, against writing the same bytes and hashing them.

use crate::loads::{File, Site, apply, noise, send, setup};
use crate::measure::{Times, compare};
use sha2::{Digest as _, Sha256};
use std::fs;

const ROUNDS: usize = 7;
const FILES: usize = 60;
const MIB: usize = 1024 * 1024;

pub(crate) fn run() {
    for durability in ["full", "process"] {
        let site = Site::start(&["--routes", "50", "--maps", "4"]);
        let agent = setup(&site.base, durability).start();
        let mut state = send(
            &agent,
            &apply("first", &site.files, &agent.state()).request(),
            "reload",
        );
        let hand = crate::loads::scratch();
        let (mut by_agent, mut by_hand) = (Times::default(), Times::default());
        for round in 0..ROUNDS {
            let files: Vec<File> = (0..FILES)
                .map(|n| {
                    (
                        format!("general/{n}"),
                        noise((round * FILES + n) as u64 + 1, MIB),
                    )
                })
                .collect();
            let mut request = apply(&format!("p{round}"), &files, &state).mode("auto");
            for (path, bytes) in &site.files {
                request = request.held(path, bytes);
            }
            let request = request.request();
            state = by_agent.of(|| send(&agent, &request, "file_only"));
            by_hand.of(|| {
                for (at, (_, bytes)) in files.iter().enumerate() {
                    fs::write(hand.path().join(at.to_string()), bytes).unwrap();
                    std::hint::black_box(Sha256::digest(bytes));
                }
            });
        }
        compare(&format!("--durability {durability}"), &by_agent, &by_hand);
        #[allow(clippy::cast_precision_loss)]
        let rate = FILES as f64 / by_agent.median().as_secs_f64();
        println!("    {rate:.0} MiB/s");
    }
}
