//! The disk refuses: every error number on every call, once and until it is healed.

use crate::store::model::LoseUnsynced;
use crate::wire::manifest::Mode;
use crate::wire::result::ResultMode;

use super::sets::AFTER;
use super::shapes::{Shape, shapes};
use super::world::{Ask, INTERVAL, Step, World};
use super::{ERRNOS, LOSSES, Tally, long_run, spread};

/// Calls of the shape's action, and how its last apply ends, when nothing disturbs it.
fn undisturbed(shape: &Shape, scene: &World) -> (u64, Option<ResultMode>) {
    let whole = scene.copy();
    let before = whole.fs.calls();
    let ended = whole.run(&shape.action).and_then(|ended| ended.mode());
    (whole.fs.calls() - before, ended)
}

/// One error number a call, so that all of them come over the calls of the shapes; all of
/// them a call in the long run.
fn numbers(n: u64) -> Vec<i32> {
    if long_run() {
        ERRNOS.to_vec()
    } else {
        vec![ERRNOS[usize::try_from(n).unwrap() % 6]]
    }
}

/// The fault is gone: the live agent mends itself, applies again, and so does one that
/// starts on what it left.
fn check_mended(world: &World, shape: &Shape, mode: Option<ResultMode>, what: &str) {
    world.fs.heal();
    world.haproxy.set_mood(super::haproxy::Mood::Judging);
    world.agent.look();
    world.check(what, false);
    let again = world.copy();
    again.check(&format!("{what}, restarted"), true);
    world.fire();
    world.check(&format!("{what}, fired"), false);
    world.clock.advance(INTERVAL * 2);
    let epoch = world.record().epoch.max(1);
    // The same set again: the disk's failure says nothing about it.
    if let (Some(ResultMode::Reload), Some(Step::Apply(ask))) = (mode, shape.action.last()) {
        if ask.mode != Mode::RevertLkg && world.state().applied_plan_id.is_empty() {
            let same = world.apply(Ask {
                mode: Mode::Reload,
                epoch,
                ..*ask
            });
            assert_eq!(same.mode(), Some(ResultMode::Reload), "{what}: {same:?}");
            world.clock.advance(INTERVAL * 2);
        }
    }
    let next = world.apply(Ask {
        epoch,
        ..Ask::reload(AFTER)
    });
    assert_eq!(next.mode(), Some(ResultMode::Reload), "{what}: {next:?}");
    world.check(&format!("{what}, next"), false);
    world
        .copy()
        .check(&format!("{what}, next, restarted"), true);
}

#[test]
fn every_call_failing_once_is_answered_and_mended() {
    let points = spread(shapes(), |shape| {
        let mut scene = shape.scene();
        // A worker that commands changed cannot be reloaded while the disk fails.
        scene.breaks.push("recovery_reload");
        let (calls, mode) = undisturbed(&shape, &scene);
        let mut tally = Tally::default();
        for n in (1..=calls).step_by(shape.stride()) {
            for errno in numbers(n) {
                let world = scene.copy();
                world.fs.fail_at(n, errno);
                let ended = world.run(&shape.action);
                let what = format!(
                    "{}: call {n} of {calls} failed with {errno}, {:?}",
                    shape.name,
                    ended.and_then(|ended| ended.mode())
                );
                tally.point(|| check_mended(&world, &shape, mode, &what));
            }
        }
        tally
    });
    println!("{points} single failures");
    assert!(points > 1_000);
}

#[test]
fn every_call_failing_from_one_on_is_answered_and_mended_once_healed() {
    let points = spread(shapes(), |shape| {
        let mut scene = shape.scene();
        // A worker that commands changed cannot be reloaded while the disk fails.
        scene.breaks.push("recovery_reload");
        let (calls, mode) = undisturbed(&shape, &scene);
        let mut tally = Tally::default();
        for n in (1..=calls).step_by(shape.stride() * if long_run() { 1 } else { 3 }) {
            for errno in numbers(n + 1) {
                let world = scene.copy();
                world.fs.fail_from(n, errno);
                let ended = world.run(&shape.action);
                let what = format!(
                    "{}: calls from {n} of {calls} failed with {errno}, {:?}",
                    shape.name,
                    ended.and_then(|ended| ended.mode())
                );
                // It lives, and neither a look nor another apply makes anything worse.
                world.agent.look();
                let _ = world.apply(Ask::reload(AFTER));
                tally.point(|| check_mended(&world, &shape, mode, &what));
            }
        }
        tally
    });
    println!("{points} lasting failures");
    assert!(points > 500);
}

#[test]
fn a_start_that_the_disk_disturbs_comes_to_the_same_end() {
    let points = spread(shapes(), |shape| {
        let mut scene = shape.scene();
        // A worker that commands changed cannot be reloaded while the disk fails.
        scene.breaks.push("recovery_reload");
        let allowed = shape.allowed(&scene);
        let mut tally = Tally::default();
        let mut n = 0;
        loop {
            let dead = scene.copy();
            dead.fs.stop_after(n);
            dead.run(&shape.action);
            if !dead.fs.has_stopped() {
                break;
            }
            let lose = LOSSES[usize::try_from(n).unwrap() % LOSSES.len()];
            let dead = dead.crash(lose);
            let calls = {
                let whole = dead.crash(LoseUnsynced::Nothing);
                whole.start();
                whole.fs.calls()
            };
            for m in (1 + n % 9..=calls).step_by(if long_run() { 5 } else { 9 }) {
                let errno = ERRNOS[usize::try_from(n + m).unwrap() % 6];
                for lasting in [0, 25] {
                    let world = dead.crash(LoseUnsynced::Nothing);
                    world.fs.fail_for(m, lasting, errno);
                    let what = format!(
                        "{}: stopped after {n}, lost {lose:?}, start's call {m} and {lasting} more failed with {errno}",
                        shape.name
                    );
                    tally.point(|| {
                        assert!(world.start(), "{what}");
                        world.fs.heal();
                        world.agent.look();
                        let found = world.on_disk(&what);
                        assert!(allowed.contains(&found), "{what}: {found}");
                        world.check(&what, false);
                        world.copy().check(&format!("{what}, again"), true);
                    });
                }
            }
            n += if long_run() {
                shape.stride_of_pairs()
            } else {
                9 * shape.stride_of_pairs()
            };
        }
        tally
    });
    println!("{points} disturbed starts");
    assert!(points > 1_000);
}
