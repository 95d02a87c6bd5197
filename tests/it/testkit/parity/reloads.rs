//! Reloads that are refused, put off, joined, fired.

use super::*;
use crate::testkit::kit::{self, Ops as _, Site, map_op, path_op};

#[test]
fn a_refused_set_goes_back_and_is_remembered() {
    plain(&[
        apply("refused, first of all", |state| {
            Site::new().bad("1").push("p1", state)
        }),
        apply("again, under another name", |state| {
            Site::new().bad("1").push("p2", state)
        }),
        apply("good", |state| Site::new().push("p3", state)),
        apply("refused", |state| {
            Site::new().bad("4").map("a q\n").push("p4", state)
        }),
        apply("again", |state| {
            Site::new().bad("4").map("a q\n").push("p5", state)
        }),
        apply("nearly the same", |state| {
            Site::new().bad("4").map("a r\n").push("p6", state)
        }),
        apply("again in mode auto", |state| {
            Site::new().bad("4").map("a q\n").auto("p7", state, &[])
        }),
        apply("repaired", |state| {
            Site::new().config("8").push("p8", state)
        }),
        apply("the bad one is still known", |state| {
            Site::new().bad("1").push("p9", state)
        }),
        apply("and changed nothing", |state| {
            Site::new().config("8").auto("p10", state, &[])
        }),
    ]);
}

#[test]
fn a_set_without_its_main_file_is_refused_before_anything() {
    plain(&[
        apply("first", |state| Site::new().push("p1", state)),
        apply("without", |state| {
            Site::new().without(kit::CONFIG).push("p2", state)
        }),
        apply("empty", |state| {
            Site::new()
                .with(kit::CONFIG, "config", "")
                .push("p3", state)
        }),
        apply("empty again", |state| {
            Site::new()
                .with(kit::CONFIG, "config", "")
                .push("p4", state)
        }),
        apply("repaired", |state| {
            Site::new().config("5").push("p5", state)
        }),
    ]);
}

/// What was there before the agent is not the agent's: a set may go without it.
#[test]
fn a_main_file_that_was_never_owned_may_be_left_out() {
    plain(&[
        apply("refused, and the old one is back", |state| {
            Site::new().bad("1").push("p1", state)
        }),
        apply("a set without it", |state| {
            nothing_loaded().push("p2", state)
        }),
        apply("and again", |state| nothing_loaded().auto("p3", state, &[])),
        apply("with it", |state| Site::new().push("p4", state)),
        apply("without it now", |state| {
            Site::new().without(kit::CONFIG).auto("p5", state, &[])
        }),
    ]);
}

/// A set of which HAProxy loads nothing.
fn nothing_loaded() -> Site {
    let site = Site::bare("x").without(kit::CONFIG);
    site.with("errors/503.http", "general", "x")
}

#[test]
fn reloads_wait_for_the_window_and_applies_join_them() {
    paced(&[
        apply("first", |state| Site::new().push("p1", state)),
        apply("asked inside the window", |state| {
            Site::new().config("2").push("p2", state)
        }),
        apply("auto joins", |state| {
            let ops = [map_op("map_add", kit::MAP, "c", Some("d"))];
            Site::new()
                .config("2")
                .map("a one\nc d\n")
                .auto("p3", state, &ops)
        }),
        apply("nothing changes, it joins", |state| {
            Site::new()
                .config("2")
                .map("a one\nc d\n")
                .auto("p4", state, &[])
        }),
        apply("an op that nobody knows is not looked at", |state| {
            let ops = [json!({"kind": "server_rename"})];
            Site::new().config("2").auto("p5", state, &ops)
        }),
        apply("in place", |state| {
            let ops = [map_op("map_set", kit::MAP, "a", Some("uno"))];
            let push = Site::new()
                .config("2")
                .map("a uno\n")
                .auto("p6", state, &[]);
            push.in_place(&ops, "p1", "w6")
        }),
        apply("in place, once more, with ops", |state| {
            let ops = [map_op("map_set", kit::MAP, "b", Some("due"))];
            let push = Site::new()
                .config("2")
                .map("a uno\nb due\n")
                .auto("p7", state, &ops);
            push.in_place(&ops, "w6", "w7")
        }),
        apply("in place, refused", |state| {
            let ops = [
                map_op("map_set", kit::MAP, "a", Some("x")),
                map_op("map_set", kit::MAP, "none", Some("x")),
            ];
            let push = Site::new().config("2").map("a x\n").auto("p8", state, &[]);
            push.in_place(&ops, "w7", "w8")
        }),
        apply("nothing is known now", |state| {
            let push = Site::new().config("2").auto("p9", state, &[]);
            push.edit(|manifest| manifest["expected_prev_plan_id"] = json!("p8"))
        }),
        apply("a full set", |state| {
            Site::new().config("2").push("p9", state)
        }),
        apply("in place, not executable", |state| {
            let push = Site::new().config("3").push("p10", state);
            push.in_place(&[path_op("map_replace", "maps/none.map")], "", "w10")
        }),
        apply("a revert consumes it", |state| {
            Site::bare("x").push("r", state).revert()
        }),
    ]);
}

