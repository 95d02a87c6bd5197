//! Every way in which a row does not do what the store says is shown as what it is, and
//! nothing is shown that is not so.

use super::kit::{Asker, Checks, INTER, PATIENCE, Store, Wanted, asks};
use crate::support::haproxy::Version;
use crate::support::wait;
use haptic_agent::responder::kv::Weights;
use serde_json::Value;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// Within this a wrong row has to be known as one; the production interval of looks is
/// 10 s, here it is shorter and the machine slower.
const SOON: Duration = Duration::from_secs(15);

fn state(checks: &Checks, row: &str) -> String {
    let shown = checks.coverage(None);
    let rows = shown["rows"].as_array().unwrap();
    let found = rows.iter().find(|shown| shown["row"] == row);
    found
        .and_then(|row| row["state"].as_str())
        .unwrap_or("none")
        .to_owned()
}

fn await_states(checks: &Checks, wanted: &[(&str, &str)]) {
    wait::until_ok("every row in its state", SOON, || {
        let other = wanted
            .iter()
            .find(|(row, want)| state(checks, row) != *want);
        match other {
            None => Ok(()),
            Some((row, want)) => Err(format!("{row} is {}, not {want}", state(checks, row))),
        }
    });
}

fn backends(address: SocketAddr, elsewhere: SocketAddr) -> String {
    let row = |name: &str, request: &str| {
        let asks = asks(address, request, INTER);
        format!("    server {name} 127.0.0.1:9 weight 100 {asks}\n")
    };
    let lost = asks(elsewhere, "web/lost", INTER);
    let by_group = asks(address, "zone", INTER);
    format!(
        "backend web\n{}{}{}{}{}    server lost 127.0.0.1:9 weight 100 {lost}\n    server plain 127.0.0.1:9\nbackend fixed\n    balance static-rr\n{}backend many\n    server-template t 2 127.0.0.1:9 weight 100 {by_group}\n",
        row("good", "web/good canary"),
        row("misspelt", "web/mispelt canary"),
        row("off", "web/off"),
        row("down", "web/down"),
        row("foreign", "web/foreign"),
        row("s1", "fixed/s1"),
    )
}

#[test]
fn each_trouble_is_shown_as_what_it_is() {
    for version in Version::ALL {
        // A port where nobody listens.
        let nobody = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new();
        // HAProxy's directory is made first, because the responder has to know its socket.
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let asker = Asker::start(version, &backends(address, nobody));
        drop(dir);
        let socket = asker.haproxy.worker_socket();
        let checks = Checks::start_at(
            &address.to_string(),
            &store.path(),
            Weights::Set,
            Some(socket),
        );
        wait::until("the store is there", PATIENCE, || {
            store.path().exists().then_some(())
        });
        wait::until("it is synced", PATIENCE, || {
            (checks.sample("haptic_responder_kv_synced") > 0.0).then_some(())
        });
        await_states(
            &checks,
            &[
                ("web/good", "following"),
                ("web/mispelt", "foreign"),
                ("web/lost", "not_asking"),
                ("web/plain", "not_enrolled"),
                ("web/off", "following"),
                ("web/down", "following"),
                ("fixed/s1", "following"),
                ("many/t1", "by_group"),
                ("many/t2", "by_group"),
                // Asked for by a name that is no row's.
                ("zone", "by_group"),
            ],
        );
        asker.haproxy.ask("disable agent web/off").unwrap();
        asker.haproxy.ask("set server web/down agent down").unwrap();
        store.set("fixed/s1", "50%");
        store.set("canary", "drain");
        // The last look is from before the new answer, and says nothing of it.
        wait::until("the refused weight is told", SOON, || {
            let shown = checks.coverage(None);
            let rows = shown["rows"].as_array().unwrap();
            let row = rows.iter().find(|row| row["row"] == "fixed/s1").unwrap();
            let told = row["asked"]["answer"] == "50%" || row["answer"] == "50%";
            assert!(!told || row["state"] != "following", "{version}: {row:#}");
            (told && row["state"] == "diverged").then_some(())
        });
        await_states(
            &checks,
            &[
                ("web/good", "following"),
                ("web/off", "agent_off"),
                ("web/down", "diverged"),
                ("fixed/s1", "diverged"),
            ],
        );
        let shown = checks.coverage(None);
        let rows = shown["rows"].as_array().unwrap();
        let row = |name: &str| rows.iter().find(|row| row["row"] == name).unwrap();
        assert_eq!(row("web/good")["answer"], "drain");
        assert_eq!(row("web/good")["decided_by"], "canary");
        // What HAProxy says of it is there but while a check is under way.
        wait::until_ok("it says why", SOON, || {
            let shown = checks.coverage(None);
            let rows = shown["rows"].as_array().unwrap();
            let row = rows.iter().find(|row| row["row"] == "fixed/s1").unwrap();
            let words = row["haproxy"]["agent_words"].as_str().unwrap();
            let told = !words.is_empty() && row["why"].as_str().unwrap().contains(words);
            told.then_some(())
                .ok_or_else(|| format!("{version}: {row:#}"))
        });
        let status = row("web/lost")["haproxy"]["agent_status"].as_str().unwrap();
        assert!(status.ends_with("L4CON"), "{version}: {status}");
        assert_eq!(row("web/down")["haproxy"]["status"], "DOWN (agent)");
        assert!(checks.sample("haptic_responder_rows{state=\"diverged\"}") >= 2.0);
        assert!((checks.sample("haptic_responder_rows{state=\"foreign\"}") - 1.0).abs() < 0.1);

        asker.haproxy.ask("enable agent web/off").unwrap();
        asker.haproxy.ask("set server web/down agent up").unwrap();
        store.unset("fixed/s1");
        await_states(
            &checks,
            &[
                ("web/off", "following"),
                ("web/down", "following"),
                ("fixed/s1", "following"),
            ],
        );
        // A key explains itself.
        let key = checks.coverage(Some("key=canary"));
        let summary = key["summary"].as_str().unwrap();
        assert!(
            summary.starts_with("canary says drain; rows that ask for it: 2"),
            "{summary}"
        );
    }
}

