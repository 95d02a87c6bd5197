//! The world stops.

use crate::wire::result::ResultMode;

use super::shapes::{Shape, shapes};
use super::world::World;
use super::{LOSSES, LoseUnsynced, Tally, long_run, spread};

/// Mutations of the shape's action when nothing disturbs it.
fn length(shape: &Shape, scene: &World) -> u64 {
    let whole = scene.copy();
    let before = whole.fs.mutations();
    whole.run(&shape.action);
    whole.fs.mutations() - before
}

/// The kill, the whole loss, and two partial ones that differ from point to point.
fn losses(n: u64) -> [LoseUnsynced; 4] {
    [
        LoseUnsynced::Nothing,
        LoseUnsynced::All,
        LoseUnsynced::Random(1 + n % 7),
        LoseUnsynced::Random(100 + n),
    ]
}

fn found_one_of(world: &World, allowed: &[&str], what: &str) {
    let found = world.on_disk(what);
    assert!(allowed.contains(&found), "{what}: {found} on disk");
}

#[test]
fn every_shape_runs_through() {
    let mut tally = Tally::default();
    for shape in shapes() {
        let scene = shape.scene();
        let world = scene.copy();
        let (calls, mutations) = (world.fs.calls(), world.fs.mutations());
        let ended = world.run(&shape.action).and_then(|ended| ended.mode());
        let (calls, mutations) = (world.fs.calls() - calls, world.fs.mutations() - mutations);
        println!(
            "{}: {ended:?}, {mutations} mutations, {calls} calls",
            shape.name
        );
        tally.point(|| {
            let bad = ["refused", "error", "unconfirmed", "unreachable"];
            if !bad.iter().any(|word| shape.name.contains(word)) {
                assert_ne!(ended, Some(ResultMode::Rejected), "{}", shape.name);
            }
            world.check(shape.name, true);
            found_one_of(&world, &shape.allowed(&scene), shape.name);
            world.copy().check(shape.name, true);
            world.check_next(shape.name);
        });
    }
    assert!(tally.failed.is_empty(), "{:#?}", tally.failed);
}

#[test]
fn stopped_after_every_call_the_tree_is_wholly_one_set() {
    let points = spread(shapes(), |shape| {
        let scene = shape.scene();
        let allowed = shape.allowed(&scene);
        let length = length(&shape, &scene);
        let mut tally = Tally::default();
        for n in (0..length).step_by(shape.stride()) {
            let dead = scene.copy();
            dead.fs.stop_after(n);
            dead.run(&shape.action);
            assert!(dead.fs.has_stopped(), "{}: {n}", shape.name);
            for (turn, lose) in losses(n).into_iter().enumerate() {
                let what = format!(
                    "{}: stopped after {n} of {length}, lost {lose:?}",
                    shape.name
                );
                let after = dead.crash(lose);
                tally.point(|| {
                    assert!(after.start(), "{what}");
                    found_one_of(&after, &allowed, &what);
                    after.check(&what, true);
                    // One loss a point, by turns: it costs more than all the rest.
                    if long_run() || (turn + usize::try_from(n).unwrap()) % 4 == 0 {
                        after.check_next(&what);
                    }
                });
            }
        }
        tally
    });
    println!("{points} crash points");
    assert!(points > 5_000);
}

/// Between the calls at which a recovery is stopped as well, in the short run.
const SPREAD: u64 = 17;

#[test]
fn recovery_stopped_after_every_call_recovers() {
    let points = spread(shapes(), |shape| {
        let scene = shape.scene();
        let allowed = shape.allowed(&scene);
        let length = length(&shape, &scene);
        let mut tally = Tally::default();
        let pick = |n: u64| LOSSES[usize::try_from(n).unwrap() % LOSSES.len()];
        for n in (0..length).step_by(usize::try_from(shape.stride_of_pairs()).unwrap()) {
            // One kind of loss a point keeps the square in seconds; all kinds come by turns.
            let dead = scene.copy();
            dead.fs.stop_after(n);
            dead.run(&shape.action);
            for turn in [0, 1] {
                let first = if turn == 0 {
                    LoseUnsynced::Nothing
                } else {
                    pick(n)
                };
                // Not every call, but all of them by turns; every one in the long run.
                let mut m = if long_run() { 0 } else { (n + turn) % SPREAD };
                loop {
                    let again = dead.crash(first);
                    again.fs.stop_after(m);
                    again.start();
                    if !again.fs.has_stopped() {
                        break;
                    }
                    let second = if turn == 0 {
                        LoseUnsynced::Nothing
                    } else {
                        pick(n + m)
                    };
                    let what = format!(
                        "{}: stopped after {n}, recovery after {m}, lost {first:?} and {second:?}",
                        shape.name
                    );
                    let third = again.crash(second);
                    tally.point(|| {
                        assert!(third.start(), "{what}");
                        found_one_of(&third, &allowed, &what);
                        third.check(&what, true);
                    });
                    m += shape.stride_of_pairs() * if long_run() { 1 } else { SPREAD };
                }
            }
        }
        tally
    });
    println!("{points} pairs of crash points");
    assert!(points > 1_000);
}
