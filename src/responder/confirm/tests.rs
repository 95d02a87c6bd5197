//! Judgements by table.

use super::super::answer::Answer;
use super::super::line::{self, Request};
use super::*;

const WALL: UnixNanos = UnixNanos(1_790_000_000_000_000_000);

/// 22: configured, enabled, an agent.
const ENROLLED: u32 = 22;

fn server(name: &str, admin: u32, weight: u32, base_weight: u32, agent: u32) -> ServerRow {
    ServerRow {
        backend: "web".to_owned(),
        name: name.to_owned(),
        address: "10.0.0.1".to_owned(),
        port: "80".to_owned(),
        admin,
        weight,
        base_weight,
        agent,
        agent_at: ("127.0.0.1".to_owned(), "9777".to_owned()),
    }
}

fn stat(name: &str, status: &str, agent_status: &str) -> ServerStat {
    ServerStat {
        backend: "web".to_owned(),
        name: name.to_owned(),
        status: status.to_owned(),
        agent_status: agent_status.to_owned(),
        agent_words: String::new(),
    }
}

/// A row that asked every 2 s until `ago` seconds before `now`, and was told `value`
/// for the first time `since` seconds before.
fn heard(name: &str, value: Value, since: f64, ago: f64, now: Instant) -> (String, Heard) {
    let coverage = Coverage::new(now);
    let request = format!("{name} canary");
    let Request::Keys(keys) = line::parse(request.as_bytes()) else {
        panic!("{request}");
    };
    let before = |seconds: f64| now.checked_sub(Duration::from_secs_f64(seconds)).unwrap();
    let told = |value: Value, seconds: f64| {
        let decided = Some(0);
        coverage.heard(&keys, Answer { value, decided }, before(seconds), WALL);
    };
    let other = match value {
        Value::Maint => Value::Drain,
        Value::Ready | Value::Drain | Value::Weight(_) => Value::Maint,
    };
    let turns = [8.0, 6.0, 4.0, 2.0, 0.0];
    for turn in turns {
        let asked = ago + turn;
        told(if asked > since { other } else { value }, asked);
    }
    coverage.rows().remove(0)
}

fn context(now: Instant) -> Context {
    Context {
        now,
        worker_age: Duration::from_secs(3600),
        listening_for: Duration::from_secs(3600),
        longest_interval: Duration::from_secs(2),
        weights: Weights::Set,
        grouped: false,
    }
}

#[test]
fn a_row_follows_when_it_is_as_its_last_answer_says() {
    use RowState::{Diverged, Following};
    let table = [
        // told, admin, weight, base, status, state
        (Value::Ready, 0, 100, 100, "UP", Following),
        (Value::Ready, 0, 50, 100, "UP", Diverged),
        (Value::Ready, 8, 100, 100, "DRAIN (agent)", Diverged),
        (Value::Ready, 1, 100, 100, "MAINT", Diverged),
        (Value::Ready, 0, 100, 100, "DOWN (agent)", Diverged),
        (Value::Ready, 0, 100, 100, "DOWN (agent) 1/3", Diverged),
        (Value::Ready, 0, 100, 100, "DOWN", Following),
        // Inherited from a tracked server, and forced maintenance that has ended.
        (Value::Ready, 2, 100, 100, "MAINT (via web/s0)", Following),
        (Value::Ready, 16, 100, 100, "DRAIN (via web/s0)", Following),
        (Value::Ready, 4, 1, 1, "UP", Following),
        (Value::Ready, 0, 0, 0, "UP", Following),
        (Value::Drain, 8, 100, 100, "DRAIN (agent)", Following),
        (Value::Drain, 8, 50, 100, "DRAIN (agent)", Following),
        (Value::Drain, 24, 100, 100, "DRAIN (agent)", Following),
        (Value::Drain, 0, 100, 100, "UP", Diverged),
        (Value::Drain, 1, 100, 100, "MAINT", Diverged),
        (Value::Drain, 16, 100, 100, "DRAIN (via web/s0)", Diverged),
        (Value::Maint, 1, 100, 100, "MAINT", Following),
        (Value::Maint, 5, 100, 100, "MAINT", Following),
        (Value::Maint, 4, 100, 100, "MAINT", Diverged),
        (Value::Maint, 8, 100, 100, "DRAIN (agent)", Diverged),
        (Value::Weight(50), 0, 50, 100, "UP", Following),
        (Value::Weight(50), 0, 1, 3, "UP", Following),
        (Value::Weight(50), 0, 0, 1, "UP", Following),
        (Value::Weight(50), 0, 1, 1, "UP", Diverged),
        (Value::Weight(300), 0, 256, 100, "UP", Following),
        (Value::Weight(999), 0, 256, 256, "UP", Following),
        (Value::Weight(0), 0, 0, 100, "UP", Following),
        (Value::Weight(50), 8, 50, 100, "DRAIN (agent)", Diverged),
    ];
    let now = Instant::now();
    for (told, admin, weight, base, status, want) in table {
        let row = server("s1", admin, weight, base, ENROLLED);
        let (_, heard) = heard("web/s1", told, 3600.0, 0.5, now);
        let stat = stat("s1", status, "CHECKED");
        let state = judge(&row, Some(&stat), Some(&heard), &context(now));
        assert_eq!(state, want, "{told:?} {admin} {weight}/{base} {status}");
    }
}