/// Through five reloads no look calls a good row wrong.
#[test]
fn a_reload_makes_no_row_wrong() {
    let inter = Duration::from_millis(500);
    for version in Version::ALL {
        let store = Store::new();
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let asker = Asker::start(version, &super::kit::web(address, 30, inter, ""));
        let socket = asker.haproxy.worker_socket();
        let checks = Checks::start_at(
            &address.to_string(),
            &store.path(),
            Weights::Set,
            Some(socket),
        );
        wait::until("the store is there", PATIENCE, || {
            (checks.sample("haptic_responder_kv_synced") > 0.0).then_some(())
        });
        store.set("canary", "drain");
        asker.await_row("in drain", "web", "s29", Wanted::Drain);
        wait::until("all follow", SOON, || {
            (checks.sample("haptic_responder_rows{state=\"following\"}") > 29.5).then_some(())
        });
        let mut pending = 0.0;
        for _ in 0..5 {
            asker.reload(None);
            let end = Instant::now() + Duration::from_secs(2);
            while Instant::now() < end {
                let count = |state: &str| {
                    checks.sample(&format!("haptic_responder_rows{{state=\"{state}\"}}"))
                };
                pending += count("pending");
                for state in ["diverged", "not_asking", "foreign", "agent_off"] {
                    assert!(count(state) < 0.5, "{version}: {state} after a reload");
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        println!("{version}: row-looks that were pending: {pending}");
    }
}

/// The misspelt drain: a key that no row asks for.
#[test]
fn a_key_that_nobody_asks_for_is_shown() {
    let store = Store::new();
    let checks = Checks::start(&store);
    let asker = Asker::start(
        Version::V3_4,
        &super::kit::web(checks.address(), 3, INTER, ""),
    );
    store.set("canary", "drain");
    store.set("canry", "drain");
    store.set("web/s1", "maint");
    store.set("web/s99", "maint");
    asker.await_row("in drain", "web", "s0", Wanted::Drain);
    let shown = wait::until("keys are called unasked", SOON, || {
        let shown = checks.coverage(None);
        (shown["unasked"] != Value::Array(Vec::new())).then_some(shown)
    });
    assert_eq!(shown["unasked"], serde_json::json!(["canry", "web/s99"]));
    assert!((checks.sample("haptic_responder_keys_unasked") - 2.0).abs() < 0.1);
    let key = checks.coverage(Some("key=canry"));
    let summary = key["summary"].as_str().unwrap();
    assert_eq!(summary, "canry says drain; no row asks for it");
}
