//! The agent's own binary against a fake HAProxy that misbehaves.

use super::kit::{self, Site, map_op, server_op};
use super::sides::{OnFake, Side};
use crate::support::agent;
use crate::support::haproxy::Version;
use crate::support::wait;
use haptic_agent::testkit::fake_haproxy::{Fault, ReloadFault};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub(super) const SOON: Duration = Duration::from_secs(30);

pub(super) struct Rig {
    pub(super) side: OnFake,
}

impl Rig {
    /// An agent with `p1` applied.
    fn new(version: Version) -> Self {
        Self::with(version, &[])
    }

    pub(super) fn with(version: Version, flags: &[(&str, &str)]) -> Self {
        let rig = Self {
            side: OnFake::start_with(version, None, flags),
        };
        let answer = rig.push(&Site::new(), "p1");
        assert_eq!(
            (&answer["mode"], &answer["ok"]),
            (&json!("reload"), &json!(true))
        );
        rig
    }

    fn send(&self, apply: &agent::Apply) -> Value {
        let reply = agent::exchange(self.side.address(), &apply.request());
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    pub(super) fn push(&self, site: &Site, plan: &str) -> Value {
        self.send(&site.push(plan, &self.side.state("")))
    }

    fn auto(&self, site: &Site, plan: &str, ops: &[Value]) -> Value {
        self.send(&site.auto(plan, &self.side.state(""), ops))
    }

    /// One map op, and what became of it.
    fn add_row(&self, plan: &str) -> Value {
        let map = format!("a one\nb two\n{plan} v\n");
        let ops = [map_op("map_add", kit::MAP, plan, Some("v"))];
        self.auto(&Site::new().map(&map), plan, &ops)
    }

    fn inject(&mut self, words: &str, fault: Fault) {
        self.side.haproxy().inject(words, fault);
    }

    pub(super) fn inject_reload(&mut self, fault: ReloadFault) {
        self.side.haproxy().inject_reload(fault);
    }
}

#[test]
fn every_branch_starts_applies_and_reloads() {
    for version in Version::ALL {
        let mut rig = Rig::new(version);
        assert_eq!(rig.add_row("p2")["mode"], "runtime", "{version}");
        let model = rig.side.haproxy().model();
        assert_eq!(model.entries(kit::MAP).unwrap().last().unwrap().0, "p2");
        assert_eq!(rig.side.haproxy().reloads(), 1);
        let pid = rig.side.haproxy().worker_pid();
        assert_eq!(rig.side.state("")["haproxy"]["worker_pid"], pid);
    }
}

#[test]
fn a_refused_command_is_answered_with_its_words_and_a_reload() {
    let mut rig = Rig::new(Version::V3_4);
    rig.inject(
        "add map",
        Fault::Refuse("no room for another entry".to_owned()),
    );
    let answer = rig.add_row("p2");
    assert_eq!(
        (&answer["mode"], &answer["ok"]),
        (&json!("reload"), &json!(true))
    );
    assert_eq!(
        answer["op_results"][0]["output"],
        "no room for another entry"
    );
    assert_eq!(rig.side.haproxy().reloads(), 2);
    assert_eq!(rig.add_row("p3")["mode"], "runtime", "once");
}

/// Whatever the answer looks like that is not the one: nobody knows what the worker holds,
/// and the reload makes it known.
#[test]
fn an_answer_that_is_lost_cut_or_wrong_is_no_success() {
    let faults = [
        Fault::Cut(0),
        Fault::CloseBefore,
        Fault::CloseAfter,
        Fault::Answer("[6]: Unknown command: 'add'".to_owned()),
        Fault::AnotherWorker,
    ];
    for fault in faults {
        let mut rig = Rig::new(Version::V3_4);
        rig.inject("add map", fault.clone());
        let answer = rig.add_row("p2");
        assert_eq!(
            (&answer["mode"], &answer["ok"]),
            (&json!("reload"), &json!(true)),
            "{fault:?}"
        );
        assert_eq!(answer["op_results"][0]["ok"], false, "{fault:?}");
        assert_eq!(answer["running_plan_id"], "p2", "{fault:?}");
        let model = rig.side.haproxy().model();
        assert_eq!(model.entries(kit::MAP).unwrap().len(), 3, "{fault:?}");
    }
}

/// The agent gives a command ten seconds.
#[test]
fn an_answer_that_never_comes_is_given_up() {
    let mut rig = Rig::new(Version::V3_4);
    rig.inject("add map", Fault::Silence);
    let began = Instant::now();
    let answer = rig.add_row("p2");
    assert_eq!(answer["op_results"][0]["output"], "unknown");
    assert_eq!(answer["running_plan_id"], "p2");
    assert!(began.elapsed() < SOON);
}

#[test]
fn answers_byte_by_byte_and_late_are_answers() {
    for version in Version::ALL {
        let mut rig = Rig::new(version);
        for words in [
            "prompt",
            "show info float",
            "show cli level",
            "show map",
            "add map",
        ] {
            rig.inject(words, Fault::Bytewise);
        }
        rig.inject("add map", Fault::Late(300));
        assert_eq!(rig.add_row("p2")["mode"], "runtime", "{version}");
        assert_eq!(rig.add_row("p3")["mode"], "runtime", "{version}");
    }
}

#[test]
fn an_haproxy_that_dies_in_a_batch_comes_back_with_the_files() {
    let mut rig = Rig::with(Version::V3_4, &[("--reload-timeout", "1s")]);
    rig.inject("add map", Fault::Die);
    let answer = rig.add_row("p2");
    assert_eq!(
        (&answer["ok"], &answer["error"]["stage"]),
        (&json!(false), &json!("reload"))
    );
    assert!(rig.side.haproxy().is_dead());
    rig.side.restart_dead();
    wait::until_ok(
        "it is known again what runs, or a push makes it",
        SOON,
        || {
            let answer = rig.push(&Site::new().config("2"), "p3");
            if answer["ok"] == true {
                Ok(())
            } else {
                Err(answer)
            }
        },
    );
    assert_eq!(rig.side.state("")["running_plan_id"], "p3");
    assert_eq!(rig.add_row("p4")["ok"], true);
}

#[test]
fn a_reload_is_refused_with_its_words_and_remembered() {
    let mut rig = Rig::new(Version::V3_4);
    let words = "config : parsing [haproxy.cfg:7] : unknown keyword 'x' in 'backend' section";
    rig.inject_reload(ReloadFault::Refuse(words.to_owned()));
    let set = Site::new().config("2");
    let answer = rig.push(&set, "p2");
    assert_eq!(
        (&answer["ok"], &answer["error"]["stage"]),
        (&json!(false), &json!("reload"))
    );
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains(words), "{message}");
    assert_eq!(
        answer["rollback"],
        json!({"performed": true, "reloaded": false})
    );
    assert_eq!(rig.push(&set, "p3")["reload"]["performed"], false);
    // What is not about the files is tried again.
    rig.inject_reload(ReloadFault::Refuse(
        "Binding [haproxy.cfg:12] for frontend g: cannot bind socket".to_owned(),
    ));
    let set = Site::new().config("4");
    assert_eq!(rig.push(&set, "p4")["ok"], false);
    assert_eq!(rig.push(&set, "p5")["ok"], true);
}

