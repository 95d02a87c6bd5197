//! The exposition, read back by a strict parser that shares nothing with the writer.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;

type Labels = Vec<(String, String)>;

/// A parsed exposition: family → (type, samples in order).
#[derive(Debug, Default)]
struct Parsed {
    order: Vec<String>,
    kinds: BTreeMap<String, String>,
    samples: Vec<(String, Labels, f64)>,
}

impl Parsed {
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels: Labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        self.samples
            .iter()
            .find(|(n, l, _)| n == name && *l == labels)
            .map(|(_, _, value)| *value)
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

/// Reads `name{label="value",…} number` or panics with the line.
fn sample(line: &str) -> (String, Labels, f64) {
    let cut = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line}"));
    let (name, mut rest) = line.split_at(cut);
    assert!(is_name(name), "{line}");
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, tail) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            assert!(is_name(label) && !label.contains(':'), "{line}");
            let mut value = String::new();
            let mut chars = tail.char_indices();
            let end = loop {
                match chars.next() {
                    Some((at, '"')) => break at,
                    Some((_, '\\')) => match chars.next() {
                        Some((_, 'n')) => value.push('\n'),
                        Some((_, c @ ('\\' | '"'))) => value.push(c),
                        other => panic!("{line}: {other:?}"),
                    },
                    Some((_, c)) => value.push(c),
                    None => panic!("{line}"),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &tail[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap_or_else(|| panic!("{line}"));
    }
    let number = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
    assert_eq!(number, number.trim(), "{line}");
    let value: f64 = number.parse().unwrap_or_else(|e| panic!("{line}: {e}"));
    (name.to_owned(), labels, value)
}

/// Every rule of the format that a scraper may rest on.
fn parse(text: &str) -> Parsed {
    assert!(text.ends_with('\n'), "the last line is not ended");
    let mut parsed = Parsed::default();
    let mut helped: Option<String> = None;
    for line in text.lines() {
        assert!(!line.is_empty() && line.trim() == line, "{line:?}");
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert!(is_name(name) && words.ends_with('.'), "{line}");
            assert!(!parsed.kinds.contains_key(name), "{name} twice");
            helped = Some(name.to_owned());
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert_eq!(helped.take().as_deref(), Some(name), "TYPE without HELP");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            parsed.order.push(name.to_owned());
            parsed.kinds.insert(name.to_owned(), kind.to_owned());
        } else {
            assert!(!line.starts_with('#') && helped.is_none(), "{line}");
            let (name, labels, value) = sample(line);
            let family = parsed.order.last().unwrap_or_else(|| panic!("{line}"));
            match parsed.kinds[family].as_str() {
                "histogram" => {
                    let suffix = name.strip_prefix(family.as_str());
                    assert!(
                        [Some("_bucket"), Some("_sum"), Some("_count")].contains(&suffix),
                        "{line}"
                    );
                }
                "counter" => {
                    assert_eq!(&name, family);
                    assert!(name.ends_with("_total"), "{line}");
                }
                _ => assert_eq!(&name, family),
            }
            let twice = parsed
                .samples
                .iter()
                .any(|(n, l, _)| *n == name && *l == labels);
            assert!(!twice, "{line} twice");
            assert!(value >= 0.0, "{line}");
            parsed.samples.push((name, labels, value));
        }
    }
    parsed
}

/// Bucket counts of a histogram in order, after checking the rules of one.
fn buckets(parsed: &Parsed, family: &str, labels: &[(&str, &str)]) -> Vec<f64> {
    let mut last = (f64::NEG_INFINITY, 0.0);
    let mut counts = Vec::new();
    for (name, with, value) in &parsed.samples {
        let Some(((le, bound), rest)) = with.split_last().map(|((k, v), r)| ((k, v), r)) else {
            continue;
        };
        let same = rest.len() == labels.len()
            && rest
                .iter()
                .zip(labels)
                .all(|(a, b)| a.0 == b.0 && a.1 == b.1);
        if *name != format!("{family}_bucket") || !same {
            continue;
        }
        assert_eq!(le, "le");
        let bound: f64 = if bound == "+Inf" {
            f64::INFINITY
        } else {
            bound.parse().unwrap()
        };
        assert!(bound > last.0 && *value >= last.1, "{family} {bound}");
        last = (bound, *value);
        counts.push(*value);
    }
    assert_eq!(last.0, f64::INFINITY, "{family} has no +Inf");
    let count = parsed.value(&format!("{family}_count"), labels);
    assert_eq!(count, Some(last.1), "{family}");
    counts
}

#[test]
fn every_line_is_well_formed_and_every_family_is_there_in_order() {
    let parsed = parse(&Metrics::new().render());
    let table: Vec<&str> = FAMILIES.iter().map(|f| f.name).collect();
    assert_eq!(parsed.order, table);
    for family in FAMILIES {
        let labelled = parsed
            .samples
            .iter()
            .find(|(n, _, _)| n.starts_with(family.name));
        let (_, labels, _) = labelled.unwrap_or_else(|| panic!("{} has no sample", family.name));
        let names: Vec<&str> = labels
            .iter()
            .map(|(k, _)| k.as_str())
            .filter(|k| *k != "le")
            .collect();
        assert_eq!(names, family.labels, "{}", family.name);
    }
}

