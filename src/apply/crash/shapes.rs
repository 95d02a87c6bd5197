//! The shapes of transaction that are enumerated.

use std::time::Duration;

use super::haproxy::Mood;
use super::long_run;
use super::worker::{Batches, Cmd};
use super::world::{Ask, IN_PLACE, INTERVAL, Step, World};

pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) interval: Duration,
    /// Run to its end, untouched.
    pub(super) setup: Vec<Step>,
    /// What is cut or disturbed.
    pub(super) action: Vec<Step>,
    /// Every how many points one is tried in the short run; for large sets.
    stride: u64,
    /// The invariant that it breaks.
    pub(super) breaks: Option<&'static str>,
}

/// Between the points of a large set where two of them are combined, in the long run.
const LONG_STRIDE: u64 = 7;

impl Shape {
    /// Every how many points one is tried, where each stands for itself.
    pub(super) fn stride(&self) -> usize {
        let stride = if long_run() { 1 } else { self.stride };
        usize::try_from(stride).unwrap()
    }

    /// The same where each point is combined with all of another run.
    pub(super) fn stride_of_pairs(&self) -> u64 {
        if long_run() {
            self.stride.min(LONG_STRIDE)
        } else {
            self.stride
        }
    }

    /// The world right before the action.
    pub(super) fn scene(&self) -> World {
        let mut world = World::first(self.interval);
        world.breaks.extend(self.breaks);
        world.run(&self.setup);
        world.check(self.name, true);
        world
    }

    /// The plans whose set may be found on disk after a point: those of the action, the one
    /// before it, and the last known good one.
    pub(super) fn allowed(&self, scene: &World) -> Vec<&'static str> {
        let lkg = scene.record().lkg_plan_id;
        let mut allowed = vec![scene.on_disk(self.name)];
        for step in self.setup.iter().chain(&self.action) {
            if let Step::Apply(ask) = step {
                let in_action = self
                    .action
                    .iter()
                    .any(|s| matches!(s, Step::Apply(a) if a.plan == ask.plan));
                if in_action || ask.plan == lkg {
                    allowed.push(ask.plan);
                }
            }
        }
        if lkg.is_empty() {
            allowed.push(super::sets::BOOT);
        }
        allowed
    }
}

fn shape(name: &'static str, setup: &[Step], action: &[Step]) -> Shape {
    Shape {
        name,
        interval: Duration::ZERO,
        setup: setup.to_vec(),
        action: action.to_vec(),
        stride: 1,
        breaks: None,
    }
}

