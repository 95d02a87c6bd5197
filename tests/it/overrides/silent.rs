//! Rows that a key does not reach: HAProxy does not ask about them, or another key decides.

use super::kit::{self, Ended, Responder};
use super::rows::config;
use crate::support::haproxy::{Haproxy, Version, preamble};
use crate::support::wait;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// A store, a responder on it, and a HAProxy that asks that.
pub(super) struct Site {
    pub(super) dir: tempfile::TempDir,
    pub(super) kv: String,
    pub(super) socket: String,
    pub(super) responder: Responder,
    pub(super) haproxy: Haproxy,
}

impl Site {
    pub(super) fn start(version: Version) -> Self {
        Self::start_with(version, &config)
    }

    pub(super) fn start_with(version: Version, config: &dyn Fn(&Path, &str) -> String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (kv, base): (PathBuf, PathBuf) = (dir.path().join("kv"), dir.path().join("haproxy"));
        std::fs::create_dir(&base).unwrap();
        let socket = base.join("worker.sock");
        let responder = Responder::start(&kv, &socket);
        let haproxy = Haproxy::start(version, &base, &config(&base, &responder.checks));
        Self {
            kv: kv.display().to_string(),
            socket: socket.display().to_string(),
            dir,
            responder,
            haproxy,
        }
    }

    pub(super) fn run(&self, words: &[&str]) -> Ended {
        kit::run(&[("HAPTIC_KV_DIR", &self.kv)], words)
    }

    /// With what the responder knows.
    pub(super) fn seen(&self, words: &[&str]) -> Ended {
        let url = ["--responder", self.responder.monitoring.as_str()];
        self.run(&[words, &url].concat())
    }

    pub(super) fn coverage_says(&self, row: &str, field: &str, want: &str) {
        wait::until_ok("the coverage says so", PATIENCE, || {
            let text = coverage(&self.responder.monitoring);
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            let rows = json["rows"].as_array().unwrap();
            let found = rows.iter().find(|shown| shown["row"] == row);
            match found.and_then(|row| row[field].as_str()) {
                Some(text) if text == want => Ok(()),
                other => Err(format!("{row}: {field} {other:?}")),
            }
        });
    }

    fn admin(&self, server: &str) -> String {
        let dump = self.haproxy.ask("show servers state web").unwrap();
        let rows = dump.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let row = rows.into_iter().find(|row| row.get(3) == Some(&server));
        row.unwrap()[6].to_owned()
    }

    pub(super) fn await_admin(&self, server: &str, want: &str) {
        wait::until_ok("the row's state", PATIENCE, || match self.admin(server) {
            admin if admin == want => Ok(()),
            admin => Err(format!("{} {server}: {admin}", self.haproxy.version())),
        });
    }
}

fn coverage(monitoring: &str) -> String {
    let address = monitoring.trim_start_matches("http://").parse().unwrap();
    let reply = crate::support::agent::get(address, "/-/coverage", None);
    assert_eq!(reply.status, 200);
    reply.text()
}

/// A row whose agent check is off is no row that has the state, and no row that is left out:
/// the wait fails with the reason, and the list has it.
#[test]
fn rows_that_are_not_asked_about_are_named_with_the_reason() {
    let sites = Version::ALL.map(Site::start);
    for site in &sites {
        site.coverage_says("web/s1", "answer", "ready");
        let said = site.haproxy.ask("disable agent web/s1").unwrap();
        assert_eq!(said.trim(), "");
    }
    for site in &sites {
        site.coverage_says("web/s1", "state", "agent_off");
        let late = site
            .seen(&["drain", "canary", "--wait", "2s", "-o", "json"])
            .bad("web/s1 does not ask: its agent check is switched off");
        let rows = late.key("canary")["rows"].clone();
        assert_eq!(rows["asked"], 1, "{rows:#}");
        assert!(
            rows["not_asking"][0]
                .as_str()
                .unwrap()
                .contains("enable agent web/s1")
        );
        assert_eq!(
            late.err.matches("web/s1 does not ask").count(),
            1,
            "{}",
            late.err
        );
        site.await_admin("s2", "8");
        assert_eq!(site.admin("s1"), "0");
        let listed = site.seen(&["overrides"]).bad("enable agent web/s1");
        assert!(listed.out.contains("asked for by 1 row"), "{}", listed.out);
        for how in [
            "its copy is current, 2 rows ask, last ",
            ": 1 drain, 1 ready; 1 row with",
        ] {
            assert!(listed.out.contains(how), "{}", listed.out);
        }
        let json = site.seen(&["overrides", "-o", "json"]).json();
        let place = &json["responders"][&site.responder.monitoring];
        assert_eq!(
            place["answers"],
            serde_json::json!({"drain": 1, "ready": 1})
        );
        assert_eq!(place["not_asking"], 1);
        assert!(place["age_seconds"].as_f64().unwrap() < 60.0, "{place:#}");
        // HAProxy's own socket says the same, of this moment.
        let by_haproxy = ["--haproxy-socket", site.socket.as_str(), "--wait", "1s"];
        let row = [&["drain", "web/s1"][..], &by_haproxy].concat();
        let late = site.run(&row).bad("web/s1 is in service and does not ask");
        assert!(
            late.err.contains("waiting for it all the same"),
            "{}",
            late.err
        );
        // A key of its own is warned of, too, though nobody waits.
        let warned = site.seen(&["maint", "web/s1"]).good();
        assert!(warned.err.contains("web/s1 does not ask"), "{}", warned.err);
    }
    for site in &sites {
        site.haproxy.ask("enable agent web/s1").unwrap();
        site.await_admin("s1", "1");
        site.coverage_says("web/s1", "state", "following");
        let there = site
            .seen(&["drain", "canary", "web/s1", "--wait", "25s"])
            .good();
        assert!(there.out.contains("shown by 1 row"), "{}", there.out);
        site.seen(&["overrides"]).good();
    }
}

