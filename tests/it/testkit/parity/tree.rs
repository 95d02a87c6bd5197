//! What something else does to tree and worker.

use super::*;
use crate::testkit::kit::{self, Ops as _, Site};

#[test]
fn a_file_that_something_else_wrote_makes_the_baseline_unknown() {
    plain(&[
        apply("first", |state| Site::new().push("p1", state)),
        Step::WriteBehind(kit::MAP, Some("written by hand\n")),
        Step::Verify,
        apply("expects the plan", |state| {
            let push = Site::new().push("p2", state);
            push.edit(|manifest| manifest["expected_prev_plan_id"] = json!("p1"))
        }),
        apply("full", |state| Site::new().push("p2", state)),
        Step::WriteBehind(kit::MAP, Some("written by hand again\n")),
        apply("noticed by the apply", |state| {
            Site::new().auto("p3", state, &[])
        }),
        apply("full again", |state| Site::new().push("p3", state)),
        Step::WriteBehind("general-not-owned", Some("nobody's\n")),
        Step::Verify,
        Step::WriteBehind(kit::OTHER, Some("x y\n")),
        Step::Verify,
    ]);
}

#[test]
fn a_file_that_is_gone_is_missing() {
    plain(&[
        apply("first", |state| Site::new().push("p1", state)),
        Step::WriteBehind(kit::OTHER, None),
        Step::Verify,
        apply("not sent", |state| {
            let mut push = Site::new().push("p2", state);
            push.parts.clear();
            push
        }),
        apply("sent", |state| Site::new().push("p2", state)),
        Step::WriteBehind(kit::OTHER, None),
        apply("revert: its content is not held", |state| {
            let push = Site::bare("x").push("r", state);
            push.revert()
        }),
        apply("full", |state| Site::new().push("p3", state)),
    ]);
}

#[test]
fn another_worker_is_reloaded_once() {
    plain(&[
        apply("first", |state| Site::new().push("p1", state)),
        Step::RestartHaproxy,
        apply("as before", |state| Site::new().auto("p2", state, &[])),
    ]);
}