pub(super) fn shapes() -> Vec<Shape> {
    use Step::{Apply, Fire};
    let reload = |plan| Apply(Ask::reload(plan));
    let auto = |plan| Apply(Ask::auto(plan));
    let revert = Apply(Ask::revert());
    let paced = |name, setup: &[Step], action: &[Step]| Shape {
        interval: INTERVAL,
        ..shape(name, setup, action)
    };
    let wide = |name, setup: &[Step], action: &[Step]| Shape {
        stride: 97,
        ..shape(name, setup, action)
    };
    let mut all = vec![
        shape("first apply", &[], &[reload("p1")]),
        shape("first apply, refused", &[], &[reload("bad")]),
        shape("change, two mounts", &[reload("p1")], &[reload("p2")]),
        shape("delete", &[reload("p1")], &[reload("p3")]),
        shape("mixed", &[reload("p1")], &[reload("p4")]),
        shape("files only", &[reload("p1")], &[auto("p5")]),
        shape(
            "nothing to do",
            &[reload("p1")],
            &[Apply(Ask {
                under: Some("again-p1"),
                ..Ask::auto("p1")
            })],
        ),
        shape(
            "refused over files that went",
            &[reload("p1"), auto("p4")],
            &[reload("bad6")],
        ),
        shape(
            "write error over files that went",
            &[reload("p1"), auto("p4")],
            &[Step::RenameFails("haproxy.cfg"), reload("p3")],
        ),
        shape("two applies", &[reload("p1")], &[auto("p5"), reload("p6")]),
        shape("refused", &[reload("p1")], &[reload("bad")]),
        shape(
            "refused over a journal",
            &[reload("p1"), auto("p5")],
            &[reload("bad6")],
        ),
        shape(
            "applied over a journal",
            &[reload("p1"), auto("p5")],
            &[reload("p4")],
        ),
        shape(
            "write error",
            &[reload("p1"), auto("p5")],
            &[Step::RenameFails("maps/other.map"), reload("p4")],
        ),
        shape(
            "write error in the configuration",
            &[reload("p1")],
            &[Step::RenameFails("haproxy.cfg"), reload("p2")],
        ),
        shape("revert", &[reload("p1"), auto("p4")], &[revert]),
        shape(
            "revert of three",
            &[reload("p1"), auto("p5"), auto("p4"), auto("p3")],
            &[revert],
        ),
        paced("scheduled", &[reload("p1")], &[reload("p2")]),
        paced("joins", &[reload("p1"), reload("p2")], &[reload("p4")]),
        paced("fires", &[reload("p1"), reload("p2")], &[Fire]),
        paced(
            "scheduled, joined, fires",
            &[reload("p1")],
            &[reload("p5"), reload("p6"), Fire],
        ),
        paced("fires, refused", &[reload("p1"), reload("bad")], &[Fire]),
        paced(
            "fires, refused over a journal",
            &[reload("p1"), reload("p5"), reload("bad6")],
            &[Fire],
        ),
        paced(
            "revert while pending",
            &[reload("p1"), reload("p5"), reload("p4")],
            &[revert],
        ),
        shape(
            "unconfirmed, loaded",
            &[reload("p1")],
            &[Step::Mood(Mood::SilentlyLoading), reload("p2")],
        ),
        shape(
            "unconfirmed, not loaded",
            &[reload("p1")],
            &[Step::Mood(Mood::SilentlyNot), reload("p2")],
        ),
        shape(
            "unreachable",
            &[reload("p1")],
            &[Step::Mood(Mood::Unreachable), reload("p2")],
        ),
        paced(
            "fires, unconfirmed",
            &[reload("p1"), reload("p2")],
            &[Step::Mood(Mood::SilentlyLoading), Fire],
        ),
        shape(
            "promoted",
            &[reload("p1"), auto("p5")],
            &[Apply(Ask {
                validated: Some("p5"),
                ..Ask::auto("p4")
            })],
        ),
        shape(
            "promoted, refused",
            &[reload("p1"), auto("p5")],
            &[Apply(Ask {
                validated: Some("p5"),
                ..Ask::reload("bad")
            })],
        ),
        shape(
            "blob",
            &[Apply(Ask {
                blob: true,
                ..Ask::reload("p1")
            })],
            &[Apply(Ask {
                blob: true,
                ..Ask::reload("p2")
            })],
        ),
        shape(
            "blob goes",
            &[Apply(Ask {
                blob: true,
                ..Ask::reload("p1")
            })],
            &[reload("p2")],
        ),
        shape(
            "new leader",
            &[reload("p1")],
            &[Apply(Ask {
                epoch: 2,
                ..Ask::reload("p2")
            })],
        ),
        shape(
            "new leader, refused",
            &[reload("p1")],
            &[Apply(Ask {
                epoch: 2,
                ..Ask::reload("bad")
            })],
        ),
        shape("worker from nowhere", &[reload("p1")], &[Step::Restart]),
        shape(
            "worker from nowhere over a journal",
            &[reload("p1"), auto("p5")],
            &[Step::Restart],
        ),
        paced(
            "worker from nowhere, paced",
            &[reload("p1")],
            &[Step::Restart, Fire],
        ),
        wide("200 files, first", &[], &[reload("w1")]),
        wide("200 files, changed", &[reload("w1")], &[reload("w2")]),
        wide("200 files, gone", &[reload("w1")], &[reload("p1")]),
    ];
    all.extend(runtime_shapes());
    all.extend(swapped_shapes());
    all
}

