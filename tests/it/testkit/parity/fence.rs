//! The fence, and content that is missing.

use super::*;
use crate::testkit::kit::{self, Ops as _, Site, map_op};

#[test]
fn the_fence_has_its_reasons_in_their_order() {
    plain(&[
        apply("expects a plan where none is", |state| {
            let push = Site::new().push("p0", state);
            push.edit(|manifest| manifest["expected_prev_plan_id"] = json!("p9"))
        }),
        apply("expects a token where none is", |state| {
            let push = Site::new().push("p0", state);
            push.edit(|manifest| manifest["expected_prev_token"]["render_seq"] = json!(4))
        }),
        apply("first", |state| Site::new().push("p1", state).epoch(5)),
        apply("another plan", |state| {
            let push = Site::new().push("p2", state);
            push.edit(|manifest| manifest["expected_prev_plan_id"] = json!("p0"))
        }),
        apply("no plan", |state| {
            let push = Site::new().push("p2", state);
            push.edit(|manifest| manifest["expected_prev_plan_id"] = json!(""))
        }),
        apply("another token", |state| {
            let push = Site::new().push("p2", state);
            push.edit(|manifest| manifest["expected_prev_token"]["render_seq"] = json!(9))
        }),
        apply("older leader and another plan", |state| {
            let push = Site::new().push("p2", state).epoch(4);
            push.edit(|manifest| manifest["expected_prev_plan_id"] = json!("p0"))
        }),
        apply("the same leader, an older render", |state| {
            Site::new().map("a x\n").auto("p3", state, &[]).seq(0)
        }),
        apply("the same plan again", |state| {
            Site::new().map("a y\n").auto("p3", state, &[]).seq(0)
        }),
        apply("after a refusal nothing is known", |state| {
            Site::new().bad("4").push("p4", state)
        }),
        apply("expects the good plan", |state| {
            let push = Site::new().push("p5", state);
            push.edit(|manifest| manifest["expected_prev_plan_id"] = json!("p1"))
        }),
        apply("knows that nothing is known", |state| {
            Site::new().config("5").push("p5", state)
        }),
    ]);
}

#[test]
fn a_leader_is_remembered_even_if_its_apply_fails() {
    plain(&[
        apply("first", |state| Site::new().push("p1", state).epoch(3)),
        apply("a newer leader without its content", |state| {
            let push = Site::new().config("2").push("p2", state).epoch(8);
            push.without_parts()
        }),
        apply("the old one", |state| {
            Site::new().config("3").push("p3", state).epoch(3)
        }),
        apply("a newer one, fenced", |state| {
            let push = Site::new().config("3").push("p3", state).epoch(9);
            push.edit(|manifest| manifest["expected_prev_plan_id"] = json!("p0"))
        }),
        apply("the one before it", |state| {
            Site::new().config("4").push("p4", state).epoch(8)
        }),
        apply("refused, of a newer leader", |state| {
            Site::new().bad("5").push("p5", state).epoch(11)
        }),
        apply("the one before that", |state| {
            Site::new().config("6").push("p6", state).epoch(10)
        }),
        apply("known bad, of a newer leader", |state| {
            Site::new().bad("5").push("p7", state).epoch(12)
        }),
        apply("the one before that", |state| {
            Site::new().config("8").push("p8", state).epoch(11)
        }),
    ]);
}

#[test]
fn missing_content_is_listed_and_nothing_changes() {
    plain(&[
        apply("nothing sent", |state| {
            Site::new().push("p1", state).without_parts()
        }),
        apply("all sent", |state| Site::new().push("p1", state)),
        apply("two changed, none sent", |state| {
            let site = Site::new().map("a z\n").config("2");
            site.push("p2", state).without_parts()
        }),
        apply("one of them sent", |state| {
            let mut push = Site::new().map("a z\n").config("2").push("p2", state);
            push.parts.retain(|(name, _, _)| name == kit::MAP);
            push
        }),
        apply("held content under another name", |state| {
            let site = Site::new().with("maps/copy.map", "map", "a one\nb two\n");
            site.push("p2", state).without_parts()
        }),
        apply("another size", |state| {
            let push = Site::new().push("p2", state);
            push.edit(|manifest| {
                let files = manifest["files"].as_array_mut().unwrap();
                let map = files.iter_mut().find(|file| file["path"] == kit::MAP);
                map.unwrap()["size"] = json!(3);
            })
        }),
        apply("in place", |state| {
            Site::new().map("a q\n").auto("p3", state, &[])
        }),
    ]);
}

#[test]
fn in_place_ops_are_fenced_where_they_would_run() {
    let stale = |plan: &'static str, expected: &'static str| {
        move |state: &Value| {
            let ops = [map_op("map_set", kit::MAP, "a", Some("x"))];
            let push = Site::new().config(plan).push(plan, state);
            push.in_place(&ops, expected, plan)
        }
    };
    paced(&[
        apply("no window yet", stale("p1", "other")),
        apply("paced, of another worker plan", stale("p2", "other")),
        apply("auto: nothing would run", |state| {
            let ops = [map_op("map_set", kit::MAP, "a", Some("x"))];
            let push = Site::new().map("a n\n").config("p1").auto("p2", state, &[]);
            push.in_place(&ops, "other", "p2")
        }),
        apply("paced, of the right one", stale("p3", "p2")),
        apply("pending, of another", stale("p4", "p2")),
        apply("pending, of the right one", stale("p4", "p3")),
        apply("pending, without ids", |state| {
            let push = Site::new().config("p5").push("p5", state);
            push.edit(|manifest| manifest["in_place_ops"] = json!([{"kind": "map_del"}]))
        }),
    ]);
}
