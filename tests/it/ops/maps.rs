//! Map ops.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const MAP: &str = "maps/host.map";

/// The entries as HAProxy lists them.
fn shown(bench: &Bench, map: &str) -> Vec<String> {
    let dump = bench
        .worker()
        .dump(&format!("show map {map}"), soon())
        .unwrap();
    let text = String::from_utf8(dump).unwrap();
    text.lines()
        .map(|row| {
            assert!(row.starts_with("0x"), "{row:?}");
            row.split_once(' ').unwrap().1.to_owned()
        })
        .collect()
}

fn add(key: &str, value: &str) -> Value {
    op("map_add", json!({"path": MAP, "key": key, "value": value}))
}

fn set(key: &str, value: &str) -> Value {
    op("map_set", json!({"path": MAP, "key": key, "value": value}))
}

fn del(key: &str) -> Value {
    op("map_del", json!({"path": MAP, "key": key}))
}

fn replace(path: &str) -> Value {
    op("map_replace", json!({"path": path}))
}

#[test]
fn entries_come_change_and_go_on_the_same_worker() {
    each(|bench| {
        bench.good(&json!([add("c", "three"), set("a", "1"), del("b")]));
        assert_eq!(shown(bench, MAP), ["a 1", "c three"]);
        let report = bench.good(&json!([del("nowhere"), del("c"), add("c", "4")]));
        assert_eq!(report.results[0].outcome.as_str(), "absent");
        assert_eq!(report.results[1].outcome.as_str(), "ok");
        assert_eq!(shown(bench, MAP), ["a 1", "c 4"]);
    });
}

#[test]
fn values_keep_every_byte() {
    let values = [
        "",
        "two words",
        "a;b",
        "a;show info",
        "back\\slash",
        "\\ x",
        "\"q\" 'q'",
        "<<E_O_F",
        "E_O_F",
        "# no comment",
        "ü → 漢",
        "tab\tin",
        "a  b",
        "%[src]",
        "> x",
    ];
    each(|bench| {
        let ops: Vec<Value> = values
            .iter()
            .enumerate()
            .map(|(n, value)| add(&format!("/v{n}"), value))
            .collect();
        bench.good(&json!(ops));
        let wanted: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(n, value)| format!("/v{n} {value}"))
            .collect();
        assert_eq!(shown(bench, MAP)[2..], wanted);
        let file: String = wanted.iter().map(|row| format!("{row}\n")).collect();
        bench.write(MAP, &file);
        bench.good(&json!([replace(MAP)]));
        assert_eq!(shown(bench, MAP), wanted);
    });
}

#[test]
fn every_duplicate_goes_on_every_version() {
    each(|bench| {
        let mut ops: Vec<Value> = (0..5).map(|n| add("dup", &n.to_string())).collect();
        ops.push(add("kept", "x"));
        bench.good(&json!(ops));
        bench.good(&json!([del("dup"), del("kept"), add("dup", "new")]));
        assert_eq!(shown(bench, MAP), ["a one", "b two", "dup new"]);
        let many: Vec<Value> = (0..70).map(|n| add("many", &n.to_string())).collect();
        bench.good(&json!(many));
        if bench.haproxy.version() == Version::V3_4 {
            let (outcome, words) = bench.bad(&json!([del("a"), del("many")]), 1);
            assert_eq!(outcome, Outcome::Rejected);
            assert!(words.contains("64"), "{words}");
        } else {
            bench.good(&json!([del("a"), del("many")]));
        }
    });
}

#[test]
fn a_refused_op_is_blamed_among_a_hundred_and_nothing_follows_it_for_long() {
    each(|bench| {
        for (at, bad, wanted) in [
            (42, set("nowhere", "x"), "entry not found."),
            (
                0,
                op(
                    "map_set",
                    json!({"path": "maps/none.map", "key": "a", "value": "b"}),
                ),
                "Unknown map identifier. Please use #<id> or <file>.",
            ),
            (
                99,
                op(
                    "map_add",
                    json!({"path": "maps/none.map", "key": "a", "value": "b"}),
                ),
                "Unknown map identifier. Please use #<id> or <file>.",
            ),
            (
                57,
                op("map_del", json!({"path": "maps/none.map", "key": "a"})),
                "Unknown map identifier. Please use #<id> or <file>.",
            ),
        ] {
            let ops: Vec<Value> = (0..100)
                .map(|n| {
                    if n == at {
                        bad.clone()
                    } else {
                        set("a", &n.to_string())
                    }
                })
                .collect();
            let (outcome, words) = bench.bad(&json!(ops), at);
            assert_eq!((outcome, words.as_str()), (Outcome::Rejected, wanted));
        }
    });
}

