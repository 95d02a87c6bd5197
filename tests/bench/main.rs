//! The agent's figures, measured beside a real HAProxy: `make bench`.
//!
//! What is compared runs alternately in one process, and medians are printed with the
//! ratio, because on a shared machine only the ratio means something. The bench
//! measures and reports; it fails only when something does not work at all, never
//! because a figure is missed. Words on the command line choose sections.
//!
//! Files go to the system's temporary directory, or to the one that `HAPTIC_BENCH_DIR`
//! names: on a disk that others sync all the time every rename and unlink waits for their
//! journal commits, and a directory in memory shows what is the agent's own.

// Sections share a part of the integration tests' support each, and a bench that cannot
// go on says so by ending.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_possible_truncation
)]

mod growth;
mod loads;
mod measure;
mod memory;
mod persist;
mod ready;
mod recovery;
mod reload;
mod responder;
mod runtime;
mod size;
mod small;
#[path = "../it/support/mod.rs"]
mod support;
mod throughput;

use support::haproxy::Version;

/// The branch that every figure is measured on.
const VERSION: Version = Version::V3_2;

type Section = (&'static str, &'static str, fn());

const SECTIONS: [Section; 14] = [
    (
        "reload",
        "an apply with a reload ÷ the same by hand",
        reload::run,
    ),
    ("small", "one changed map among 100 files", small::run),
    (
        "runtime",
        "changes without a reload ÷ the same commands and bytes by hand",
        runtime::run,
    ),
    (
        "persist",
        "the phases' persistence within an apply of one map",
        persist::run,
    ),
    (
        "growth",
        "one changed map among 10 to 4096 files",
        growth::run,
    ),
    (
        "recovery",
        "ready again with 4096 files of 64 MiB",
        recovery::run,
    ),
    ("memory", "the agent's memory", memory::run),
    ("ready", "readiness after HAProxy answers", ready::run),
    (
        "throughput",
        "64 MiB of files ÷ plain write and hash",
        throughput::run,
    ),
    ("size", "the binary", size::run),
    (
        "answers",
        "answers a second ÷ a bare accept, write, close",
        responder::answers,
    ),
    ("fleet", "919 rows that ask", responder::fleet),
    (
        "follow",
        "a key in Consul until HAProxy shows its state",
        responder::follow,
    ),
    ("store", "copies of the store", responder::store),
];

fn main() {
    // cargo adds --bench.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    println!("haptic-agent beside {VERSION}");
    for (name, title, run) in SECTIONS {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            println!("\n{name}: {title}");
            run();
        }
    }
}
