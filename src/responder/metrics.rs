//! What the responder counts, and its exposition.
//!
//! One [`Metrics`] a responder. The cells are atomics and the label values enums, as in
//! [`crate::metrics`]; every series is there at 0 from the start. What the watcher and
//! the coverage know is asked for when somebody looks, so it is written down once.

use super::answer::Verdict;
use super::coverage::RowState;
use super::kv::{ErrorKind, Hold, KvSnapshot, ReadResult};
use crate::metrics::{
    By, Counter, Exposition, Family, Gauge, Histogram, Label as _, PROCESS_FAMILIES, counter,
    counts, gauge, histogram, labels, one, render_process,
};

labels! {
    /// Why a connection was closed without a byte.
    Silence {
        /// The store has not been read yet.
        Unsynced = "unsynced",
        /// The request had no key.
        NoKey = "no_key",
        /// The request had too many bytes or keys.
        TooLong = "too_long",
        /// The request came in pieces and without a line end, so it may be cut.
        Unended = "unended",
    }
}

labels! {
    /// How a look at HAProxy ended.
    Look {
        /// Both listings were read.
        Ok = "ok",
        /// HAProxy did not answer, or not with what was asked for.
        Error = "error",
    }
}

const BUILD_INFO: Family = gauge(
    "haptic_responder_build_info",
    &["version"],
    "Always 1; the label has the responder's version.",
);
const REPLIES: Family = counter(
    "haptic_responder_replies_total",
    &["verdict"],
    "Agent checks answered, by what they were told.",
);
const SILENT: Family = counter(
    "haptic_responder_silent_total",
    &["reason"],
    "Connections closed without a byte, which changes nothing at HAProxy.",
);
const REPLY_SECONDS: Family = histogram(
    "haptic_responder_reply_seconds",
    &[],
    "Time from the accepted connection to the last byte of the reply, the wait for the request included.",
);
const CONNECTIONS: Family = gauge(
    "haptic_responder_connections",
    &[],
    "Connections that a thread is busy with.",
);
const ACCEPT_ERRORS: Family = counter(
    "haptic_responder_accept_errors_total",
    &[],
    "Connections that could not be accepted.",
);
const PANICS: Family = counter(
    "haptic_responder_panics_total",
    &[],
    "Connections that ended in a defect of the responder; should stay 0.",
);
const KV_SYNCED: Family = gauge(
    "haptic_responder_kv_synced",
    &[],
    "1 once the store has been read completely; until then no check is answered.",
);
const KV_LAST_READ: Family = gauge(
    "haptic_responder_kv_last_read_timestamp_seconds",
    &[],
    "When the store last said what is answered, in seconds since 1970; stands still in a hold, 0 before the first read.",
);
const KV_READS: Family = counter(
    "haptic_responder_kv_reads_total",
    &["result"],
    "Reads of the store, by what came of them.",
);
const KV_ERRORS: Family = counter(
    "haptic_responder_kv_errors_total",
    &["kind"],
    "Reads of the store that failed, by what they failed on.",
);
const KV_HOLD: Family = gauge(
    "haptic_responder_kv_hold",
    &["reason"],
    "1 while the store's last reply is not believed and the copy before it is kept.",
);
const KV_KEYS: Family = gauge("haptic_responder_kv_keys", &[], "Keys of the copy.");
const KV_INVALID: Family = gauge(
    "haptic_responder_kv_invalid_values",
    &[],
    "Keys of the copy whose value cannot be used and counts as absent.",
);
const KV_UNREADABLE: Family = gauge(
    "haptic_responder_kv_unreadable_files",
    &[],
    "Files of the directory that cannot be read: known ones keep their value, new ones count for nothing.",
);
const KV_IGNORED: Family = gauge(
    "haptic_responder_kv_ignored_names",
    &[],
    "Names in the directory that are no key's, as misspelt ones.",
);
const KV_ENDED: Family = counter(
    "haptic_responder_kv_keys_ended_with_hold_total",
    &[],
    "Keys that a hold had kept and that were gone when the store was followed again.",
);
const OVERRIDES: Family = gauge(
    "haptic_responder_overrides",
    &["verdict"],
    "Keys of the copy in force, by what they say.",
);
const TRANSITIONS: Family = counter(
    "haptic_responder_transitions_total",
    &[],
    "Changes of what a row was told.",
);
const UNLOGGED: Family = counter(
    "haptic_responder_transitions_unlogged_total",
    &[],
    "Changes that were not logged because the log was too slow.",
);
const ROWS: Family = gauge(
    "haptic_responder_rows",
    &["state"],
    "Rows by whether they ask and do what they are told; needs the worker's socket.",
);
const ROWS_EVICTED: Family = counter(
    "haptic_responder_rows_evicted_total",
    &[],
    "Rows forgotten because too many different ones asked.",
);
const UNASKED: Family = gauge(
    "haptic_responder_keys_unasked",
    &[],
    "Keys of the copy that no row asks for.",
);
const LOOKS: Family = counter(
    "haptic_responder_looks_total",
    &["result"],
    "Looks at HAProxy's own view of its rows.",
);

