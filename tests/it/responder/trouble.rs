//! The whole way, real Consul and real HAProxy of every branch: the story of a drain, and
//! what a Consul without a leader or without rights does not end.

use super::consul::{Fleet, PREFIX, SEVERAL};
use super::kit::{INTER, Wanted};
use super::slowstart::{RAMP, assert_ramps, ramp};
use crate::support::consul::{Consul, Mode};
use crate::support::wait;
use haptic_agent::http::client::Method;
use serde_json::json;
use std::thread;
use std::time::Duration;

/// A token that is given rights and loses them.
const TOKEN: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// A query that waits when the trouble begins goes on for as long as it was asked to, 58 s.
const ONE_WAIT: Duration = Duration::from_secs(90);

fn await_sample(fleet: &Fleet, name: &str) {
    wait::until("it is counted", ONE_WAIT, || {
        (fleet.respond.sample(name) > 0.5).then_some(())
    });
}

/// A key that is there before anybody starts, garbage, a row over its group, weights, and the
/// way back through maintenance with a ramp.
#[test]
fn the_story_of_a_drain() {
    let consul = Consul::start(Mode::Open);
    consul.put(&format!("{PREFIX}/canary"), "drain");
    let more = format!("slowstart {}ms", RAMP.as_millis());
    let fleet = Fleet::on(consul, &[], INTER, &more);
    fleet.await_all("startup convergence", "s0", Wanted::Drain);
    fleet.await_all("startup convergence", "s2", Wanted::Drain);
    // Garbage and health words say nothing, so the group decides.
    for garbage in ["up", "\u{0}\u{1}", "drain maint", "50", "", "-5%"] {
        fleet.put("web/s0", garbage);
        await_sample(&fleet, "haptic_responder_kv_invalid_values");
        thread::sleep(SEVERAL);
        fleet.assert_all(garbage, "s0", Wanted::Drain);
        fleet.delete("web/s0");
    }
    // A row over its group, and drain to a weight.
    fleet.put("web/s1", "50%");
    fleet.await_all("drain to half", "s1", Wanted::Weight(50));
    fleet.assert_all("its neighbour", "s2", Wanted::Drain);
    fleet.put("web/s2", "ready");
    fleet.await_all("kept in", "s2", Wanted::Weight(100));
    fleet.delete("web/s1");
    fleet.await_all("half to the group's drain", "s1", Wanted::Drain);
    // Back by way of maintenance.
    fleet.put("canary", "maint");
    fleet.await_all("in maintenance", "s0", Wanted::Maint);
    fleet.delete("canary");
    thread::scope(|scope| {
        for asker in &fleet.askers {
            scope.spawn(move || {
                let what = format!("{}: through maint", asker.haproxy.version());
                assert_ramps(&ramp(asker, 100), 100, &what);
            });
        }
    });
    fleet.put("web/s1", "50%");
    fleet.await_all("half", "s1", Wanted::Weight(50));
    fleet.delete("web/s1");
    fleet.await_all("and whole again", "s1", Wanted::Weight(100));
}

/// Two keys change in one transaction, so that a row is out by one of them at any moment: a
/// HAProxy that saw half of it would put the row in service.
#[test]
fn no_haproxy_sees_half_of_a_change() {
    let fleet = Fleet::on(Consul::start(Mode::Open), &[], INTER, "");
    let (row, group) = (format!("{PREFIX}/web/s0"), format!("{PREFIX}/canary"));
    let set = |key: &str, value: &str| json!({"KV": {"Verb": "set", "Key": key, "Value": value}});
    let delete = |key: &str| json!({"KV": {"Verb": "delete", "Key": key}});
    // In base64.
    let (drain, maint) = ("ZHJhaW4=", "bWFpbnQ=");
    let versions = [
        json!([set(&row, drain), delete(&group)]),
        json!([delete(&row), set(&group, maint)]),
    ];
    fleet.put("web/s0", "drain");
    fleet.await_all("out", "s0", Wanted::Drain);
    let (mut drains, mut maints) = (0_u32, 0_u32);
    for turn in 1..=120_usize {
        let body = versions[turn % 2].to_string();
        let (status, said) = fleet.consul.call(Method::Put, "/v1/txn", body.as_bytes());
        assert_eq!(status, 200, "{said}");
        // Longer and shorter than an interval, so that checks come at every point.
        thread::sleep(INTER * u32::try_from(turn % 5).unwrap() / 3);
        for asker in &fleet.askers {
            let row = asker.row("web", "s0");
            let version = asker.haproxy.version();
            assert_ne!(
                row.admin & 9,
                0,
                "{version}, turn {turn}: {row:?} is in service"
            );
            drains += u32::from(row.admin == 8);
            maints += u32::from(row.admin == 1);
        }
    }
    assert!(drains > 20 && maints > 20, "{drains} {maints}");
}

