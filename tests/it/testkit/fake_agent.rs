//! What tests of controllers need beyond the contract: connections that break, knobs,
//! and records.

use super::kit::{self, Ops as _, Site, map_op, server_op};
use crate::support::agent::{self, AUTHORIZATION, Apply, PASSWORD, Reply, USER};
use crate::support::wait;
use haptic_agent::testkit::FakeAgent;
use haptic_agent::testkit::fake_agent::{Break, Given, OpFault, Pacing, ReloadFault};
use haptic_agent::wire::manifest::{FileKind, Token};
use haptic_agent::wire::result::{ResultMode, Stage};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

fn start() -> FakeAgent {
    FakeAgent::builder()
        .credentials(USER, PASSWORD)
        .start()
        .unwrap()
}

fn state(agent: &FakeAgent) -> Value {
    let reply = agent::get(agent.address(), "/v1/state", Some(AUTHORIZATION));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

fn send(agent: &FakeAgent, apply: &Apply) -> Reply {
    agent::exchange(agent.address(), &apply.request())
}

/// Sends it; the bytes that came back, whole or not.
fn raw(agent: &FakeAgent, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(agent.address()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    // The other side may be gone before all of it is written.
    let _ = stream.write_all(request);
    let mut seen = Vec::new();
    // A reset is an end like any other here.
    let _ = stream.read_to_end(&mut seen);
    seen
}

fn first(agent: &FakeAgent) {
    let reply = send(agent, &Site::new().push("p1", &state(agent)));
    assert_eq!(reply.json()["mode"], "reload", "{}", reply.text());
}

#[test]
fn a_silent_worker_is_in_the_state_until_it_is_back() {
    let agent = start();
    assert_eq!(state(&agent)["worker"]["answers"], true);
    agent.silence_worker("connection refused");
    let down = state(&agent)["worker"].clone();
    assert_eq!(down["answers"], false);
    assert_eq!(down["reason"], "connection refused");
    first(&agent);
    let up = state(&agent)["worker"].clone();
    assert_eq!(up["answers"], true, "a reload worked");
    assert!(up["since"].as_str() > down["since"].as_str());
    assert_eq!(agent.control("silence gone"), "ok");
    assert_eq!(state(&agent)["worker"]["reason"], "gone");
    assert_eq!(agent.control("wake"), "ok");
    assert_eq!(state(&agent)["worker"].get("reason"), None);
}

#[test]
fn applies_are_recorded_with_their_parts_and_answers() {
    let agent = start();
    let site = Site::new();
    send(&agent, &site.push("p1", &state(&agent)).blob(b"the plan"));
    send(
        &agent,
        &site.map("a b\n").push("p2", &state(&agent)).epoch(0),
    );
    send(
        &agent,
        &Site::new()
            .push("p3", &state(&agent))
            .edit(|m| m["mode"] = json!("x")),
    );
    let applies = agent.applies();
    let statuses: Vec<u16> = applies.iter().map(|apply| apply.status).collect();
    assert_eq!(statuses, [200, 409, 400]);
    let one = &applies[0];
    assert_eq!(one.manifest.as_ref().unwrap().plan_id, "p1");
    assert_eq!(one.blob.as_deref(), Some(&b"the plan"[..]));
    assert_eq!(
        one.part_names(),
        [
            kit::CA,
            kit::CERT,
            kit::CONFIG,
            kit::LIST,
            kit::MAP,
            kit::OTHER
        ]
    );
    assert_eq!(one.parts[4].bytes, b"a one\nb two\n");
    assert_eq!(one.result().unwrap().mode, ResultMode::Reload);
    assert!(matches!(&applies[1].answer, Given::Conflict(_)));
    assert!(
        matches!(&applies[2].answer, Given::Refused { status: 400, failure } if failure.stage == Stage::Manifest)
    );
    assert!(applies[2].manifest.is_none());
    assert!(applies[2].manifest_json.contains("\"x\""));
    assert_eq!(agent.files()[kit::MAP].as_ref(), b"a one\nb two\n");
    assert_eq!(agent.state_reads(), 3);
    agent.clear_applies();
    assert!(agent.last().is_none());
}

#[test]
fn a_connection_breaks_where_it_is_told_to() {
    let agent = start();
    first(&agent);
    let push = |plan: &str| {
        Site::new()
            .config(plan)
            .push(plan, &state(&agent))
            .request()
    };
    for place in [Break::BeforeReading, Break::MidBody] {
        agent.break_next(place);
        assert_eq!(raw(&agent, &push("p2")), b"", "{place:?}");
        assert_eq!(state(&agent)["applied_plan_id"], "p1", "{place:?}");
    }
    assert_eq!(
        agent.applies().len(),
        1,
        "what was not read is not recorded"
    );
    agent.break_next(Break::AfterApplying);
    assert_eq!(raw(&agent, &push("p2")), b"");
    assert_eq!(state(&agent)["applied_plan_id"], "p2");
    agent.break_next(Break::InAnswer(30));
    let cut = raw(&agent, &push("p3"));
    assert_eq!(cut.len(), 30);
    assert!(cut.starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert_eq!(state(&agent)["applied_plan_id"], "p3");
    assert_eq!(agent.applies().len(), 3);
    // The next one is whole again.
    assert_eq!(
        send(&agent, &Site::new().push("p4", &state(&agent))).status,
        200
    );
}

#[test]
fn connections_are_closed_as_soon_as_they_are_made_so_many_times() {
    let agent = start();
    agent.refuse_connections(2);
    let get = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert_eq!(raw(&agent, get), b"");
    assert_eq!(raw(&agent, get), b"");
    assert!(raw(&agent, get).ends_with(b"ok\n"));
}

#[test]
fn a_connection_is_kept_for_more_requests_until_it_is_cut() {
    let agent = start();
    let mut stream = TcpStream::connect(agent.address()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    for _ in 0..3 {
        stream
            .write_all(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        assert_eq!(agent::read_reply(&mut stream).text(), "ready\n");
    }
    agent.cut_connections();
    assert_eq!(stream.read(&mut [0; 16]).unwrap_or_default(), 0);
}

#[test]
fn an_agent_that_starts_holds_states_and_turns_applies_away() {
    let agent = start();
    agent.set_ready(false);
    let ready = agent::get(agent.address(), "/readyz", None);
    assert_eq!(
        (ready.status, ready.text().as_str()),
        (503, "initialising\n")
    );
    let empty = json!({"applied_plan_id": "", "applied_token": {"leader_epoch": 0, "render_seq": 0}, "files": {}});
    let reply = send(&agent, &Site::new().push("p1", &empty));
    assert_eq!(
        (reply.status, &reply.json()["stage"]),
        (503, &json!("startup"))
    );
    thread::scope(|scope| {
        let held = scope.spawn(|| state(&agent));
        // It is held: an answer would have come within this time.
        thread::sleep(Duration::from_millis(100));
        assert!(!held.is_finished());
        agent.set_ready(true);
        assert_eq!(held.join().unwrap()["generation"], 0);
    });
}

#[test]
fn one_upload_too_many_is_told_to_come_again() {
    let agent = start();
    agent.turn_away(1);
    let push = Site::new().push("p1", &state(&agent));
    let reply = send(&agent, &push);
    assert_eq!(
        (reply.status, reply.header("retry-after")),
        (503, Some("1"))
    );
    assert_eq!(reply.json()["stage"], "busy");
    assert_eq!(send(&agent, &push).status, 200);
    // Four at a time have a place by themselves.
    agent.set_delay(Duration::from_secs(5));
    let push = Site::new().push("p2", &state(&agent));
    thread::scope(|scope| {
        let many: Vec<_> = (0..5)
            .map(|_| scope.spawn(|| send(&agent, &push).status))
            .collect();
        wait::until("one of five is turned away", SOON, || {
            many.iter().any(|one| one.is_finished()).then_some(())
        });
        agent.set_delay(Duration::ZERO);
        let mut statuses: Vec<u16> = many.into_iter().map(|one| one.join().unwrap()).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409, 409, 409, 503]);
    });
}

#[test]
fn a_delayed_apply_leaves_the_state_readable() {
    let agent = start();
    agent.set_delay(Duration::from_millis(300));
    let push = Site::new().push("p1", &state(&agent));
    let began = Instant::now();
    thread::scope(|scope| {
        let slow = scope.spawn(|| send(&agent, &push));
        assert_eq!(state(&agent)["generation"], 0);
        assert_eq!(slow.join().unwrap().status, 200);
    });
    assert!(began.elapsed() >= Duration::from_millis(300));
}

#[test]
fn op_kinds_are_rejected_lost_and_unknown_by_name() {
    let agent = start();
    first(&agent);
    let ops = [
        server_op(
            "server_add",
            "n1",
            json!({"address": "127.0.0.1", "port": 1}),
        ),
        map_op("map_add", kit::MAP, "k", Some("v")),
    ];
    let push = |plan: &str| {
        let map = format!("a one\nb two\nk v\n# {plan}\n");
        let apply = Site::new().map(&map).auto(plan, &state(&agent), &ops);
        send(&agent, &apply).json()
    };
    agent.reject_op("server_add", "No such backend.");
    let answer = push("p2");
    assert_eq!(
        (&answer["mode"], &answer["ok"]),
        (&json!("reload"), &json!(true))
    );
    assert_eq!(answer["op_results"][0]["output"], "No such backend.");
    assert_eq!(answer["op_results"][1]["output"], "not_run");
    agent.accept_op("server_add");
    assert_eq!(push("p3")["mode"], "runtime");
    agent.set_op_fault("map_add", Some(OpFault::NoAnswer));
    // The server of the batch before is there already, so another one is taken.
    let lost = [map_op("map_add", kit::MAP, "l", Some("v"))];
    let apply = Site::new().map("l v\n").auto("p4", &state(&agent), &lost);
    let answer = send(&agent, &apply).json();
    assert_eq!(
        (&answer["mode"], &answer["op_results"][0]["output"]),
        (&json!("reload"), &json!("unknown"))
    );
    agent.set_op_fault("map_add", None);
    agent.set_known_ops(&["map_set"]);
    let seen = state(&agent);
    assert_eq!(seen["agent_ops"], json!(["map_set"]));
    assert!(seen.get("invariant_violation").is_none());
    assert_eq!(push("p5")["mode"], "reload");
    assert_eq!(state(&agent)["invariant_violation"], "ops_executable");
    assert_eq!(agent.map(kit::MAP).unwrap().last().unwrap().0, "k");
}

#[test]
fn reloads_fail_in_every_way() {
    let agent = start();
    first(&agent);
    let push = |plan: &str| {
        send(
            &agent,
            &Site::new().config("next").push(plan, &state(&agent)),
        )
        .json()
    };
    agent.fail_next_reload("config : unknown keyword");
    let refused = push("p2");
    assert_eq!(refused["error"]["message"], "config : unknown keyword");
    assert_eq!(refused["rollback"]["performed"], true);
    assert_eq!(push("p3")["reload"]["performed"], false, "remembered");
    agent.forget_refusals();
    agent.next_reload(ReloadFault::Surroundings("cannot bind".to_owned()));
    assert_eq!(push("p4")["ok"], false);
    agent.next_reload(ReloadFault::Unreachable("nobody listens".to_owned()));
    let unreachable = push("p5");
    assert_eq!(
        unreachable["reload"],
        json!({"performed": false, "ok": false})
    );
    agent.next_reload(ReloadFault::Unconfirmed("no new worker".to_owned()));
    let unconfirmed = push("p6");
    assert!(unconfirmed.get("rollback").is_none());
    let seen = state(&agent);
    assert_eq!(seen["running_plan_id"], "", "nobody knows what runs");
    assert!(seen["degraded"]["reason"] == "no new worker");
    assert_eq!(push("p7")["ok"], true, "not remembered");
    assert!(state(&agent).get("degraded").is_none());
}

#[test]
fn a_scheduled_reload_fires_by_itself_in_a_window() {
    let agent = start();
    agent.set_pacing(Pacing::Window(Duration::from_millis(400)));
    first(&agent);
    let reply = send(&agent, &Site::new().config("2").push("p2", &state(&agent))).json();
    assert_eq!(reply["mode"], "scheduled");
    assert_eq!(
        state(&agent)["reload_pending_at"],
        reply["reload"]["scheduled_at"]
    );
    let seen = wait::until("it fires", SOON, || {
        let seen = state(&agent);
        seen.get("reload_pending_at").is_none().then_some(seen)
    });
    assert_eq!(seen["running_plan_id"], "p2");
    assert_eq!(seen["generation"], 2);
}

#[test]
fn a_pending_reload_takes_only_in_place_ops() {
    let agent = start();
    first(&agent);
    agent.schedule_reload();
    let ops = [map_op("map_set", kit::MAP, "a", Some("x"))];
    let apply = Site::new()
        .map("a x\nb two\n")
        .auto("p2", &state(&agent), &ops);
    let answer = send(&agent, &apply.in_place(&ops, "p1", "p2")).json();
    assert_eq!(
        (&answer["mode"], &answer["worker_ops_plan_id"]),
        (&json!("scheduled"), &json!("p2"))
    );
    assert_eq!(agent.map(kit::MAP).unwrap()[0].1, "x");
    let fired = agent.fire().unwrap();
    assert_eq!(
        (fired.mode, fired.running_plan_id.as_str()),
        (ResultMode::Reload, "p2")
    );
    assert!(agent.fire().is_none());
}

#[test]
fn deletes_wait_while_they_are_held() {
    let agent = start();
    first(&agent);
    agent.hold_deletes(true);
    let del = [server_op("server_del", "s1", json!({}))];
    send(&agent, &Site::new().auto("p2", &state(&agent), &del));
    assert_eq!(state(&agent)["pending_deletes"]["servers"], json!(["b/s1"]));
    let add = [server_op(
        "server_add",
        "s1",
        json!({"address": "::1", "port": 1}),
    )];
    let answer = send(&agent, &Site::new().auto("p3", &state(&agent), &add)).json();
    assert_eq!(answer["mode"], "reload", "it is still there");
    assert_eq!(state(&agent)["pending_deletes"]["servers"], json!([]));
    send(&agent, &Site::new().auto("p4", &state(&agent), &del));
    agent.hold_deletes(false);
    assert_eq!(state(&agent)["pending_deletes"]["servers"], json!([]));
}

#[test]
fn somebody_else_pushes_and_writes() {
    let agent = start();
    first(&agent);
    let before = state(&agent);
    let token = Token {
        leader_epoch: 1,
        render_seq: 40,
    };
    let files = [("haproxy.cfg", FileKind::Config, &b"global\n"[..])];
    agent.push_behind("theirs", token, files).unwrap();
    let reply = send(&agent, &Site::new().push("p2", &before));
    assert_eq!(
        (reply.status, &reply.json()["reason"]),
        (409, &json!("prev_mismatch"))
    );
    assert_eq!(reply.json()["applied_plan_id"], "theirs");
    assert_eq!(state(&agent)["files"].as_object().unwrap().len(), 1);
    agent.lose_baseline();
    let reply = send(&agent, &Site::new().push("p2", &before));
    assert_eq!(reply.json()["reason"], "unknown_baseline");
    assert!(
        agent
            .push_behind("x", token, [("../x", FileKind::General, &b""[..])])
            .is_err()
    );
}

#[test]
fn an_older_contract_and_another_haproxy() {
    let agent = start();
    agent.set_api_version(0);
    agent.set_haproxy_version("3.0.11-1+deb13u4");
    let seen = state(&agent);
    assert_eq!(seen["api_version"], 0);
    assert_eq!(seen["haproxy"]["version"], "3.0.11");
    assert_eq!(seen["haproxy"]["full_version"], "3.0.11-1+deb13u4");
}

/// The server under the fake would ask for that much memory, answered or not.
#[test]
fn a_length_beyond_all_reason_is_refused_and_nothing_dies() {
    let agent = start();
    for length in ["4611686018427387904", "18446744073709551615", "200000000"] {
        let request = format!(
            "POST /v1/apply HTTP/1.1\r\nHost: a\r\nAuthorization: {AUTHORIZATION}\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: {length}\r\n\r\n"
        );
        let answer = raw(&agent, request.as_bytes());
        assert!(
            answer.starts_with(b"HTTP/1.1 413 "),
            "{length}: {:?}",
            String::from_utf8_lossy(&answer)
        );
    }
    assert_eq!(state(&agent)["generation"], 0);
}

/// Whoever refuses early still reads what is being sent, or the answer is lost on its way.
#[test]
fn an_early_refusal_reaches_a_controller_that_is_still_sending() {
    let agent = start();
    let body = vec![b'x'; 20 << 20];
    for _ in 0..5 {
        let mut request = format!(
            "POST /v1/apply HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(&body);
        assert_eq!(agent::exchange(agent.address(), &request).status, 401);
    }
}

#[test]
fn a_fake_ends_with_connections_and_requests_open() {
    let agent = start();
    let mut idle = TcpStream::connect(agent.address()).unwrap();
    idle.set_read_timeout(Some(SOON)).unwrap();
    idle.write_all(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    agent::read_reply(&mut idle);
    agent.set_ready(false);
    let mut held = TcpStream::connect(agent.address()).unwrap();
    held.set_read_timeout(Some(SOON)).unwrap();
    let request =
        format!("GET /v1/state HTTP/1.1\r\nHost: a\r\nAuthorization: {AUTHORIZATION}\r\n\r\n");
    held.write_all(request.as_bytes()).unwrap();
    let address = agent.address();
    let began = Instant::now();
    drop(agent);
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(idle.read(&mut [0; 16]).unwrap_or_default(), 0);
    assert!(TcpStream::connect(address).is_err());
}