/// A busy master, a verdict that got lost, an answer in pieces: none of them says anything
/// about the files.
#[test]
fn a_reload_gets_through() {
    for version in Version::ALL {
        for fault in [
            ReloadFault::Busy,
            ReloadFault::Slow(300),
            ReloadFault::Close,
            ReloadFault::LoseVerdict,
            ReloadFault::Bytewise,
            ReloadFault::Cut(5),
        ] {
            let mut rig = Rig::new(version);
            rig.inject_reload(fault.clone());
            let answer = rig.push(&Site::new().config("2"), "p2");
            assert_eq!(answer["ok"], true, "{version} {fault:?}: {answer:#}");
            let pid = rig.side.haproxy().worker_pid();
            assert_eq!(answer["reload"]["worker_pid"], pid, "{version} {fault:?}");
            assert_eq!(answer["running_plan_id"], "p2");
        }
    }
}

#[test]
fn a_reload_that_brings_no_worker_is_no_verdict() {
    let mut rig = Rig::with(Version::V3_4, &[("--reload-timeout", "1s")]);
    rig.inject_reload(ReloadFault::NoNewWorker);
    let answer = rig.push(&Site::new().config("2"), "p2");
    assert_eq!(
        (&answer["ok"], &answer["error"]["stage"]),
        (&json!(false), &json!("reload"))
    );
    assert!(answer.get("rollback").is_none(), "the files stay");
    assert_eq!(answer["running_plan_id"], "");
    assert_eq!(rig.push(&Site::new().config("2"), "p3")["ok"], true);
}

