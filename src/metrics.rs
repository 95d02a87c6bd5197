//! What the agent counts, and its exposition for Prometheus.
//!
//! One [`Metrics`] a process, shared by reference. Cells are atomics, so counting
//! takes no lock and cannot fail; label values are enums, so a peer cannot make
//! series. A counter whose labels are known is exposed at 0 from the start: a rate
//! over a series that appears with its first event loses that event.
//!
//! Nothing reads a metric to decide something.

mod cells;
mod expo;
mod labels;
mod process;

pub use cells::{By, Counter, Gauge, Histogram};
pub use expo::CONTENT_TYPE;
pub use labels::{
    DeleteKind, DeleteOutcome, HttpCode, HttpPath, Invariant, Label, RejectStage, ReloadResult,
};

pub(crate) use expo::Exposition;
pub(crate) use labels::labels;

/// The label of an apply: the mode that the contract answers with.
pub use crate::wire::result::ResultMode as ApplyMode;

use crate::wire::op::OpKind;

/// How a family is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations in buckets.
    Histogram,
}

/// One metric: a name, what it means, and the labels that split it.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// The exposed name.
    pub name: &'static str,
    /// How to read it.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// One sentence for HELP and the manual.
    pub help: &'static str,
}

pub(crate) const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family {
        name,
        kind: Kind::Counter,
        labels,
        help,
    }
}

pub(crate) const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family {
        name,
        kind: Kind::Gauge,
        labels,
        help,
    }
}

pub(crate) const fn histogram(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family {
        name,
        kind: Kind::Histogram,
        labels,
        help,
    }
}

