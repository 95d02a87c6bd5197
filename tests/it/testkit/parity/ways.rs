//! Which way an apply goes, and what becomes of the plan roles.

use super::*;
use crate::testkit::kit::{self, Ops as _, Site, map_op};

#[test]
fn the_ways_of_an_apply() {
    plain(&[
        apply("first", |state| Site::new().push("p1", state)),
        apply("noop", |state| Site::new().auto("p2", state, &[])),
        apply("file only", |state| {
            Site::new().map("a one\nb three\n").auto("p3", state, &[])
        }),
        apply("runtime", |state| {
            let ops = [
                map_op("map_set", kit::MAP, "b", Some("three")),
                map_op("map_add", kit::MAP, "c", Some("four")),
            ];
            Site::new()
                .map("a one\nb three\nc four\n")
                .auto("p4", state, &ops)
        }),
        apply("asked", |state| Site::new().config("2").push("p5", state)),
        apply("same again", |state| {
            Site::new().config("2").push("p5", state)
        }),
    ]);
}

#[test]
fn an_auto_apply_without_a_baseline_reloads() {
    plain(&[
        apply("auto, first of all", |state| {
            let ops = [map_op("map_add", kit::MAP, "c", Some("four"))];
            Site::new().auto("p1", state, &ops)
        }),
        apply("auto again", |state| Site::new().auto("p2", state, &[])),
    ]);
}

#[test]
fn files_come_and_go() {
    plain(&[
        apply("first", |state| {
            Site::new()
                .with("errors/503.http", "general", "x")
                .push("p1", state)
        }),
        apply("one more, one less", |state| {
            Site::new()
                .with("errors/404.http", "general", "y")
                .auto("p2", state, &[])
        }),
        apply("refused: all of it back", |state| {
            Site::new()
                .bad("2")
                .with("errors/500.http", "general", "z")
                .push("p3", state)
        }),
        apply("nothing but the configuration", |state| {
            Site::bare("3").push("p4", state)
        }),
    ]);
}

#[test]
fn validation_makes_the_applied_plan_the_good_one() {
    plain(&[
        apply("first", |state| Site::new().push("p1", state)),
        apply("file only", |state| {
            Site::new().map("a two\n").auto("p2", state, &[])
        }),
        apply("another, p2 validated", |state| {
            Site::new()
                .map("a three\n")
                .auto("p3", state, &[])
                .validated("p2")
        }),
        apply("another plan validated", |state| {
            Site::new()
                .map("a four\n")
                .auto("p4", state, &[])
                .validated("p2")
        }),
        apply("refused: back to p2", |state| {
            Site::new().bad("5").push("p5", state)
        }),
        apply("revert", |state| Site::bare("x").push("p6", state).revert()),
    ]);
}

#[test]
fn the_plan_blob_belongs_to_its_plan() {
    plain(&[
        apply("with a blob", |state| {
            Site::new().push("p1", state).blob(b"\0one\xff")
        }),
        Step::Verify,
        apply("the same plan without one", |state| {
            Site::new().auto("p1", state, &[])
        }),
        apply("the same plan with another", |state| {
            Site::new().auto("p1", state, &[]).blob(b"two")
        }),
        apply("another plan without one", |state| {
            Site::new().auto("p2", state, &[])
        }),
        apply("an empty one", |state| {
            Site::new().auto("p3", state, &[]).blob(b"")
        }),
        apply("refused with one", |state| {
            Site::new().bad("4").push("p4", state).blob(b"four")
        }),
        apply("repaired", |state| {
            Site::new().config("5").push("p5", state).blob(b"five")
        }),
        apply("the first plan again, its blob is gone", |state| {
            Site::new().config("6").push("p1", state)
        }),
        apply("reverted", |state| {
            Site::bare("x").push("p6", state).revert()
        }),
    ]);
}

#[test]
fn reverts_go_back_to_the_last_good_set() {
    plain(&[
        apply("nothing to go back to", |state| {
            Site::bare("x").push("r0", state).revert()
        }),
        apply("first", |state| Site::new().push("p1", state)),
        apply("nothing changed", |state| {
            Site::bare("x").push("r1", state).revert()
        }),
        apply("file only", |state| {
            Site::new().map("a two\n").auto("p2", state, &[])
        }),
        apply("back", |state| Site::bare("x").push("r2", state).revert()),
        apply("runtime", |state| {
            let ops = [map_op("map_add", kit::MAP, "c", Some("d"))];
            Site::new()
                .map("a one\nb two\nc d\n")
                .auto("p3", state, &ops)
        }),
        apply("back, whatever is expected", |state| {
            Site::bare("x")
                .push("r3", state)
                .revert()
                .edit(|manifest| manifest["expected_prev_plan_id"] = json!("else"))
        }),
        apply("an older leader", |state| {
            Site::bare("x").push("r4", state).revert().epoch(0)
        }),
        apply("a newer leader", |state| {
            Site::bare("x").push("r5", state).revert().epoch(7)
        }),
        apply("the older one again", |state| {
            Site::new().push("p6", state).epoch(6)
        }),
    ]);
}

#[test]
fn digests_of_both_kinds() {
    plain(&[
        apply("xxh64", |state| Site::new().push("p1", state).xxh64()),
        apply("held by sha256", |state| {
            let mut apply = Site::new().auto("p2", state, &[]);
            apply.parts.clear();
            apply
        }),
        apply("xxh64 again, sent", |state| {
            let state = without_files(state);
            Site::new().auto("p3", &state, &[]).xxh64()
        }),
        apply("xxh64 again, held", |state| {
            let state = without_files(state);
            Site::new().auto("p4", &state, &[]).xxh64().without_parts()
        }),
        apply("bad as xxh64", |state| {
            let state = without_files(state);
            Site::new().bad("5").push("p5", &state).xxh64()
        }),
        apply("bad as xxh64 again", |state| {
            let state = without_files(state);
            Site::new().bad("5").push("p6", &state).xxh64()
        }),
        apply("bad as sha256", |state| {
            let state = without_files(state);
            Site::new().bad("5").push("p7", &state)
        }),
    ]);
}

/// So that a controller sends everything.
fn without_files(state: &Value) -> Value {
    let mut state = state.clone();
    state["files"] = json!({});
    state
}
