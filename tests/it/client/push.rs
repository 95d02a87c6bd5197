//! The loop of a push, row by row, against the fake agent.

use std::cell::RefCell;
use std::time::Duration;

use haptic_agent::client::{
    Client, ClientConfig, Credentials, Epoch, Error, FileSet, FileSetOptions, Fleet, Outcome,
    PushError, PushOptions, Pushed, Refusal, Refused, Step, push, push_watched,
};
use haptic_agent::testkit::FakeAgent;
use haptic_agent::testkit::fake_agent::ReloadFault;
use haptic_agent::wire::manifest::{FileKind, Mode, Token};

const CONFIG: &[u8] = b"global\ndefaults\nfrontend f\n";

pub(super) fn client(agent: &FakeAgent) -> Client {
    let credentials = Credentials::new(agent.username(), agent.password()).unwrap();
    Client::new(ClientConfig::new(&agent.url(), credentials).unwrap())
}

pub(super) fn set(files: &[(&str, &[u8])]) -> FileSet {
    let files = [("haproxy.cfg", CONFIG)].iter().chain(files);
    FileSet::from_files(
        files.map(|(name, bytes)| (*name, bytes.to_vec())),
        &FileSetOptions::default(),
    )
    .unwrap()
}

pub(super) fn options() -> PushOptions {
    PushOptions {
        recover: Duration::from_secs(5),
        wait: Duration::from_secs(20),
        ..PushOptions::default()
    }
}

#[test]
fn the_first_push_sends_all_and_the_same_again_sends_nothing() {
    let agent = FakeAgent::start().unwrap();
    let (client, set) = (client(&agent), set(&[("maps/a.map", b"a b\n")]));
    let first = push(&client, &set, &options()).unwrap();
    assert_eq!(first.outcome, Outcome::Applied);
    assert!(first.is_converged());
    assert_eq!(first.sent, set.bytes());
    let applied = agent.last().unwrap();
    let manifest = applied.manifest.clone().unwrap();
    assert_eq!(manifest.mode, Mode::Reload);
    assert_eq!(manifest.token.leader_epoch, 1);
    assert_eq!(applied.part_names(), ["haproxy.cfg", "maps/a.map"]);
    assert_eq!(agent.state().running_plan_id, set.plan_id());

    let again = push(&client, &set, &options()).unwrap();
    assert_eq!((again.outcome, again.sent), (Outcome::Unchanged, 0));
    assert_eq!(agent.applies().len(), 1, "nothing was sent");
}

/// The agent's state may be some seconds old, so it is asked to look before anybody is told
/// that nothing has to be done.
#[test]
fn unchanged_is_said_after_a_look() {
    let agent = FakeAgent::start().unwrap();
    let (client, set) = (client(&agent), set(&[("maps/a.map", b"a b\n")]));
    push(&client, &set, &options()).unwrap();
    agent
        .write_behind("maps/a.map", Some(b"a edited\n"))
        .unwrap();
    let hasty = PushOptions {
        look: false,
        ..options()
    };
    let blind = push(&client, &set, &hasty).unwrap();
    assert_eq!((blind.outcome, blind.rounds), (Outcome::Unchanged, 1));
    let seen = push(&client, &set, &options()).unwrap();
    assert_eq!((seen.outcome, seen.rounds), (Outcome::Applied, 1));
    assert_eq!(agent.files()["maps/a.map"].as_ref(), b"a b\n");
    let reads = agent.state_reads();
    push(&client, &set, &options()).unwrap();
    assert_eq!(agent.state_reads() - reads, 2, "one read, one look");
}