#[test]
fn where_weights_are_kept_they_are_not_compared() {
    let now = Instant::now();
    let context = Context {
        weights: Weights::Keep,
        ..context(now)
    };
    let (_, heard) = heard("web/s1", Value::Ready, 3600.0, 0.5, now);
    let row = server("s1", 0, 50, 100, ENROLLED);
    assert_eq!(
        judge(&row, None, Some(&heard), &context),
        RowState::Following
    );
}

#[test]
fn who_has_no_agent_or_has_it_off_is_said_so_whatever_was_heard() {
    let now = Instant::now();
    for (agent, want) in [
        (0, RowState::NotEnrolled),
        (18, RowState::AgentOff),
        (22, RowState::Following),
        (23, RowState::Following),
    ] {
        let row = server("s1", 0, 1, 1, agent);
        let (_, heard) = heard("web/s1", Value::Ready, 3600.0, 0.5, now);
        assert_eq!(
            judge(&row, None, Some(&heard), &context(now)),
            want,
            "{agent}"
        );
    }
}

/// Nothing is wrong before it had its time: two intervals and a second for a change,
/// the same after a reload; three and a second for a row that is not heard.
#[test]
fn what_may_still_be_on_its_way_is_pending() {
    use RowState::{Diverged, NotAsking, Pending};
    let now = Instant::now();
    let seconds = Duration::from_secs_f64;
    let table = [
        // told for, asked ago, worker's age, listening for, state
        (2.5, 0.5, 3600.0, 3600.0, Pending),
        (4.5, 0.5, 3600.0, 3600.0, Pending),
        (6.5, 0.5, 3600.0, 3600.0, Diverged),
        (6.5, 0.5, 4.9, 3600.0, Pending),
        (6.5, 0.5, 5.1, 3600.0, Diverged),
        (600.0, 6.9, 3600.0, 3600.0, Diverged),
        (600.0, 7.1, 3600.0, 3600.0, NotAsking),
        (600.0, 7.1, 6.9, 3600.0, Pending),
        (600.0, 7.1, 3600.0, 6.9, Pending),
        (600.0, 90.0, 3600.0, 3600.0, NotAsking),
    ];
    for (told_for, ago, worker_age, listening_for, want) in table {
        let context = Context {
            worker_age: seconds(worker_age),
            listening_for: seconds(listening_for),
            ..context(now)
        };
        let (_, heard) = heard("web/s1", Value::Drain, told_for, ago, now);
        let row = server("s1", 0, 1, 1, ENROLLED);
        let state = judge(&row, None, Some(&heard), &context);
        assert_eq!(state, want, "{told_for} {ago} {worker_age} {listening_for}");
    }
}

#[test]
fn a_row_that_was_never_heard() {
    use RowState::{ByGroup, NotAsking, Pending};
    let now = Instant::now();
    let row = server("s1", 0, 1, 1, ENROLLED);
    let table = [
        // the longest interval of others, somebody asks by group, agent status, state
        (2.0, false, "L4CON", NotAsking),
        (2.0, false, "CHECKED", NotAsking),
        (2.0, true, "L4CON", NotAsking),
        (2.0, true, "CHECKED", ByGroup),
        (2.0, true, "* CHECKED", ByGroup),
        (60.0, false, "L4CON", Pending),
    ];
    for (longest, grouped, agent_status, want) in table {
        let context = Context {
            longest_interval: Duration::from_secs_f64(longest),
            listening_for: Duration::from_secs(100),
            grouped,
            ..context(now)
        };
        let stat = stat("s1", "UP", agent_status);
        let state = judge(&row, Some(&stat), None, &context);
        assert_eq!(state, want, "{longest} {grouped} {agent_status}");
    }
}