/// `ready` deletes a key, and a group's key may go on holding the row.
#[test]
fn what_holds_a_row_out_after_ready_is_said() {
    let sites = Version::ALL.map(Site::start);
    for site in &sites {
        let version = site.haproxy.version();
        site.coverage_says("web/s3", "answer", "ready");
        site.run(&["drain", "canary", "web/s1"]).good();
        site.coverage_says("web/s1", "decided_by", "web/s1");
        let ended = site
            .seen(&["ready", "web/s1"])
            .bad("canary (drain) still decides");
        assert!(
            ended.out.contains("ready web/s1 --pin"),
            "{version}: {}",
            ended.out
        );
        site.coverage_says("web/s1", "decided_by", "canary");
        // Again, with nothing to delete; and without a responder as far as the store tells.
        let again = site.seen(&["ready", "web/s1", "-o", "json"]);
        assert_eq!(again.code, 1, "{again:#?}");
        assert_eq!(again.key("web/s1")["held_by"][0]["key"], "canary");
        let blind = site.run(&["ready", "web/s1"]).good();
        assert!(
            blind.out.contains("still stored: canary (drain)"),
            "{}",
            blind.out
        );
        // The way that it points at.
        let url = site.responder.monitoring.clone();
        let pinned = [
            "ready",
            "web/s1",
            "--pin",
            "--wait",
            "25s",
            "--responder",
            &url,
        ];
        site.run(&pinned).good();
        site.await_admin("s1", "0");
        site.await_admin("s2", "8");
        // A row's own key beside a group that ends is said, and is as somebody wanted it.
        site.run(&["maint", "web/s2"]).good();
        let group = site.seen(&["ready", "canary"]).good();
        assert!(
            group.out.contains("web/s2 (maint) still decides"),
            "{}",
            group.out
        );
        assert!(!group.out.contains("--pin"), "{}", group.out);
        // What neither exists nor is asked for.
        let typo = site.seen(&["ready", "cannary"]).good();
        let says = "nothing is stored under cannary, and no row asks for it; did you mean canary?";
        assert!(typo.out.contains(says), "{}", typo.out);
        site.run(&["drain", "canary"]).good();
        let typo = site.run(&["ready", "cannary"]).good();
        assert!(typo.out.contains("did you mean canary?"), "{}", typo.out);
    }
}

/// A share of weight 1 is none, and some balancing takes no shares: whoever asks for one is
/// told.
#[test]
fn why_a_weight_does_not_do_what_it_says() {
    let config = |base: &Path, checks: &str| {
        let (host, port) = checks.rsplit_once(':').unwrap();
        let asks = |name: &str| {
            format!(
                "agent-check agent-addr {host} agent-port {port} agent-send \"{name}\\n\" agent-inter 100ms"
            )
        };
        format!(
            "{}frontend front\n    bind unix@{}\n    default_backend web\nbackend web\n    server s1 127.0.0.1:9 {}\nbackend fixed\n    balance static-rr\n    server s1 127.0.0.1:9 weight 100 {}\n",
            preamble(base),
            base.join("front.sock").display(),
            asks("web/s1"),
            asks("fixed/s1"),
        )
    };
    let sites = Version::ALL.map(|version| Site::start_with(version, &config));
    for site in &sites {
        let version = site.haproxy.version();
        site.coverage_says("fixed/s1", "state", "following");
        site.coverage_says("web/s1", "state", "following");
        let none = site.seen(&["weight", "web/s1", "50%"]).good();
        assert!(
            none.err.contains("web/s1 (weight 1)"),
            "{version}: {}",
            none.err
        );
        let whole = site.seen(&["weight", "web/s1", "100%"]).good();
        assert!(whole.err.is_empty(), "{version}: {}", whole.err);
        // What HAProxy says of it is there but while a check is under way.
        let refused = site.seen(&["weight", "fixed/s1", "50%", "--wait", "15s"]);
        refused.bad("fixed/s1 is answered 50% and is diverged: HAProxy shows no check");
    }
}
