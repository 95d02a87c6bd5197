//! How often Consul is asked.

use crate::kv::kit::{self, Watched, full};
use haptic_agent::responder::kv::{ConsulPace, ErrorKind, ReadResult, Source};
use haptic_agent::testkit::FakeConsul;
use haptic_agent::testkit::fake_consul::{Fault, Rights, Seen};
use std::time::{Duration, Instant};

fn lists(consul: &FakeConsul) -> Vec<Seen> {
    let mut seen = consul.seen();
    seen.retain(Seen::is_list);
    seen
}

/// 919 rows written one by one within a second: a few reads, and the last state.
#[test]
fn a_flood_of_writes_is_read_twenty_times_a_second() {
    let consul = FakeConsul::start().unwrap();
    let watched = Watched::consul(consul.address()).synced();
    let before = lists(&consul).len();
    let begin = Instant::now();
    for row in 0..919 {
        consul.put(&full(&format!("web/s{row}")), "drain");
        while begin.elapsed() < Duration::from_micros(1088 * row) {
            std::thread::yield_now();
        }
    }
    watched.until("all rows", |now| now.keys == 919);
    let seconds = begin.elapsed().as_secs_f64();
    let reads = lists(&consul).len() - before;
    eprintln!("919 writes and the copy in {seconds:.2} s, {reads} reads");
    assert!(
        reads as f64 <= 20.0 * seconds + 2.0,
        "{reads} reads in {seconds} s"
    );
    // As they arrive: one that a busy machine held up is close to the next.
    let seen = lists(&consul);
    let gaps: Vec<Duration> = seen
        .windows(2)
        .map(|pair| pair[1].at - pair[0].at)
        .collect();
    let short = gaps.iter().filter(|gap| **gap < Duration::from_millis(45));
    assert!(short.count() <= gaps.len() / 5, "{gaps:?}");
}

/// An empty prefix wakes at every write to the whole store.
#[test]
fn a_busy_store_without_overrides_is_asked_less_and_less() {
    let consul = FakeConsul::start().unwrap();
    let watched = Watched::consul(consul.address()).synced();
    let idle = kit::quick().idle_gap;
    watched.until("asked less", |_| {
        consul.put("unrelated", &format!("{:?}", Instant::now()));
        let seen = lists(&consul);
        let last = seen.len() - 1;
        last > 25 && seen[last].at - seen[last - 1].at >= idle - Duration::from_millis(20)
    });
    let before = watched.snapshot().reads(ReadResult::Changed);
    let begin = Instant::now();
    consul.put(&full("web/s1"), "drain");
    watched.until("the override", |now| {
        now.reads(ReadResult::Changed) > before
    });
    assert!(begin.elapsed() < Duration::from_secs(2));
    // With an override below the prefix, unrelated writes wake nobody.
    let seen = lists(&consul).len();
    for n in 0..50 {
        consul.put("unrelated", &n.to_string());
    }
    watched.until_more(ReadResult::Same, 2);
    assert!(lists(&consul).len() <= seen + 4);
}

#[test]
fn after_failures_the_pauses_grow() {
    let consul = FakeConsul::start().unwrap();
    let mut config = kit::consul(consul.address());
    config.pace.retry_min = Duration::from_millis(40);
    config.pace.retry_max = Duration::from_millis(640);
    let watched = Watched::start(Source::Consul(config)).synced();
    let before = lists(&consul).len();
    consul.set_rights(Rights::Unknown);
    watched.until("eight failures", |now| now.errors(ErrorKind::Acl) >= 8);
    let seen = lists(&consul).split_off(before);
    let gaps: Vec<_> = seen
        .windows(2)
        .map(|pair| pair[1].at - pair[0].at)
        .collect();
    for (turn, gap) in gaps.iter().take(7).enumerate() {
        let pause = Duration::from_millis(40 << turn.min(4));
        assert!(*gap >= pause * 3 / 4, "{turn}: {gaps:?}");
    }
}

/// What only another configuration can mend is not asked for five times a second.
#[test]
fn a_wrong_configuration_is_asked_slowly() {
    let consul = FakeConsul::start().unwrap();
    let mut config = kit::consul(consul.address());
    config.pace.retry_min = Duration::from_millis(10);
    config.pace.retry_max = Duration::from_millis(700);
    for status in [301, 400, 404] {
        consul.spoil(Fault::Status(status, String::new()));
    }
    let watched = Watched::start(Source::Consul(config)).synced();
    assert_eq!(watched.snapshot().errors(ErrorKind::Http), 3);
    let seen = lists(&consul);
    for pair in seen.windows(2).take(3) {
        assert!(pair[1].at - pair[0].at >= Duration::from_millis(690));
    }
}

#[test]
fn the_real_pace_is_that_of_the_rules() {
    let pace = ConsulPace::default();
    let ms = Duration::from_millis;
    assert_eq!(pace.connect, ms(2_000));
    assert_eq!(pace.plain, ms(10_000));
    assert_eq!(pace.wait, ms(55_000));
    assert_eq!(pace.slack, ms(5_000));
    assert_eq!(pace.gap, ms(50));
    assert_eq!((pace.retry_min, pace.retry_max), (ms(200), ms(5_000)));
    assert_eq!(pace.hold, ms(5_000));
}