/// A cluster that loses its leader answers nothing: every state stays, a HAProxy that starts
/// meanwhile is told it, and nothing is called a hold.
#[test]
fn a_cluster_without_a_leader_undrains_nobody() {
    let (one, mut two) = (Consul::start(Mode::Half), Consul::start(Mode::Half));
    one.join(&two);
    let mut fleet = Fleet::on(one, &[], INTER, "");
    fleet.put("web/s0", "drain");
    fleet.put("web/s1", "50%");
    fleet.await_all("in drain", "s0", Wanted::Drain);
    fleet.await_all("at half", "s1", Wanted::Weight(50));
    two.kill();
    await_sample(&fleet, "haptic_responder_kv_errors_total{kind=\"leader\"}");
    thread::sleep(SEVERAL);
    for asker in &mut fleet.askers {
        asker.restart();
    }
    fleet.await_all("told by the last copy", "s0", Wanted::Drain);
    fleet.await_all("told by the last copy", "s1", Wanted::Weight(50));
    fleet.assert_all("told by the last copy", "s2", Wanted::Weight(100));
    assert_eq!(fleet.respond.get("/-/readiness").status, 200);
    let shown = fleet.respond.get("/-/coverage").json();
    assert!(shown["store"]["hold"].is_null(), "{shown:#}");
}

/// A token that loses its rights shows an empty list: every state stays, writes meanwhile are
/// followed when the rights are back.
#[test]
fn a_token_without_rights_undrains_nobody() {
    let read = format!("key_prefix \"{PREFIX}/\" {{ policy = \"read\" }}");
    let consul = Consul::start(Mode::DenyByDefault);
    consul.give(TOKEN, &read);
    let mut fleet = Fleet::on(consul, &[("CONSUL_HTTP_TOKEN", TOKEN)], INTER, "");
    fleet.put("web/s0", "drain");
    fleet.put("web/s1", "50%");
    fleet.await_all("in drain", "s0", Wanted::Drain);
    fleet.await_all("at half", "s1", Wanted::Weight(50));
    let unchanged = |fleet: &Fleet, what: &str| {
        thread::sleep(SEVERAL);
        fleet.assert_all(what, "s0", Wanted::Drain);
        fleet.assert_all(what, "s1", Wanted::Weight(50));
        fleet.assert_all(what, "s2", Wanted::Weight(20));
    };
    fleet.consul.give(TOKEN, "");
    // The query that waits still answers in full, the next one is empty.
    fleet.put("web/s2", "20%");
    await_sample(&fleet, "haptic_responder_kv_hold{reason=\"index\"}");
    fleet.await_all("the last answer", "s2", Wanted::Weight(20));
    unchanged(&fleet, "no rights");
    fleet.put("web/s2", "maint");
    await_sample(&fleet, "haptic_responder_kv_hold{reason=\"probe\"}");
    unchanged(&fleet, "no rights, and a write");
    fleet.askers[0].restart();
    fleet.askers[0].await_row("a new HAProxy", "web", "s0", Wanted::Drain);
    fleet.consul.give(TOKEN, &read);
    fleet.await_all("rights again", "s2", Wanted::Maint);
    fleet.assert_all("rights again", "s0", Wanted::Drain);
    // The token itself is gone: refused, which is an error and no empty list.
    fleet.consul.take(TOKEN);
    fleet.put("other", "ready");
    await_sample(&fleet, "haptic_responder_kv_errors_total{kind=\"acl\"}");
    thread::sleep(SEVERAL);
    fleet.assert_all("no token", "s0", Wanted::Drain);
    fleet.assert_all("no token", "s2", Wanted::Maint);
}