const BUILD_INFO: Family = gauge(
    "haptic_agent_build_info",
    &["version"],
    "Always 1; the label has the agent's version.",
);
const READY: Family = gauge(
    "haptic_agent_ready",
    &[],
    "1 once the agent has started up and accepts applies.",
);
const HAPROXY_UP: Family = gauge(
    "haptic_agent_haproxy_up",
    &[],
    "1 while HAProxy's worker answers; looked at every few seconds.",
);
const DEGRADED: Family = gauge(
    "haptic_agent_degraded",
    &[],
    "1 from a failed apply until a reload works again; the state has the reason.",
);
const APPLIED_KNOWN: Family = gauge(
    "haptic_agent_applied_known",
    &[],
    "1 while it is known which plan disk holds; 0 before the first one and after a foreign write or a rollback.",
);
const WORKER_CURRENT: Family = gauge(
    "haptic_agent_worker_current",
    &[],
    "1 while the worker is known to hold the applied plan; 0 also while a reload waits.",
);
const APPLIES: Family = counter(
    "haptic_agent_apply_total",
    &["mode"],
    "Applies completed, by what they turned out to be.",
);
const REJECTED: Family = counter(
    "haptic_agent_apply_rejected_total",
    &["stage"],
    "Applies refused or rolled back, by where that was decided.",
);
const APPLY_DURATION: Family = histogram(
    "haptic_agent_apply_duration_seconds",
    &["mode"],
    "Time from the complete request to the answer.",
);
const RELOADS: Family = counter(
    "haptic_agent_reloads_total",
    &["result"],
    "Reloads asked of the master process, by how they ended.",
);
const RELOAD_DURATION: Family = histogram(
    "haptic_agent_reload_duration_seconds",
    &[],
    "Time from the reload command to its outcome.",
);
const RELOAD_PENDING: Family = gauge(
    "haptic_agent_reload_pending",
    &[],
    "1 while a reload waits for the pacing interval.",
);
const ROLLBACKS: Family = counter(
    "haptic_agent_rollbacks_total",
    &[],
    "File sets restored to the last known good one.",
);
const KNOWN_BAD: Family = counter(
    "haptic_agent_known_bad_hits_total",
    &[],
    "Applies answered with HAProxy's refusal of the same bytes a moment ago.",
);
const OP_ERRORS: Family = counter(
    "haptic_agent_op_errors_total",
    &["kind"],
    "Runtime ops that HAProxy rejected.",
);
const DELETES: Family = counter(
    "haptic_agent_deferred_deletes_total",
    &["kind", "outcome"],
    "Deferred runtime deletes, by how an attempt ended.",
);
const PENDING_DELETES: Family = gauge(
    "haptic_agent_pending_deletes",
    &["kind"],
    "Deferred runtime deletes that wait.",
);
const DIVERGENCE: Family = counter(
    "haptic_runtime_map_divergence_total",
    &[],
    "Read-backs that found the worker out of step with the files.",
);
const INVARIANTS: Family = counter(
    "haptic_agent_invariant_violations_total",
    &["name"],
    "Invariants that did not hold.",
);
const GENERATION: Family = gauge("haptic_agent_generation", &[], "The apply generation.");
const WORKER_CHANGES: Family = counter(
    "haptic_agent_worker_changes_total",
    &[],
    "Worker processes that replaced another without this agent's doing.",
);
const FILES: Family = gauge("haptic_agent_files", &[], "Files that the agent owns.");
const JOURNAL: Family = gauge(
    "haptic_agent_journal_entries",
    &[],
    "Paths that the backup journal can restore.",
);
const CROSS_DEVICE: Family = counter(
    "haptic_agent_cross_device_copies_total",
    &[],
    "Renames and links that fell back to a copy because they crossed a mount; should stay 0.",
);
const STATE_RESETS: Family = counter(
    "haptic_agent_state_file_resets_total",
    &[],
    "State files that could not be read and were set aside.",
);
const REQUESTS: Family = counter(
    "haptic_agent_http_requests_total",
    &["path", "code"],
    "HTTP requests answered.",
);
const CONNECTIONS: Family = gauge(
    "haptic_agent_connections",
    &[],
    "Connections that are open at the API listener.",
);
const ACCEPT_ERRORS: Family = counter(
    "haptic_agent_http_accept_errors_total",
    &[],
    "Connections that could not be accepted.",
);
const SHED: Family = counter(
    "haptic_agent_http_connections_shed_total",
    &[],
    "Connections ended, or answered 503 at once, because too many were open.",
);
const PANICS: Family = counter(
    "haptic_agent_http_panics_total",
    &[],
    "Requests that ended in a defect of the agent; should stay 0.",
);
const LOGS_SUPPRESSED: Family = counter(
    "haptic_agent_log_records_suppressed_total",
    &[],
    "Log records that a rate limit held back.",
);
const LOGS_LOST: Family = counter(
    "haptic_agent_log_records_lost_total",
    &[],
    "Log records that were lost because nobody read them in time.",
);

/// Every family, in the order of the exposition.
pub const FAMILIES: &[&Family] = &[
    &BUILD_INFO,
    &READY,
    &HAPROXY_UP,
    &DEGRADED,
    &APPLIED_KNOWN,
    &WORKER_CURRENT,
    &APPLIES,
    &REJECTED,
    &APPLY_DURATION,
    &RELOADS,
    &RELOAD_DURATION,
    &RELOAD_PENDING,
    &ROLLBACKS,
    &KNOWN_BAD,
    &OP_ERRORS,
    &DELETES,
    &PENDING_DELETES,
    &DIVERGENCE,
    &INVARIANTS,
    &GENERATION,
    &WORKER_CHANGES,
    &FILES,
    &JOURNAL,
    &CROSS_DEVICE,
    &STATE_RESETS,
    &REQUESTS,
    &CONNECTIONS,
    &ACCEPT_ERRORS,
    &SHED,
    &PANICS,
    &LOGS_SUPPRESSED,
    &LOGS_LOST,
    &process::CPU,
    &process::RESIDENT,
    &process::VIRTUAL,
    &process::OPEN_FDS,
    &process::MAX_FDS,
    &process::THREADS,
    &process::START,
];

/// The families of the process itself, which a process exposes once.
pub(crate) const PROCESS_FAMILIES: &[&Family] = &[
    &process::CPU,
    &process::RESIDENT,
    &process::VIRTUAL,
    &process::OPEN_FDS,
    &process::MAX_FDS,
    &process::THREADS,
    &process::START,
];