const OWN_FAMILIES: [&Family; 24] = [
    &BUILD_INFO,
    &REPLIES,
    &SILENT,
    &REPLY_SECONDS,
    &CONNECTIONS,
    &ACCEPT_ERRORS,
    &PANICS,
    &KV_SYNCED,
    &KV_LAST_READ,
    &KV_READS,
    &KV_ERRORS,
    &KV_HOLD,
    &KV_KEYS,
    &KV_INVALID,
    &KV_UNREADABLE,
    &KV_IGNORED,
    &KV_ENDED,
    &OVERRIDES,
    &TRANSITIONS,
    &UNLOGGED,
    &ROWS,
    &ROWS_EVICTED,
    &UNASKED,
    &LOOKS,
];

/// Every family, in the order of the exposition; those of the process come last.
pub const FAMILIES: &[&Family] = &all_families();

const fn all_families() -> [&'static Family; OWN_FAMILIES.len() + PROCESS_FAMILIES.len()] {
    let mut all = [OWN_FAMILIES[0]; OWN_FAMILIES.len() + PROCESS_FAMILIES.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = match at < OWN_FAMILIES.len() {
            true => OWN_FAMILIES[at],
            false => PROCESS_FAMILIES[at - OWN_FAMILIES.len()],
        };
        at += 1;
    }
    all
}

/// Upper bounds of a reply: most take some 50 µs; 200 ms is a request without a line end.
const REPLY_BOUNDS: &[f64] = &[
    0.000_05, 0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.25,
    0.5,
];

/// What the answering threads count.
#[derive(Debug)]
pub struct Metrics {
    /// `haptic_responder_replies_total`
    pub replies: By<Verdict, Counter>,
    /// `haptic_responder_silent_total`
    pub silent: By<Silence, Counter>,
    /// `haptic_responder_reply_seconds`
    pub reply_seconds: Histogram,
    /// `haptic_responder_connections`
    pub connections: Gauge,
    /// `haptic_responder_accept_errors_total`
    pub accept_errors: Counter,
    /// `haptic_responder_panics_total`
    pub panics: Counter,
    /// `haptic_responder_transitions_total`
    pub transitions: Counter,
    /// `haptic_responder_transitions_unlogged_total`
    pub unlogged: Counter,
    /// `haptic_responder_looks_total`
    pub looks: By<Look, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            replies: By::default(),
            silent: By::default(),
            reply_seconds: Histogram::new(REPLY_BOUNDS),
            connections: Gauge::default(),
            accept_errors: Counter::default(),
            panics: Counter::default(),
            transitions: Counter::default(),
            unlogged: Counter::default(),
            looks: By::default(),
        }
    }
}

/// What others know at the moment of the exposition.
#[derive(Debug)]
pub struct Seen {
    /// The watcher's own counts.
    pub kv: KvSnapshot,
    /// Keys in force by verdict.
    pub overrides: By<Verdict, Gauge>,
    /// Rows by state.
    pub rows: By<RowState, Gauge>,
    /// Keys that no row asks for.
    pub unasked: usize,
    /// Rows that were forgotten.
    pub evicted: u64,
}

