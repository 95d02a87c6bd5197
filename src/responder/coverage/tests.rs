//! Rows over time, and the keys that nobody asks for.

use super::super::copy::Entry;
use super::super::line::{self, Request};
use super::*;

const WALL: UnixNanos = UnixNanos(1_790_000_000_000_000_000);

fn keys(request: &str) -> Keys<'_> {
    match line::parse(request.as_bytes()) {
        Request::Keys(keys) => keys,
        other => panic!("{request:?} gave {other:?}"),
    }
}

fn told(value: Value, decided: Option<usize>) -> Answer {
    Answer { value, decided }
}

fn seconds(count: f64) -> Duration {
    Duration::from_secs_f64(count)
}

#[test]
fn a_row_is_remembered_with_its_request_and_its_answer() {
    let start = Instant::now();
    let coverage = Coverage::new(start);
    let ask = |request: &str, answer: Answer, after: f64| {
        coverage.heard(
            &keys(request),
            answer,
            start + seconds(after),
            WALL.plus(seconds(after)),
        )
    };
    let ready = told(Value::Ready, None);
    assert_eq!(
        ask("web/s1  canary", ready, 1.0),
        None,
        "the first answer is no change"
    );
    assert_eq!(ask("web/s1 canary", ready, 3.0), None);
    let change = ask("web/s1 canary", told(Value::Drain, Some(1)), 5.0).unwrap();
    assert_eq!(
        change,
        Transition {
            row: Box::from(&b"web/s1"[..]),
            from: Value::Ready,
            to: Value::Drain,
            key: Some(Box::from(&b"canary"[..])),
        }
    );
    // Another key that says the same decides now: nothing that the row would notice.
    assert_eq!(ask("web/s1 zone", told(Value::Drain, Some(0)), 7.0), None);
    let change = ask("web/s1 zone", ready, 9.0).unwrap();
    assert_eq!(
        (change.from, change.to, change.key),
        (Value::Drain, Value::Ready, None)
    );

    let rows = coverage.rows();
    let (name, row) = rows.first().unwrap();
    assert_eq!((rows.len(), name.as_str()), (1, "web/s1"));
    assert_eq!(&*row.request, b"web/s1 zone");
    assert_eq!(
        (row.first, row.last),
        (WALL.plus(seconds(1.0)), WALL.plus(seconds(9.0)))
    );
    assert_eq!((row.count, row.value, row.decided), (5, Value::Ready, None));
    assert_eq!(row.changed_at, start + seconds(9.0));
    assert_eq!(row.interval(), Some(seconds(2.0)));
}

#[test]
fn an_interval_is_neither_an_outage_nor_a_burst() {
    let table: [(&[f64], Option<f64>); 7] = [
        (&[1.0], None),
        (&[1.0, 3.0], Some(2.0)),
        (&[1.0, 3.0, 5.5], Some(2.0)),
        (&[0.0, 2.0, 4.0, 600.0], Some(2.0)),
        (&[0.0, 2.0, 4.0, 600.0, 602.0], Some(2.0)),
        (&[0.0, 2.0, 4.0, 4.0, 6.0], Some(2.0)),
        // A reload that asks twenty times as often counts after two checks.
        (&[0.0, 2.0, 4.0, 4.125, 4.25], Some(0.125)),
    ];
    for (times, want) in table {
        let start = Instant::now();
        let coverage = Coverage::new(start);
        for time in times {
            let now = start + seconds(*time);
            coverage.heard(&keys("r"), told(Value::Ready, None), now, WALL);
        }
        let interval = coverage.rows()[0].1.interval();
        assert_eq!(interval, want.map(seconds), "{times:?}");
    }
}

#[test]
fn too_many_rows_push_out_the_oldest() {
    let start = Instant::now();
    let coverage = Coverage::new(start);
    let total = MAX_ROWS * 3;
    for at in 0..total {
        let now = start + Duration::from_millis(u64::try_from(at).unwrap());
        let name = format!("web/s{at}");
        coverage.heard(&keys(&name), told(Value::Ready, None), now, WALL);
        // One row asks all the time and is never the oldest.
        if at % 100 == 0 {
            coverage.heard(&keys("busy"), told(Value::Ready, None), now, WALL);
        }
    }
    let rows = coverage.rows();
    assert!(rows.len() <= MAX_ROWS, "{}", rows.len());
    assert!(rows.len() > MAX_ROWS - SHARDS * ROWS_OUT, "{}", rows.len());
    let evicted = usize::try_from(coverage.evicted()).unwrap();
    assert_eq!(evicted + rows.len(), total + 1);
    assert!(rows.iter().any(|(name, _)| name == "busy"));
    assert!(
        rows.iter()
            .any(|(name, _)| *name == format!("web/s{}", total - 1))
    );
    assert!(!rows.iter().any(|(name, _)| name == "web/s0"));
}

fn copy(names: &[&str]) -> Copy {
    let entry = |name: &&str| (Box::from(*name), Entry::new(Ok(Value::Drain), None));
    Copy::new(names.iter().map(entry).collect(), 1, WALL)
}

#[test]
fn keys_that_nobody_asks_for() {
    let start = Instant::now();
    let coverage = Coverage::new(start);
    let copy = copy(&[
        "canary",
        "canry",
        "web/s1",
        "web/gone",
        "two words",
        "web/s9",
    ]);
    let at = |time: f64| start + seconds(time);
    let unasked_at = |time: f64| unasked(&copy, &coverage.rows(), seconds(time), at(time));
    let ask = |request: &str, time: f64| {
        coverage.heard(&keys(request), told(Value::Ready, None), at(time), WALL);
    };
    let all = ["canary", "canry", "web/gone", "web/s1", "web/s9"];
    assert_eq!(unasked_at(59.0), [""; 0], "nobody had the time to ask");
    assert_eq!(unasked_at(61.0), all, "nobody asks at all");
    for time in [0.0, 2.0, 4.0] {
        ask("web/s1 canary", time);
        ask("web/gone canary", time);
    }
    assert_eq!(
        unasked_at(5.0),
        [""; 0],
        "not before every row had its turn"
    );
    assert_eq!(unasked_at(11.0), ["canry", "web/s9"]);
    for time in [20.0, 22.0, 24.0] {
        ask("web/s1 canary", time);
    }
    assert_eq!(
        unasked_at(23.9),
        ["canry", "web/s9"],
        "a row gone for 10 intervals"
    );
    assert_eq!(unasked_at(24.1), ["canry", "web/gone", "web/s9"]);
    assert_eq!(unaddressable(&copy), ["two words"]);
}