#[test]
fn rows_are_joined_by_backend_and_server() {
    let now = Instant::now();
    let servers = [
        server("s1", 8, 1, 1, ENROLLED),
        server("s2", 0, 1, 1, 0),
        server("s3", 0, 1, 1, ENROLLED),
    ];
    let stats = [
        stat("s1", "DRAIN (agent)", "CHECKED"),
        stat("s3", "UP", "L4CON"),
    ];
    let heard = [
        heard("canary", Value::Drain, 3600.0, 0.1, now),
        heard("web/s1", Value::Drain, 3600.0, 0.1, now),
        heard("web/sl", Value::Drain, 3600.0, 0.1, now),
        heard("web/gone", Value::Drain, 3600.0, 30.0, now),
    ];
    let view = join(&servers, &stats, &heard, &context(now), WALL);
    assert_eq!(
        view.foreign,
        ["web/sl"],
        "neither a group nor a row that is gone"
    );
    let states: Vec<_> = ["web/s1", "web/s2", "web/s3"]
        .map(|name| view.rows[name].state)
        .into();
    assert_eq!(
        states,
        [
            RowState::Following,
            RowState::NotEnrolled,
            RowState::NotAsking
        ]
    );
    let row = &view.rows["web/s1"];
    assert_eq!(
        (row.status.as_str(), row.agent.as_str()),
        ("DRAIN (agent)", "127.0.0.1:9777")
    );
    assert_eq!(view.count(RowState::Foreign), 1);
    assert_eq!(view.count(RowState::NotAsking), 1);
    assert_eq!(view.count(RowState::Diverged), 0);
}

/// A row that asks by a wrong name is logged with what it sends, once; one that has just been
/// deleted is not.
#[test]
fn a_wrong_name_is_told_once() {
    let now = Instant::now();
    let view = |heard: &[(String, Heard)], at: Instant| {
        let context = Context {
            now: at,
            ..context(now)
        };
        join(&[], &[], heard, &context, WALL)
    };
    let rows = [heard("web/sl", Value::Drain, 3600.0, 0.1, now)];
    let before = now.checked_sub(Duration::from_secs(1)).unwrap();
    let mut last = Last::default();
    // One look may be too early.
    let first = view(&rows, before);
    assert_eq!(last.strange(&first, &rows), [""; 0]);
    last.view = Some(Arc::new(first));
    let second = view(&rows, now);
    assert_eq!(last.strange(&second, &rows), ["web/sl canary"]);
    last.view = Some(Arc::new(second));
    let later = now + Duration::from_secs(1);
    assert_eq!(last.strange(&view(&rows, later), &rows), [""; 0]);
    // Not heard since the look before.
    let mut last = Last {
        view: Some(Arc::new(view(&rows, now))),
        ..Last::default()
    };
    assert_eq!(last.strange(&view(&rows, later), &rows), [""; 0]);
}

/// A row that is asked about by another name is not one whose question does not arrive.
#[test]
fn a_row_of_a_wrong_name_is_answered_all_the_same() {
    let now = Instant::now();
    let servers = [
        server("s1", 0, 1, 1, ENROLLED),
        server("s2", 0, 1, 1, ENROLLED),
    ];
    let stats = [stat("s1", "UP", "CHECKED"), stat("s2", "UP", "L4CON")];
    let state = |heard: &[(String, Heard)]| {
        let view = join(&servers, &stats, heard, &context(now), WALL);
        ["web/s1", "web/s2"].map(|name| view.rows[name].state)
    };
    use RowState::{ByGroup, NotAsking};
    let misspelt = [heard("web/sl", Value::Drain, 3600.0, 0.1, now)];
    assert_eq!(state(&misspelt), [ByGroup, NotAsking]);
    assert_eq!(state(&[]), [NotAsking, NotAsking]);
}