/// Names that change between file and directory.
fn swapped_shapes() -> Vec<Shape> {
    use Step::{Apply, Fire};
    let reload = |plan| Apply(Ask::reload(plan));
    let auto = |plan| Apply(Ask::auto(plan));
    vec![
        shape(
            "a directory becomes a file",
            &[reload("d1")],
            &[reload("f1")],
        ),
        shape(
            "a file becomes a directory",
            &[reload("f1")],
            &[reload("d1")],
        ),
        shape("to a file, files only", &[reload("d1")], &[auto("f1")]),
        shape("to a file, refused", &[reload("d1")], &[reload("badf")]),
        shape(
            "to a directory, refused",
            &[reload("f1")],
            &[reload("badd")],
        ),
        shape(
            "to a file and back, refused",
            &[reload("d1"), auto("f1")],
            &[reload("badd")],
        ),
        shape(
            "to a directory and back, refused",
            &[reload("f1"), auto("d1")],
            &[reload("badf")],
        ),
        shape(
            "to a file and back",
            &[reload("d1"), auto("f1")],
            &[auto("d1")],
        ),
        shape(
            "to a file, reverted",
            &[reload("d1"), auto("f1")],
            &[Apply(Ask::revert())],
        ),
        shape(
            "to a directory, reverted",
            &[reload("f1"), auto("d1")],
            &[Apply(Ask::revert())],
        ),
        shape(
            "to a directory, write error",
            &[reload("f1")],
            &[Step::RenameFails("general/x/z/w"), reload("d1")],
        ),
        shape(
            "to a file, write error",
            &[reload("d1")],
            &[Step::RenameFails("haproxy.cfg"), reload("f1")],
        ),
        Shape {
            interval: INTERVAL,
            ..shape(
                "to a directory, fires, refused",
                &[reload("f1"), reload("badd")],
                &[Fire],
            )
        },
    ]
}