impl Metrics {
    /// The exposition of the responder's own families, and of the process where nobody
    /// else shows them.
    #[must_use]
    pub fn render(&self, seen: &Seen, with_process: bool) -> String {
        let mut out = Exposition::default();
        out.open(&BUILD_INFO);
        out.sample(&BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1);
        counts(&mut out, &REPLIES, &self.replies);
        counts(&mut out, &SILENT, &self.silent);
        out.open(&REPLY_SECONDS);
        out.histogram(&REPLY_SECONDS, &[], &self.reply_seconds);
        one(&mut out, &CONNECTIONS, self.connections.get());
        one(&mut out, &ACCEPT_ERRORS, self.accept_errors.get());
        one(&mut out, &PANICS, self.panics.get());
        let kv = &seen.kv;
        one(&mut out, &KV_SYNCED, u64::from(kv.synced));
        let last_read = kv.last_read.map_or(0, |at| at.0 / 1_000_000_000);
        one(
            &mut out,
            &KV_LAST_READ,
            u64::try_from(last_read).unwrap_or(0),
        );
        out.open(&KV_READS);
        for result in ReadResult::ALL {
            out.sample(&KV_READS, &[result.as_str()], kv.reads(*result));
        }
        out.open(&KV_ERRORS);
        for kind in ErrorKind::ALL {
            out.sample(&KV_ERRORS, &[kind.as_str()], kv.errors(*kind));
        }
        out.open(&KV_HOLD);
        for hold in Hold::ALL {
            let holds = u64::from(kv.hold == Some(*hold));
            out.sample(&KV_HOLD, &[hold.as_str()], holds);
        }
        one(&mut out, &KV_KEYS, to_u64(kv.keys));
        one(&mut out, &KV_INVALID, to_u64(kv.invalid_values));
        one(&mut out, &KV_UNREADABLE, to_u64(kv.unreadable.count));
        one(&mut out, &KV_IGNORED, to_u64(kv.ignored.count));
        one(&mut out, &KV_ENDED, kv.ended_with_hold);
        out.open(&OVERRIDES);
        for (verdict, cell) in seen.overrides.iter() {
            out.sample(&OVERRIDES, &[verdict.as_str()], cell.get());
        }
        one(&mut out, &TRANSITIONS, self.transitions.get());
        one(&mut out, &UNLOGGED, self.unlogged.get());
        out.open(&ROWS);
        for (state, cell) in seen.rows.iter() {
            out.sample(&ROWS, &[state.as_str()], cell.get());
        }
        one(&mut out, &ROWS_EVICTED, seen.evicted);
        one(&mut out, &UNASKED, to_u64(seen.unasked));
        counts(&mut out, &LOOKS, &self.looks);
        if with_process {
            render_process(&mut out);
        }
        out.finish()
    }
}

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::kv::KvStatus;
    use super::*;
    use crate::clock;

    fn render(with_process: bool) -> String {
        let seen = Seen {
            kv: KvStatus::new(Arc::clone(&clock::system())).snapshot(),
            overrides: By::default(),
            rows: By::default(),
            unasked: 0,
            evicted: 0,
        };
        Metrics::default().render(&seen, with_process)
    }

    fn families(text: &str) -> Vec<&str> {
        let types = text.lines().filter_map(|l| l.strip_prefix("# TYPE "));
        types.filter_map(|l| l.split(' ').next()).collect()
    }

    #[test]
    fn every_family_is_shown_in_order_with_help() {
        let text = render(true);
        let names: Vec<&str> = FAMILIES.iter().map(|f| f.name).collect();
        assert_eq!(families(&text), names);
        for family in FAMILIES {
            assert!(family.help.ends_with('.'), "{}", family.name);
            let sample = |line: &str| line.starts_with(family.name);
            assert!(text.lines().any(sample), "{}", family.name);
        }
        let own: Vec<&str> = OWN_FAMILIES.iter().map(|f| f.name).collect();
        assert_eq!(families(&render(false)), own);
    }

    #[test]
    fn before_the_first_event_everything_is_zero_but_the_version() {
        for line in render(false).lines().filter(|l| !l.starts_with('#')) {
            let zero = line.ends_with(" 0") || line.starts_with("haptic_responder_build_info");
            assert!(zero, "{line}");
        }
    }
}
