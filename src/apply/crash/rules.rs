//! Rules of the design that no enumeration states: one test a rule.

use std::time::Duration;

use crate::store::Durability;
use crate::store::model::LoseUnsynced;
use crate::wire::manifest::Mode;
use crate::wire::result::{ConflictReason, ResultMode};

use super::haproxy::{Mood, files_of};
use super::sets::{AFTER, BOOT, owned};
use super::worker::Cmd;
use super::world::{Ask, Ended, IN_PLACE, INTERVAL, STATE, Step, World};

pub(super) fn on(plans: &[Ask], interval: Duration) -> World {
    let world = World::first(interval);
    for ask in plans {
        assert!(world.apply(*ask).result().ok);
    }
    world
}

pub(super) fn reason(ended: Ended) -> ConflictReason {
    match ended {
        Ended::Conflict(conflict) => conflict.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refusal_before_the_fence_changes_nothing_at_all() {
    let world = on(&[Ask::reload("p1")], Duration::ZERO);
    let (before, hidden) = (world.fs.snapshot(), world.fs.hidden());
    let mut manifest = world.manifest(Ask::reload("p2"));
    manifest.expected_prev_plan_id = "p0".to_owned();
    let parts = super::sets::owned("p2");
    assert_eq!(
        reason(world.send(manifest, &parts, None)),
        ConflictReason::PrevMismatch
    );
    // Content that neither came nor is held.
    let manifest = world.manifest(Ask::reload("p2"));
    let none = std::collections::BTreeMap::new();
    assert!(matches!(world.send(manifest, &none, None), Ended::Missing));
    assert_eq!(world.fs.snapshot(), before);
    assert_eq!(world.fs.hidden(), hidden);
    world.check("refused", true);
}

#[test]
fn a_foreign_writer_costs_the_baseline_and_is_not_overwritten() {
    for restart in [false, true] {
        let world = on(&[Ask::reload("p1")], Duration::ZERO);
        world.fs.scribble("maps/host.map", b"mine now");
        let world = if restart { world.copy() } else { world };
        // What the controller still believes is refused: nothing is known any more.
        let mut manifest = world.manifest(Ask::auto("p5"));
        manifest.expected_prev_plan_id = "p1".to_owned();
        let parts = super::sets::owned("p5");
        assert_eq!(
            reason(world.send(manifest, &parts, None)),
            ConflictReason::UnknownBaseline
        );
        world.agent.look();
        assert_eq!(world.fs.read("maps/host.map").unwrap(), b"mine now");
        assert!(world.haproxy.asked().len() <= 1);
        assert!(world.apply(Ask::reload("p2")).result().ok);
        world.check("mended", true);
    }
}

#[test]
fn a_bootstrap_configuration_copied_back_by_a_restart_is_found() {
    let world = on(&[Ask::reload("p1")], Duration::ZERO);
    let asked = world.haproxy.asked().len();
    let boot = super::sets::tree(BOOT)["haproxy.cfg"].clone();
    world.fs.scribble("haproxy.cfg", &boot);
    world.haproxy.restart();
    world.agent.look();
    let state = world.state();
    assert_eq!(state.applied_plan_id, "");
    assert_eq!(state.running_plan_id, "");
    assert_eq!(world.haproxy.asked().len(), asked);
    assert_eq!(world.fs.read("haproxy.cfg").unwrap(), boot);
    assert!(world.apply(Ask::reload("p1")).result().ok);
    world.check("mended", true);
}

#[test]
fn a_state_that_cannot_be_used_is_set_aside_and_never_believed() {
    for bytes in [
        &b"{\"format\":1,\"txn\":4"[..],
        b"",
        b"{\"format\":999}",
        b"[]",
    ] {
        let world = on(&[Ask::reload("p1"), Ask::auto("p5")], Duration::ZERO);
        world.fs.put(STATE, bytes, 0o600, 0, 0);
        let world = world.copy();
        let state = world.state();
        assert_eq!(state.applied_plan_id, "");
        assert_eq!(state.generation, 0);
        assert_eq!(world.fs.read(".haptic-agent.json.bad").unwrap(), bytes);
        // Not even a phase of the old transactions is.
        assert_eq!(world.fs.read(".haptic-agent.json.phase"), None);
        assert!(world.apply(Ask::reload(AFTER)).result().ok);
        assert_eq!(world.state().running_plan_id, AFTER);
    }
}

#[test]
fn what_cannot_be_put_back_keeps_nothing_else_from_going_back() {
    let world = on(&[Ask::reload("p1"), Ask::auto("p5")], Duration::ZERO);
    world.fs.fail_rename_once("general/500.http", libc::EIO);
    let nack = world.apply(Ask::reload("bad6")).result();
    assert!(!nack.rollback.unwrap().performed);
    let (now, p1, p5) = (files_of(&world.fs), owned("p1"), owned("p5"));
    assert_eq!(now["haproxy.cfg"], p1["haproxy.cfg"], "above all not this");
    assert_eq!(now["general/500.http"], p5["general/500.http"]);
    let reason = |world: &World| world.state().degraded.unwrap().reason;
    assert!(reason(&world).contains("disk holds files of both"));
    world.agent.look();
    assert_eq!(super::sets::name_of(&files_of(&world.fs)), Some("p1"));
    assert!(!reason(&world).contains("disk holds files of both"));
    world.check("mended", true);
}

/// HAProxy goes down over a set that it has never loaded, or is down when one is written:
/// that set has its time, and then the last known good one goes back.
#[test]
fn a_set_that_haproxy_never_loaded_gives_way_when_it_stays_down() {
    for written_while_down in [false, true] {
        let world = on(&[Ask::reload("p1"), Ask::auto("p5")], Duration::ZERO);
        world.haproxy.set_down(true);
        world.agent.look();
        let on_disk = match written_while_down {
            false => "p5",
            true => {
                world.clock.advance(Duration::from_secs(300));
                let nack = world.apply(Ask::reload("p2")).result();
                assert!(nack.rollback.is_none(), "{nack:?}");
                "p2"
            }
        };
        world.clock.advance(Duration::from_secs(359));
        world.agent.look();
        let name = |world: &World| super::sets::name_of(&files_of(&world.fs));
        assert_eq!(name(&world), Some(on_disk));
        world.clock.advance(Duration::from_secs(2));
        world.agent.look();
        assert_eq!(name(&world), Some("p1"));
        let state = world.state();
        assert_eq!((&*state.applied_plan_id, &*state.lkg_plan_id), ("", "p1"));
        assert!(state.degraded.unwrap().reason.contains("did not come up"));
        world.haproxy.set_down(false);
        world.agent.look();
        assert!(world.apply(Ask::reload(AFTER)).result().ok);
        world.check("mended", true);
    }
}

#[test]
fn a_set_that_no_worker_confirmed_goes_back_when_haproxy_does_not_come_up() {
    let scene = on(&[Ask::reload("p1")], Duration::ZERO);
    let mut restored = 0;
    let mut n = 0;
    loop {
        let dead = scene.copy();
        dead.fs.stop_after(n);
        dead.apply(Ask::reload("p2"));
        if !dead.fs.has_stopped() {
            break;
        }
        let world = dead.crash(LoseUnsynced::Nothing);
        world.haproxy.set_down(true);
        let haproxy = std::sync::Arc::clone(&world.haproxy);
        let fs = world.fs.clone();
        std::thread::scope(|scope| {
            let started = scope.spawn(|| world.start());
            // It comes up once the old set is back, or after a while if nothing moves.
            let end = std::time::Instant::now() + Duration::from_millis(60);
            while std::time::Instant::now() < end
                && super::sets::name_of(&files_of(&fs)) != Some("p1")
            {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(1));
            haproxy.set_down(false);
            assert!(started.join().unwrap());
        });
        let what = format!("down after {n}");
        world.check(&what, true);
        restored += u32::from(world.state().degraded.is_some());
        n += 1;
    }
    assert!(restored > 3, "{restored}");
}

#[test]
fn a_batch_that_was_cut_leaves_no_plan_that_is_claimed_if_no_reload_can_follow() {
    const OPS: &[Cmd] = &[Cmd::To("p5"), Cmd::Del("s1"), Cmd::To("p5")];
    const IN_PLACE_OPS: &[Cmd] = &[Cmd::To(IN_PLACE), Cmd::Del("s1")];
    for (interval, mode) in [(Duration::ZERO, Mode::Auto), (INTERVAL, Mode::Reload)] {
        let mut scene = on(&[Ask::reload("p1")], interval);
        scene.breaks.push("recovery_reload");
        let ask = match mode {
            Mode::Reload => Ask::in_place("p5", IN_PLACE_OPS),
            Mode::Auto | Mode::RevertLkg => Ask::runtime("p5", OPS),
        };
        let (mut n, mut doubted) = (0, 0);
        loop {
            let dead = scene.copy();
            dead.fs.stop_after(n);
            dead.apply(ask);
            if !dead.fs.has_stopped() {
                break;
            }
            let world = dead.crash(LoseUnsynced::Nothing);
            world.haproxy.set_mood(Mood::Unreachable);
            assert!(world.start());
            let what = format!("{mode:?}, stopped after {n}, then unreachable");
            world.check(&what, true);
            doubted += u32::from(world.state().worker_ops_plan_id.is_empty());
            world.check_next(&what);
            n += 1;
        }
        assert!(doubted > 3, "{doubted}");
    }
}

#[test]
fn a_killed_agent_needs_no_sync() {
    let scene = World::first_with(Duration::ZERO, Durability::Process);
    assert!(scene.apply(Ask::reload("p1")).result().ok);
    assert!(scene.apply(Ask::auto("p5")).result().ok);
    let mut points = 0;
    loop {
        let dead = scene.copy();
        dead.fs.stop_after(points);
        dead.apply(Ask::reload("p4"));
        if !dead.fs.has_stopped() {
            break;
        }
        let what = format!("process, stopped after {points}");
        let world = dead.crash(LoseUnsynced::Nothing);
        assert!(world.start(), "{what}");
        world.check(&what, true);
        world.check_next(&what);
        points += 1;
    }
    println!("{points} points without a sync");
    assert!(points > 20);
}

#[test]
fn a_success_survives_or_says_that_it_may_not() {
    let again = Ask {
        under: Some("again"),
        ..Ask::auto("p1")
    };
    let (p1, p2) = (Ask::reload("p1"), Ask::reload("p2"));
    let shapes: [(&str, Duration, &[Ask], Ask); 6] = [
        ("reload", Duration::ZERO, &[p1], p2),
        ("files", Duration::ZERO, &[p1], Ask::auto("p5")),
        ("noop", Duration::ZERO, &[p1], again),
        ("scheduled", INTERVAL, &[p1], p2),
        (
            "joins, nothing new",
            INTERVAL,
            &[p1, p2],
            Ask {
                under: Some("again"),
                ..Ask::auto("p2")
            },
        ),
        (
            "revert",
            Duration::ZERO,
            &[p1, Ask::auto("p5")],
            Ask::revert(),
        ),
    ];
    for (name, interval, setup, ask) in shapes {
        let scene = on(setup, interval);
        let calls = {
            let whole = scene.copy();
            let before = whole.fs.calls();
            assert!(whole.apply(ask).result().ok, "{name}");
            whole.fs.calls() - before
        };
        let (mut kept, mut warned) = (0, 0);
        for n in 1..=calls {
            let world = scene.copy();
            world.fs.fail_from(n, libc::ENOSPC);
            let what = format!("{name}: calls from {n} of {calls} fail");
            let Ended::Result(result) = world.apply(ask) else {
                continue;
            };
            if !result.ok {
                assert_eq!(result.unsaved, None, "{what}");
                continue;
            }
            assert_eq!(
                result.unsaved,
                world
                    .state()
                    .unsaved
                    .map(|_| result.unsaved.clone().unwrap()),
                "{what}"
            );
            world.fs.heal();
            if result.unsaved.is_some() {
                warned += 1;
                world.agent.look();
                assert_eq!(world.state().unsaved, None, "{what}");
            } else {
                kept += 1;
            }
            let next = world.crash(LoseUnsynced::All);
            next.start();
            assert_eq!(
                next.state().applied_plan_id,
                result.applied_plan_id,
                "{what}"
            );
            assert_eq!(next.state().applied_token, result.applied_token, "{what}");
            next.check(&what, true);
        }
        println!("{name}: {kept} kept, {warned} told that they may not be");
        let can_warn = !["noop", "joins, nothing new"].contains(&name);
        assert_eq!(warned > 0, can_warn, "{name}: {warned}");
    }
}

#[test]
fn recovery_run_again_from_its_end_changes_nothing() {
    let scene = on(&[Ask::reload("p1"), Ask::auto("p5")], Duration::ZERO);
    let mut n = 0;
    loop {
        let dead = scene.copy();
        dead.fs.stop_after(n);
        dead.apply(Ask::reload("p4"));
        if !dead.fs.has_stopped() {
            break;
        }
        let once = dead.crash(LoseUnsynced::Nothing);
        once.start();
        let twice = once.crash(LoseUnsynced::Nothing);
        twice.start();
        let what = format!("stopped after {n}");
        assert_eq!(twice.fs.snapshot(), once.fs.snapshot(), "{what}");
        assert_eq!(twice.haproxy.asked().len(), 0, "{what}: reloaded again");
        let (a, b) = (once.state(), twice.state());
        assert_eq!(a.applied_plan_id, b.applied_plan_id, "{what}");
        assert_eq!(a.running_plan_id, b.running_plan_id, "{what}");
        assert_eq!(a.generation, b.generation, "{what}");
        n += 1;
    }
    assert!(n > 30);
}

#[test]
fn failing_applies_leave_nothing_behind() {
    let world = on(&[Ask::reload("p1")], Duration::ZERO);
    assert_eq!(
        world.apply(Ask::reload("bad")).mode(),
        Some(ResultMode::Rejected)
    );
    let hidden: Vec<String> = world.fs.hidden().into_keys().collect();
    let dirs = world.fs.dirs();
    for round in 0..250 {
        world.clock.advance(Duration::from_secs(61));
        let ask = Ask {
            mode: if round % 2 == 0 {
                Mode::Reload
            } else {
                Mode::Auto
            },
            ..Ask::reload("bad")
        };
        assert_eq!(world.apply(ask).mode(), Some(ResultMode::Rejected));
    }
    let now: Vec<String> = world.fs.hidden().into_keys().collect();
    assert_eq!(now, hidden);
    assert_eq!(world.fs.dirs(), dirs);
    assert!(world.agent.lock().retired.is_empty());
    world.check("250 refusals", true);
}

#[test]
fn a_worker_from_nowhere_is_answered_with_one_reload_only() {
    let world = on(&[Ask::reload("p1")], Duration::ZERO);
    let asked = world.haproxy.asked().len();
    for _ in 0..5 {
        world.step(Step::Restart);
    }
    assert_eq!(world.haproxy.asked().len(), asked + 1);
    assert_eq!(world.state().applied_plan_id, "p1");
    assert!(world.apply(Ask::auto("p5")).result().ok);
    world.step(Step::Restart);
    world.check("restarted", true);
    assert_eq!(world.state().running_plan_id, "p5");
}

#[test]
fn a_restore_whose_note_is_lost_is_finished_and_never_reloaded_as_a_mix() {
    // The refused set changed the configuration alone; what goes back first is a file that
    // only the apply before it had changed, and that the intent does not name.
    const PHASE: &str = ".haptic-agent.json.phase";
    let scene = on(&[Ask::reload("p1"), Ask::auto("p5")], Duration::ZERO);
    let (mut n, mut lost) = (0, 0);
    loop {
        let dead = scene.copy();
        dead.fs.stop_after(n);
        dead.apply(Ask::reload("bad6"));
        if !dead.fs.has_stopped() {
            break;
        }
        n += 1;
        let world = dead.crash(LoseUnsynced::Nothing);
        let note = world.fs.read(PHASE).unwrap_or_default();
        let note = String::from_utf8(note).unwrap();
        let older = note.replace("\"phase\":\"aborting\"", "\"phase\":\"written\"");
        if older == note {
            continue;
        }
        lost += u32::from(super::sets::name_of(&files_of(&world.fs)).is_none());
        world.fs.put(PHASE, older.as_bytes(), 0o600, 0, 0);
        assert!(world.start());
        let what = format!("stopped after {}", n - 1);
        world.check(&what, true);
        assert_eq!(world.on_disk(&what), "p1");
        world.check_next(&what);
    }
    assert!(lost >= 2, "{lost} trees were a mix");
}
