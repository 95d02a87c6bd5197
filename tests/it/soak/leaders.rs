//! Two controllers that take the leadership from each other, and one that cannot stop
//! sending a set that HAProxy refuses.

use crate::apply::kit::{Rig, leftovers};
use crate::support::agent::{Apply, Reply, tree};
use crate::support::haproxy::Version;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A controller that lost the leadership asks for it again after so many refusals.
const PATIENCE: usize = 7;

#[test]
fn two_leaders_race() {
    duel(100);
}

#[test]
#[ignore = "long; make soak runs it"]
fn two_leaders_race_through_a_thousand_applies() {
    duel(1000);
}

/// What one controller sent and was told.
struct Told {
    built_on: String,
    plan: String,
    epoch: u64,
    /// The highest epoch that had landed when it was sent.
    landed: u64,
    reply: Reply,
}

/// Sends `applies`, each on the state of then; its epochs are `first`, `first + 2`, ...
fn lead(rig: &Rig, first: u64, applies: u64, landed: &AtomicU64) -> Vec<Told> {
    let config = rig.config("one");
    let mut epoch = first;
    let mut refused = 0;
    let mut told = Vec::new();
    for seq in 0..applies {
        if refused == PATIENCE {
            refused = 0;
            let highest = landed.load(Ordering::SeqCst);
            while epoch <= highest {
                epoch += 2;
            }
        }
        let state = rig.agent.state_with("?plan=0");
        let plan = format!("e{epoch}-{seq}");
        let highest = landed.load(Ordering::SeqCst);
        let reply = Apply::new(&plan, epoch, seq)
            .held("haproxy.cfg", config.as_bytes())
            .file("maps/host.map", format!("{plan} x\n").as_bytes())
            .on(&state)
            .mode("auto")
            .send(&rig.agent);
        if reply.status == 200 {
            landed.fetch_max(epoch, Ordering::SeqCst);
        } else if reply.status == 409 && reply.json()["reason"] == "stale_epoch" {
            refused += 1;
        }
        told.push(Told {
            built_on: state["applied_plan_id"].as_str().unwrap().to_owned(),
            plan,
            epoch,
            landed: highest,
            reply,
        });
    }
    told
}

fn duel(applies: u64) {
    let rig = Rig::applied(Version::V3_4);
    let landed = AtomicU64::new(1);
    let began = Instant::now();
    let told: Vec<Told> = thread::scope(|scope| {
        let one = scope.spawn(|| lead(&rig, 3, applies / 2, &landed));
        let two = scope.spawn(|| lead(&rig, 2, applies / 2, &landed));
        let (one, two) = (one.join().unwrap(), two.join().unwrap());
        one.into_iter().chain(two).collect()
    });
    // From the plan that was built on to the one that landed on it, with its epoch.
    let mut chain = BTreeMap::new();
    let (mut stale, mut late) = (0, 0);
    for one in &told {
        match one.reply.status {
            200 => {
                let answer = one.reply.json();
                assert_eq!(answer["ok"], true, "{answer:#}");
                assert_eq!(answer["mode"], "file_only", "{answer:#}");
                assert_eq!(answer["applied_plan_id"], one.plan, "{answer:#}");
                assert!(one.epoch >= one.landed, "{} came too late", one.plan);
                let fork = chain.insert(one.built_on.clone(), (one.plan.clone(), one.epoch));
                assert_eq!(fork, None, "{} was built on twice", one.built_on);
            }
            409 => match one.reply.json()["reason"].as_str() {
                Some("stale_epoch") => {
                    let highest = landed.load(Ordering::SeqCst);
                    assert!(one.epoch < highest, "{} leads", one.plan);
                    stale += 1;
                }
                Some("prev_mismatch") => {
                    assert!(one.epoch >= one.landed, "{} leads no more", one.plan);
                    late += 1;
                }
                other => panic!("{}: {other:?}", one.plan),
            },
            other => panic!("{}: {other}: {}", one.plan, one.reply.text()),
        }
    }
    let state = rig.agent.state_with("?verify=1");
    assert_eq!(state["generation"], chain.len() + 1, "each moved it by one");
    // One chain without a gap, and its epoch never goes back.
    let (mut at, mut epoch, mut links) = ("p1".to_owned(), 1, 0);
    let mut turns = 0;
    while let Some((next, its)) = chain.get(&at) {
        assert!(*its >= epoch, "{next} overwrote {at}");
        turns += usize::from(*its > epoch);
        (at, epoch) = (next.clone(), *its);
        links += 1;
    }
    assert_eq!(links, chain.len());
    assert!(turns >= 2, "only {turns} turns of the leadership");
    assert_eq!(state["applied_plan_id"], at.as_str());
    assert_eq!(state["applied_token"]["leader_epoch"], epoch);
    assert_eq!(
        tree(&rig.base)["maps/host.map"],
        format!("{at} x\n").as_bytes()
    );
    assert!(state.get("invariant_violation").is_none(), "{state:#}");
    // The map as it was in the last known good set, and nothing of all that came between.
    let kept = leftovers(&rig.base);
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(kept[0].contains(".haptic-lkg/"), "{kept:?}");
    println!(
        "{} applies of two controllers in {:?}: {links} landed, {turns} turns of the leadership, {stale} of a stale leader, {late} on what had moved",
        told.len(),
        began.elapsed()
    );
}

