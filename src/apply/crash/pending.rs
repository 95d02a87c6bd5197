//! A reload that waits, whatever happens to the files, the process and the clock meanwhile.

use crate::store::model::LoseUnsynced;
use crate::wire::result::ResultMode;

use super::rules::on;
use super::world::{Ask, Ended, INTERVAL};

#[test]
fn a_pending_reload_is_never_moved_and_outlives_the_process() {
    let world = on(&[Ask::reload("p1"), Ask::reload("p2")], INTERVAL);
    let due = world.record().pending.unwrap().due;
    world.clock.advance(INTERVAL / 4);
    assert_eq!(
        world.apply(Ask::reload("p4")).mode(),
        Some(ResultMode::Scheduled)
    );
    assert_eq!(world.record().pending.unwrap().due, due);
    world.clock.advance(INTERVAL / 4);
    let world = world.crash(LoseUnsynced::All);
    world.start();
    let pending = world.record().pending.unwrap();
    assert_eq!((pending.due, pending.plan_id.as_str()), (due, "p4"));
    let left = world.agent.lock().pending_at.unwrap() - crate::clock::Clock::now(&*world.clock);
    assert!(left > INTERVAL / 4 && left < INTERVAL / 2, "{left:?}");
    let generation = world.state().generation;
    world.fire();
    world.check("fired", true);
    let state = world.state();
    assert_eq!(state.running_plan_id, "p4");
    assert_eq!(state.generation, generation);
    assert_eq!(state.last_apply.unwrap().mode, ResultMode::Reload);
    assert_eq!(world.haproxy.asked().len(), 1);
}

#[test]
fn a_pending_reload_of_a_tree_that_changed_claims_nothing() {
    let world = on(&[Ask::reload("p1"), Ask::reload("p2")], INTERVAL);
    world.fs.scribble("maps/host.map", b"mine now");
    world.agent.look();
    world.fire();
    let state = world.state();
    assert_eq!(state.reload_pending_at, None);
    for id in [state.applied_plan_id, state.running_plan_id] {
        assert_eq!(id, "");
    }
    assert_eq!(state.lkg_plan_id, "p1");
}

#[test]
fn an_abort_over_a_foreign_file_lets_the_pending_reload_claim_nothing() {
    // `p4` joins and cannot be written; meanwhile a file outside the journal has changed,
    // so what goes back is not the last known good set.
    let world = on(&[Ask::reload("p1"), Ask::reload("p5")], INTERVAL);
    world.fs.scribble("maps/host.map", b"mine now");
    world.fs.fail_rename_once("general/deep/x", libc::EIO);
    let ask = Ask::reload("p4");
    let first = world.apply(ask);
    let ended = match first {
        Ended::Conflict(_) => world.apply(ask),
        other => other,
    };
    assert_eq!(ended.mode(), Some(ResultMode::Rejected));
    world.fire();
    let running = world.state().running_plan_id;
    if !running.is_empty() {
        assert_eq!(
            super::sets::name_of(&world.haproxy.loaded()),
            Some(running.as_str())
        );
    }
}

#[test]
fn a_wall_clock_that_jumps_puts_no_reload_off_and_brings_none_too_soon() {
    let week: i128 = 7 * 86_400_000_000_000;
    for jump in [-50 * week, -week, week, 50 * week] {
        for pending in [false, true] {
            let plans = [Ask::reload("p1"), Ask::reload("p2")];
            let scene = on(&plans[..1 + usize::from(pending)], INTERVAL);
            let what = format!("jump {jump}, pending {pending}");

            // While the agent lives the jump means nothing.
            scene.clock.jump(jump);
            scene.clock.advance(INTERVAL / 2);
            let ask = Ask::reload("p4");
            assert_eq!(
                scene.apply(ask).mode(),
                Some(ResultMode::Scheduled),
                "{what}"
            );
            let now = crate::clock::Clock::now(&*scene.clock);
            let left = scene.agent.lock().pending_at.unwrap() - now;
            assert!(left <= INTERVAL / 2, "{what}: {left:?}");

            // Across a death nothing else tells the time: set back, the window begins anew.
            let dead = on(&plans[..1 + usize::from(pending)], INTERVAL);
            dead.clock.jump(jump);
            let next = dead.crash(LoseUnsynced::Nothing);
            next.start();
            let ended = next.apply(ask).mode();
            let wanted = match (jump < 0, pending) {
                (false, false) => ResultMode::Reload,
                (true, _) | (false, true) => ResultMode::Scheduled,
            };
            assert_eq!(ended, Some(wanted), "{what}");
            if wanted == ResultMode::Scheduled {
                let now = crate::clock::Clock::now(&*next.clock);
                let left = next
                    .agent
                    .lock()
                    .pending_at
                    .unwrap()
                    .saturating_duration_since(now);
                assert!(left <= INTERVAL, "{what}: {left:?}");
            }
            next.fire();
            next.check(&what, true);
            assert_eq!(next.state().running_plan_id, "p4", "{what}");
        }
    }
}