#[test]
fn a_thousand_ops_in_one_batch() {
    each(|bench| {
        let ops: Vec<Value> = (0..1000)
            .map(|n| match n % 3 {
                0 => add(&format!("k{n}"), "some value"),
                1 => set("a", &n.to_string()),
                _ => del(&format!("k{}", n - 2)),
            })
            .collect();
        let report = bench.good(&json!(ops));
        assert_eq!(report.results.len(), 1000);
        assert_eq!(shown(bench, MAP), ["a 997", "b two", "k999 some value"]);
        let more: Vec<Value> = (0..1001).map(|_| set("a", "x")).collect();
        let refused = bench.try_run(&json!(more)).unwrap_err();
        assert_eq!((refused.index, refused.outcome), (1000, Outcome::TooBig));
    });
}

#[test]
fn a_map_of_fifty_thousand_entries_is_replaced_at_once() {
    each(|bench| {
        let rows = |mark: &str| -> String {
            (0..50_000)
                .map(|n| format!("/path/{n} {mark} {n}\n"))
                .collect()
        };
        for mark in ["first", "second"] {
            bench.write(MAP, rows(mark));
            bench.good(&json!([replace(MAP)]));
            let seen = shown(bench, MAP);
            assert_eq!(seen.len(), 50_000);
            assert_eq!(seen[49_999], format!("/path/49999 {mark} 49999"));
        }
        bench.write(MAP, "# nothing\n\n");
        bench.good(&json!([replace(MAP)]));
        assert!(shown(bench, MAP).is_empty());
    });
}

#[test]
fn single_entries_and_replacement_mix_in_one_batch() {
    each(|bench| {
        bench.write(MAP, "x 1\ny\ny 2\n");
        bench.good(&json!([
            set("a", "q"),
            replace(MAP),
            add("z", "3"),
            set("x", "9"),
            replace(MAP),
            del("y")
        ]));
        assert_eq!(shown(bench, MAP), ["x 1"]);
    });
}

#[test]
fn a_map_that_haproxy_does_not_know_is_refused() {
    each(|bench| {
        bench.write("maps/none.map", "a b\n");
        let (outcome, words) = bench.bad(&json!([set("a", "q"), replace("maps/none.map")]), 1);
        assert_eq!(outcome, Outcome::Rejected);
        assert_eq!(words, "Unknown map identifier. Please use #<id> or <file>.");
        let gone = bench
            .try_run(&json!([replace("maps/gone.map")]))
            .unwrap_err();
        assert_eq!((gone.index, gone.outcome), (0, Outcome::Invalid));
    });
}

#[test]
fn fields_that_break_their_rule_stop_the_batch_before_its_first_byte() {
    let mut bench = Bench::start(Version::V3_4, routing);
    for bad in [
        add("", "v"),
        add("a b", "v"),
        add("#0x1", "v"),
        add("a;b", "v"),
        add("k", "v\nw"),
        add("k", " v"),
        add("k", &"v".repeat(13_000)),
        set("k", ""),
        set("k", "two words"),
        set("k", "<<X"),
        op("map_set", json!({"path": "@1", "key": "a", "value": "b"})),
        op("map_set", json!({"path": "#1", "key": "a", "value": "b"})),
        op("map_set", json!({"key": "a", "value": "b"})),
        op("frobnicate", json!({})),
    ] {
        let refused = bench
            .try_run(&json!([set("a", "changed"), bad.clone()]))
            .unwrap_err();
        assert_eq!(refused.index, 1, "{bad}");
    }
    assert_eq!(shown(&bench, MAP), ["a one", "b two"]);
}

#[test]
fn the_file_as_parsed_is_what_the_loader_makes_of_it() {
    for version in Version::ALL {
        let line = prop_oneof![
            4 => "[a-d#]{1,3}[ \t]{1,2}[ a-z#\\\\;\"'ü<>\r\t]{0,10}",
            2 => "[ \ta-d#\r]{0,6}",
            1 => "[\\x01-\\x09\\x0b-\\x7f]{0,12}",
        ];
        let file = proptest::collection::vec(line, 0..300);
        let mut runner = TestRunner::new(Config {
            cases: 4,
            failure_persistence: None,
            ..Config::default()
        });
        runner
            .run(&file, |lines| {
                let text = lines.join("\n");
                let mut bench = Bench::start(version, |base| {
                    let config = routing(base);
                    fs::write(base.join(MAP), &text).unwrap();
                    config
                });
                let loaded = shown(&bench, MAP);
                bench.write("maps/other.map", &text);
                bench.good(&json!([replace("maps/other.map")]));
                prop_assert_eq!(shown(&bench, "maps/other.map"), loaded, "{:?}", text);
                Ok(())
            })
            .unwrap();
    }
}

