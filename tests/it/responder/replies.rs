//! What real HAProxy makes of the replies.

use super::kit::{Asker, Checks, INTER, PATIENCE, Store, Wanted, asks, web};
use crate::support::haproxy::Version;
use crate::support::traffic::Backend;
use crate::support::wait;
use haptic_agent::responder::kv::Weights;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// What may stand under a key, and what a row of weight 100 becomes; `None` is no key.
const VALUES: [(Option<&str>, Wanted); 7] = [
    (None, Wanted::Weight(100)),
    (Some("ready"), Wanted::Weight(100)),
    (Some("drain"), Wanted::Drain),
    (Some("maint"), Wanted::Maint),
    (Some("50%"), Wanted::Weight(50)),
    (Some("0%"), Wanted::Weight(0)),
    (Some("300%"), Wanted::Weight(256)),
];

fn write(store: &Store, key: &str, value: Option<&str>) {
    match value {
        Some(value) => store.set(key, value),
        None => store.unset(key),
    }
}

fn await_all(asker: &Asker, what: &str, wanted: &[Wanted]) {
    wait::until_ok(what, PATIENCE, || {
        let rows = asker.rows("web");
        assert_eq!(rows.len(), wanted.len());
        let other = rows
            .into_iter()
            .zip(wanted)
            .find(|(row, want)| !want.is_met_by(row));
        match other {
            None => Ok(()),
            Some(other) => Err(format!("{}: {other:?}", asker.haproxy.version())),
        }
    });
}

/// One row for each pair of values: all get the first, then the second, then the key goes.
/// A reply that depends on what was told before fails in one of the pairs.
#[test]
fn every_state_is_reached_from_every_other_and_left_when_the_key_goes() {
    let pairs: Vec<_> = VALUES
        .iter()
        .flat_map(|from| VALUES.iter().map(move |to| (from, to)))
        .collect();
    for version in Version::ALL {
        let store = Store::new();
        let checks = Checks::start(&store);
        let asker = Asker::start(version, &web(checks.address(), pairs.len(), INTER, ""));
        let key = |at: usize| format!("web/s{at}");
        for (at, (from, _)) in pairs.iter().enumerate() {
            write(&store, &key(at), from.0);
        }
        let wanted: Vec<_> = pairs.iter().map(|(from, _)| from.1).collect();
        await_all(&asker, "every row has its first state", &wanted);
        for (at, (_, to)) in pairs.iter().enumerate() {
            write(&store, &key(at), to.0);
        }
        let wanted: Vec<_> = pairs.iter().map(|(_, to)| to.1).collect();
        await_all(&asker, "every row has its second state", &wanted);
        for at in 0..pairs.len() {
            store.unset(&key(at));
        }
        let ready = vec![Wanted::Weight(100); pairs.len()];
        await_all(&asker, "every row is as if nothing had been", &ready);
        let words = asker.stat("web", "s0", "last_agt");
        assert_eq!(words, "", "{version} has nothing to complain about");
    }
}

#[test]
fn a_row_key_is_over_a_group_key_and_an_invalid_one_is_not() {
    for version in Version::ALL {
        let store = Store::new();
        let checks = Checks::start(&store);
        let asker = Asker::start(version, &web(checks.address(), 4, INTER, ""));
        store.set("web/s0", "ready");
        store.set("web/s1", "50%");
        store.set("web/s2", "down");
        store.set("canary", "drain");
        let wanted = [
            Wanted::Weight(100),
            Wanted::Weight(50),
            Wanted::Drain,
            Wanted::Drain,
        ];
        await_all(&asker, "rows over the group", &wanted);
        store.unset("canary");
        let wanted = [
            Wanted::Weight(100),
            Wanted::Weight(50),
            Wanted::Weight(100),
            Wanted::Weight(100),
        ];
        await_all(&asker, "without the group", &wanted);
    }
}

/// Weights that came from elsewhere stay where they are kept, and go where they are not.
#[test]
fn kept_weights_are_left_alone() {
    for version in Version::ALL {
        for (weights, left) in [(Weights::Keep, 30), (Weights::Set, 100)] {
            let store = Store::new();
            let checks = Checks::start_with(&store, weights, None);
            let asker = Asker::start(version, &web(checks.address(), 1, INTER, ""));
            store.set("web/s0", "drain");
            asker.await_row("drained", "web", "s0", Wanted::Drain);
            asker.haproxy.ask("set server web/s0 weight 30").unwrap();
            store.set("web/s0", "40%");
            let with_percent = match weights {
                Weights::Keep => 30,
                Weights::Set => 40,
            };
            asker.await_row("in service", "web", "s0", Wanted::Weight(with_percent));
            store.set("web/s0", "maint");
            asker.await_row("in maintenance", "web", "s0", Wanted::Maint);
            store.unset("web/s0");
            asker.await_row("without a key", "web", "s0", Wanted::Weight(left));
        }
    }
}

