//! Overrides in a directory.

use super::kit::{self, Ended};
use crate::kv::kit::{PATIENCE, Watched};
use haptic_agent::clock::{Clock as _, SystemClock};
use haptic_agent::responder::kv::dir::store::Store;
use haptic_agent::responder::stamp::Stamp;
use haptic_agent::responder::value::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

struct Kv {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Kv {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kv");
        Store::make(&path).unwrap();
        Self { _dir: dir, path }
    }

    fn run(&self, words: &[&str]) -> Ended {
        let path = self.path.display().to_string();
        kit::run(&[("HAPTIC_KV_DIR", &path)], words)
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.path.join(name)).unwrap()
    }
}

/// The responder is another user than whoever drains.
#[test]
fn a_key_can_be_read_by_the_responder_whatever_the_writers_umask() {
    let kv = Kv::new();
    let drained = Command::new("sh")
        .args([
            "-c",
            "umask 077 && exec \"$0\" drain canary --kv-dir \"$1\"",
        ])
        .arg(env!("CARGO_BIN_EXE_hapticctl"))
        .arg(&kv.path)
        .status()
        .unwrap();
    assert!(drained.success());
    let mode = fs::metadata(kv.path.join("canary")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o644);
}

#[test]
fn every_verb_does_what_it_says() {
    let kv = Kv::new();
    let watched = Watched::dir(&kv.path).synced();
    let drained = kv.run(&["drain", "web/s1"]).good();
    assert_eq!(drained.out, "web/s1  drain (was absent)\n");
    assert!(kv.file("web%2Fs1").starts_with("drain\nat: "));
    watched.until_value("web/s1", Some(Value::Drain));
    kv.run(&["maint", "web/s1", "canary", "web/s1"]).good();
    watched.until_value("web/s1", Some(Value::Maint));
    watched.until_value("canary", Some(Value::Maint));
    let weighed = kv.run(&["weight", "canary", "50%"]).good();
    assert_eq!(weighed.out, "canary  50% (was maint)\n");
    watched.until_value("canary", Some(Value::Weight(50)));
    kv.run(&["ready", "web/s1", "--pin"]).good();
    watched.until_value("web/s1", Some(Value::Ready));
    let ended = kv
        .run(&["ready", "web/s1", "canary", "nobody", "-o", "json"])
        .good();
    assert_eq!(ended.key("web/s1")["before"]["value"], "ready");
    assert!(ended.key("nobody")["before"].is_null());
    watched.until_keys(&[]);
    assert!(kv.run(&["overrides"]).good().out.contains("no overrides"));
}

#[test]
fn a_note_and_an_end_are_shown_until_they_are_over() {
    let kv = Kv::new();
    let watched = Watched::dir(&kv.path).synced();
    let words = ["drain", "web/s1", "--for", "2s", "--why", "kernel update"];
    let before = Stamp::of(SystemClock.wall()).seconds();
    let set = kv.run(&[&words[..], &["-o", "json"]].concat()).good();
    let until = set.key("web/s1")["after"]["until"]
        .as_str()
        .unwrap()
        .to_owned();
    let until = Stamp::parse(&until).unwrap();
    assert!((before + 2..before + 10).contains(&until.seconds()));
    watched.until_value("web/s1", Some(Value::Drain));
    let listed = kv.run(&["overrides", "-o", "json"]);
    let row = listed.key("web/s1");
    assert_eq!(row["value"], "drain");
    assert_eq!(
        (&row["by"], &row["why"]),
        (&"alice".into(), &"kernel update".into())
    );
    // Nobody deletes it, and it ends.
    watched.until_value("web/s1", None);
    assert!(until.has_come(SystemClock.wall()));
    let over = kv.run(&["overrides"]).bad("its time was over");
    // Not swept yet: clocks differ. Nobody is sent to do what has just been done.
    assert!(over.out.contains("--sweep deletes it in "), "{}", over.out);
    let kept = kv.run(&["overrides", "--sweep"]).bad("its time was over");
    assert!(kept.out.contains("--sweep deletes it in "), "{}", kept.out);
    let old = "drain\nuntil: 2026-01-01T00:00:00Z\n";
    fs::write(kv.path.join("web%2Fs1"), old).unwrap();
    let swept = kv.run(&["overrides", "--sweep"]).good();
    assert!(swept.out.contains("deleted"), "{}", swept.out);
    assert!(!kv.path.join("web%2Fs1").exists());
}

#[test]
fn what_others_wrote_is_shown_as_what_it_is() {
    let kv = Kv::new();
    fs::write(kv.path.join("a"), "up\n").unwrap();
    fs::write(kv.path.join("b"), "drain").unwrap();
    fs::write(kv.path.join("c%20d"), "drain").unwrap();
    let listed = kv.run(&["overrides"]).bad("about health");
    assert!(listed.out.contains("no request can name"), "{}", listed.out);
    assert!(listed.out.contains("set just now"), "{}", listed.out);
    let json = kv.run(&["overrides", "-o", "json"]);
    assert_eq!(json.key("b")["value"], "drain");
    assert!(json.key("b")["good"].as_bool().unwrap());
    assert!(json.key("a")["value"].is_null());
    // An invalid one is replaced like any other.
    let set = kv.run(&["drain", "a"]).good();
    assert_eq!(set.out, "a  drain (was an invalid value)\n");
}