#[test]
fn an_op_refused_inside_the_window_waits_for_its_reload() {
    paced(&[
        apply("first", |state| Site::new().push("p1", state)),
        apply("refused", |state| {
            let ops = [
                map_op("map_add", kit::MAP, "c", Some("d")),
                map_op("map_set", kit::MAP, "none", Some("x")),
            ];
            let push = Site::new().map("a one\nc d\n").auto("p2", state, &ops);
            push.in_place(&ops[..1], "p1", "p2")
        }),
        apply("in place is fenced", |state| {
            let ops = [map_op("map_add", kit::MAP, "e", Some("f"))];
            let push = Site::new().map("a one\nc d\ne f\n").auto("p3", state, &[]);
            push.in_place(&ops, "p2", "p3")
        }),
        apply("in place on what is not known", |state| {
            let ops = [map_op("map_add", kit::MAP, "e", Some("f"))];
            let push = Site::new().map("a one\nc d\ne f\n").auto("p3", state, &[]);
            push.in_place(&ops, "", "p3")
        }),
    ]);
}

#[test]
fn a_refused_reload_starts_the_window_too() {
    paced(&[
        apply("refused", |state| Site::new().bad("1").push("p1", state)),
        apply("another", |state| Site::new().push("p2", state)),
        apply("a known bad one", |state| {
            Site::new().bad("1").push("p3", state)
        }),
    ]);
}

#[test]
fn a_pending_reload_loads_the_latest_set() {
    fired(&[
        apply("first", |state| Site::new().push("p1", state)),
        apply("scheduled", |state| {
            Site::new().config("2").push("p2", state)
        }),
        apply("joins", |state| {
            Site::new().config("2").map("a j\n").auto("p3", state, &[])
        }),
        Step::Fire,
        apply("known again", |state| {
            Site::new().config("2").auto("p4", state, &[])
        }),
    ]);
}

#[test]
fn a_pending_reload_that_is_refused_goes_back() {
    fired(&[
        apply("first", |state| Site::new().push("p1", state)),
        apply("scheduled", |state| Site::new().bad("2").push("p2", state)),
        Step::Fire,
        apply("the same again: remembered", |state| {
            Site::new().bad("2").push("p3", state)
        }),
    ]);
}

#[test]
fn a_pending_reload_that_is_refused_after_ops_ran_reloads_the_good_set() {
    fired(&[
        apply("first", |state| Site::new().push("p1", state)),
        apply("scheduled, in place", |state| {
            let ops = [map_op("map_set", kit::MAP, "a", Some("x"))];
            let push = Site::new().bad("2").map("a x\n").push("p2", state);
            push.in_place(&ops, "p1", "p2")
        }),
        Step::Fire,
    ]);
}

#[test]
fn the_inventory_that_a_fired_reload_brought_is_told() {
    fired(&[
        apply("first", |state| Site::bare("1").push("p1", state)),
        apply("scheduled", |state| {
            Site::new().config("2").push("p2", state)
        }),
        Step::Fire,
        apply("the next answer has it", |state| {
            Site::new().config("2").auto("p3", state, &[])
        }),
        apply("the one after it has not", |state| {
            Site::new().config("2").auto("p4", state, &[])
        }),
    ]);
}

#[test]
fn a_certificate_made_in_place_is_in_the_inventory() {
    use crate::support::certs;
    paced(&[
        apply("first", |state| Site::new().push("p1", state)),
        apply("in place", |state| {
            let site = Site::new()
                .config("2")
                .with(kit::SPARE, "cert", &certs::second().pem());
            let push = site.push("p2", state);
            push.in_place(&[path_op("cert_new", kit::SPARE)], "p1", "p2")
        }),
        apply("told", |state| {
            let site = Site::new()
                .config("2")
                .with(kit::SPARE, "cert", &certs::second().pem());
            site.push("p3", state)
        }),
    ]);
}

#[test]
fn a_certificate_made_before_a_refused_op_is_in_the_inventory_until_the_reload() {
    use crate::support::certs;
    paced(&[
        apply("first", |state| Site::new().push("p1", state)),
        apply("the second op is refused", |state| {
            let site = Site::new().with(kit::SPARE, "cert", &certs::second().pem());
            let ops = [
                path_op("cert_new", kit::SPARE),
                map_op("map_set", kit::MAP, "none", Some("x")),
            ];
            site.auto("p2", state, &ops)
        }),
    ]);
}
