//! Whether what is answered, and what HAProxy shows, is what the store says: `overrides` and
//! `--wait` of a site where something between them is wrong.

use super::kit::{self, Ended};
use super::rows::config;
use super::silent::Site;
use crate::support::haproxy::{Haproxy, Version};
use crate::support::wait;
use haptic_agent::responder::kv::dir::store::Store;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A site whose rows ask and follow.
fn site(version: Version) -> Site {
    let site = Site::start(version);
    for row in ["web/s1", "web/s2", "web/s3"] {
        site.coverage_says(row, "state", "following");
    }
    site
}

fn overrides(site: &Site) -> Ended {
    site.seen(&["overrides"])
}

/// The key's object in the listing.
fn listed(site: &Site, key: &str) -> serde_json::Value {
    site.seen(&["overrides", "-o", "json"]).key(key)
}

#[test]
fn a_row_that_an_operator_holds_down_does_not_follow() {
    std::thread::scope(|scope| {
        for version in Version::ALL {
            scope.spawn(move || held_down(version));
        }
    });
}

fn held_down(version: Version) {
    let site = site(version);
    site.run(&["ready", "web/s1", "--pin"]).good();
    let there = overrides(&site).good();
    let shown = "answered to 1 row, and HAProxy shows it";
    assert!(there.out.contains(shown), "{version}: {}", there.out);
    site.haproxy.ask("set server web/s1 agent down").unwrap();
    let held = overrides(&site).bad("set server web/s1 agent up");
    assert!(held.out.contains("differs: web/s1"), "{}", held.out);
    assert_eq!(listed(&site, "web/s1")["shown"], 0);
    // Nor is it ready for whoever waits, whichever way that one looks.
    let by_socket = ["--haproxy-socket", site.socket.as_str(), "--wait", "1s"];
    site.run(&[&["ready", "web/s1"][..], &by_socket].concat())
        .bad("web/s1 is held DOWN");
    site.seen(&["ready", "web/s1", "--wait", "1s"])
        .bad("set server web/s1 agent up");
    // It has no key any more, and is not as it is answered all the same.
    let astray = overrides(&site).bad("web/s1 is answered ready and is diverged");
    assert!(astray.out.contains("no overrides in"), "{}", astray.out);
    site.haproxy.ask("set server web/s1 agent up").unwrap();
    site.run(&[&["ready", "web/s1"][..], &by_socket].concat())
        .good();
}

/// The responder looks every 10 s by itself, and at once for whoever waits.
#[test]
fn a_short_wait_is_enough() {
    let site = site(Version::V3_4);
    for words in [
        ["drain", "canary"],
        ["maint", "canary"],
        ["ready", "canary"],
    ] {
        let begin = Instant::now();
        let there = site.seen(&[&words[..], &["--wait", "6s"]].concat()).good();
        assert!(there.out.contains("shown by 2 rows"), "{}", there.out);
        println!("{words:?}: {:?}", begin.elapsed());
    }
    // What is said of a row is of this moment, too.
    site.run(&["ready", "web/s1", "--pin"]).good();
    for _ in 0..2 {
        site.haproxy.ask("disable agent web/s1").unwrap();
        overrides(&site).bad("its agent check is switched off");
        site.haproxy.ask("enable agent web/s1").unwrap();
        overrides(&site).good();
    }
}

#[test]
fn a_haproxy_that_is_gone_is_said() {
    let mut site = site(Version::V3_4);
    site.run(&["drain", "canary"]).good();
    overrides(&site).good();
    site.haproxy.kill();
    let dead = overrides(&site).bad("its HAProxy cannot be asked");
    assert!(dead.out.contains("asked for by 2 rows"), "{}", dead.out);
    assert!(
        dead.out.contains("what HAProxy shows is not known"),
        "{}",
        dead.out
    );
    site.seen(&["maint", "canary", "--wait", "1s"])
        .bad("its HAProxy cannot be asked");
    // Ten intervals later, ten seconds at least, nobody counts as asking.
    wait::until_ok("the rows are gone", PATIENCE, || {
        let listed = overrides(&site);
        let gone = "no row asks for it any more; earlier it was web/s1, web/s2";
        listed.out.contains(gone).then_some(()).ok_or(listed)
    });
}

