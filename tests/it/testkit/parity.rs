//! The same sequences through the fake agent and the real one: status, headers, bodies
//! and the state after every step must be the same, minus times, process ids and words.

mod fence;
mod ops;
mod random;
mod reloads;
mod requests;
mod tree;
mod ways;

use super::sides::{Fake, Mask, OnFake, Real, Side, branch};
use crate::support::agent::{self, Apply};
use crate::support::haproxy::Version;
use serde_json::{Value, json};
use std::thread;

type Make = Box<dyn Fn(&Value) -> Apply + Sync>;

/// One step of a sequence; applies are built on the side's own state.
enum Step {
    Apply(&'static str, Make),
    /// A request as it is.
    Raw(&'static str, Vec<u8>),
    Verify,
    Fire,
    WriteBehind(&'static str, Option<&'static str>),
    RestartHaproxy,
}

fn apply(what: &'static str, make: impl Fn(&Value) -> Apply + Sync + 'static) -> Step {
    Step::Apply(what, Box::new(make))
}

impl Step {
    fn name(&self) -> String {
        match self {
            Self::Apply(what, _) | Self::Raw(what, _) => (*what).to_owned(),
            Self::Verify => "verify".to_owned(),
            Self::Fire => "the pending reload runs".to_owned(),
            Self::WriteBehind(path, _) => format!("something else writes {path}"),
            Self::RestartHaproxy => "HAProxy is restarted".to_owned(),
        }
    }

    /// What it brings.
    fn take(&self, side: &mut dyn Side, mask: &mut Mask) -> Value {
        match self {
            Self::Apply(_, make) => {
                let request = make(&side.state("")).request();
                mask.reply(&agent::exchange(side.address(), &request))
            }
            Self::Raw(_, request) => mask.reply(&agent::exchange(side.address(), request)),
            Self::Verify => mask.value(side.state("?verify=1&plan=0")),
            Self::Fire => {
                side.fire();
                json!("fired")
            }
            Self::WriteBehind(path, text) => {
                side.write_behind(path, text.map(str::as_bytes));
                json!("written")
            }
            Self::RestartHaproxy => {
                side.restart_haproxy();
                json!("restarted")
            }
        }
    }
}

/// Everything that a side shows while the steps are taken, and what it complained about.
fn observe(side: &mut dyn Side, steps: &[Step]) -> (Vec<Value>, Vec<String>) {
    let mut mask = Mask::default();
    let mut seen = vec![json!({"start": mask.value(side.settled())})];
    for step in steps {
        let brought = step.take(side, &mut mask);
        let state = mask.value(side.settled());
        seen.push(json!({"brought": brought, "state": state}));
    }
    (seen, side.complaints())
}

/// Runs a sequence on HAProxy 3.4 without pacing.
fn plain(steps: &[Step]) {
    same(Version::V3_4, None, steps);
}

/// Runs a sequence whose reloads wait for an hour, as far as the test is concerned.
fn paced(steps: &[Step]) {
    same(Version::V3_4, Some("60s"), steps);
}

/// Runs a sequence whose reloads wait for seconds: its steps are far faster.
fn fired(steps: &[Step]) {
    same(Version::V3_4, Some("10s"), steps);
}

/// Runs a sequence on all sides and compares.
fn same(version: Version, interval: Option<&str>, steps: &[Step]) {
    let (fake, real, on_fake) = thread::scope(|scope| {
        let real = scope.spawn(|| observe(&mut Real::start(version, interval), steps));
        let on_fake = scope.spawn(|| observe(&mut OnFake::start(version, interval), steps));
        let full = branch(version).full();
        let fake = observe(&mut Fake::start(interval.is_some(), full), steps);
        (fake, real.join().unwrap(), on_fake.join().unwrap())
    });
    let names: Vec<String> = steps.iter().map(Step::name).collect();
    for (other, which) in [
        (&fake, "the fake agent"),
        (&on_fake, "the agent on the fake HAProxy"),
    ] {
        for (at, (seen, real_seen)) in other.0.iter().zip(&real.0).enumerate() {
            let what = match at {
                0 => "the start",
                at => names[at - 1].as_str(),
            };
            let differs = differences(seen, real_seen, String::new());
            assert!(
                differs.is_empty(),
                "step {at}, {what}: {which}, then the agent on HAProxy\n{}\nreal: {real_seen:#}\n{which} said\n{}\nthe agent on HAProxy said\n{}",
                differs.join("\n"),
                other.1.join("\n"),
                real.1.join("\n")
            );
        }
    }
}

/// Where two values part, a line each.
fn differences(fake: &Value, real: &Value, path: String) -> Vec<String> {
    match (fake, real) {
        (Value::Object(a), Value::Object(b)) => {
            let names = a
                .keys()
                .chain(b.keys().filter(|name| !a.contains_key(*name)));
            let of = |name: &String| {
                let null = Value::Null;
                let (a, b) = (a.get(name).unwrap_or(&null), b.get(name).unwrap_or(&null));
                differences(a, b, format!("{path}/{name}"))
            };
            names.flat_map(of).collect()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate();
            let of = |(at, (a, b))| differences(a, b, format!("{path}/{at}"));
            pairs.flat_map(of).collect()
        }
        (a, b) if a == b => Vec::new(),
        (a, b) => vec![format!("{path}: {a} / {b}")],
    }
}