/// A misspelt name and something that is no file are in force nowhere, and do not hide the
/// rest.
#[test]
fn what_counts_for_nothing_is_shown() {
    let kv = Kv::new();
    kv.run(&["drain", "b"]).good();
    kv.run(&["overrides"]).good();
    fs::write(kv.path.join("web%2fs1"), "drain").unwrap();
    fs::create_dir(kv.path.join("c")).unwrap();
    let listed = kv.run(&["overrides"]).bad("spelled web%2Fs1");
    assert!(listed.out.contains("b  drain"), "{}", listed.out);
    assert!(listed.out.contains("c  cannot be read"), "{}", listed.out);
    let json = kv.run(&["overrides", "-o", "json"]);
    assert_eq!(json.json()["ignored"][0], "web%2fs1");
    assert!(
        json.key("c")["error"]
            .as_str()
            .unwrap()
            .contains("remove it")
    );
    assert_eq!(json.key("b")["good"], true);
    // An empty file is no override, and says so.
    fs::remove_dir(kv.path.join("c")).unwrap();
    fs::remove_file(kv.path.join("web%2fs1")).unwrap();
    fs::write(kv.path.join("torn"), "").unwrap();
    kv.run(&["overrides"]).bad("counts as absent");
}

#[test]
fn a_directory_that_is_no_store_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display().to_string();
    let run = |words: &[&str]| kit::run(&[("HAPTIC_KV_DIR", path.as_str())], words);
    run(&["drain", "a"]).bad("has no file .haptic-kv");
    run(&["overrides"]).bad("has no file .haptic-kv");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let gone = kit::run(
        &[("HAPTIC_KV_DIR", "/nonexistent/kv")],
        &["drain", "a", "-o", "json"],
    );
    let error = gone.bad("no directory").json()["error"].to_string();
    assert!(
        error.contains("mount it") && error.contains("mkdir -p /nonexistent/kv"),
        "{error}"
    );
}

#[test]
fn writers_wait_for_each_other() {
    let kv = Kv::new();
    std::thread::scope(|scope| {
        for turn in 0..6 {
            let kv = &kv;
            scope.spawn(move || {
                let percent = format!("{turn}%");
                // One that lost the race says so and changed nothing.
                let ended = kv.run(&["weight", "web/s1", &percent]);
                assert!(
                    ended.code == 0 || ended.out.contains("somebody else changed it"),
                    "{ended:#?}"
                );
            });
        }
    });
    let value = kv.file("web%2Fs1");
    assert!(value.contains("%\n"), "{value}");
    let held = Store::open(&kv.path).unwrap().try_lock().unwrap().unwrap();
    let begin = SystemClock.now();
    kv.run(&["drain", "web/s1"]).bad("another hapticctl");
    assert!(begin.elapsed() < PATIENCE);
    drop(held);
    kv.run(&["drain", "web/s1"]).good();
}

#[test]
fn command_lines_that_make_no_sense() {
    let kv = Kv::new();
    let table: &[(&[&str], &str)] = &[
        (&["drain"], "KEY is missing"),
        (&["drain", "a b"], "blank"),
        (&["drain", "a//b"], "slash"),
        (&["drain", "/a"], "slash"),
        (&["weight", "a"], "N% is missing"),
        (&["weight", "a", "50"], "0% to 999%"),
        (&["weight", "a", "drain"], "0% to 999%"),
        (&["weight", "a", "50%", "b"], "not \"b\""),
        (&["drain", "a", "--for", "0s"], "1s to 90d"),
        (&["drain", "a", "--for", "91d"], "1s to 90d"),
        (&["drain", "a", "--for", "30"], "1s to 90d"),
        (&["drain", "a", "--for", "-5m"], "1s to 90d"),
        (&["drain", "a", "--why", "a\nb"], "one line"),
        (&["drain", "a", "--wait", "5s"], "--responder"),
        (&["ready", "a", "--for", "5m"], "--pin"),
        (&["ready", "a", "--ramp", "--pin"], "do not go together"),
        (
            &["drain", "a", "--consul-addr", "127.0.0.1:1"],
            "do not go together",
        ),
        (&["drain", "a", "--responder", "127.0.0.1:1"], "http://"),
        (&["overrides", "a"], "not \"a\""),
        (&["drain", &"x".repeat(300)], "file name"),
    ];
    for (words, says) in table {
        let ended = kv.run(words);
        assert_eq!(ended.code, 2, "{words:?}: {ended:#?}");
        assert!(ended.err.contains(says), "{words:?}: {}", ended.err);
        assert!(ended.out.is_empty());
    }
    for addr in ["https://127.0.0.1:8501", "127.0.0.1"] {
        let ended = kit::run(&[("CONSUL_HTTP_ADDR", addr)], &["drain", "a"]);
        assert_eq!(ended.code, 2, "{ended:#?}");
        assert!(ended.err.contains("CONSUL_HTTP_ADDR"));
    }
    assert_eq!(fs::read_dir(&kv.path).unwrap().count(), 1, "only the mark");
}