/// The names that dashboards of existing controllers ask for.
#[test]
fn the_contracts_names_are_exposed_at_zero_from_the_start() {
    let parsed = parse(&Metrics::new().render());
    let zero = Some(0.0);
    for mode in [
        "runtime",
        "file_only",
        "reload",
        "scheduled",
        "noop",
        "rejected",
    ] {
        assert_eq!(
            parsed.value("haptic_agent_apply_total", &[("mode", mode)]),
            zero
        );
        buckets(
            &parsed,
            "haptic_agent_apply_duration_seconds",
            &[("mode", mode)],
        );
    }
    for stage in [
        "request",
        "manifest",
        "fence",
        "parts",
        "missing",
        "startup",
        "busy",
        "backup",
        "write",
        "reload",
        "revert",
        "revert_reload",
        "scheduled_reload",
        "known_bad",
    ] {
        assert_eq!(
            parsed.value("haptic_agent_apply_rejected_total", &[("stage", stage)]),
            zero
        );
    }
    for name in [
        "generation_monotonic",
        "disk_is_the_desired_set",
        "runtime_mode_does_not_reload",
        "reload_mode_reloads",
        "noop_runs_no_ops",
        "journal_only_while_diverged",
        "mount_probe_found_every_mount",
        "ops_executable",
        "recovery_reload",
    ] {
        let labels = [("name", name)];
        assert_eq!(
            parsed.value("haptic_agent_invariant_violations_total", &labels),
            zero
        );
    }
    for result in ["ok", "refused", "failed", "unconfirmed"] {
        assert_eq!(
            parsed.value("haptic_agent_reloads_total", &[("result", result)]),
            zero
        );
    }
    for kind in ["server", "backend"] {
        assert_eq!(
            parsed.value("haptic_agent_pending_deletes", &[("kind", kind)]),
            zero
        );
        for outcome in ["done", "deferred", "abandoned", "superseded"] {
            let labels = [("kind", kind), ("outcome", outcome)];
            assert_eq!(
                parsed.value("haptic_agent_deferred_deletes_total", &labels),
                zero
            );
        }
    }
    for kind in <OpKind as Label>::ALL {
        let labels = [("kind", kind.as_str())];
        assert_eq!(parsed.value("haptic_agent_op_errors_total", &labels), zero);
    }
    for name in [
        "haptic_agent_rollbacks_total",
        "haptic_agent_generation",
        "haptic_runtime_map_divergence_total",
        "haptic_agent_reload_pending",
        "haptic_agent_known_bad_hits_total",
        "haptic_agent_worker_changes_total",
        "haptic_agent_connections",
        "haptic_agent_files",
        "haptic_agent_journal_entries",
    ] {
        assert_eq!(parsed.value(name, &[]), zero, "{name}");
    }
    buckets(&parsed, "haptic_agent_reload_duration_seconds", &[]);
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    assert_eq!(parsed.value("haptic_agent_build_info", &version), Some(1.0));
    let apply = [("path", "/v1/apply"), ("code", "409")];
    assert_eq!(
        parsed.value("haptic_agent_http_requests_total", &apply),
        zero
    );
}

#[test]
fn what_is_counted_shows_in_its_own_sample_only() {
    let metrics = Metrics::new();
    metrics.applies.of(ApplyMode::FileOnly).inc();
    metrics.rejected.of(RejectStage::KnownBad).add(2);
    metrics.generation.set(9);
    let deletes = metrics.deferred_deletes.of(DeleteKind::Backend);
    deletes.of(DeleteOutcome::Superseded).inc();
    metrics.count_request("/v1/state?verify=1", 200);
    metrics.count_request("/favicon.ico", 418);
    metrics
        .apply_duration
        .of(ApplyMode::Reload)
        .observe(Duration::from_millis(60));
    let (before, after) = (parse(&Metrics::new().render()), parse(&metrics.render()));
    let changed: Vec<String> = after
        .samples
        .iter()
        .filter(|(name, _, _)| !name.starts_with("process_") && !name.contains("_bucket"))
        .filter(|(name, labels, value)| {
            let was = before
                .samples
                .iter()
                .find(|(n, l, _)| n == name && l == labels);
            was.is_none_or(|(_, _, old)| old != value)
        })
        .map(|(name, labels, value)| {
            let labels: Vec<&str> = labels.iter().map(|(_, v)| v.as_str()).collect();
            format!("{name} {} {value}", labels.join(" "))
        })
        .collect();
    assert_eq!(
        changed,
        [
            "haptic_agent_apply_total file_only 1",
            "haptic_agent_apply_rejected_total known_bad 2",
            "haptic_agent_apply_duration_seconds_sum reload 0.06",
            "haptic_agent_apply_duration_seconds_count reload 1",
            "haptic_agent_deferred_deletes_total backend superseded 1",
            "haptic_agent_generation  9",
            "haptic_agent_http_requests_total /v1/state 200 1",
            "haptic_agent_http_requests_total other other 1",
        ]
    );
    let counts = buckets(
        &after,
        "haptic_agent_apply_duration_seconds",
        &[("mode", "reload")],
    );
    assert_eq!(
        counts.iter().filter(|n| **n == 0.0).count(),
        6,
        "60 ms is above 50 ms"
    );
}
