//! A push after its apply: reloads that wait, answers that are lost, agents without time.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use haptic_agent::client::{
    Cancel, Error, Outcome, PushError, PushOptions, Step, push, push_watched,
};
use haptic_agent::testkit::FakeAgent;
use haptic_agent::testkit::fake_agent::{Break, Pacing, ReloadFault};
use haptic_agent::wire::manifest::Mode;

use super::push::{client, options, set};

#[test]
fn a_scheduled_reload_is_waited_for_or_not() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    push(&client, &set(&[]), &options()).unwrap();
    agent.set_pacing(Pacing::Window(Duration::from_millis(700)));
    push(&client, &set(&[("general/a", b"1")]), &options()).unwrap();

    let hasty = PushOptions {
        wait: Duration::ZERO,
        ..options()
    };
    let next = set(&[("general/a", b"2")]);
    let pushed = push(&client, &next, &hasty).unwrap();
    assert!(
        matches!(pushed.outcome, Outcome::Pending { .. }),
        "{:?}",
        pushed.outcome
    );
    assert!(!pushed.is_converged());
    // The same push again waits for what the first one began.
    let waited = RefCell::new(0);
    let watch = |step: &Step<'_>| {
        if let Step::Waiting { .. } = step {
            *waited.borrow_mut() += 1;
        }
    };
    let pushed = push_watched(&client, &next, &options(), &watch).unwrap();
    assert!(pushed.is_converged(), "{:?}", pushed.outcome);
    assert_eq!(*waited.borrow(), 1);
    assert_eq!(agent.state().running_plan_id, next.plan_id());

    // The reload that was waited for fails.
    agent.next_reload(ReloadFault::Refused("[haproxy.cfg:1] : no".into()));
    match push(&client, &set(&[("general/a", b"3")]), &options()) {
        Err(PushError::Nack(result)) => {
            assert!(result.error.unwrap().message.contains("[haproxy.cfg:1]"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wait_has_an_end() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    agent.set_pacing(Pacing::Always);
    let short = PushOptions {
        wait: Duration::from_millis(300),
        ..options()
    };
    match push(&client, &set(&[]), &short) {
        Err(PushError::StillPending { .. }) => {}
        other => panic!("{other:?}"),
    }
    // Also where the agent says nothing any more.
    let mute = |step: &Step<'_>| {
        if let Step::Waiting { .. } = step {
            agent.set_ready(false);
        }
    };
    let begun = Instant::now();
    match push_watched(&client, &set(&[("general/a", b"1")]), &short, &mute) {
        Err(PushError::StillPending { .. }) => {}
        other => panic!("{other:?}"),
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(6), "{took:?}");
}

/// A reload that is due while HAProxy is away is not waited for as long as one that comes.
#[test]
fn a_haproxy_that_is_away_is_not_waited_for_long() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    push(&client, &set(&[]), &options()).unwrap();
    agent.set_pacing(Pacing::Always);
    agent.silence_worker("connection refused");
    let patient = PushOptions {
        wait: Duration::from_secs(120),
        silence: Duration::from_millis(300),
        ..options()
    };
    let silent = RefCell::new(0);
    let watch = |step: &Step<'_>| {
        if let Step::Silent { reason, .. } = step {
            assert_eq!(*reason, "connection refused");
            *silent.borrow_mut() += 1;
        }
    };
    let begun = std::time::Instant::now();
    match push_watched(&client, &set(&[("general/a", b"1")]), &patient, &watch) {
        Err(PushError::StillPending {
            reason: Some(reason),
            ..
        }) => assert!(reason.contains("connection refused"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(*silent.borrow(), 1, "said once, before anything is sent");
}

/// An agent that dies between push and answer, wherever the connection breaks.
#[test]
fn a_lost_answer_is_looked_up() {
    for place in [
        Break::BeforeReading,
        Break::MidBody,
        Break::AfterApplying,
        Break::InAnswer(0),
        Break::InAnswer(200),
    ] {
        let agent = FakeAgent::start().unwrap();
        let client = client(&agent);
        push(&client, &set(&[]), &options()).unwrap();
        let next = set(&[("general/a", &[b'x'; 200_000])]);
        agent.break_next(place);
        let pushed =
            push(&client, &next, &options()).unwrap_or_else(|error| panic!("{place:?}: {error}"));
        assert!(pushed.is_converged(), "{place:?}");
        assert_eq!(agent.state().running_plan_id, next.plan_id(), "{place:?}");
        let results = agent
            .applies()
            .iter()
            .filter(|a| a.result().is_some_and(|r| r.ok))
            .count();
        assert_eq!(results, 2, "{place:?}: once each");
    }
}

/// A refusal whose answer was lost is still a refusal.
#[test]
fn a_lost_refusal_is_found_in_the_state() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    push(&client, &set(&[]), &options()).unwrap();
    agent.fail_next_reload("[haproxy.cfg:9] : no");
    agent.break_next(Break::AfterApplying);
    match push(&client, &set(&[("general/a", b"x")]), &options()) {
        Err(PushError::Nack(result)) => assert!(result.error.unwrap().message.contains(":9]")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_agent_that_stays_away_is_an_error_that_says_what_was_lost() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    push(&client, &set(&[]), &options()).unwrap();
    agent.break_next(Break::AfterApplying);
    let short = PushOptions {
        recover: Duration::from_millis(500),
        ..options()
    };
    let watch = |step: &Step<'_>| {
        if let Step::Lost(_) = step {
            agent.refuse_connections(1000);
        }
    };
    match push_watched(
        &client,
        &set(&[("general/a", &[b'x'; 200_000])]),
        &short,
        &watch,
    ) {
        Err(PushError::Client(Error::Transport(_))) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_busy_agent_is_asked_again_and_three_rounds_are_the_end() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    agent.turn_away(2);
    assert_eq!(push(&client, &set(&[]), &options()).unwrap().rounds, 3);
    agent.turn_away(3);
    match push(&client, &set(&[("general/a", b"")]), &options()) {
        Err(PushError::NoEnd) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cancel_ends_the_waiting() {
    let agent = FakeAgent::start().unwrap();
    agent.set_pacing(Pacing::Always);
    let cancel = Cancel::new();
    let client = client(&agent).cancelled_by(&cancel);
    let watch = |step: &Step<'_>| {
        if let Step::Waiting { .. } = step {
            cancel.cancel();
        }
    };
    match push_watched(&client, &set(&[]), &options(), &watch) {
        Err(PushError::Client(error)) => assert!(error.is_cancelled()),
        other => panic!("{other:?}"),
    }
}

/// Two push the same at the same time, and the one that comes second has what it wanted.
#[test]
fn the_same_set_from_somebody_else_is_no_conflict() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    push(&client, &set(&[]), &options()).unwrap();
    let theirs = PushOptions {
        by: Some("berta".into()),
        ..options()
    };
    for (content, busy) in [(b"1", false), (b"2", true)] {
        let mine = set(&[("general/a", content)]);
        let once = RefCell::new(true);
        if busy {
            agent.turn_away(1);
        }
        let intrude = |step: &Step<'_>| {
            let now = match step {
                Step::Decided(_) => !busy,
                // Between two rounds.
                Step::Again(_) => busy,
                _ => false,
            };
            if now && once.replace(false) {
                push(&client, &mine, &theirs).unwrap();
            }
        };
        let applies = agent.applies().len();
        let pushed = push_watched(&client, &mine, &options(), &intrude).unwrap();
        let by = Some("berta".to_owned());
        assert_eq!(pushed.outcome, Outcome::AppliedByOther { by });
        assert!(pushed.is_converged());
        // Who is turned away has applied nothing.
        let more = if busy { 1 } else { 2 };
        assert_eq!(agent.applies().len(), applies + more, "{busy}");
    }
    // Whoever asks for a reload gets one.
    let mine = set(&[("general/a", b"3")]);
    let once = RefCell::new(true);
    let intrude = |step: &Step<'_>| {
        if matches!(step, Step::Decided(_)) && once.replace(false) {
            push(&client, &mine, &theirs).unwrap();
        }
    };
    let reload = PushOptions {
        reload: true,
        ..options()
    };
    let pushed = push_watched(&client, &mine, &reload, &intrude).unwrap();
    assert_eq!((pushed.outcome, pushed.rounds), (Outcome::Applied, 2));
    assert_eq!(agent.last().unwrap().manifest.unwrap().mode, Mode::Reload);
}