/// HAProxy is gone while its agent lives.
#[test]
fn a_worker_that_does_not_answer_is_no_success() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    push(&client, &set(&[("general/a", b"1")]), &options()).unwrap();
    agent.silence_worker("connection refused");
    agent.next_reload(ReloadFault::Unreachable("connection refused".to_owned()));
    match push(&client, &set(&[("general/a", b"1")]), &options()) {
        Err(PushError::Nack(result)) => assert_eq!(Refusal::of(&result), Some(Refusal::Kept)),
        other => panic!("{other:?}"),
    }
    // It is there again, with a reload.
    let again = push(&client, &set(&[("general/a", b"1")]), &options()).unwrap();
    assert_eq!(again.outcome, Outcome::Applied);

    // It goes between the look and an apply that asks nothing of it.
    let old = set(&[("maps/a.map", b"a b\n")]);
    push(&client, &old, &options()).unwrap();
    let silence = |step: &Step<'_>| {
        if let Step::Decided(_) = step {
            agent.silence_worker("connection refused");
        }
    };
    let comment = set(&[("maps/a.map", b"# only a comment\na b\n")]);
    match push_watched(&client, &comment, &options(), &silence) {
        Err(error @ PushError::NotRunning { silent: true, .. }) => {
            assert!(error.to_string().contains("connection refused"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

/// No manifest may have the agent's own names; nothing is sent to learn that.
#[test]
fn a_name_that_the_agent_keeps_for_itself_is_refused_before_a_byte_is_sent() {
    let agent = FakeAgent::builder()
        .reserved(["run/worker.sock".to_owned()])
        .start()
        .unwrap();
    let client = client(&agent);
    for name in ["run/worker.sock", "run", "run/worker.sock/x"] {
        match push(&client, &set(&[(name, b"x")]), &options()) {
            Err(PushError::Client(Error::Refused(Refused::Reserved(path)))) => {
                assert_eq!(path.as_str(), name);
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(agent.applies().is_empty());
    push(&client, &set(&[("run/other", b"x")]), &options()).unwrap();
}

#[test]
fn only_what_changed_is_sent() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    push(
        &client,
        &set(&[("general/a", b"1"), ("general/b", b"1")]),
        &options(),
    )
    .unwrap();
    let next = set(&[("general/a", b"1"), ("general/b", b"22")]);
    let pushed = push(&client, &next, &options()).unwrap();
    assert_eq!(pushed.sent, 2);
    assert_eq!(agent.last().unwrap().part_names(), ["general/b"]);
    let token = agent.state().applied_token;
    push(&client, &set(&[]), &options()).unwrap();
    assert!(agent.state().applied_token.render_seq > token.render_seq);
    assert_eq!(agent.files().len(), 1);
}

#[test]
fn missing_content_is_sent_once_more() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    push(&client, &set(&[("general/a", b"1")]), &options()).unwrap();
    let state = agent.state();
    let again = RefCell::new(0);
    // The agent holds less than its state said, under the same plan and token.
    let lose = |step: &Step<'_>| match step {
        Step::Decided(_) => {
            let left = [("haproxy.cfg", FileKind::Config, CONFIG)];
            agent
                .push_behind(&state.applied_plan_id, state.applied_token, left)
                .unwrap();
        }
        Step::Again(_) => *again.borrow_mut() += 1,
        _ => {}
    };
    let next = set(&[("general/a", b"1"), ("general/b", b"2")]);
    let pushed = push_watched(&client, &next, &options(), &lose).unwrap();
    assert_eq!((pushed.outcome, pushed.rounds), (Outcome::Applied, 1));
    assert_eq!(*again.borrow(), 1);
    let statuses: Vec<u16> = agent.applies().iter().map(|a| a.status).collect();
    assert_eq!(statuses, [200, 409, 200]);
    assert_eq!(agent.last().unwrap().parts.len(), 3, "all of it");
    assert_eq!(agent.files()["general/a"].as_ref(), b"1");
}

fn behind(agent: &FakeAgent, id: &str, epoch: u64) {
    let token = Token {
        leader_epoch: epoch,
        render_seq: 1 << 40,
    };
    let theirs = [(
        "haproxy.cfg",
        FileKind::Config,
        b"global # theirs\n".as_slice(),
    )];
    agent.push_behind(id, token, theirs).unwrap();
}

#[test]
fn of_two_at_once_the_second_is_told_who_won_and_may_insist() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    push(&client, &set(&[]), &options()).unwrap();
    let mine = set(&[("general/a", b"mine")]);
    let intrude = |step: &Step<'_>| {
        if let Step::Decided(_) = step {
            behind(&agent, "theirs", 1);
        }
    };
    match push_watched(&client, &mine, &options(), &intrude) {
        Err(PushError::Overtaken {
            applied_plan_id,
            applied_token,
            by,
        }) => {
            assert_eq!(by, None, "their plan is none of ours");
            assert_eq!(applied_plan_id, "theirs");
            assert_eq!(applied_token.render_seq, 1 << 40);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        agent.state().applied_plan_id,
        "theirs",
        "nothing of theirs is lost"
    );

    let once = RefCell::new(true);
    let intrude = |step: &Step<'_>| {
        if matches!(step, Step::Decided(_)) && once.replace(false) {
            behind(&agent, "theirs again", 1);
        }
    };
    let insist = PushOptions {
        overwrite: true,
        ..options()
    };
    let pushed = push_watched(&client, &mine, &insist, &intrude).unwrap();
    assert_eq!((pushed.outcome, pushed.rounds), (Outcome::Applied, 2));
    assert_eq!(agent.state().applied_plan_id, mine.plan_id());
}

/// A round that begins for another reason must not swallow somebody's push either.
#[test]
fn a_later_round_builds_on_nobody_else_s_push() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    push(&client, &set(&[]), &options()).unwrap();
    agent.turn_away(1);
    let intrude = |step: &Step<'_>| {
        if let Step::Again(_) = step {
            behind(&agent, "theirs", 1);
        }
    };
    match push_watched(
        &client,
        &set(&[("general/a", b"mine")]),
        &options(),
        &intrude,
    ) {
        Err(PushError::Overtaken {
            applied_plan_id, ..
        }) => assert_eq!(applied_plan_id, "theirs"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unknown_baseline_gets_the_full_set_and_a_reload() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    push(&client, &set(&[("maps/a.map", b"a b\n")]), &options()).unwrap();
    let once = RefCell::new(true);
    let forget = |step: &Step<'_>| {
        if matches!(step, Step::Decided(_)) && once.replace(false) {
            agent.lose_baseline();
        }
    };
    let next = set(&[("maps/a.map", b"a c\n")]);
    let pushed = push_watched(&client, &next, &options(), &forget).unwrap();
    assert_eq!((pushed.outcome, pushed.rounds), (Outcome::Applied, 2));
    let last = agent.last().unwrap();
    assert_eq!(last.manifest.as_ref().unwrap().mode, Mode::Reload);
    assert_eq!(last.part_names(), ["haproxy.cfg", "maps/a.map"]);
}

#[test]
fn a_newer_leader_is_obeyed_unless_overruled() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    behind(&agent, "leader's", 7);
    // Their epoch is taken over with the baseline: no conflict.
    push(&client, &set(&[]), &options()).unwrap();
    assert_eq!(agent.state().applied_token.leader_epoch, 7);

    // A leader of epoch 9 was refused by HAProxy: the state still shows 7.
    let credentials = Credentials::new(agent.username(), agent.password()).unwrap();
    let leader = Client::new(ClientConfig::new(&agent.url(), credentials).unwrap());
    agent.fail_next_reload("no");
    let higher = PushOptions {
        epoch: Epoch::Exactly(9),
        ..options()
    };
    push(&leader, &set(&[("general/bad", b"")]), &higher).unwrap_err();
    let mine = set(&[("general/a", b"mine")]);
    match push(&client, &mine, &options()) {
        Err(PushError::Stale { epoch: 7, .. }) => {}
        other => panic!("{other:?}"),
    }
    let overrule = PushOptions {
        take_over: true,
        ..options()
    };
    let pushed = push(&client, &mine, &overrule).unwrap();
    assert_eq!(pushed.outcome, Outcome::Applied);
    assert_eq!(
        agent.state().applied_token.leader_epoch,
        10,
        "nothing is guessed"
    );
}

