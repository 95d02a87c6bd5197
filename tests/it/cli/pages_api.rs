//! haptic-agent-api(7) against the code: every figure here, every key and word in
//! [`whole`], what each op needs, takes and becomes in [`ops`].

mod ops;
mod whole;

use super::in_repository;
use haptic_agent::apply::{gate, known_bad};
use haptic_agent::haproxy::batch::BATCH_PATIENCE;
use haptic_agent::haproxy::command::COMMAND_PATIENCE;
use haptic_agent::haproxy::readback::READBACK_PATIENCE;
use haptic_agent::http::{limits as http, multipart};
use haptic_agent::wire::limits;
use haptic_agent::wire::manifest::{Manifest, ReservedPaths, Token};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

const MIB: u64 = 1024 * 1024;

fn page() -> String {
    fs::read_to_string(in_repository("man/haptic-agent-api.7")).unwrap()
}

/// A section, its heading left out.
fn section(page: &str, name: &str) -> String {
    let heading = format!("\n.Sh {name}\n");
    let rest = page
        .split(&heading)
        .nth(1)
        .unwrap_or_else(|| panic!("no {name}"));
    rest.split("\n.Sh ").next().unwrap().to_owned()
}

/// The text as read: macros and line ends gone.
fn prose(text: &str) -> String {
    let words = text.split_whitespace();
    words
        .filter(|word| !matches!(*word, ".It" | ".Ql" | ".Li" | ".Fl" | ".Pp"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Whether the text names this, and not only a longer name that has it within.
fn names(text: &str, name: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        !before.ends_with(part) && !after.starts_with(part)
    })
}

fn all_named(text: &str, wanted: &BTreeSet<String>) {
    for name in wanted {
        assert!(names(text, name), "the page does not name {name}");
    }
}

fn mib(bytes: u64) -> String {
    assert_eq!(bytes % MIB, 0);
    format!("{} MiB", bytes / MIB)
}

fn seconds(time: Duration) -> String {
    assert_eq!(time.subsec_nanos(), 0);
    time.as_secs().to_string()
}

#[test]
fn every_figure_is_the_codes() {
    let of_contract = [
        ("API_VERSION", String::new()),
        (
            "MAX_APPLY_BODY_BYTES",
            format!(
                "an apply request has at most {}",
                mib(limits::MAX_APPLY_BODY_BYTES)
            ),
        ),
        (
            "MAX_MANIFEST_BYTES",
            format!(
                "manifest at most {}",
                mib(limits::MAX_MANIFEST_BYTES as u64)
            ),
        ),
        (
            "MAX_FILES",
            format!("at most {} files in one manifest", limits::MAX_FILES),
        ),
        (
            "MAX_FILES_BYTES",
            format!("in one manifest, {} together", mib(limits::MAX_FILES_BYTES)),
        ),
        (
            "MAX_PLAN_BLOB_BYTES",
            format!(
                "the plan blob has at most {}",
                mib(limits::MAX_PLAN_BLOB_BYTES)
            ),
        ),
        (
            "MAX_PATH_BYTES",
            format!("paths at most {} bytes", limits::MAX_PATH_BYTES),
        ),
        (
            "MAX_OPS_PER_APPLY",
            format!(
                "at most {} in ops and as many in in_place_ops",
                limits::MAX_OPS_PER_APPLY
            ),
        ),
        (
            "MAX_PLAN_ID_BYTES",
            format!("a plan id has at most {} bytes", limits::MAX_PLAN_ID_BYTES),
        ),
        (
            "MAX_COMMAND_LINE_BYTES",
            format!(
                "a runtime command has at most {} bytes",
                limits::MAX_COMMAND_LINE_BYTES
            ),
        ),
        (
            "MAX_PAYLOAD_BYTES",
            format!(
                "at most {} bytes, payload included",
                limits::MAX_PAYLOAD_BYTES
            ),
        ),
        (
            "MAX_COMMAND_WORDS",
            format!("payload included, and {} words", limits::MAX_COMMAND_WORDS),
        ),
        (
            "MAX_WAIT_BUDGET_MS",
            format!(
                "all waits of one apply together {} ms",
                limits::MAX_WAIT_BUDGET_MS
            ),
        ),
        (
            "MAX_RELOAD_MS",
            format!(
                "one may take {} seconds at most",
                limits::MAX_RELOAD_MS / 1000
            ),
        ),
        (
            "MAX_PENDING_SERVER_DELETES",
            format!("at most {} servers", limits::MAX_PENDING_SERVER_DELETES),
        ),
        (
            "MAX_PENDING_BACKEND_DELETES",
            format!(
                "and {} backends wait to be deleted",
                limits::MAX_PENDING_BACKEND_DELETES
            ),
        ),
        (
            "MAX_MAP_DEL_REPEAT",
            format!("deleted at most {} times", limits::MAX_MAP_DEL_REPEAT),
        ),
        (
            "MAX_INVENTORY_ROWS",
            format!("at most {} names of one kind", limits::MAX_INVENTORY_ROWS),
        ),
        (
            "MAX_MAP_ROWS",
            format!("a map of more than {} entries", limits::MAX_MAP_ROWS),
        ),
        (
            "MAX_RELOAD_INTERVAL_MS",
            format!(
                "the interval between two be {} seconds at most",
                limits::MAX_RELOAD_INTERVAL_MS / 1000
            ),
        ),
    ];
    let deadlines = http::Deadlines::default();
    let others = [
        format!("at most {} parts in one form", limits::MAX_FILES + 2),
        format!(
            "a part's head has at most {} bytes and {} fields, the boundary at most {} characters",
            multipart::MAX_PART_HEAD_BYTES,
            multipart::MAX_PART_FIELDS,
            multipart::MAX_BOUNDARY_BYTES
        ),
        format!(
            "the batch has {} seconds, a command in it {}",
            seconds(BATCH_PATIENCE),
            seconds(COMMAND_PATIENCE)
        ),
        format!("takes at most {} seconds", seconds(READBACK_PATIENCE)),
        format!(
            "the latest {} are remembered, for {} seconds each",
            known_bad::MAX_KNOWN_BAD,
            seconds(known_bad::KNOWN_BAD_FOR)
        ),
        format!("at most {} applies at a time", gate::MAX_UPLOADS),
        format!(
            "at most {}, and {} for the metrics; {} requests on each",
            http::API_CONNECTIONS,
            http::METRICS_CONNECTIONS,
            http::MAX_REQUESTS_PER_CONNECTION
        ),
        format!(
            "a request line has at most {} bytes, a request's head {} bytes and {} fields",
            http::MAX_REQUEST_LINE_BYTES,
            http::INPUT_BYTES,
            http::MAX_FIELDS
        ),
        format!(
            "a body has {} seconds in all and {} seconds between two bytes, a head {} seconds; an idle connection is closed after {} seconds",
            seconds(deadlines.body),
            seconds(deadlines.body_stall),
            seconds(deadlines.head),
            seconds(deadlines.idle)
        ),
    ];
    let text = prose(&section(&page(), "LIMITS"));
    for phrase in of_contract.iter().map(|(_, phrase)| phrase).chain(&others) {
        assert!(text.contains(phrase), "LIMITS lacks: {phrase}");
    }
    let known: BTreeSet<&str> = of_contract.iter().map(|(name, _)| *name).collect();
    let source = fs::read_to_string(in_repository("src/wire/limits.rs")).unwrap();
    for line in source.lines() {
        if let Some(rest) = line.strip_prefix("pub const ") {
            let name = rest.split(':').next().unwrap();
            assert!(
                known.contains(name),
                "{name} is a limit that the page has to tell"
            );
        }
    }
}

/// The limits that are no constants which a test can reach: as their source has them.
#[test]
fn figures_within_modules_are_the_codes_too() {
    for (file, constant, section_name, phrase) in [
        (
            "src/api/state.rs",
            "const MAX_HELD: usize = 16;",
            "LIMITS",
            "at most 16 state requests",
        ),
        (
            "src/haproxy/ops/compile.rs",
            "const MAX_INLINE_WAIT_MS: u64 = 2000;",
            "OPERATIONS",
            "At most 2000 ms are waited here",
        ),
        (
            "src/haproxy/readback.rs",
            "const SECOND_LOOK: Duration = Duration::from_millis(50);",
            "WHAT BECOMES OF IT",
            "still there 50 ms later",
        ),
        (
            "src/format/field.rs",
            "const MAX_NAME_BYTES: usize = 255;",
            "OPERATIONS",
            "dashes, of at most 255 bytes",
        ),
    ] {
        let source = fs::read_to_string(in_repository(file)).unwrap();
        assert!(source.contains(constant), "{file} has another {constant}");
        let text = prose(&section(&page(), section_name));
        assert!(text.contains(phrase), "{section_name} lacks: {phrase}");
    }
}

/// What the page says of defaults, of null and of keys that come twice.
#[test]
fn a_manifest_may_leave_out_what_has_a_default() {
    let none = ReservedPaths::default();
    let parse = |text: &str| Manifest::parse(text.as_bytes(), &none);
    let token = r#""token": {"leader_epoch": 1, "render_seq": 1}"#;
    let least = format!(r#"{{"plan_id": "p", {token}, "mode": "reload"}}"#);
    let got = parse(&least).unwrap();
    assert_eq!(got.expected_prev_plan_id, "");
    assert_eq!(got.expected_prev_token, Token::default());
    assert_eq!(got.plan_schema_version, 0);
    assert!(got.files.is_empty());
    let with = |more: &str| parse(&least.replace("\"mode\"", &format!("{more}, \"mode\"")));
    for fine in [
        r#""files": null"#,
        r#""ops": null, "in_place_ops": null"#,
        r#""validated_plan_id": null"#,
        r#""of_another_version": [1]"#,
        r#""ops": [{"kind": "of_another_version", "pth": "a"}]"#,
    ] {
        assert!(with(fine).is_ok(), "{fine}");
    }
    for refused in [
        r#""plan_id": "twice""#,
        r#""plan_schema_version": null"#,
        r#""expected_prev_token": null"#,
        r#""plan_schema_version": "1""#,
        r#""in_place_ops": [{"kind": "map_del"}]"#,
        r#""ops": [{"kind": "map_del", "weight": "7"}]"#,
    ] {
        assert!(with(refused).is_err(), "{refused}");
    }
    // What the page gives neither a default nor the word absent has to be there.
    let (manifest, file) = whole::manifest_and_file();
    let page = section(&page(), "THE MANIFEST");
    for (value, within, text) in [
        (
            &manifest,
            false,
            page.split("\n.Ss Files\n").next().unwrap(),
        ),
        (&file, true, page.split("\n.Ss Files\n").nth(1).unwrap()),
    ] {
        for field in value.as_object().unwrap().keys() {
            let item = text
                .split(&format!("\n.It Li {field}\n"))
                .nth(1)
                .unwrap_or_else(|| panic!("no item for {field}"));
            let item = item.split("\n.It ").next().unwrap();
            let mut less = value.clone();
            less.as_object_mut().unwrap().remove(field);
            let whole = match within {
                true => {
                    let mut whole = manifest.clone();
                    whole["files"] = Value::from(vec![less]);
                    whole
                }
                false => less,
            };
            assert_eq!(
                parse(&whole.to_string()).is_ok(),
                item.contains("default") || item.contains("absent"),
                "{field}: {item}"
            );
        }
    }
}
