//! Overrides in a fake Consul that refuses on demand.

use super::kit::{self, Ended};
use crate::kv::kit::{PREFIX, Watched, full};
use haptic_agent::responder::stamp::Stamp;
use haptic_agent::responder::value::Value;
use haptic_agent::testkit::FakeConsul;
use haptic_agent::testkit::fake_consul::Rights;

const NOTES: &str = "fleet/.notes/state";

fn run_with(consul: &FakeConsul, env: &[(&str, &str)], words: &[&str]) -> Ended {
    let address = consul.address().to_string();
    let ours = [
        ("CONSUL_HTTP_ADDR", address.as_str()),
        ("HAPTIC_KV_PREFIX", PREFIX),
    ];
    kit::run(&[&ours[..], env].concat(), words)
}

fn run(consul: &FakeConsul, words: &[&str]) -> Ended {
    run_with(consul, &[], words)
}

/// What other responders read is the value under the key, and nothing but it.
#[test]
fn other_readers_see_plain_values() {
    let consul = FakeConsul::start().unwrap();
    let watched = Watched::consul(consul.address()).synced();
    run(
        &consul,
        &[
            "drain", "web/s1", "--for", "1h", "--why", "disk", "--by", "bob",
        ],
    )
    .good();
    watched.until_value("web/s1", Some(Value::Drain));
    let stored = consul.get(&full("web/s1")).unwrap();
    assert_eq!(stored.value, b"drain");
    let until = Stamp::of_flags(stored.flags).unwrap();
    assert_eq!(watched.copy().get("web/s1").unwrap().until(), Some(until));
    let note = consul.get(&format!("{NOTES}/web/s1")).unwrap();
    assert_eq!(note.modify_index, stored.modify_index);
    assert!(
        String::from_utf8(note.value)
            .unwrap()
            .contains("\"by\":\"bob\"")
    );
    // The value alone: nothing else has a key that starts like the prefix.
    assert_eq!(watched.keys(), ["web/s1"]);
    assert!(!NOTES.starts_with(PREFIX));
    // A plain write of another tool takes end and note along.
    consul.put(&full("web/s1"), "maint");
    let row = run(&consul, &["overrides", "-o", "json"])
        .good()
        .key("web/s1");
    assert_eq!(row["value"], "maint");
    assert!(row["until"].is_null() && row["why"].is_null(), "{row:#}");
    // Ending removes the note as well.
    run(&consul, &["ready", "web/s1"]).good();
    assert!(consul.get(&full("web/s1")).is_none());
    assert!(consul.get(&format!("{NOTES}/web/s1")).is_none());
    watched.until_keys(&[]);
}

#[test]
fn a_note_is_shown_with_the_value_it_belongs_to() {
    let consul = FakeConsul::start().unwrap();
    run(&consul, &["drain", "a", "--why", "first"]).good();
    let again = run(&consul, &["maint", "a"]).good();
    assert!(
        again.out.contains("was drain, by alice: first"),
        "{}",
        again.out
    );
    let row = run(&consul, &["overrides", "-o", "json"]).good().key("a");
    assert!(row["why"].is_null(), "{row:#}");
    run(&consul, &["weight", "a", "7%", "--by", "carol"]).good();
    let row = run(&consul, &["overrides", "-o", "json"]).good().key("a");
    assert_eq!(row["by"], "carol");
    assert!(
        row["at"]
            .as_str()
            .is_some_and(|at| Stamp::parse(at).is_some())
    );
}

