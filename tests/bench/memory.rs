//! Memory of the agent: idle once it is ready, and the highest it ever was during an
//! apply of 64 MiB.

use crate::loads::{File, Site, apply, noise, send, setup};
use crate::measure::kib;
use crate::support::agent::Agent;
use std::fmt;

const MIB: usize = 1024 * 1024;

pub(crate) fn run() {
    report("60 files of 1 MiB", 60, 0);
    report("54 files of 1 MiB and a plan blob of 8 MiB", 54, 8 * MIB);
}

fn report(what: &str, count: usize, blob: usize) {
    let site = Site::start(&["--routes", "50", "--maps", "4"]);
    let agent = setup(&site.base, "full").start();
    let idle = Memory::of(&agent);
    let mut files = site.files.clone();
    files
        .extend((0..count).map(|n| -> File { (format!("general/{n}"), noise(n as u64 + 1, MIB)) }));
    let mut request = apply("p1", &files, &agent.state());
    if blob > 0 {
        request = request.blob(&noise(99, blob));
    }
    send(&agent, &request.request(), "reload");
    println!("  {what}: idle {idle}, after {}", Memory::of(&agent));
}

struct Memory {
    now: u64,
    anonymous: u64,
    highest: u64,
}

impl Memory {
    fn of(agent: &Agent) -> Self {
        let of = |field| kib(agent.pid(), field);
        Self {
            now: of("VmRSS"),
            anonymous: of("RssAnon"),
            highest: of("VmHWM"),
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} KiB (anonymous {}), highest {} KiB",
            self.now, self.anonymous, self.highest
        )
    }
}
