//! Sequences that nobody thought of, from seeds: a failure names its seed and its step.
//!
//! A batch of ops always says what its files say, or the agent would find worker and files
//! apart afterwards and reload at a moment of its own.

use super::*;
use crate::support::agent::sha256;
use crate::testkit::kit::{self, Ops as _, Site, map_op, server_op};
use haptic_agent::wire::digest::{ContentHash, DigestKind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A small generator, so that a failing sequence can be run again by its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Map contents by either digest, so that a step can build on what is held.
#[derive(Clone, Default)]
struct Contents(Arc<Mutex<BTreeMap<String, String>>>);

impl Contents {
    fn note(&self, text: &str) {
        let hash = ContentHash::of(text.as_bytes());
        let mut known = self.0.lock().unwrap();
        known.insert(sha256(text.as_bytes()), text.to_owned());
        known.insert(hash.digest(DigestKind::Xxh64).to_string(), text.to_owned());
    }

    /// What is held as the map now.
    fn held(&self, state: &Value) -> String {
        let digest = state["files"][kit::MAP]["digest"]
            .as_str()
            .unwrap_or_default();
        let known = self.0.lock().unwrap().get(digest).cloned();
        known.unwrap_or_else(|| "a one\nb two\n".to_owned())
    }
}

/// A set that differs from others by its revision and its map.
fn site(contents: &Contents, revision: u64, map: &str) -> Site {
    contents.note(map);
    Site::new().config(&revision.to_string()).map(map)
}

/// The step of that number, of the kind that the dice choose.
fn step(dice: &mut Dice, contents: &Contents, n: u64, paced: bool) -> Step {
    let contents = contents.clone();
    let plan = format!("p{n}");
    let revision = dice.roll(3);
    match dice.roll(if paced { 24 } else { 21 }) {
        0 | 1 => apply("another configuration", move |state| {
            let map = contents.held(state);
            site(&contents, 10 + n, &map).push(&plan, state)
        }),
        2 | 3 => apply("a row at runtime", move |state| {
            let map = format!("{}k{n} v\n", contents.held(state));
            let ops = [map_op("map_add", kit::MAP, &format!("k{n}"), Some("v"))];
            keep_config(&contents, &map).auto(&plan, state, &ops)
        }),
        4 => apply("nothing", move |state| {
            let map = contents.held(state);
            keep_config(&contents, &map).auto(&plan, state, &[])
        }),
        5 => apply("a file that no command needs", move |state| {
            let map = contents.held(state);
            let site = keep_config(&contents, &map);
            site.with("errors/503.http", "general", &plan)
                .auto(&plan, state, &[])
        }),
        6 | 7 => apply("a set that is refused", move |state| {
            let map = contents.held(state);
            let site = site(&contents, revision, &map).bad(&format!("bad {revision}"));
            site.push(&plan, state)
        }),
        8 => apply("another plan expected", move |state| {
            let push = Site::new().push(&plan, state);
            push.edit(|manifest| manifest["expected_prev_plan_id"] = json!("never"))
        }),
        9 => apply("an older leader", move |state| {
            Site::new().push(&plan, state).epoch(0)
        }),
        10 => apply("a newer leader", move |state| {
            let map = contents.held(state);
            let push = site(&contents, 20 + n, &map).push(&plan, state);
            let epoch = push.manifest["token"]["leader_epoch"].as_u64().unwrap();
            push.epoch(epoch + 1)
        }),
        11 => apply("content that is missing", move |state| {
            let push = site(&contents, 30 + n, &format!("m{n} v\n")).push(&plan, state);
            push.without_parts()
        }),
        12 => apply("back", move |state| {
            Site::bare("x").push(&plan, state).revert()
        }),
        13 => Step::Verify,
        14 => Step::WriteBehind(kit::OTHER, Some("x by hand\n")),
        15 => apply("with a blob", move |state| {
            let map = contents.held(state);
            let push = keep_config(&contents, &map).auto(&plan, state, &[]);
            push.blob(plan.as_bytes())
        }),
        16 => apply("an op that is refused", move |state| {
            let map = format!("{}k{n} v\n", contents.held(state));
            let ops = [
                map_op("map_add", kit::MAP, &format!("k{n}"), Some("v")),
                map_op("map_set", kit::MAP, "none", Some("v")),
            ];
            keep_config(&contents, &map).auto(&plan, state, &ops)
        }),
        17 => apply("an op that nobody knows", move |state| {
            let map = contents.held(state);
            let ops = [json!({"kind": "server_rename"})];
            keep_config(&contents, &map).auto(&plan, state, &ops)
        }),
        18 => apply("validated", move |state| {
            let map = contents.held(state);
            let applied = state["applied_plan_id"].as_str().unwrap().to_owned();
            let site = keep_config(&contents, &map).with("errors/500.http", "general", &plan);
            site.auto(&plan, state, &[]).validated(&applied)
        }),
        19 => apply("in the other digests", move |state| {
            let map = contents.held(state);
            let mut bare = state.clone();
            bare["files"] = json!({});
            site(&contents, 40 + n, &map).push(&plan, &bare).xxh64()
        }),
        20 => apply("a weight", move |state| {
            let map = contents.held(state);
            let ops = [server_op(
                "server_set_weight",
                "s1",
                json!({"weight": n % 257}),
            )];
            keep_config(&contents, &map).auto(&plan, state, &ops)
        }),
        21 | 22 => apply("in place", move |state| {
            let map = format!("{}k{n} v\n", contents.held(state));
            let ops = [map_op("map_add", kit::MAP, &format!("k{n}"), Some("v"))];
            let expected = state["worker_ops_plan_id"].as_str().unwrap().to_owned();
            let push = site(&contents, 50 + n, &map).push(&plan, state);
            push.in_place(&ops, &expected, &plan)
        }),
        _ => apply("in place, refused", move |state| {
            let map = contents.held(state);
            let ops = [map_op("map_set", kit::MAP, "none", Some("v"))];
            let expected = state["worker_ops_plan_id"].as_str().unwrap().to_owned();
            let push = site(&contents, 60 + n, &map).push(&plan, state);
            push.in_place(&ops, &expected, &plan)
        }),
    }
}

/// The configuration of every set that only changes something else.
fn keep_config(contents: &Contents, map: &str) -> Site {
    site(contents, 0, map)
}

fn sequence(seed: u64, length: u64, paced: bool) -> Vec<Step> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let contents = Contents::default();
    let mut steps = vec![apply("first", |state| {
        Site::new().config("0").push("p0", state)
    })];
    steps.extend((1..=length).map(|n| step(&mut dice, &contents, n, paced)));
    steps
}

fn run(seeds: std::ops::Range<u64>, length: u64, paced: bool) {
    for seed in seeds {
        eprintln!("seed {seed}");
        let interval = paced.then_some("60s");
        same(Version::V3_4, interval, &sequence(seed, length, paced));
    }
}

#[test]
fn random_sequences() {
    run(1..4, 25, false);
}

#[test]
fn random_sequences_in_the_pacing_window() {
    run(11..13, 25, true);
}

#[test]
#[ignore = "minutes; `make soak` runs it"]
fn many_random_sequences() {
    run(100..140, 40, false);
    run(200..220, 40, true);
}