/// The samples of [`PROCESS_FAMILIES`].
pub(crate) fn render_process(out: &mut Exposition) {
    process::render(out);
}

/// Upper bounds for an apply: from a map that changes in memory to a reload's limit.
const APPLY_BOUNDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// Upper bounds for a reload: the fastest takes some 40 ms.
const RELOAD_BOUNDS: &[f64] = &[0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Everything that is counted. The fields are named after the families.
#[derive(Debug)]
pub struct Metrics {
    /// `haptic_agent_ready`
    pub ready: Gauge,
    /// `haptic_agent_haproxy_up`
    pub haproxy_up: Gauge,
    /// `haptic_agent_degraded`
    pub degraded: Gauge,
    /// `haptic_agent_applied_known`
    pub applied_known: Gauge,
    /// `haptic_agent_worker_current`
    pub worker_current: Gauge,
    /// `haptic_agent_apply_total`
    pub applies: By<ApplyMode, Counter>,
    /// `haptic_agent_apply_rejected_total`
    pub rejected: By<RejectStage, Counter>,
    /// `haptic_agent_apply_duration_seconds`
    pub apply_duration: By<ApplyMode, Histogram>,
    /// `haptic_agent_reloads_total`
    pub reloads: By<ReloadResult, Counter>,
    /// `haptic_agent_reload_duration_seconds`
    pub reload_duration: Histogram,
    /// `haptic_agent_reload_pending`
    pub reload_pending: Gauge,
    /// `haptic_agent_rollbacks_total`
    pub rollbacks: Counter,
    /// `haptic_agent_known_bad_hits_total`
    pub known_bad_hits: Counter,
    /// `haptic_agent_op_errors_total`
    pub op_errors: By<OpKind, Counter>,
    /// `haptic_agent_deferred_deletes_total`
    pub deferred_deletes: By<DeleteKind, By<DeleteOutcome, Counter>>,
    /// `haptic_agent_pending_deletes`
    pub pending_deletes: By<DeleteKind, Gauge>,
    /// `haptic_runtime_map_divergence_total`
    pub map_divergence: Counter,
    /// `haptic_agent_invariant_violations_total`
    pub invariant_violations: By<Invariant, Counter>,
    /// `haptic_agent_generation`
    pub generation: Gauge,
    /// `haptic_agent_worker_changes_total`
    pub worker_changes: Counter,
    /// `haptic_agent_files`
    pub files: Gauge,
    /// `haptic_agent_journal_entries`
    pub journal_entries: Gauge,
    /// `haptic_agent_cross_device_copies_total`
    pub cross_device_copies: Counter,
    /// `haptic_agent_state_file_resets_total`
    pub state_file_resets: Counter,
    /// `haptic_agent_http_requests_total`
    pub http_requests: By<HttpPath, By<HttpCode, Counter>>,
    /// `haptic_agent_connections`
    pub connections: Gauge,
    /// `haptic_agent_http_accept_errors_total`
    pub http_accept_errors: Counter,
    /// `haptic_agent_http_connections_shed_total`
    pub http_connections_shed: Counter,
    /// `haptic_agent_http_panics_total`
    pub http_panics: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            ready: Gauge::default(),
            haproxy_up: Gauge::default(),
            degraded: Gauge::default(),
            applied_known: Gauge::default(),
            worker_current: Gauge::default(),
            applies: By::default(),
            rejected: By::default(),
            apply_duration: By::with(|| Histogram::new(APPLY_BOUNDS)),
            reloads: By::default(),
            reload_duration: Histogram::new(RELOAD_BOUNDS),
            reload_pending: Gauge::default(),
            rollbacks: Counter::default(),
            known_bad_hits: Counter::default(),
            op_errors: By::default(),
            deferred_deletes: By::default(),
            pending_deletes: By::default(),
            map_divergence: Counter::default(),
            invariant_violations: By::default(),
            generation: Gauge::default(),
            worker_changes: Counter::default(),
            files: Gauge::default(),
            journal_entries: Gauge::default(),
            cross_device_copies: Counter::default(),
            state_file_resets: Counter::default(),
            http_requests: By::default(),
            connections: Gauge::default(),
            http_accept_errors: Counter::default(),
            http_connections_shed: Counter::default(),
            http_panics: Counter::default(),
        }
    }
}