/// Bytes that are no text are an entry's as well, in the file and behind a replacement.
#[test]
fn bytes_that_are_no_text_are_kept() {
    for version in Version::ALL {
        let mut bench = Bench::start(version, routing);
        let mut file: Vec<u8> = Vec::new();
        for byte in 0x80_u8..=0xff {
            file.extend_from_slice(&[b'/', byte, b' ', byte, b'x', byte, b'\n']);
        }
        file.extend_from_slice(b"# \xff\n\xef\xbb\xbf/bom v\n/cut v\r\xfe\n");
        bench.write(MAP, &file);
        bench.good(&json!([replace(MAP)]));
        let replaced = rows(&bench, MAP);
        assert_eq!(replaced.len(), 128 + 2);
        bench.reload();
        assert_eq!(rows(&bench, MAP), replaced, "{version}");
    }
}

/// Keys and values at the edge of their rules: single bytes of every sort, words that mean
/// something elsewhere, and all the room that a command has. What the ops leave in the
/// worker is what its loader makes of the file.
#[test]
fn what_ops_leave_is_what_a_reload_loads() {
    for version in Version::ALL {
        let mut bench = Bench::start(version, routing);
        let mut model: Vec<(String, String)> = Vec::new();
        let words = [
            "@1", "*", "%[src]", "a#b", "E_O_F", "prompt", "quit", "\"", "'", "|", "$HOME", "${x}",
            "~", "=", "!", "+ ", "> ", "ü", "\u{a0}", "\u{feff}", "\u{2028}", "漢字", "-", "--",
        ];
        let keys = words.iter().filter(|word| !word.contains([' ', '>']));
        for (n, key) in keys.enumerate() {
            model.push(((*key).to_owned(), format!("k{n}")));
        }
        let values = words.iter().filter(|word| !word.ends_with(' '));
        for (n, value) in values.enumerate() {
            model.push((format!("/w{n}"), (*value).to_owned()));
        }
        for byte in (1_u8..=0x7f).filter(|byte| !b"\n\r\t ".contains(byte)) {
            let text = char::from(byte).to_string();
            model.push((format!("/b{byte}"), text.clone()));
            model.push((format!("/m{byte}"), format!("x{text}y")));
            if byte > b' ' && byte != 0x7f && !b";<>\\#".contains(&byte) {
                model.push((text.clone(), "key".to_owned()));
                model.push((format!("/in{text}side"), "key".to_owned()));
            }
        }
        model.push(("/tab".to_owned(), "a\tb".to_owned()));
        model.push(("/blanks".to_owned(), "a   b".to_owned()));
        model.push(("/long".to_owned(), "v".repeat(12_000)));
        model.push(("k".repeat(12_000), "long".to_owned()));
        let ops: Vec<Value> = model.iter().map(|(key, value)| add(key, value)).collect();
        // Twice, in two batches, so that each key has two entries that are told apart.
        bench.write(MAP, "");
        bench.good(&json!([replace(MAP)]));
        bench.good(&json!(ops));
        bench.good(&json!(ops));
        let both: Vec<(String, String)> = [model.clone(), model.clone()].concat();
        let file: String = both
            .iter()
            .map(|(key, value)| format!("{key} {value}\n"))
            .collect();
        let after_ops = rows(&bench, MAP);
        bench.write(MAP, &file);
        bench.write("maps/other.map", &file);
        bench.good(&json!([replace("maps/other.map")]));
        let replaced = rows(&bench, "maps/other.map");
        bench.before = bench.reload();
        let loaded = rows(&bench, MAP);
        for (what, seen) in [("ops", &after_ops), ("a replacement", &replaced)] {
            assert_eq!(seen.len(), loaded.len(), "{version}: {what}");
            for (one, other) in seen.iter().zip(&loaded) {
                assert_eq!(one, other, "{version}: {what}");
            }
        }
        // Each of them is found again to be changed and deleted.
        let mut keys: Vec<&String> = model.iter().map(|(key, _)| key).collect();
        keys.sort();
        keys.dedup();
        let changes: Vec<Value> = keys.iter().map(|key| set(key, "changed")).collect();
        bench.good(&json!(changes));
        let changed = rows(&bench, MAP);
        assert_eq!(changed.len(), both.len());
        assert!(changed.iter().all(|row| row.ends_with(b" changed")));
        let gone: Vec<Value> = keys.iter().map(|key| del(key)).collect();
        bench.good(&json!(gone));
        assert!(rows(&bench, MAP).is_empty(), "{version}");
    }
}

/// The entries as HAProxy lists them, as bytes.
fn rows(bench: &Bench, map: &str) -> Vec<Vec<u8>> {
    let dump = bench
        .worker()
        .dump(&format!("show map {map}"), soon())
        .unwrap();
    let rows = dump.split(|&b| b == b'\n').filter(|row| !row.is_empty());
    rows.map(|row| {
        let at = row.iter().position(|&b| b == b' ').unwrap();
        row[at + 1..].to_vec()
    })
    .collect()
}
