//! Every crash point of the store, enumerated.
//!
//! A small transaction machine over the store (the real one is the apply layer's) runs
//! a shape of apply on the model file system. It is stopped after every mutation, the
//! machine dies or loses power, recovery runs and is itself stopped after each of *its*
//! mutations; or every call fails with an error number. Whatever happened, the tree must
//! then be wholly the set that the state names, owner and mode included, with nothing of the
//! agent's own left behind, and the next apply must work.

mod machine;
mod shapes;
mod steps;

use std::collections::BTreeSet;

use super::model::{LoseUnsynced, ModelFs};
use machine::{Machine, Stage};
use shapes::{Shape, shapes};

const LOSSES: [LoseUnsynced; 8] = [
    LoseUnsynced::Nothing,
    LoseUnsynced::All,
    LoseUnsynced::Random(1),
    LoseUnsynced::Random(2),
    LoseUnsynced::Random(3),
    LoseUnsynced::Random(4),
    LoseUnsynced::Random(5),
    LoseUnsynced::Random(6),
];

/// The tree is the set the state names, and nothing is left over.
fn check(fs: &ModelFs, shape: &Shape, what: &str) {
    let backups = check_tree(fs, shape, what);
    let hidden: BTreeSet<String> = fs.hidden().into_keys().collect();
    let own: BTreeSet<String> = [".haptic-agent.json".to_owned()].into();
    assert_eq!(hidden, &backups | &own, "{what}: left-overs");
}

/// What was reported as done survives a power loss; left-overs that come back with it are
/// for the next sweep.
fn check_durable(fs: &ModelFs, shape: &Shape, what: &str) {
    let fs = fs.crash(LoseUnsynced::All);
    let what = format!("{what}, power lost afterwards");
    let backups = check_tree(&fs, shape, &what);
    let hidden: BTreeSet<String> = fs.hidden().into_keys().collect();
    assert!(hidden.is_superset(&backups), "{what}: {backups:?}");
}

fn check_tree(fs: &ModelFs, shape: &Shape, what: &str) -> BTreeSet<String> {
    let machine = Machine::new(fs, shape);
    let state = machine.load().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(state.stage, Stage::Idle, "{what}");
    let want = shape.expected(&state.history);
    assert_eq!(fs.snapshot(), want, "{what}: plan {}", state.plan);
    assert_eq!(
        fs.dirs()
            .into_iter()
            .filter(|dir| !dir.contains(".haptic"))
            .collect::<BTreeSet<_>>(),
        shape.expected_dirs(&state.history),
        "{what}: plan {}",
        state.plan
    );
    state.journal.backups().map(str::to_owned).collect()
}

/// Recovers, checks, and applies once more.
fn recover_and_check(fs: &ModelFs, shape: &Shape, what: &str) {
    Machine::new(fs, shape)
        .recover()
        .unwrap_or_else(|e| panic!("{what}: recovery: {e}"));
    check(fs, shape, what);
    check_durable(fs, shape, what);
    let last = shape.sets.len() - 1;
    Machine::new(fs, shape)
        .apply(last, "after")
        .unwrap_or_else(|e| panic!("{what}: next apply: {e}"));
    check(fs, shape, &format!("{what}, next apply"));
    // What the journal then holds is still the last known good set.
    Machine::new(fs, shape).abort_to_lkg().unwrap();
    check(fs, shape, &format!("{what}, reverted"));
}

#[test]
fn every_shape_runs_through() {
    for shape in shapes() {
        let fs = shape.scene();
        Machine::new(&fs, &shape).run().unwrap();
        check(&fs, &shape, shape.name);
        recover_and_check(&fs, &shape, shape.name);
        println!(
            "{}: {} mutations, {} calls",
            shape.name,
            fs.mutations(),
            fs.calls()
        );
    }
}