/// A leader that was deposed must not take its successor's epoch from the state.
#[test]
fn a_leader_stands_down_before_it_sends_anything() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    let leader = |epoch| PushOptions {
        epoch: Epoch::Exactly(epoch),
        overwrite: true,
        ..options()
    };
    push(&client, &set(&[]), &leader(3)).unwrap();
    assert_eq!(agent.state().applied_token.leader_epoch, 3);
    behind(&agent, "successor's", 4);
    match push(&client, &set(&[("general/a", b"mine")]), &leader(3)) {
        Err(PushError::Stale {
            epoch: 3,
            applied_plan_id,
            ..
        }) => assert_eq!(applied_plan_id, "successor's"),
        other => panic!("{other:?}"),
    }
    assert_eq!(agent.applies().len(), 1);
    let overrule = PushOptions {
        take_over: true,
        ..leader(3)
    };
    push(&client, &set(&[]), &overrule).unwrap();
    assert_eq!(agent.state().applied_token.leader_epoch, 5);
}

#[test]
fn a_refusal_comes_with_haproxy_s_words_and_a_repeated_one_says_so() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    push(&client, &set(&[]), &options()).unwrap();
    let words = "[haproxy.cfg:3] : unknown keyword 'frob'";
    agent.fail_next_reload(words);
    let bad = set(&[("general/a", b"bad")]);
    let first = push(&client, &bad, &options()).unwrap_err().to_string();
    assert!(
        first.contains(words) && !first.contains("was not asked again"),
        "{first}"
    );
    let second = push(&client, &bad, &options()).unwrap_err().to_string();
    assert!(
        second.contains(words) && second.contains("was not asked again"),
        "{second}"
    );
    // Repaired.
    let good = push(&client, &set(&[("general/a", b"good")]), &options()).unwrap();
    assert_eq!(good.outcome, Outcome::Applied);
}