/// Commands on the worker: batches, deletes that wait, and ops while a reload waits.
fn runtime_shapes() -> Vec<Shape> {
    use Cmd::{Add, Del, Map, To};
    use Step::{Apply, Busy, Deletes, Fire, ReadBack};
    let reload = |plan| Apply(Ask::reload(plan));
    let runtime = |plan, ops| Apply(Ask::runtime(plan, ops));
    let in_place = |plan, ops| Apply(Ask::in_place(plan, ops));
    let paced = |name, setup: &[Step], action: &[Step]| Shape {
        interval: INTERVAL,
        ..shape(name, setup, action)
    };
    let to_p5 = runtime(
        "p5",
        &[Map("maps/fifth.map"), To("p5"), Map("maps/host.map")],
    );
    let deleting = runtime("p5", &[Del("s1"), To("p5"), Del("s2")]);
    let adding = runtime("p4", &[Add("s1"), To("p4")]);
    let placed = &[To(IN_PLACE), Map("maps/host.map")];
    let refused = Step::Batches(Batches::Refused(1));
    let unanswered = Step::Batches(Batches::Unanswered(1));
    vec![
        shape("runtime", &[reload("p1")], &[to_p5]),
        shape(
            "runtime, looked at",
            &[reload("p1")],
            &[to_p5, ReadBack(false)],
        ),
        shape(
            "runtime, differs",
            &[reload("p1")],
            &[to_p5, ReadBack(true), Fire],
        ),
        shape(
            "runtime, then a reload",
            &[reload("p1")],
            &[to_p5, reload("p4")],
        ),
        shape("runtime, refused", &[reload("p1")], &[refused, to_p5]),
        shape("runtime, unanswered", &[reload("p1")], &[unanswered, to_p5]),
        shape(
            "runtime, refused, and so is the set",
            &[reload("p1")],
            &[
                Step::Batches(Batches::Refused(1)),
                runtime("bad", &[To("bad"), Map("maps/bad.map")]),
            ],
        ),
        shape(
            "runtime, refused over a journal",
            &[reload("p1"), to_p5],
            &[refused, runtime("bad6", &[To("bad6"), To("bad6")])],
        ),
        Shape {
            breaks: Some("recovery_reload"),
            ..shape(
                "runtime, refused, unreachable",
                &[reload("p1")],
                &[Step::Mood(Mood::Unreachable), refused, to_p5],
            )
        },
        Shape {
            breaks: Some("ops_executable"),
            ..shape(
                "runtime, not executable",
                &[reload("p1")],
                &[runtime("p5", &[To("p5"), Map("maps/none.map")])],
            )
        },
        shape(
            "runtime, reverted",
            &[reload("p1"), to_p5],
            &[Apply(Ask::revert())],
        ),
        shape("deletes", &[reload("p1")], &[deleting, Deletes]),
        shape("deletes that wait", &[reload("p1"), deleting], &[Deletes]),
        shape(
            "deletes, busy",
            &[reload("p1"), deleting],
            &[Busy(true), Deletes, Busy(false), Deletes],
        ),
        shape(
            "more deletes",
            &[reload("p1"), deleting],
            &[runtime("p4", &[Del("s3"), To("p4")]), Deletes],
        ),
        shape(
            "a delete is taken back",
            &[reload("p1"), deleting],
            &[adding, Deletes],
        ),
        shape(
            "deletes, then a reload",
            &[reload("p1"), deleting],
            &[reload("p4"), Deletes],
        ),
        shape(
            "deletes, then refused",
            &[reload("p1"), deleting],
            &[reload("bad"), Deletes],
        ),
        shape(
            "deletes, reverted",
            &[reload("p1"), deleting],
            &[Apply(Ask::revert())],
        ),
        shape(
            "deletes, worker from nowhere",
            &[reload("p1"), deleting],
            &[Step::Restart, Deletes],
        ),
        shape(
            "deletes, runtime refused",
            &[reload("p1"), deleting],
            &[refused, adding, Deletes],
        ),
        paced(
            "in place",
            &[reload("p1"), reload("p5")],
            &[in_place("p4", placed)],
        ),
        paced(
            "in place, asked in the window",
            &[reload("p1")],
            &[in_place("p4", placed)],
        ),
        paced(
            "in place, no file changes",
            &[reload("p1"), reload("p5")],
            &[Apply(Ask {
                under: Some("again-p5"),
                ..Ask::in_place("p5", placed)
            })],
        ),
        paced(
            "in place twice",
            &[reload("p1"), in_place("p5", placed)],
            &[in_place("p4", placed), in_place("p6", placed)],
        ),
        paced(
            "in place, refused",
            &[reload("p1"), reload("p5")],
            &[refused, in_place("p4", placed)],
        ),
        paced(
            "in place, refused, no file changes",
            &[reload("p1"), reload("p5")],
            &[
                refused,
                Apply(Ask {
                    under: Some("again-p5"),
                    ..Ask::in_place("p5", placed)
                }),
            ],
        ),
        paced(
            "in place, unanswered",
            &[reload("p1"), reload("p5")],
            &[unanswered, in_place("p4", placed)],
        ),
        paced(
            "in place, fires",
            &[reload("p1"), reload("p5")],
            &[in_place("p4", placed), Fire],
        ),
        paced(
            "in place, fires, refused",
            &[reload("p1"), reload("p5")],
            &[in_place("bad", placed), Fire],
        ),
        paced(
            "in place, fires, unconfirmed",
            &[reload("p1"), in_place("p5", placed)],
            &[Step::Mood(Mood::SilentlyLoading), Fire],
        ),
        paced(
            "in place, reverted",
            &[reload("p1"), in_place("p5", placed)],
            &[Apply(Ask::revert())],
        ),
        paced(
            "in place with deletes",
            &[reload("p1"), reload("p5")],
            &[in_place("p4", &[To(IN_PLACE), Del("s1")]), Deletes, Fire],
        ),
        paced(
            "in place, write error",
            &[reload("p1"), in_place("p5", placed)],
            &[Step::RenameFails("maps/other.map"), in_place("p4", placed)],
        ),
        paced("runtime in the window", &[reload("p1")], &[to_p5]),
        paced(
            "runtime in the window, refused",
            &[reload("p1")],
            &[refused, to_p5],
        ),
        paced(
            "runtime in the window, refused, fires",
            &[reload("p1")],
            &[refused, to_p5, Fire],
        ),
        paced(
            "runtime in the window, refused, fires, refused",
            &[reload("p1")],
            &[
                refused,
                runtime("bad", &[To("bad"), Map("maps/bad.map")]),
                Fire,
            ],
        ),
        paced(
            "runtime in the window, differs, fires",
            &[reload("p1")],
            &[to_p5, ReadBack(true), Fire],
        ),
        paced(
            "deletes in the window",
            &[reload("p1")],
            &[deleting, Deletes, reload("p4"), Fire],
        ),
    ]
}
