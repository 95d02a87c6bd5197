//! What outlives a refusal: the highest epoch, and HAProxy's verdict for a minute.

use std::time::Duration;

use crate::store::model::LoseUnsynced;
use crate::wire::result::{ConflictReason, ResultMode, Stage};

use super::rules::{on, reason};
use super::world::{Ask, Step};

#[test]
fn a_leader_whose_apply_fails_still_keeps_the_older_one_out() {
    let world = on(&[Ask::reload("p1")], Duration::ZERO);
    let newer = |plan| Ask {
        epoch: 7,
        ..Ask::reload(plan)
    };
    assert_eq!(world.apply(newer("bad")).mode(), Some(ResultMode::Rejected));
    let older = Ask::reload("p2");
    assert_eq!(reason(world.apply(older)), ConflictReason::StaleEpoch);
    let world = world.crash(LoseUnsynced::All);
    world.start();
    assert_eq!(reason(world.apply(older)), ConflictReason::StaleEpoch);
    assert!(world.apply(newer("p2")).result().ok);
}

#[test]
fn a_refusal_is_remembered_for_a_minute_and_costs_no_second_reload() {
    let world = on(&[Ask::reload("p1")], Duration::ZERO);
    let bad = Ask::reload("bad");
    assert_eq!(world.apply(bad).mode(), Some(ResultMode::Rejected));
    let asked = world.haproxy.asked().len();
    for _ in 0..3 {
        let again = world.apply(bad).result();
        assert_eq!(again.error.unwrap().stage, Stage::Reload);
        assert_eq!(again.rollback, None);
    }
    assert_eq!(world.haproxy.asked().len(), asked);
    world.check("known bad", true);
    world.clock.advance(Duration::from_secs(61));
    assert_eq!(world.apply(bad).mode(), Some(ResultMode::Rejected));
    assert_eq!(world.haproxy.asked().len(), asked + 1);
}

#[test]
fn a_refusal_is_forgotten_with_the_haproxy_that_gave_it() {
    let world = on(&[Ask::reload("p1")], Duration::ZERO);
    let bad = Ask::reload("bad");
    assert_eq!(world.apply(bad).mode(), Some(ResultMode::Rejected));
    world.step(Step::Restart);
    let asked = world.haproxy.asked().len();
    assert_eq!(world.apply(bad).mode(), Some(ResultMode::Rejected));
    assert_eq!(world.haproxy.asked().len(), asked + 1);
}

#[test]
fn a_newer_leader_that_is_told_a_remembered_refusal_keeps_the_older_one_out() {
    let world = on(&[Ask::reload("p1")], Duration::ZERO);
    let bad = Ask::reload("bad");
    assert_eq!(world.apply(bad).mode(), Some(ResultMode::Rejected));
    let asked = world.haproxy.asked().len();
    let newer = Ask { epoch: 4, ..bad };
    assert_eq!(world.apply(newer).mode(), Some(ResultMode::Rejected));
    assert_eq!(world.haproxy.asked().len(), asked, "it was remembered");
    let world = world.crash(LoseUnsynced::All);
    world.start();
    let older = world.apply(Ask::reload("p2"));
    assert_eq!(reason(older), ConflictReason::StaleEpoch);
}