#[test]
fn an_agent_of_another_release_gets_files_and_a_reload() {
    let agent = FakeAgent::start().unwrap();
    let client = client(&agent);
    push(&client, &set(&[("maps/a.map", b"a b\n")]), &options()).unwrap();
    agent.set_api_version(2);
    push(&client, &set(&[("maps/a.map", b"a c\n")]), &options()).unwrap();
    let manifest = agent.last().unwrap().manifest.unwrap();
    assert_eq!((manifest.mode, manifest.ops.len()), (Mode::Reload, 0));
    assert_eq!(agent.last().unwrap().parts.len(), 2);
}

#[test]
fn a_fleet_has_an_outcome_for_each() {
    let agents: Vec<FakeAgent> = (0..20).map(|_| FakeAgent::start().unwrap()).collect();
    agents[3].fail_next_reload("[haproxy.cfg:3] : no");
    let mut clients: Vec<Client> = agents.iter().map(client).collect();
    let credentials = Credentials::new("u", "p").unwrap();
    clients[7] = Client::new(ClientConfig::new("http://127.0.0.1:1", credentials.clone()).unwrap());
    clients[9] = Client::new(ClientConfig::new(&agents[9].url(), credentials).unwrap());
    let set = set(&[]);
    let outcomes = Fleet::new(clients).push(&set, &options(), |_, _| ());
    assert_eq!(outcomes.len(), 20);
    for (place, outcome) in outcomes.iter().enumerate() {
        match (place, outcome) {
            (3, Err(PushError::Nack(_))) => {}
            (7, Err(PushError::Client(Error::Transport(_)))) => {}
            (9, Err(PushError::Client(Error::Http { status: 401, .. }))) => {}
            (3 | 7 | 9, other) => panic!("{place}: {other:?}"),
            (_, Ok(pushed)) => assert!(pushed.is_converged()),
            (_, Err(error)) => panic!("{place}: {error}"),
        }
    }
    for (place, agent) in agents.iter().enumerate() {
        let applied = agent.state().applied_plan_id == set.plan_id();
        assert_eq!(applied, ![3, 7, 9].contains(&place), "{place}");
    }
}

/// A figure, and that threads are what bounds it: 50 agents that take a while each.
#[test]
#[ignore = "measures; make soak runs it"]
fn fifty_agents_are_served_sixteen_at_a_time() {
    let agents: Vec<FakeAgent> = (0..50).map(|_| FakeAgent::start().unwrap()).collect();
    let fleet = Fleet::new(agents.iter().map(client).collect());
    let big = vec![b'x'; 1 << 20];
    let mut text = Vec::new();
    for (delay, files) in [
        (Duration::ZERO, set(&[("general/a", b"1")])),
        (Duration::from_millis(200), set(&[("general/a", b"2")])),
        (Duration::ZERO, set(&[("general/a", &big)])),
    ] {
        for agent in &agents {
            agent.set_delay(delay);
        }
        let begun = std::time::Instant::now();
        let outcomes = fleet.push(&files, &options(), |_, _| ());
        let took = begun.elapsed();
        assert!(
            outcomes
                .iter()
                .all(|o| o.as_ref().is_ok_and(Pushed::is_converged))
        );
        // Four turns of sixteen, and not fifty in a row.
        assert!(took >= delay * 4);
        assert!(delay.is_zero() || took < delay * 25, "{took:?}");
        text.push(format!(
            "delay {delay:?}, {} bytes: {took:?}",
            files.bytes()
        ));
    }
    println!("50 agents: {}", text.join("; "));
}