/// Where weights are kept a percentage is no value, so the next key decides, and what was
/// said before it is over.
#[test]
fn a_percentage_where_weights_are_kept_counts_as_absent() {
    for version in Version::ALL {
        let store = Store::new();
        let checks = Checks::start_with(&store, Weights::Keep, None);
        let asker = Asker::start(version, &web(checks.address(), 1, INTER, ""));
        store.set("canary", "drain");
        store.set("web/s0", "ready");
        asker.await_row("kept in", "web", "s0", Wanted::Weight(100));
        store.set("web/s0", "50%");
        asker.await_row("the group decides", "web", "s0", Wanted::Drain);
        wait::until("it is counted", PATIENCE, || {
            (checks.sample("haptic_responder_kv_invalid_values") > 0.5).then_some(())
        });
        store.unset("canary");
        asker.await_row("no key decides", "web", "s0", Wanted::Weight(100));
        // A weight that is set in service stays through checks.
        asker.haproxy.ask("set server web/s0 weight 70%").unwrap();
        let replies = "haptic_responder_replies_total{verdict=\"ready\"}";
        let before = checks.sample(replies);
        wait::until("it is asked again", PATIENCE, || {
            (checks.sample(replies) > before + 3.0).then_some(())
        });
        assert!(
            Wanted::Weight(70).is_met_by(&asker.row("web", "s0")),
            "{version}"
        );
    }
}

/// Balancing by a static table takes no weights but 0 and 100 %: HAProxy says so, the
/// admin word in the same reply counts all the same.
#[test]
fn static_balancing_refuses_the_weight_and_takes_the_state() {
    for version in Version::ALL {
        let store = Store::new();
        let checks = Checks::start(&store);
        let config = web(checks.address(), 2, INTER, "").replace("roundrobin", "static-rr");
        let asker = Asker::start(version, &config);
        store.set("web/s0", "maint");
        asker.await_row("in maintenance", "web", "s0", Wanted::Maint);
        store.set("web/s0", "50%");
        asker.await_row("in service, old weight", "web", "s0", Wanted::Weight(100));
        wait::until("HAProxy complains", PATIENCE, || {
            (!asker.stat("web", "s0", "last_agt").is_empty()).then_some(())
        });
        store.set("web/s0", "0%");
        asker.await_row("weight 0", "web", "s0", Wanted::Weight(0));
        store.unset("web/s0");
        asker.await_row("weight 100", "web", "s0", Wanted::Weight(100));
    }
}

/// The trap of a server line without a weight: a share of 1 is 0.
#[test]
fn half_of_weight_one_is_none() {
    for version in Version::ALL {
        let store = Store::new();
        let checks = Checks::start(&store);
        let config = web(checks.address(), 1, INTER, "").replace("weight 100 ", "");
        let asker = Asker::start(version, &config);
        asker.await_row("weight 1", "web", "s0", Wanted::Weight(1));
        store.set("web/s0", "50%");
        asker.await_row("no weight", "web", "s0", Wanted::Weight(0));
        assert_eq!(asker.row("web", "s0").operational, 2, "and still up");
    }
}

/// A failed health check recovers by itself although no reply says `up`, in service and
/// in drain.
#[test]
fn health_is_left_to_health_checks() {
    for version in Version::ALL {
        let store = Store::new();
        let checks = Checks::start(&store);
        let server = Backend::start("s");
        let address = server.address();
        let row = |at: usize| {
            let asks = asks(checks.address(), &format!("web/s{at}"), INTER);
            format!(
                "    server s{at} {address} weight 100 check inter 100ms fall 1 rise 1 {asks}\n"
            )
        };
        let asker = Asker::start(version, &format!("backend web\n{}{}", row(0), row(1)));
        store.set("web/s1", "drain");
        asker.await_row("drained", "web", "s1", Wanted::Drain);
        let status = |name: &str| asker.stat("web", name, "status");
        let await_status = |name: &str, want: &str| {
            wait::until_ok("a status", PATIENCE, || match status(name) {
                status if status == want => Ok(()),
                status => Err(format!("{version} {name}: {status}, not {want}")),
            });
        };
        await_status("s0", "UP");
        drop(server);
        await_status("s0", "DOWN");
        await_status("s1", "DOWN");
        let back = listen_again(address);
        await_status("s0", "UP");
        await_status("s1", "DRAIN (agent)");
        drop(back);
    }
}

/// Health checks are connects, so a listener that accepts nothing is well enough.
fn listen_again(address: SocketAddr) -> TcpListener {
    assert_eq!(address.ip(), Ipv4Addr::LOCALHOST);
    wait::until("the port is free again", PATIENCE, || {
        TcpListener::bind(address).ok()
    })
}