#[test]
fn refusals_say_what_is_missing() {
    let consul = FakeConsul::start().unwrap();
    consul.put(&full("a"), "drain");
    consul.set_rights(Rights::Below(vec![format!("{PREFIX}/")]));
    run(&consul, &["maint", "a", "--why", "x"]).bad(NOTES);
    assert_eq!(
        consul.get(&full("a")).unwrap().value,
        b"drain",
        "all or nothing"
    );
    run(&consul, &["maint", "a"]).good();
    run(&consul, &["ready", "a"]).good();
    consul.set_rights(Rights::Below(vec!["other".to_owned()]));
    run(&consul, &["drain", "a"]).bad("key_prefix \"fleet/state/\" write");
    consul.set_rights(Rights::Unknown);
    run(&consul, &["overrides"]).bad("ACL not found");
    consul.set_rights(Rights::All);
    consul.set_leader(false);
    run(&consul, &["drain", "a"]).bad("no leader");
    consul.set_leader(true);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    kit::run(&[("CONSUL_HTTP_ADDR", &address)], &["drain", "a"])
        .bad("CONSUL_HTTP_ADDR names another");
    assert!(consul.get(&full("a")).is_none());
}

#[test]
fn tokens_come_from_the_environment_or_a_file() {
    let consul = FakeConsul::start().unwrap();
    consul.set_token(Some("s3cret"));
    run(&consul, &["drain", "a"]).bad("CONSUL_HTTP_TOKEN_FILE");
    run_with(&consul, &[("CONSUL_HTTP_TOKEN", "s3cret")], &["drain", "a"]).good();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "s3cret\n").unwrap();
    let path = path.display().to_string();
    run_with(
        &consul,
        &[("CONSUL_HTTP_TOKEN_FILE", &path)],
        &["ready", "a"],
    )
    .good();
    let gone = [("CONSUL_HTTP_TOKEN_FILE", "/nonexistent/token")];
    run_with(&consul, &gone, &["drain", "a"]).bad("/nonexistent/token");
    assert!(
        consul
            .seen()
            .iter()
            .all(|seen| !seen.target.contains("s3cret"))
    );
}

/// The step through maint ends by itself should nobody take the next one.
#[test]
fn a_ramp_goes_through_maint() {
    let consul = FakeConsul::start().unwrap();
    let watched = Watched::consul(consul.address()).synced();
    run(&consul, &["drain", "a", "--why", "deploy"]).good();
    consul.put(&full("b"), "50%");
    consul.put(&full("c"), "maint");
    let step = std::thread::scope(|scope| {
        let ramp = scope.spawn(|| {
            let words = ["ready", "a", "b", "c", "d", "--ramp", "--ramp-hold", "2s"];
            run(&consul, &[&words[..], &["-o", "json"]].concat())
        });
        watched.until_value("a", Some(Value::Maint));
        let step = watched.copy().get("a").unwrap().until();
        assert_eq!(watched.value("b"), Some(Value::Weight(50)));
        let ended = ramp.join().unwrap().bad("in service");
        assert!(ended.key("a")["good"].as_bool().unwrap(), "{ended:#?}");
        assert!(ended.key("c")["good"].as_bool().unwrap());
        assert!(ended.key("d")["good"].as_bool().unwrap());
        assert!(!ended.key("b")["good"].as_bool().unwrap());
        step
    });
    assert!(step.is_some(), "the step has an end of its own");
    watched.until_keys(&["b"]);
}

/// The marker is no override: it is not judged, not written, and missed.
#[test]
fn the_marker_is_left_alone() {
    let consul = FakeConsul::start().unwrap();
    consul.put(&full("whole"), "1");
    consul.put(&full("a"), "drain");
    run(&consul, &["overrides"]).bad("counts as absent");
    let with = |words: &[&str]| run_with(&consul, &[("HAPTIC_KV_MARKER", "whole")], words);
    let listed = with(&["overrides", "-o", "json"]).good().json();
    assert_eq!(listed["keys"].as_array().unwrap().len(), 1);
    assert_eq!(listed["marker"]["there"], true);
    for words in [
        &["drain", "whole"][..],
        &["ready", "whole"],
        &["ready", "whole", "--ramp", "--ramp-hold", "1s"],
    ] {
        with(words).bad("it is the marker");
    }
    assert_eq!(consul.get(&full("whole")).unwrap().value, b"1");
    // Beside it others are done.
    with(&["ready", "whole", "a"]).bad("it is the marker");
    assert_eq!(consul.get(&full("a")), None);
    consul.delete(&full("whole"));
    with(&["overrides"]).bad("the marker whole is missing");
}