/// A responder beside another directory: what is written here is answered nowhere.
#[test]
fn a_responder_of_another_store_is_said() {
    let site = site(Version::V3_4);
    site.run(&["drain", "web/s3"]).good();
    site.await_admin("s3", "8");
    let other = site.dir.path().join("other");
    Store::make(&other).unwrap();
    let here = other.display().to_string();
    let url = ["--responder", site.responder.monitoring.as_str()];
    let run = |words: &[&str]| kit::run(&[("HAPTIC_KV_DIR", &here)], &[words, &url].concat());
    // Nothing is stored here, so nothing is ended, and the row stays out.
    let ready = run(&["ready", "web/s3"]).bad("answers drain by it all the same");
    assert!(
        ready.out.contains(&format!("looked in {here}")),
        "{}",
        ready.out
    );
    assert!(ready.out.contains(&site.kv), "{}", ready.out);
    assert!(ready.out.contains("--kv-dir, --consul-addr or --kv-prefix"));
    let blind = kit::run(&[("HAPTIC_KV_DIR", &here)], &["ready", "web/s3"]).good();
    assert!(
        blind.out.contains("was not there") && blind.out.contains(&here),
        "{}",
        blind.out
    );
    run(&["drain", "web/s1"]).good();
    let listed = run(&["overrides"]).bad("its responder does not have it");
    for says in [
        "web/s1 is answered ready",
        "answers drain all the same, to 1 row",
        "is that the same store?",
    ] {
        assert!(listed.out.contains(says), "{says}: {}", listed.out);
    }
    // Another way to the responder's directory is the same store, whatever else differs.
    let way = site.dir.path().join("way");
    std::os::unix::fs::symlink(&site.kv, &way).unwrap();
    site.haproxy.ask("set server web/s3 agent down").unwrap();
    site.run(&["ready", "web/s3", "--pin"]).good();
    let way = way.display().to_string();
    let same = kit::run(
        &[("HAPTIC_KV_DIR", &way)],
        &[&["overrides"], &url[..]].concat(),
    );
    let same = same.bad("set server web/s3 agent up");
    assert!(!same.out.contains("same store"), "{}", same.out);
    // A Consul is certainly another store.
    let consul = kit::run(
        &[("CONSUL_HTTP_ADDR", "127.0.0.1:1")],
        &[&["overrides"], &url[..]].concat(),
    );
    consul.bad("follows another store");
}

/// Without the store there is still what is answered.
#[test]
fn what_is_answered_is_shown_while_the_store_is_away() {
    let site = site(Version::V3_4);
    site.run(&["drain", "canary"]).good();
    site.await_admin("s2", "8");
    fs::rename(&site.kv, site.dir.path().join("away")).unwrap();
    let away = wait::until_ok("the responder knows", PATIENCE, || {
        let away = overrides(&site).bad("there is no directory");
        let told = "it holds its copy back (directory), since ";
        away.out
            .contains(told)
            .then_some(away.out.clone())
            .ok_or(away)
    });
    assert!(away.contains("canary  drain"), "{away}");
    assert!(
        away.contains("answers drain all the same, to 2 rows"),
        "{away}"
    );
    let json = site.seen(&["overrides", "-o", "json"]);
    assert!(
        json.json()["error"]
            .as_str()
            .unwrap()
            .contains("no directory")
    );
    let canary = json.key("canary");
    let by = &canary["answered_by"][&site.responder.monitoring];
    assert_eq!(*by, serde_json::json!({"value": "drain", "rows": 2}));
    // Another directory in its place takes what is written, and it is not followed.
    Store::make(Path::new(&site.kv)).unwrap();
    wait::until_ok("the responder knows", PATIENCE, || {
        let listed = overrides(&site).bad("holds its copy back");
        let other = listed.out.contains("is another directory than before");
        other.then_some(()).ok_or(listed)
    });
    let lost = site.seen(&["maint", "web/s1", "--wait", "1s"]);
    let lost = lost.bad("is another directory than before");
    assert_eq!(
        lost.err.matches("another directory").count(),
        1,
        "{}",
        lost.err
    );
    assert!(lost.out.contains("holds its copy back"), "{}", lost.out);
    fs::remove_dir_all(&site.kv).unwrap();
    // Nobody to ask, nothing to show.
    let blind = site.run(&["overrides"]).bad("there is no directory");
    assert_eq!(blind.out, "");
}