#[test]
fn a_bad_set_in_a_loop_is_paced() {
    bad_loop(Duration::from_secs(3), Duration::from_millis(500));
}

#[test]
#[ignore = "long; make soak runs it"]
fn a_bad_set_in_a_loop_for_ten_seconds_is_paced() {
    bad_loop(Duration::from_secs(10), Duration::from_secs(1));
}

/// Whether it is the same bad set again or another one each time, and whatever is applied
/// or pending then, two reloads are never closer than the interval.
fn bad_loop(lasts: Duration, interval: Duration) {
    for varied in [false, true] {
        let millis = format!("{}ms", interval.as_millis());
        let rig = Rig::with(Version::V3_4, |setup| {
            setup.with("--reload-interval-min", &millis)
        });
        rig.first().succeed(&rig.agent, "reload");
        let good = rig.config("one");
        let before = attempts(&rig);
        let began = Instant::now();
        let mut sent: u64 = 0;
        while began.elapsed() < lasts {
            sent += 1;
            let mark = if varied { sent } else { 0 };
            let config = format!("{good}    frobnicate {mark}\n");
            let state = rig.agent.state_with("?plan=0");
            let reply = Apply::new("bad", 1, sent + 1)
                .file("haproxy.cfg", config.as_bytes())
                .held("maps/host.map", b"a.example be_a\n")
                .on(&state)
                .send(&rig.agent);
            match reply.status {
                200 => {
                    let answer = reply.json();
                    let mode = answer["mode"].as_str().unwrap();
                    assert!(["rejected", "scheduled"].contains(&mode), "{answer:#}");
                }
                // Between its read of the state and this a scheduled reload was refused.
                409 => {
                    let reason = reply.json()["reason"].as_str().unwrap().to_owned();
                    assert!(
                        ["prev_mismatch", "unknown_baseline"].contains(&&*reason),
                        "{reason}"
                    );
                }
                other => panic!("{other}: {}", reply.text()),
            }
        }
        let took = began.elapsed();
        let state = rig.until_state("nothing is pending", |state| {
            state.get("reload_pending_at").is_none()
        });
        let reloads = attempts(&rig) - before;
        // The window of the good one before it was open, and the last one may have been
        // due just after the end.
        let most = took.as_nanos() / interval.as_nanos() + 1;
        assert!(reloads >= 1, "nothing was tried");
        assert!(
            u128::from(reloads) <= most,
            "{reloads} reloads in {took:?}, {most} fit"
        );
        assert_eq!(state["running_plan_id"], "p1", "{state:#}");
        assert_eq!(state["lkg_plan_id"], "p1", "{state:#}");
        // A refusal takes the claim back, never another one in its place.
        assert!(
            ["", "p1"].contains(&state["applied_plan_id"].as_str().unwrap()),
            "{state:#}"
        );
        assert_eq!(rig.word(), "one");
        assert_eq!(tree(&rig.base)["haproxy.cfg"], good.as_bytes());
        assert_eq!(leftovers(&rig.base), [""; 0]);
        println!(
            "{sent} bad sets in {took:?} ({}): {reloads} reloads tried, {most} fit the interval",
            if varied {
                "another each time"
            } else {
                "always the same"
            }
        );
        // The next good one is taken as ever.
        let next = Apply::new("p2", 1, sent + 2)
            .file("haproxy.cfg", rig.config("two").as_bytes())
            .held("maps/host.map", b"a.example be_a\n")
            .on(&state);
        let reply = next.send(&rig.agent);
        assert_eq!(reply.json()["ok"], true, "{}", reply.text());
        rig.until_state("the good set runs", |state| {
            state["running_plan_id"] == "p2"
        });
        assert_eq!(rig.word(), "two");
    }
}

/// Configurations that the master was made to load, by its own count.
fn attempts(rig: &Rig) -> u64 {
    let log = std::fs::read_to_string(rig.base.join("haproxy.log")).unwrap();
    log.matches("Reloading HAProxy").count() as u64
}
