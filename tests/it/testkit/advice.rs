//! What became of a reload, by the agent's answer: whose turn it is, and that its turn helps.

use super::faults::{Rig, SOON};
use super::kit::Site;
use super::sides::Side as _;
use crate::support::haproxy::Version;
use crate::support::wait;
use haptic_agent::client::Refusal;
use haptic_agent::testkit::fake_haproxy::ReloadFault;

#[test]
fn each_way_of_a_reload_to_fail_has_its_sort_and_the_next_push_helps() {
    for (fault, wanted) in [
        (
            ReloadFault::Refuse("[haproxy.cfg:3] : unknown keyword 'frob'".into()),
            Refusal::Files,
        ),
        (ReloadFault::Refuse(String::new()), Refusal::Silent),
        (ReloadFault::Hang, Refusal::Unconfirmed),
        (ReloadFault::NoNewWorker, Refusal::Unconfirmed),
        (ReloadFault::Die, Refusal::Ended),
    ] {
        let what = format!("{fault:?}");
        let dies = fault == ReloadFault::Die;
        let mut rig = Rig::with(Version::V3_4, &[("--reload-timeout", "1s")]);
        rig.inject_reload(fault);
        let answer = rig.push(&Site::new().config("2"), "p2");
        let result = serde_json::from_value(answer.clone()).unwrap();
        assert_eq!(Refusal::of(&result), Some(wanted), "{what}: {answer:#}");
        rig.side.haproxy().release();
        if dies {
            rig.side.restart_dead();
        }
        wait::until("the next push is taken", SOON, || {
            let answer = rig.push(&Site::new().config("3"), "p3");
            (answer["ok"] == true).then_some(())
        });
        assert_eq!(
            rig.side.state("?plan=0")["worker_ops_plan_id"],
            "p3",
            "{what}"
        );
    }
}
