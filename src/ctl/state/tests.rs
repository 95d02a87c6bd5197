use super::*;
use crate::wire::manifest::Token;
use crate::wire::result::{Failure, NOT_RUNNING, Reload, Rollback, Timing};
use crate::wire::state::{
    Degraded, Haproxy, PendingDeletes, RuntimeInventory, State, WorkerAnswer,
};

const BEFORE: &str = "2026-01-01T00:00:00Z";
const FAILED: &str = "2026-01-01T00:00:01.5Z";
const LATER: &str = "2026-01-01T00:00:02Z";

/// Plan `a` is applied and runs.
fn good() -> State {
    State {
        api_version: 1,
        agent_version: "0.1.0".into(),
        plan_schema_version: 1,
        agent_ops: Vec::new(),
        features: Vec::new(),
        haproxy: Haproxy::default(),
        worker: Some(WorkerAnswer {
            answers: true,
            since: BEFORE.into(),
            reason: None,
        }),
        generation: 1,
        applied_plan_id: "a".into(),
        running_plan_id: "a".into(),
        worker_ops_plan_id: "a".into(),
        applied_token: Token::default(),
        lkg_plan_id: "a".into(),
        reserved_paths: Vec::new(),
        worker_socket: None,
        applied_plan_stored: false,
        files: [].into(),
        in_the_way: [].into(),
        runtime_inventory: RuntimeInventory::default(),
        pending_deletes: PendingDeletes::default(),
        applied_plan: None,
        reload_pending_at: None,
        last_apply: None,
        invariant_violation: None,
        degraded: None,
        unsaved: None,
    }
}

/// Then plan `b` was not taken, with these words.
fn failed(message: &str, performed: bool, rollback: Option<Rollback>) -> State {
    let failure = Failure {
        stage: crate::wire::result::Stage::Reload,
        message: message.to_owned(),
    };
    State {
        applied_plan_id: String::new(),
        degraded: Some(Degraded {
            since: FAILED.into(),
            reason: message.to_owned(),
        }),
        last_apply: Some(ApplyResult {
            plan_id: "b".into(),
            ok: false,
            mode: ResultMode::Rejected,
            applied_plan_id: String::new(),
            running_plan_id: "a".into(),
            worker_ops_plan_id: "a".into(),
            applied_token: Token::default(),
            lkg_plan_id: "a".into(),
            haproxy: Haproxy::default(),
            at: FAILED.into(),
            timing: Timing::default(),
            op_results: Vec::new(),
            reload: Some(Reload {
                performed,
                output: performed.then(|| message.to_owned()),
                ..Reload::default()
            }),
            rollback,
            error: Some(failure),
            unsaved: None,
            runtime_inventory: None,
        }),
        ..good()
    }
}

const PUT_BACK: Option<Rollback> = Some(Rollback {
    performed: true,
    reloaded: false,
});

fn seen(mut state: State, answers: bool, since: &str) -> State {
    state.worker = Some(WorkerAnswer {
        answers,
        since: since.into(),
        reason: None,
    });
    state
}

fn told(state: &State) -> String {
    let block = block(state);
    format!(
        "{}\n{}\nnext: {}",
        block.title,
        block.lines.join("\n"),
        block.next.unwrap_or_default()
    )
}

/// Whether HAProxy is to be started is said by whether it answers now.
#[test]
fn nobody_is_sent_to_start_a_haproxy_that_is_back() {
    let message = format!("{UNREACHABLE}: nobody listens");
    let away = failed(&message, false, PUT_BACK);
    let start = "start it";
    for (state, wanted, not) in [
        (seen(away.clone(), false, LATER), start, "answers again"),
        (
            seen(away.clone(), true, LATER),
            "HAProxy answers again: push again",
            start,
        ),
        // The worker was there all the time.
        (
            seen(away.clone(), true, BEFORE),
            "its master does not",
            start,
        ),
        (
            State {
                reload_pending_at: Some(LATER.into()),
                ..seen(away.clone(), true, LATER)
            },
            "the agent asks for the reload by itself",
            start,
        ),
        (
            State {
                reload_pending_at: Some(LATER.into()),
                ..seen(away.clone(), false, LATER)
            },
            "start it; the agent asks again by itself",
            "answers again",
        ),
    ] {
        let said = told(&state);
        let (said, next) = said.split_once("next: ").unwrap();
        assert!(
            next.contains(wanted) && !next.contains(not),
            "{next}: {state:?}"
        );
        assert!(!said.contains("never left"), "nobody was there: {said}");
    }
}

#[test]
fn what_was_put_back_is_told_as_what_it_is() {
    let words = "[ALERT] : no";
    let refused = failed(words, true, PUT_BACK);
    assert!(told(&refused).contains("the worker had never left it"));
    let said = |change: &dyn Fn(&mut ApplyResult)| {
        let mut state = refused.clone();
        let last = state.last_apply.as_mut().unwrap();
        change(last);
        state.lkg_plan_id.clone_from(&last.lkg_plan_id);
        told(&state)
    };
    let lost = said(&|last| last.lkg_plan_id.clear());
    assert!(
        lost.contains("no set that the agent has seen HAProxy load"),
        "{lost}"
    );
    assert!(
        lost.contains("next: mend what is named above, then push the directory again"),
        "{lost}"
    );
    assert!(
        !lost.contains("revert"),
        "there is nothing to go back to: {lost}"
    );
    let reloaded = said(&|last| {
        last.rollback = Some(Rollback {
            performed: true,
            reloaded: true,
        });
    });
    assert!(reloaded.contains("serves no more"), "{reloaded}");
}

#[test]
fn a_set_that_waits_for_its_haproxy_is_not_called_refused() {
    let message = format!("{NOT_RUNNING}, and HAProxy starts with it");
    for rollback in [None, Some(Rollback::default())] {
        let kept = failed(&message, false, rollback);
        let down = told(&seen(kept.clone(), false, BEFORE));
        let next = "next: start HAProxy, then push again, which confirms it; to go back to plan a instead: hapticctl revert";
        assert!(down.contains("DOWN") && down.contains(next), "{down}");
        let back = told(&seen(kept, true, LATER));
        assert!(back.contains("HAProxy answers again: push again"), "{back}");
        for said in [down, back] {
            assert!(
                said.contains("plan b written, with no HAProxy there"),
                "{said}"
            );
            assert!(
                !said.contains("REFUSED") && !said.contains("refused"),
                "{said}"
            );
            assert!(
                !said.contains("mend") && !said.contains("put back"),
                "{said}"
            );
        }
    }
}

/// An agent that came up before its HAProxy, and tells its state all the same.
#[test]
fn a_haproxy_that_was_never_seen_is_down() {
    let unseen = State {
        worker: None,
        running_plan_id: String::new(),
        worker_ops_plan_id: String::new(),
        ..good()
    };
    let said = told(&unseen);
    assert!(said.starts_with("DOWN: HAProxy has not answered"), "{said}");
    assert!(said.contains("next: is HAProxy running"), "{said}");
}

/// A worker that somebody else started may well run what is applied.
#[test]
fn what_is_not_known_of_the_worker_is_not_denied() {
    let unknown = State {
        running_plan_id: String::new(),
        worker_ops_plan_id: String::new(),
        ..good()
    };
    assert!(told(&unknown).starts_with("BEHIND: the worker is not known to run what is applied"));
    let other = State {
        worker_ops_plan_id: "z".into(),
        ..good()
    };
    assert!(told(&other).starts_with("BEHIND: the worker does not run what is applied"));
}
