//! What the process says of a store that is not as it should be: in its log once, in its
//! metrics and its coverage for as long as it lasts.

use super::kit::{PATIENCE, Store, ask};
use super::process::Respond;
use crate::support::wait;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

const UNREADABLE: &str = "haptic_responder_kv_unreadable_files";
const IGNORED: &str = "haptic_responder_kv_ignored_names";
const INVALID: &str = "haptic_responder_kv_invalid_values";

fn on(path: &Path) -> Respond {
    let respond = Respond::with(&["-kv-dir", path.to_str().unwrap()]).start();
    respond.wait_synced();
    respond
}

fn await_sample(respond: &Respond, name: &str, want: f64) {
    wait::until_ok(name, PATIENCE, || match respond.sample(name) {
        value if (value - want).abs() < 0.5 => Ok(()),
        value => Err(value),
    });
}

/// How often the log has a record with all of these words.
fn logged(respond: &Respond, words: &[&str]) -> usize {
    let log = respond.log();
    let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
    log.lines().filter(has_all).count()
}

#[test]
fn files_that_do_not_count_are_logged_once_counted_and_shown() {
    let store = Store::new();
    store.set("web/s1", "drain");
    let respond = on(&store.path());
    for name in [UNREADABLE, IGNORED, INVALID] {
        await_sample(&respond, name, 0.0);
    }
    // Misspelt: the slash is %2F.
    fs::write(store.path().join("web%2fs2"), "drain").unwrap();
    fs::create_dir(store.path().join("folder")).unwrap();
    await_sample(&respond, IGNORED, 1.0);
    await_sample(&respond, UNREADABLE, 1.0);
    // A known key whose file cannot be read any more.
    let beside = store.path().join(".beside");
    symlink(store.path().join(".nowhere"), &beside).unwrap();
    fs::rename(&beside, store.path().join("web%2Fs1")).unwrap();
    await_sample(&respond, UNREADABLE, 2.0);
    assert_eq!(
        ask(respond.checks(), "web/s1\n"),
        "drain\n",
        "it keeps its value"
    );
    assert_eq!(ask(respond.checks(), "web/s2\n"), "ready 100%\n");
    let shown = respond.get("/-/coverage").json()["store"].clone();
    let unreadable = serde_json::json!(["folder", "web%2Fs1"]);
    assert_eq!(shown["unreadable"]["named"], unreadable);
    assert_eq!(shown["unreadable"]["told"][0], "folder (a directory)");
    assert_eq!(shown["ignored"]["count"], 1);
    assert!(shown["ignored"]["named"].to_string().contains("web%2fs2"));
    // Several looks later each has been said once.
    let reads = "haptic_responder_kv_reads_total{result=\"same\"}";
    let before = respond.sample(reads);
    wait::until("more looks", PATIENCE, || {
        (respond.sample(reads) > before + 5.0).then_some(())
    });
    let once = [
        &["no key's", "web%2fs2"],
        &["cannot be read", "web%2Fs1 (a symbolic link"],
    ];
    for words in once {
        assert_eq!(logged(&respond, words), 1, "{words:?}: {}", respond.log());
    }
    // A name that is spelled as it should be is never called misspelt.
    for name in ["folder", "web%2Fs1"] {
        assert_eq!(logged(&respond, &["no key's", name]), 0, "{name}");
    }
    fs::remove_file(store.path().join("web%2Fs1")).unwrap();
    fs::remove_file(store.path().join("web%2fs2")).unwrap();
    fs::remove_dir(store.path().join("folder")).unwrap();
    for name in [UNREADABLE, IGNORED] {
        await_sample(&respond, name, 0.0);
    }
    assert_eq!(logged(&respond, &["can be read again"]), 1);
}