#[test]
fn stopped_after_every_mutation_the_tree_is_wholly_one_set() {
    let mut points = 0;
    for shape in shapes() {
        let whole = shape.scene();
        Machine::new(&whole, &shape).run().unwrap();
        for n in 0..whole.mutations() {
            for lose in LOSSES {
                let fs = shape.scene();
                fs.stop_after(n);
                Machine::new(&fs, &shape).run().unwrap_err();
                let what = format!("{}: stopped after {n}, lost {lose:?}", shape.name);
                recover_and_check(&fs.crash(lose), &shape, &what);
                points += 1;
            }
        }
    }
    println!("{points} crash points");
    assert!(points > 2_000);
}

#[test]
fn recovery_stopped_after_every_mutation_recovers() {
    let mut points = 0;
    for shape in shapes() {
        let whole = shape.scene();
        Machine::new(&whole, &shape).run().unwrap();
        for n in 0..whole.mutations() {
            // One kind of loss a point keeps the square in seconds; all kinds come by turns.
            let pick = |n: u64| LOSSES[usize::try_from(n).unwrap() % LOSSES.len()];
            let dead = shape.scene();
            dead.stop_after(n);
            Machine::new(&dead, &shape).run().unwrap_err();
            let dead = dead.crash(pick(n));
            for m in 0.. {
                let again = dead.crash(LoseUnsynced::Nothing);
                again.stop_after(m);
                let recovered = Machine::new(&again, &shape).recover();
                if !again.struck() {
                    recovered.unwrap();
                    break;
                }
                let lose = pick(n + m + 3);
                let what = format!(
                    "{}: stopped after {n}, lost {:?}; recovery after {m}, lost {lose:?}",
                    shape.name,
                    pick(n),
                );
                let third = again.crash(lose);
                Machine::new(&third, &shape)
                    .recover()
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
                check(&third, &shape, &what);
                check_durable(&third, &shape, &what);
                points += 1;
            }
        }
    }
    println!("{points} pairs of crash points");
    assert!(points > 2_000);
}

#[test]
fn every_call_failing_once_leaves_one_set_and_the_next_apply_works() {
    let mut points = 0;
    for shape in shapes() {
        let whole = shape.scene();
        Machine::new(&whole, &shape).run().unwrap();
        for errno in ERRNOS {
            for n in 1..=whole.calls() {
                let fs = shape.scene();
                fs.fail_at(n, errno);
                // The failure may strike where it is tolerated: then the run succeeds.
                let _ = Machine::new(&fs, &shape).run();
                assert!(fs.struck());
                fs.heal();
                let what = format!("{}: call {n} failed with {errno}", shape.name);
                recover_and_check(&fs, &shape, &what);
                points += 1;
            }
        }
    }
    println!("{points} single failures");
    assert!(points > 2_000);
}

#[test]
fn every_call_failing_from_one_on_leaves_one_set_once_the_fault_is_gone() {
    let mut points = 0;
    for shape in shapes() {
        let whole = shape.scene();
        Machine::new(&whole, &shape).run().unwrap();
        for errno in ERRNOS {
            for n in 1..=whole.calls() {
                let fs = shape.scene();
                fs.fail_from(n, errno);
                let _ = Machine::new(&fs, &shape).run();
                fs.heal();
                let what = format!("{}: calls from {n} failed with {errno}", shape.name);
                recover_and_check(&fs, &shape, &what);
                points += 1;
            }
        }
    }
    println!("{points} lasting failures");
    assert!(points > 2_000);
}

const ERRNOS: [i32; 6] = [
    libc::ENOSPC,
    libc::EIO,
    libc::EDQUOT,
    libc::EROFS,
    libc::EACCES,
    libc::EMFILE,
];

#[test]
fn a_full_disk_refuses_cleanly_and_works_again_once_there_is_room() {
    for shape in shapes() {
        let whole = shape.scene();
        Machine::new(&whole, &shape).run().unwrap();
        let mut refused = 0;
        for room in (0..4096).step_by(16) {
            let fs = shape.scene();
            fs.set_capacity(Some(room));
            refused += usize::from(Machine::new(&fs, &shape).run().is_err());
            fs.set_capacity(None);
            recover_and_check(
                &fs,
                &shape,
                &format!("{}: {room} bytes of room", shape.name),
            );
        }
        assert!(refused > 5, "{}: {refused}", shape.name);
    }
}
