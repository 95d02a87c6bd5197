//! Answers to a push that no agent of ours gives of itself: the rows of the reaction table
//! that need an agent to the letter, and agents of other releases.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use haptic_agent::client::{
    Client, ClientConfig, Credentials, FileSet, FileSetOptions, Outcome, PushError, PushOptions,
    push,
};
use haptic_agent::testkit::FakeAgent;
use haptic_agent::wire::result::Stage;
use serde_json::{Value, json};

use super::script::{PATIENCE, Peer, drain, ok, request_head};

fn set() -> FileSet {
    let files = [("haproxy.cfg", b"global\n".to_vec())];
    FileSet::from_files(files, &FileSetOptions::default()).unwrap()
}

fn state() -> Value {
    serde_json::to_value(FakeAgent::start().unwrap().state()).unwrap()
}

fn conflict(reason: &str) -> Value {
    json!({
        "reason": reason, "applied_plan_id": "", "applied_token": {"leader_epoch": 0, "render_seq": 0},
        "running_plan_id": "", "worker_ops_plan_id": "", "lkg_plan_id": "",
    })
}

fn answer(status: u16, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Pushes to a peer that gives these answers, one a connection; the heads of the requests
/// that it saw are returned too.
fn pushed(
    answers: Vec<Vec<u8>>,
    options: &PushOptions,
) -> (Result<haptic_agent::client::Pushed, PushError>, Vec<String>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let theirs = seen.clone();
    let peer = Peer::serving(answers.len(), move |turn, mut stream: TcpStream| {
        let head = request_head(&mut stream);
        let line = head.lines().next().unwrap_or_default().to_owned();
        theirs.lock().unwrap().push(line);
        stream.write_all(&answers[turn]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        drain(&mut stream);
    });
    let url = format!("http://{}", peer.address);
    let mut config = ClientConfig::new(&url, Credentials::new("u", "p").unwrap()).unwrap();
    config.timeouts.apply = PATIENCE;
    let outcome = push(&Client::new(config), &set(), options);
    drop(peer);
    let seen = seen.lock().unwrap().clone();
    (outcome, seen)
}

#[test]
fn content_that_is_missing_twice_is_an_error() {
    let state = answer(200, &state());
    let missing = answer(409, &json!({"missing": ["haproxy.cfg"]}));
    // A first set is sent whole, so there is nothing more to send.
    let (outcome, seen) = pushed(vec![state, missing], &PushOptions::default());
    match outcome {
        Err(error) => assert_eq!(error.kind(), "missing"),
        Ok(pushed) => panic!("{pushed:?}"),
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn another_plan_on_the_worker_is_read_and_decided_again() {
    let state = answer(200, &state());
    let mismatch = answer(409, &conflict("worker_ops_mismatch"));
    let answers = [&state, &mismatch].repeat(3).into_iter().cloned().collect();
    let (outcome, seen) = pushed(answers, &PushOptions::default());
    assert!(matches!(outcome, Err(PushError::NoEnd)), "{outcome:?}");
    let reads = seen.iter().filter(|line| line.starts_with("GET ")).count();
    assert_eq!((reads, seen.len()), (3, 6), "{seen:?}");
    assert!(seen[0].starts_with("GET /v1/state"), "{seen:?}");
}

/// A newer leader whom an old agent does not name is overtaken step by step, one that is
/// named at once.
#[test]
fn an_epoch_is_raised_above_what_the_agent_tells_or_by_steps() {
    let state = answer(200, &state());
    let stale = answer(409, &conflict("stale_epoch"));
    let options = PushOptions {
        take_over: true,
        ..PushOptions::default()
    };
    let answers = [&state, &stale].repeat(3).into_iter().cloned().collect();
    let (outcome, _) = pushed(answers, &options);
    assert!(matches!(outcome, Err(PushError::NoEnd)), "{outcome:?}");

    let mut told = conflict("stale_epoch");
    told["highest_epoch"] = json!(40);
    let polite = PushOptions::default();
    let (outcome, _) = pushed(vec![state.clone(), answer(409, &told), state], &polite);
    match outcome {
        Err(PushError::Stale {
            epoch: 1,
            highest_epoch: Some(40),
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
}

/// The set is in place, a command on the worker was not: no success, and the next push is
/// full and reloads.
#[test]
fn a_result_with_an_error_is_an_outcome_in_part() {
    let plan = set().plan_id().to_owned();
    let result = json!({
        "plan_id": plan, "ok": true, "mode": "scheduled", "applied_plan_id": plan,
        "running_plan_id": "before", "worker_ops_plan_id": "",
        "applied_token": {"leader_epoch": 1, "render_seq": 1}, "lkg_plan_id": "before",
        "haproxy": {"version": "", "full_version": "", "worker_pid": 0, "worker_start_time_unix_micros": 0},
        "at": "2026-01-01T00:00:00Z",
        "timing": {"stage_ms": 0, "admit_ms": 0, "write_ms": 0, "ops_ms": 0, "finish_ms": 0, "total_ms": 0},
        "error": {"stage": "in_place", "message": "map_add was refused"},
    });
    let answers = vec![answer(200, &state()), ok(&result.to_string())];
    let (outcome, _) = pushed(answers, &PushOptions::default());
    let pushed = outcome.unwrap();
    assert!(!pushed.is_converged());
    match pushed.outcome {
        Outcome::InPart(failure) => assert_eq!(failure.stage, Stage::InPlace),
        other => panic!("{other:?}"),
    }
}

/// What an agent from before these keys says is read, and nothing is concluded from what it
/// leaves out.
#[test]
fn a_state_without_the_newer_keys_is_a_state() {
    let agent = FakeAgent::start().unwrap();
    let credentials = Credentials::new(agent.username(), agent.password()).unwrap();
    let client = Client::new(ClientConfig::new(&agent.url(), credentials).unwrap());
    push(&client, &set(), &PushOptions::default()).unwrap();
    let mut old = serde_json::to_value(agent.state()).unwrap();
    let fields = old.as_object_mut().unwrap();
    for key in ["worker", "reserved_paths"] {
        assert!(fields.remove(key).is_some(), "{key}");
    }
    let inventory = fields["runtime_inventory"].as_object_mut().unwrap();
    assert!(inventory.remove("acl_files").is_some());
    let answers = vec![answer(200, &old), answer(200, &old)];
    let (outcome, seen) = pushed(answers, &PushOptions::default());
    assert_eq!(outcome.unwrap().outcome, Outcome::Unchanged);
    assert!(seen[1].contains("verify=1"), "{seen:?}");
}
