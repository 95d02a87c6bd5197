//! What watching costs: printed, with bounds that only a mistake would break. Run with
//! `make soak`, alone and optimised.

use super::kit::Watched;
use haptic_agent::clock::UnixNanos;
use haptic_agent::responder::copy::{Copy, CopyCell, Entry};
use haptic_agent::responder::kv::dir::store::Store;
use haptic_agent::responder::kv::{DirConfig, ReadResult, Source};
use haptic_agent::responder::value::Value;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// CPU time of this thread's process so far, in clock ticks of 10 ms.
fn process_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Resident memory in bytes.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
#[ignore = "a figure: takes half a minute and the machine for itself"]
fn a_directory_is_cheap_to_watch() {
    // The most that a store may have, together with the one that changes.
    for (files, most_ms) in [(0, 5), (1000, 40), (16_383, 500)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kv");
        Store::make(&path).unwrap();
        for n in 0..files {
            fs::write(path.join(format!("be_web%2Fsrv{n}")), "drain\n").unwrap();
        }
        let watched = Watched::start(Source::Dir(DirConfig::new(path.clone()))).synced();
        let (begin, ticks) = (Instant::now(), process_ticks());
        watched.until_more(ReadResult::Same, 20);
        let took = begin.elapsed();
        let cpu = Duration::from_millis((process_ticks() - ticks) * 10) / 20;
        // From start to start: 200 ms, or twice the look where that is longer.
        let period = took / 20;
        let share = 100.0 * cpu.as_secs_f64() / (took.as_secs_f64() / 20.0);
        eprintln!("{files} files: a look every {period:?}, CPU {cpu:?} each, {share:.1} % of one");
        // Other processes make a look longer, and not its CPU.
        assert!(cpu < Duration::from_millis(most_ms), "{cpu:?}");
        // From the rename to the copy.
        let mut waits: Vec<Duration> = (0..8_u16)
            .map(|turn| {
                let kv = Store::open(&path).unwrap();
                kv.put("change", format!("{turn}%\n").as_bytes()).unwrap();
                let begin = Instant::now();
                watched.until_value("change", Some(Value::Weight(turn)));
                begin.elapsed()
            })
            .collect();
        waits.sort();
        eprintln!(
            "  rename -> copy: median {:?}, most {:?}",
            waits[4], waits[7]
        );
    }
}

fn copy_of(keys: u32, value: Value) -> Copy {
    let entries = (0..keys)
        .map(|n| {
            let key = format!("be_service_{}/server-{n:06}", n % 97);
            (key.into_boxed_str(), Entry::new(Ok(value), None))
        })
        .collect();
    Copy::new(entries, 1, UnixNanos(0))
}

#[test]
#[ignore = "a figure: takes the machine for itself"]
fn a_hundred_thousand_keys_are_swapped_at_once() {
    const KEYS: u32 = 100_000;
    let before = resident();
    let begin = Instant::now();
    let first = Arc::new(copy_of(KEYS, Value::Drain));
    let built = begin.elapsed();
    eprintln!(
        "{KEYS} keys: built in {built:?}, {} bytes a key resident",
        (resident() - before) / u64::from(KEYS)
    );
    let second = Arc::new(copy_of(KEYS, Value::Maint));
    let begin = Instant::now();
    assert!(!first.says_the_same(&second));
    assert!(first.missing_from(&second).is_empty());
    eprintln!(
        "  compared and looked through for missing keys in {:?}",
        begin.elapsed()
    );
    let cell = CopyCell::new();
    cell.swap(first.clone());
    let (loads, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut swaps = Vec::new();
    let slowest = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut slowest = Duration::ZERO;
            while !stop.load(Ordering::Relaxed) {
                let begin = Instant::now();
                let copy = cell.load().unwrap();
                let value = copy.get("be_service_0/server-000000").unwrap().stored();
                assert!(value.is_ok());
                slowest = slowest.max(begin.elapsed());
                loads.fetch_add(1, Ordering::Relaxed);
            }
            slowest
        });
        for turn in 0..2000 {
            let next = if turn % 2 == 0 { &second } else { &first };
            let begin = Instant::now();
            let old = cell.swap(next.clone());
            swaps.push(begin.elapsed());
            drop(old);
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    swaps.sort();
    eprintln!(
        "  swap: median {:?}, p99 {:?}, most {:?}; {} loads meanwhile, slowest {slowest:?}",
        swaps[1000],
        swaps[1980],
        swaps[1999],
        loads.load(Ordering::Relaxed)
    );
    assert!(swaps[1000] < Duration::from_millis(1));
}