impl Metrics {
    /// Everything at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one answered request. `path` may carry a query.
    pub fn count_request(&self, path: &str, status: u16) {
        self.http_requests
            .of(HttpPath::of(path))
            .of(HttpCode::of(status))
            .inc();
    }

    /// The exposition, to be sent as [`CONTENT_TYPE`].
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = Exposition::default();
        out.open(&BUILD_INFO);
        out.sample(&BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1);
        one(&mut out, &READY, self.ready.get());
        one(&mut out, &HAPROXY_UP, self.haproxy_up.get());
        one(&mut out, &DEGRADED, self.degraded.get());
        one(&mut out, &APPLIED_KNOWN, self.applied_known.get());
        one(&mut out, &WORKER_CURRENT, self.worker_current.get());
        counts(&mut out, &APPLIES, &self.applies);
        counts(&mut out, &REJECTED, &self.rejected);
        out.open(&APPLY_DURATION);
        for (mode, cell) in self.apply_duration.iter() {
            out.histogram(&APPLY_DURATION, &[mode.as_str()], cell);
        }
        counts(&mut out, &RELOADS, &self.reloads);
        out.open(&RELOAD_DURATION);
        out.histogram(&RELOAD_DURATION, &[], &self.reload_duration);
        one(&mut out, &RELOAD_PENDING, self.reload_pending.get());
        one(&mut out, &ROLLBACKS, self.rollbacks.get());
        one(&mut out, &KNOWN_BAD, self.known_bad_hits.get());
        counts(&mut out, &OP_ERRORS, &self.op_errors);
        out.open(&DELETES);
        for (kind, outcomes) in self.deferred_deletes.iter() {
            for (outcome, cell) in outcomes.iter() {
                out.sample(&DELETES, &[kind.as_str(), outcome.as_str()], cell.get());
            }
        }
        out.open(&PENDING_DELETES);
        for (kind, cell) in self.pending_deletes.iter() {
            out.sample(&PENDING_DELETES, &[kind.as_str()], cell.get());
        }
        one(&mut out, &DIVERGENCE, self.map_divergence.get());
        counts(&mut out, &INVARIANTS, &self.invariant_violations);
        one(&mut out, &GENERATION, self.generation.get());
        one(&mut out, &WORKER_CHANGES, self.worker_changes.get());
        one(&mut out, &FILES, self.files.get());
        one(&mut out, &JOURNAL, self.journal_entries.get());
        one(&mut out, &CROSS_DEVICE, self.cross_device_copies.get());
        one(&mut out, &STATE_RESETS, self.state_file_resets.get());
        out.open(&REQUESTS);
        for (path, codes) in self.http_requests.iter() {
            for (code, cell) in codes.iter() {
                let value = cell.get();
                if value > 0 || path.expected().contains(&code) {
                    out.sample(&REQUESTS, &[path.as_str(), code.as_str()], value);
                }
            }
        }
        one(&mut out, &CONNECTIONS, self.connections.get());
        one(&mut out, &ACCEPT_ERRORS, self.http_accept_errors.get());
        one(&mut out, &SHED, self.http_connections_shed.get());
        one(&mut out, &PANICS, self.http_panics.get());
        one(&mut out, &LOGS_SUPPRESSED, crate::log::suppressed());
        one(&mut out, &LOGS_LOST, crate::log::lost());
        render_process(&mut out);
        out.finish()
    }
}

pub(crate) fn one(out: &mut Exposition, family: &Family, value: u64) {
    out.open(family);
    out.sample(family, &[], value);
}

pub(crate) fn counts<L: Label>(out: &mut Exposition, family: &Family, cells: &By<L, Counter>) {
    out.open(family);
    for (label, cell) in cells.iter() {
        out.sample(family, &[label.as_str()], cell.get());
    }
}

#[cfg(test)]
mod tests;