#[test]
fn a_reload_that_hangs_leaves_the_state_readable() {
    let mut rig = Rig::new(Version::V3_4);
    rig.inject_reload(ReloadFault::Hang);
    let request = Site::new()
        .config("2")
        .push("p2", &rig.side.state(""))
        .request();
    let address = rig.side.address();
    let pushed = std::thread::spawn(move || agent::exchange(address, &request).json());
    wait::until("the master is asked", SOON, || {
        let asked = rig.side.haproxy().master_commands();
        (asked.iter().filter(|command| *command == "reload").count() == 2).then_some(())
    });
    assert_eq!(rig.side.state("?plan=0")["applied_plan_id"], "p1");
    assert!(!pushed.is_finished());
    rig.side.haproxy().release();
    assert_eq!(pushed.join().unwrap()["ok"], true);
}

#[test]
fn a_master_that_dies_of_a_reload_takes_the_set_back() {
    let mut rig = Rig::with(Version::V3_4, &[("--reload-timeout", "1s")]);
    rig.inject_reload(ReloadFault::Die);
    let answer = rig.push(&Site::new().config("2"), "p2");
    assert_eq!(answer["ok"], false);
    assert_eq!(answer["rollback"]["performed"], true, "{answer:#}");
    rig.side.restart_dead();
    wait::until("HAProxy is seen again", SOON, || {
        let state = rig.side.state("?verify=1&plan=0");
        let pid = rig.side.haproxy().worker_pid();
        (state["haproxy"]["worker_pid"] == pid).then_some(())
    });
    assert_eq!(rig.push(&Site::new().config("3"), "p3")["ok"], true);
}

#[test]
fn another_worker_from_nowhere_is_reloaded_once() {
    let mut rig = Rig::new(Version::V3_4);
    rig.side.haproxy().replace_worker(None);
    let state = wait::until("the applied set is reloaded", SOON, || {
        let state = rig.side.state("?verify=1&plan=0");
        let known = state["running_plan_id"] == "p1";
        (known && rig.side.haproxy().reloads() == 2).then_some(state)
    });
    assert_eq!(state["last_apply"]["mode"], "reload");
    assert_eq!(rig.add_row("p2")["mode"], "runtime");
}

#[test]
fn a_delete_waits_for_connections_to_end() {
    let mut rig = Rig::new(Version::V3_4);
    rig.side.haproxy().set_connections("b", "s2", 3);
    let ops = [server_op("server_del", "s2", json!({}))];
    assert_eq!(rig.auto(&Site::new(), "p2", &ops)["mode"], "runtime");
    let pending = &rig.side.state("")["pending_deletes"]["servers"];
    assert_eq!(pending, &json!(["b/s2"]));
    assert!(
        rig.side
            .haproxy()
            .model()
            .find("b")
            .unwrap()
            .find("s2")
            .is_some()
    );
    rig.side.haproxy().set_connections("b", "s2", 0);
    let state = rig.side.settled();
    assert_eq!(state["pending_deletes"]["servers"], json!([]));
    assert!(
        rig.side
            .haproxy()
            .model()
            .find("b")
            .unwrap()
            .find("s2")
            .is_none()
    );
    assert_eq!(rig.side.haproxy().reloads(), 1);
}

#[test]
fn a_listing_that_is_no_listing_keeps_an_agent_from_being_ready() {
    let side = OnFake::spawn(Version::V3_4, |haproxy| {
        for _ in 0..3 {
            haproxy.inject("show map", Fault::Answer("1 maps/without.marks".to_owned()));
            haproxy.inject("show ssl cert", Fault::Cut(12));
        }
    });
    side.agent().wait_ready();
    let complaints = side.complaints().join("\n");
    assert!(complaints.contains("maps/without.marks"), "{complaints}");
    assert_eq!(side.state("")["runtime_inventory"]["maps"], json!([]));
}
