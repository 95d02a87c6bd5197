//! The shapes of transaction that are enumerated.

use std::time::Duration;

use super::haproxy::Mood;
use super::world::{Ask, INTERVAL, Step, World};

pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) interval: Duration,
    /// Run to its end, untouched.
    pub(super) setup: Vec<Step>,
    /// What is cut or disturbed.
    pub(super) action: Vec<Step>,
    /// Every how many points one is tried; for large sets.
    pub(super) stride: u64,
}

impl Shape {
    /// The world right before the action.
    pub(super) fn scene(&self) -> World {
        let world = World::first(self.interval);
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
    vec![
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
    ]
}
