//! What the kernel says about this process, read when it is asked for.
//!
//! A figure that cannot be read is left out of the exposition rather than shown as
//! zero. Nothing here is cached or estimated.

use std::fs;

use super::expo::Exposition;
use super::{Family, Kind};

/// Clock ticks in a second of `/proc/self/stat`. The kernel fixes it at 100 for user
/// space on every architecture that this agent is built for.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time.
pub(super) const CPU: Family = family(
    "process_cpu_seconds_total",
    Kind::Counter,
    "User and system CPU time spent, in seconds.",
);
/// Resident memory.
pub(super) const RESIDENT: Family = family(
    "process_resident_memory_bytes",
    Kind::Gauge,
    "Memory that is resident, in bytes.",
);
/// Virtual memory.
pub(super) const VIRTUAL: Family = family(
    "process_virtual_memory_bytes",
    Kind::Gauge,
    "Address space in use, in bytes.",
);
/// Open descriptors.
pub(super) const OPEN_FDS: Family = family(
    "process_open_fds",
    Kind::Gauge,
    "File descriptors that are open.",
);
/// The limit of descriptors.
pub(super) const MAX_FDS: Family = family(
    "process_max_fds",
    Kind::Gauge,
    "File descriptors that may be open.",
);
/// Threads.
pub(super) const THREADS: Family =
    family("process_threads", Kind::Gauge, "Threads that are running.");
/// Start time.
pub(super) const START: Family = family(
    "process_start_time_seconds",
    Kind::Gauge,
    "When the process started, in seconds since the Unix epoch.",
);

const fn family(name: &'static str, kind: Kind, help: &'static str) -> Family {
    Family {
        name,
        kind,
        labels: &[],
        help,
    }
}

/// Writes every figure that can be read.
pub(super) fn render(out: &mut Exposition) {
    let stat = fs::read_to_string("/proc/self/stat").ok();
    let fields = stat.as_deref().and_then(after_name);
    let field = |n: usize| number(fields.as_deref()?.get(n)?);
    let status = fs::read_to_string("/proc/self/status").ok();
    let kilobytes = |name: &str| Some(status_field(status.as_deref()?, name)? * 1024.0);

    // Numbered from the state, which is the third field of stat: utime is the 14th.
    let cpu = field(11).zip(field(12));
    let cpu = cpu.map(|(user, system)| (user + system) / TICKS_PER_SECOND);
    out.single(&CPU, cpu);
    out.single(&RESIDENT, kilobytes("VmRSS:"));
    out.single(&VIRTUAL, kilobytes("VmSize:"));
    out.single(&OPEN_FDS, open_fds());
    out.single(&MAX_FDS, max_fds());
    out.single(&THREADS, field(17));
    let start = field(19).zip(boot_time());
    out.single(
        &START,
        start.map(|(ticks, boot)| boot + ticks / TICKS_PER_SECOND),
    );
}

/// The fields behind the command name, which may itself hold blanks and brackets.
fn after_name(stat: &str) -> Option<Vec<&str>> {
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.split_ascii_whitespace().collect())
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

fn status_field(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|l| l.strip_prefix(name))?;
    number(line.split_ascii_whitespace().next()?)
}

fn open_fds() -> Option<f64> {
    let open = fs::read_dir("/proc/self/fd").ok()?.count();
    // The listing's own descriptor is gone by now.
    u32::try_from(open.saturating_sub(1)).ok().map(f64::from)
}

fn max_fds() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|l| l.strip_prefix("Max open files"))?;
    number(line.split_ascii_whitespace().next()?)
}

fn boot_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    number(stat.lines().find_map(|l| l.strip_prefix("btime "))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_may_look_like_fields() {
        let fields = after_name("7 (a) b (c) S 1 2 3").unwrap();
        assert_eq!(fields, ["S", "1", "2", "3"]);
        assert_eq!(after_name("7"), None);
    }

    #[test]
    fn status_fields_are_numbers() {
        let status = "Name:\tx\nVmRSS:\t    1234 kB\nVmSize: x kB\n";
        assert_eq!(status_field(status, "VmRSS:"), Some(1234.0));
        assert_eq!(status_field(status, "VmSize:"), None);
        assert_eq!(status_field(status, "VmPeak:"), None);
    }

    #[test]
    fn this_process_can_be_read() {
        let mut out = Exposition::default();
        render(&mut out);
        let text = out.finish();
        for name in [
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
            "process_virtual_memory_bytes ",
            "process_open_fds ",
            "process_max_fds ",
            "process_threads ",
            "process_start_time_seconds ",
        ] {
            assert!(text.lines().any(|l| l.starts_with(name)), "{name}: {text}");
        }
    }
}
