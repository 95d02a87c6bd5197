//! From a key in a real Consul to the state of a server in three real HAProxys, by way of
//! the process itself; and what a Consul that is gone, or comes back empty, does not do.

use super::kit::{Asker, INTER, PATIENCE, Wanted, web};
use super::process::Respond;
use crate::support::consul::{Consul, Mode};
use crate::support::haproxy::Version;
use crate::support::wait;
use std::thread;
use std::time::{Duration, Instant};

pub(super) const PREFIX: &str = "fleet/state";

/// Several intervals, so that any wrong reply would have come.
pub(super) const SEVERAL: Duration = Duration::from_millis(600);

/// A Consul, a responder on it, and a HAProxy of each branch that asks that.
pub(super) struct Fleet {
    pub(super) consul: Consul,
    pub(super) respond: Respond,
    pub(super) askers: Vec<Asker>,
}

impl Fleet {
    fn start(inter: Duration) -> Self {
        Self::on(Consul::start(Mode::Open), &[], inter, "")
    }

    /// With variables for the responder, and more words on each server line.
    pub(super) fn on(consul: Consul, env: &[(&str, &str)], inter: Duration, more: &str) -> Self {
        let mut respond = Respond::with(&["-kv-prefix", PREFIX])
            .env("CONSUL_HTTP_ADDR", &consul.address().to_string());
        for (name, value) in env {
            respond = respond.env(name, value);
        }
        let respond = respond.start();
        respond.wait_synced();
        let config = web(respond.checks(), 3, inter, more);
        let askers = Version::ALL.map(|version| Asker::start(version, &config));
        Self {
            consul,
            respond,
            askers: askers.into(),
        }
    }

    pub(super) fn put(&self, key: &str, value: &str) {
        self.consul.put(&format!("{PREFIX}/{key}"), value);
    }

    pub(super) fn delete(&self, key: &str) {
        self.consul.delete(&format!("{PREFIX}/{key}"));
    }

    pub(super) fn await_all(&self, what: &str, server: &str, want: Wanted) {
        for asker in &self.askers {
            asker.await_row(what, "web", server, want);
        }
    }

    pub(super) fn assert_all(&self, what: &str, server: &str, want: Wanted) {
        for asker in &self.askers {
            let row = asker.row("web", server);
            let version = asker.haproxy.version();
            assert!(
                want.is_met_by(&row),
                "{version}, {what}: {row:?}, not {want:?}"
            );
        }
    }
}

/// One write is followed by every HAProxy within an interval.
#[test]
fn one_write_is_followed_by_all() {
    for (inter, rounds) in [(INTER, 12), (Duration::from_secs(2), 3)] {
        let fleet = Fleet::start(inter);
        fleet.await_all("in service", "s0", Wanted::Weight(100));
        let mut times = Vec::new();
        for round in 0..rounds {
            let (value, want) = match round % 3 {
                0 => (Some("drain"), Wanted::Drain),
                1 => (Some("50%"), Wanted::Weight(50)),
                _ => (None, Wanted::Weight(100)),
            };
            match value {
                Some(value) => fleet.put("canary", value),
                None => fleet.delete("canary"),
            }
            let written = Instant::now();
            fleet.await_all("followed", "s1", want);
            times.push(written.elapsed());
        }
        times.sort_unstable();
        let (median, slowest) = (times[times.len() / 2], times[times.len() - 1]);
        println!(
            "agent-inter {inter:?}: the last of three follows after {median:?}, at most {slowest:?}"
        );
        assert!(slowest < inter + Duration::from_millis(1500), "{slowest:?}");
        let changed = "haptic_responder_kv_reads_total{result=\"changed\"}";
        assert!(fleet.respond.sample(changed) >= f64::from(rounds));
    }
}

/// Gone, hung, and back without its keys: whoever was in drain stays in drain, and the
/// next write is followed.
#[test]
fn a_consul_in_trouble_undrains_nobody() {
    let mut fleet = Fleet::start(INTER);
    fleet.put("web/s0", "drain");
    fleet.put("web/s1", "50%");
    fleet.await_all("in drain", "s0", Wanted::Drain);
    fleet.await_all("at half", "s1", Wanted::Weight(50));
    let unchanged_but_s2 = |fleet: &Fleet, what: &str, s2: Wanted| {
        thread::sleep(SEVERAL);
        fleet.assert_all(what, "s0", Wanted::Drain);
        fleet.assert_all(what, "s1", Wanted::Weight(50));
        fleet.assert_all(what, "s2", s2);
        assert_eq!(fleet.respond.get("/-/readiness").status, 200);
        assert_eq!(fleet.respond.get("/-/liveness").status, 200);
    };
    let unchanged = |fleet: &Fleet, what: &str| {
        unchanged_but_s2(fleet, what, Wanted::Weight(100));
    };

    fleet.consul.freeze();
    unchanged(&fleet, "Consul hangs");
    fleet.consul.thaw();
    fleet.put("web/s2", "maint");
    fleet.await_all("Consul goes on", "s2", Wanted::Maint);
    fleet.delete("web/s2");
    fleet.await_all("and on", "s2", Wanted::Weight(100));

    fleet.consul.kill();
    wait::until("the error is counted", PATIENCE, || {
        let errors = "haptic_responder_kv_errors_total{kind=\"connect\"}";
        (fleet.respond.sample(errors) > 0.0).then_some(())
    });
    unchanged(&fleet, "Consul is gone");

    // It was in memory, so it comes back empty.
    fleet.consul.start_again();
    wait::until("the empty reply is held back", PATIENCE, || {
        let held = "haptic_responder_kv_hold{reason=\"index\"}";
        (fleet.respond.sample(held) > 0.5).then_some(())
    });
    unchanged(&fleet, "Consul is empty");
    // A HAProxy that starts now is told the same, not what the store lacks.
    fleet.askers[2].restart();
    fleet.askers[2].await_row("a new HAProxy", "web", "s0", Wanted::Drain);

    // Somebody writes again: that is followed, and ends nothing that was lost.
    fleet.put("web/s2", "maint");
    fleet.await_all("a write is followed", "s2", Wanted::Maint);
    unchanged_but_s2(&fleet, "one write", Wanted::Maint);
    fleet.delete("web/s2");
    fleet.await_all("and its end", "s2", Wanted::Weight(100));
    unchanged_but_s2(&fleet, "one deletion", Wanted::Weight(100));
    let shown = fleet.respond.get("/-/coverage").json();
    assert_eq!(shown["store"]["hold"], "index");
    assert_eq!(shown["store"]["kept"].as_array().unwrap().len(), 2);
    // The keys come back one by one, and the hold ends with the last.
    fleet.put("web/s1", "drain");
    fleet.await_all("written again", "s1", Wanted::Drain);
    fleet.assert_all("not yet written again", "s0", Wanted::Drain);
    fleet.put("web/s0", "ready");
    fleet.await_all("ended", "s0", Wanted::Weight(100));
    wait::until("the hold is over", PATIENCE, || {
        let shown = fleet.respond.get("/-/coverage").json();
        shown["store"]["hold"].is_null().then_some(())
    });
}