/// Nobody knows what an empty file said: it is an invalid value like any other, and is said
/// to be one.
#[test]
fn an_empty_file_at_the_start_counts_as_absent_and_says_so() {
    let store = Store::new();
    store.set("canary", "drain");
    let torn = fs::File::create(store.path().join("web%2Fs1")).unwrap();
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    torn.set_modified(hour_ago).unwrap();
    let respond = on(&store.path());
    assert_eq!(ask(respond.checks(), "web/s1\n"), "ready 100%\n");
    assert_eq!(ask(respond.checks(), "web/s1 canary\n"), "drain\n");
    await_sample(&respond, INVALID, 1.0);
    assert_eq!(
        logged(&respond, &["counts as absent", "web/s1"]),
        1,
        "{}",
        respond.log()
    );
    let shown = respond.get("/-/coverage").json();
    assert_eq!(shown["store"]["invalid"][0]["key"], "web/s1");
}

/// An empty Consul at the start may be a wiped one, and only a marker could tell.
#[cfg(feature = "testkit")]
#[test]
fn an_empty_store_at_the_start_is_warned_of_where_no_marker_is_required() {
    use haptic_agent::testkit::FakeConsul;
    let warned = |consul: &FakeConsul, flags: &[&str]| {
        let address = consul.address().to_string();
        let flags = [&["-kv-prefix", "fleet/state"], flags].concat();
        let respond = Respond::with(&flags).env("CONSUL_HTTP_ADDR", &address);
        let respond = respond.start();
        respond.wait_synced();
        wait::until("it is logged", PATIENCE, || {
            (logged(&respond, &["the store has been read"]) == 1).then_some(())
        });
        logged(&respond, &["no key at all", "--kv-marker"])
    };
    let consul = FakeConsul::start().unwrap();
    consul.put("elsewhere", "x");
    assert_eq!(warned(&consul, &[]), 1);
    consul.put("fleet/state/whole", "1");
    assert_eq!(warned(&consul, &["-kv-marker", "whole"]), 0);
    assert_eq!(warned(&consul, &[]), 0);
}

/// Whoever writes with a responder at hand need not be told of its marker.
#[cfg(feature = "testkit")]
#[test]
fn a_marker_is_known_to_whoever_asks_the_responder() {
    use haptic_agent::testkit::FakeConsul;
    let consul = FakeConsul::start().unwrap();
    consul.put("fleet/state/whole", "1");
    consul.put("fleet/state/a", "drain");
    let address = consul.address().to_string();
    let respond = Respond::with(&["-kv-prefix", "fleet/state", "-kv-marker", "whole"])
        .env("CONSUL_HTTP_ADDR", &address)
        .start();
    respond.wait_synced();
    assert_eq!(ask(respond.checks(), "a\n"), "drain\n");
    let run_with = |words: &[&str], more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_hapticctl"))
            .args(words)
            .args(more)
            .env_clear()
            .env("CONSUL_HTTP_ADDR", &address)
            .env("HAPTIC_KV_PREFIX", "fleet/state")
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), said)
    };
    let monitoring = format!("http://{}", respond.monitoring());
    let run = |words: &[&str]| run_with(words, &["--responder", &monitoring]);
    let run_blind = |words: &[&str]| run_with(words, &[]).1;
    let (code, listed) = run(&["overrides"]);
    assert_eq!(code, Some(0), "{listed}");
    assert!(!listed.contains("whole"), "{listed}");
    // Nobody to ask: it may be one.
    let blind = run_blind(&["overrides"]);
    assert!(blind.contains("--kv-marker whole"), "{blind}");
    let (code, refused) = run(&["ready", "whole"]);
    assert_eq!(code, Some(1), "{refused}");
    assert!(refused.contains("it is the marker"), "{refused}");
    // Without the marker a write is not followed, and that is said.
    consul.delete("fleet/state/whole");
    consul.delete("fleet/state/a");
    let held = "haptic_responder_kv_hold{reason=\"marker\"}";
    await_sample(&respond, held, 1.0);
    assert_eq!(ask(respond.checks(), "a\n"), "drain\n");
    let (code, listed) = run(&["overrides"]);
    assert_eq!(code, Some(1), "{listed}");
    assert!(listed.contains("it still answers: a drain"), "{listed}");
    assert!(listed.contains("the marker whole is missing"), "{listed}");
}