/// Rows ask a responder without a copy, and are not heard: no key is misspelt for that.
#[test]
fn a_responder_without_a_copy_calls_no_key_misspelt() {
    let dir = tempfile::tempdir().unwrap();
    let (kv, base) = (dir.path().join("kv"), dir.path().join("haproxy"));
    fs::create_dir(&base).unwrap();
    fs::create_dir(&kv).unwrap();
    let responder = kit::Responder::start(&kv, &base.join("worker.sock"));
    let haproxy = Haproxy::start(Version::V3_4, &base, &config(&base, &responder.checks));
    wait::until("HAProxy asks, and is told nothing", PATIENCE, || {
        let csv = haproxy.ask("show stat web 4 -1").unwrap();
        csv.contains("L7RSP").then_some(())
    });
    let other = dir.path().join("other");
    Store::make(&other).unwrap();
    let here = other.display().to_string();
    let url = ["--responder", responder.monitoring.as_str()];
    let run = |words: &[&str]| kit::run(&[("HAPTIC_KV_DIR", &here)], &[words, &url].concat());
    let late = run(&["drain", "canary", "--wait", "1s"]).bad("answers no check");
    for text in [&late.out, &late.err] {
        assert!(
            !text.contains("no row") && !text.contains("spelling"),
            "{text}"
        );
    }
    let listed = run(&["overrides"]).bad("answers no check");
    assert!(!listed.out.contains("no row asks"), "{}", listed.out);
}

/// A file that was a key and is none any more: its responder goes on with what it knew.
#[test]
fn a_key_that_cannot_be_read_is_shown_with_what_is_answered() {
    let site = site(Version::V3_4);
    site.run(&["drain", "web/s1"]).good();
    site.await_admin("s1", "8");
    let beside = Path::new(&site.kv).join(".beside");
    std::os::unix::fs::symlink("nowhere", &beside).unwrap();
    fs::rename(&beside, Path::new(&site.kv).join("web%2Fs1")).unwrap();
    let listed = overrides(&site).bad("is a symbolic link");
    assert!(
        listed.out.contains("goes on with drain, for 1 row"),
        "{}",
        listed.out
    );
}

#[test]
fn a_misspelt_first_key_is_explained() {
    let misspelt = |base: &Path, checks: &str| config(base, checks).replace("web/s2 ", "web/s22 ");
    let site = Site::start_with(Version::V3_4, &misspelt);
    site.coverage_says("web/s22", "state", "foreign");
    site.coverage_says("web/s2", "state", "by_group");
    site.run(&["drain", "canary"]).good();
    let listed = overrides(&site).bad("it sends \"web/s22 canary\"");
    for says in [
        "the first word of agent-send has to be backend/server",
        "did you mean web/s2?",
        "web/s22 is answered drain and is foreign",
    ] {
        assert!(listed.out.contains(says), "{says}: {}", listed.out);
    }
    site.coverage_says(
        "web/s22",
        "why",
        "it sends \"web/s22 canary\", and HAProxy has no server web/s22: the first word of agent-send has to be backend/server as HAProxy spells them",
    );
}
