//! Records read back: as JSON by serde_json, as text by eye.

use serde_json::{Value as Json, json};

use super::*;

const NOON: UnixNanos = UnixNanos(1_709_251_199_000_000_001);

fn with(format: LogFormat, level: Level, msg: &str, fields: &[(&str, Value<'_>)]) -> String {
    line(
        format,
        NOON,
        &Record::builder()
            .args(format_args!("{msg}"))
            .level(level)
            .target("haptic_agent::apply")
            .key_values(&fields)
            .build(),
    )
}

#[test]
fn json_has_the_fixed_fields_first_and_types_kept() {
    let text = with(
        LogFormat::Json,
        Level::Info,
        "apply done",
        &[
            ("plan_id", Value::from("p-1")),
            ("files", Value::from(7_u64)),
            ("delta", Value::from(-7_i64)),
            ("ok", Value::from(true)),
            ("seconds", Value::from(0.25)),
            ("odd", Value::from(f64::NAN)),
            ("none", Value::null()),
            ("shown", Value::from_display(&NOON.rfc3339())),
        ],
    );
    assert!(
        text.starts_with(r#"{"time":"2024-02-29T23:59:59.000000001Z","level":"info","msg":"apply done","plan_id":"p-1","#),
        "{text}"
    );
    let parsed: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(
        parsed,
        json!({
            "time": "2024-02-29T23:59:59.000000001Z", "level": "info", "msg": "apply done",
            "plan_id": "p-1", "files": 7, "delta": -7, "ok": true, "seconds": 0.25,
            "odd": "NaN", "none": null, "shown": "2024-02-29T23:59:59.000000001Z",
        })
    );
}

/// Every character below U+3000 comes back through a JSON parser, and the line stays
/// one line of visible characters.
#[test]
fn any_text_is_one_line_and_survives() {
    for start in (0..0x3000).step_by(0x1000) {
        let all: String = (start..start + 0x1000).filter_map(char::from_u32).collect();
        let fields = [("f", Value::from(all.as_str()))];
        let text = with(LogFormat::Json, Level::Warn, &all, &fields);
        assert!(one_line(&text), "from U+{start:04X}");
        let parsed: Json = serde_json::from_str(&text).unwrap();
        assert!(parsed["msg"] == json!(all), "msg from U+{start:04X}");
        assert!(parsed["f"] == json!(all), "field from U+{start:04X}");
        let text = with(LogFormat::Text, Level::Warn, &all, &fields);
        assert!(one_line(&text), "text from U+{start:04X}");
    }
}

fn one_line(text: &str) -> bool {
    let inner = text.strip_suffix('\n');
    inner.is_some_and(|inner| !inner.chars().any(hidden))
}

#[test]
fn a_field_cannot_pose_as_a_fixed_one() {
    let fields = RESERVED.map(|name| (name, Value::from("x")));
    let text = with(LogFormat::Json, Level::Debug, "m", &fields);
    let parsed: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(parsed["level"], "debug");
    assert_eq!(parsed["msg"], "m");
    assert_eq!(parsed["target"], "haptic_agent::apply");
    assert_eq!(parsed["msg_"], "x");
    assert_eq!(parsed["target_"], "x");
}

#[test]
fn the_target_is_told_to_those_who_debug() {
    for (level, told) in [
        (Level::Error, false),
        (Level::Warn, false),
        (Level::Info, false),
        (Level::Debug, true),
        (Level::Trace, true),
    ] {
        for format in [LogFormat::Json, LogFormat::Text] {
            let text = with(format, level, "m", &[]);
            assert_eq!(text.contains("haptic_agent::apply"), told, "{text}");
        }
    }
}

#[test]
fn text_quotes_only_what_needs_it() {
    let text = with(
        LogFormat::Text,
        Level::Error,
        "two\nlines",
        &[
            ("a", Value::from("plain")),
            ("b", Value::from("two words")),
            ("c", Value::from("")),
            ("d", Value::from("x=\"y\"")),
            ("e", Value::from(5_u64)),
        ],
    );
    assert_eq!(
        text,
        "2024-02-29T23:59:59.000000001Z ERROR two\\nlines a=plain b=\"two words\" c=\"\" d=\"x=\\\"y\\\"\" e=5\n"
    );
}

#[test]
fn long_text_is_cut_between_characters_and_says_so() {
    let long = "ü".repeat(MAX_TEXT_BYTES);
    let text = with(LogFormat::Json, Level::Info, &format!("x{long}"), &[]);
    assert!(text.len() < MAX_TEXT_BYTES + 200);
    let parsed: Json = serde_json::from_str(&text).unwrap();
    let msg = parsed["msg"].as_str().unwrap();
    assert!(
        msg.ends_with(&format!("ü [{} more bytes]", MAX_TEXT_BYTES + 2)),
        "{}",
        msg.len()
    );
}

#[test]
fn a_flood_is_one_record_a_second_and_a_count() {
    let limit = RateLimit::new();
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    let before = suppressed();
    assert_eq!(limit.pass("a", at(0)), Some(0));
    assert_eq!(limit.pass("a", at(1)), None);
    assert_eq!(limit.pass("b", at(1)), Some(0), "keys are independent");
    assert_eq!(limit.pass("a", at(999)), None);
    assert_eq!(limit.pass("a", at(1000)), Some(2));
    assert_eq!(limit.pass("a", at(1500)), None);
    assert_eq!(limit.pass("a", at(9000)), Some(1));
    assert_eq!(limit.pass("a", at(10_000)), Some(0));
    assert_eq!(
        limit.pass("a", at(0)),
        None,
        "time never runs backwards here"
    );
    assert!(suppressed() >= before + 4);
}

#[test]
fn keys_beyond_the_bound_share_one() {
    static NAMES: [&str; 3] = ["x", "y", "z"];
    let limit = RateLimit::new();
    let now = Instant::now();
    for i in 0..MAX_RATE_LIMIT_KEYS {
        let key: &'static str = Box::leak(format!("k{i}").into_boxed_str());
        assert_eq!(limit.pass(key, now), Some(0));
    }
    assert_eq!(limit.pass(NAMES[0], now), Some(0));
    assert_eq!(limit.pass(NAMES[1], now), None);
    assert_eq!(limit.pass(NAMES[2], now), None);
}
