//! Slow start is HAProxy's own, and the replies must neither end it nor start it.

use super::kit::{Asker, Checks, INTER, PATIENCE, Store, Wanted, web};
use crate::support::haproxy::Version;
use crate::support::wait;
use std::time::{Duration, Instant};

/// The configured ramp.
pub(super) const RAMP: Duration = Duration::from_secs(3);

/// Effective weights from now until `goal` is reached: when, and how much.
pub(super) fn ramp(asker: &Asker, goal: u32) -> Vec<(Duration, u32)> {
    let start = Instant::now();
    let mut seen = Vec::new();
    wait::until_ok("the full weight", PATIENCE, || {
        let status = asker.stat("web", "s0", "status");
        let weight = asker.stat("web", "s0", "weight").parse().unwrap();
        if status.starts_with("MAINT") || status.starts_with("DRAIN") {
            return Err(format!("still {status}"));
        }
        seen.push((start.elapsed(), weight));
        if weight == goal {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    });
    seen
}

/// A ramp begins low, only rises, has steps between, and takes about its time.
pub(super) fn assert_ramps(seen: &[(Duration, u32)], goal: u32, what: &str) {
    let weights: Vec<u32> = seen.iter().map(|(_, weight)| *weight).collect();
    assert!(
        weights.windows(2).all(|w| w[0] <= w[1]),
        "{what}: {weights:?}"
    );
    let first = *weights.first().unwrap();
    assert!(first <= goal * 45 / 100, "{what}: {weights:?}");
    let mut steps = weights.clone();
    steps.dedup();
    assert!(steps.len() >= 3, "{what}: {steps:?}");
    let took = seen.last().unwrap().0;
    assert!(
        took >= RAMP - Duration::from_millis(1200),
        "{what}: {took:?} {steps:?}"
    );
    assert!(
        took <= RAMP + Duration::from_secs(4),
        "{what}: {took:?} {steps:?}"
    );
}

#[test]
fn a_ramp_follows_maintenance_and_only_maintenance() {
    for version in Version::ALL {
        let store = Store::new();
        let checks = Checks::start(&store);
        let more = format!("slowstart {}ms", RAMP.as_millis());
        let asker = Asker::start(version, &web(checks.address(), 1, INTER, &more));
        asker.await_row("in service", "web", "s0", Wanted::Weight(100));

        store.set("web/s0", "maint");
        asker.await_row("in maintenance", "web", "s0", Wanted::Maint);
        store.unset("web/s0");
        assert_ramps(&ramp(&asker, 100), 100, &format!("{version}: maint, gone"));

        store.set("web/s0", "drain");
        asker.await_row("in drain", "web", "s0", Wanted::Drain);
        store.unset("web/s0");
        let seen = ramp(&asker, 100);
        assert_eq!(seen.len(), 1, "{version}: no ramp after drain: {seen:?}");

        // What a writer does who wants a ramp after a drain.
        store.set("web/s0", "drain");
        asker.await_row("in drain", "web", "s0", Wanted::Drain);
        store.set("web/s0", "maint");
        asker.await_row("in maintenance", "web", "s0", Wanted::Maint);
        store.unset("web/s0");
        assert_ramps(
            &ramp(&asker, 100),
            100,
            &format!("{version}: drain, maint, gone"),
        );

        store.set("web/s0", "maint");
        asker.await_row("in maintenance", "web", "s0", Wanted::Maint);
        store.set("web/s0", "50%");
        assert_ramps(&ramp(&asker, 50), 50, &format!("{version}: maint, 50%"));
    }
}
