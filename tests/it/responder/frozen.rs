//! A responder that is away, silent or new changes nothing; a HAProxy that is new gets
//! the state within an interval.

use super::kit::{Asker, Checks, INTER, PATIENCE, Store, Wanted, web};
use crate::support::haproxy::Version;
use crate::support::wait;
use haptic_agent::responder::kv::Weights;
use std::thread;
use std::time::{Duration, Instant};

/// Several intervals: long enough for any reply to have come.
const SEVERAL: Duration = Duration::from_millis(600);

fn set_all(store: &Store) -> [Wanted; 4] {
    store.set("web/s0", "drain");
    store.set("web/s1", "maint");
    store.set("web/s2", "50%");
    [
        Wanted::Drain,
        Wanted::Maint,
        Wanted::Weight(50),
        Wanted::Weight(100),
    ]
}

fn await_all(asker: &Asker, what: &str, wanted: [Wanted; 4]) {
    for (at, want) in wanted.into_iter().enumerate() {
        asker.await_row(what, "web", &format!("s{at}"), want);
    }
}

fn assert_all(asker: &Asker, what: &str, wanted: [Wanted; 4]) {
    for (row, want) in asker.rows("web").iter().zip(wanted) {
        let version = asker.haproxy.version();
        assert!(
            want.is_met_by(row),
            "{version}, {what}: {row:?} is not {want:?}"
        );
    }
}

#[test]
fn a_responder_that_goes_leaves_every_state_and_one_that_comes_back_goes_on() {
    for version in Version::ALL {
        let store = Store::new();
        let checks = Checks::start(&store);
        let asker = Asker::start(version, &web(checks.address(), 4, INTER, ""));
        let wanted = set_all(&store);
        await_all(&asker, "set", wanted);

        let address = checks.stop();
        wait::until("HAProxy is refused", PATIENCE, || {
            asker
                .stat("web", "s0", "agent_status")
                .contains("L4CON")
                .then_some(())
        });
        thread::sleep(SEVERAL);
        assert_all(&asker, "the responder is gone", wanted);

        // A write meanwhile is followed by the next life.
        store.set("web/s0", "ready");
        store.set("web/s3", "drain");
        let checks = wait::until("the address is free", PATIENCE, || {
            std::panic::catch_unwind(|| {
                Checks::start_at(&address.to_string(), &store.path(), Weights::Set, None)
            })
            .ok()
        });
        let wanted = [
            Wanted::Weight(100),
            Wanted::Maint,
            Wanted::Weight(50),
            Wanted::Drain,
        ];
        await_all(&asker, "the next life", wanted);
        drop(checks);
    }
}

/// One that has no copy says nothing, and HAProxy keeps what it has, whoever set it.
#[test]
fn a_responder_without_a_copy_leaves_every_state() {
    for version in Version::ALL {
        let dir = tempfile::tempdir().unwrap();
        // No mark, so no store.
        let checks = Checks::start_at("127.0.0.1:0", dir.path(), Weights::Set, None);
        let asker = Asker::start(version, &web(checks.address(), 4, INTER, ""));
        asker.haproxy.ask("set server web/s0 state drain").unwrap();
        asker.haproxy.ask("set server web/s1 state maint").unwrap();
        asker.haproxy.ask("set server web/s2 weight 50%").unwrap();
        wait::until("HAProxy got an empty reply", PATIENCE, || {
            asker
                .stat("web", "s0", "agent_status")
                .contains("L7RSP")
                .then_some(())
        });
        thread::sleep(SEVERAL);
        let wanted = [
            Wanted::Drain,
            Wanted::Maint,
            Wanted::Weight(50),
            Wanted::Weight(100),
        ];
        assert_all(&asker, "never synced", wanted);
        assert!(checks.sample("haptic_responder_silent_total{reason=\"unsynced\"}") > 0.0);
    }
}

/// First start, reload, restart, and a fresh process in its place: the state is there within
/// an interval of the first sign of life.
#[test]
fn a_new_haproxy_is_told_within_an_interval() {
    let inter = Duration::from_secs(1);
    for version in Version::ALL {
        let store = Store::new();
        let checks = Checks::start(&store);
        let config = web(checks.address(), 4, inter, "");
        let wanted = set_all(&store);
        let mut asker = Asker::start(version, &config);
        await_all(&asker, "startup convergence", wanted);
        for how in ["reload", "restart", "replace"] {
            match how {
                "reload" => asker.reload(None),
                "restart" => asker.restart(),
                // Another process, in another place; the old one ends behind it.
                _ => asker = Asker::start(version, &config),
            }
            let start = Instant::now();
            await_all(&asker, how, wanted);
            let took = start.elapsed();
            println!("{version}, {how}: all states after {took:?}");
            assert!(
                took < inter + Duration::from_millis(1500),
                "{version}, {how}: {took:?}"
            );
        }
    }
}

/// One key for a whole group: every one of 919 rows is in drain within an interval, and
/// back within another.
#[test]
fn one_key_drains_a_fleet_within_an_interval() {
    const ROWS: usize = 919;
    let inter = Duration::from_secs(1);
    let store = Store::new();
    let checks = Checks::start(&store);
    let asker = Asker::start(Version::V3_4, &web(checks.address(), ROWS, inter, ""));
    let count = |want: Wanted| {
        let rows = asker.rows("web");
        assert_eq!(rows.len(), ROWS);
        rows.iter().filter(|row| want.is_met_by(row)).count()
    };
    for (value, want) in [(Some("drain"), Wanted::Drain), (None, Wanted::Weight(100))] {
        match value {
            Some(value) => store.set("canary", value),
            None => store.unset("canary"),
        }
        let start = Instant::now();
        wait::until_ok("every row follows", PATIENCE, || match count(want) {
            ROWS => Ok(()),
            other => Err(other),
        });
        let took = start.elapsed();
        println!("{ROWS} rows, {value:?}: {took:?}");
        assert!(
            took < inter + Duration::from_millis(1500),
            "{value:?}: {took:?}"
        );
    }
    let rows = checks.coverage(None)["rows"].as_array().unwrap().len();
    assert_eq!(rows, ROWS, "all of them are known");
}
