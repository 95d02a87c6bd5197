//! Every crash point and every error number of an apply, enumerated.
//!
//! The real agent runs each shape over the model file system and a model HAProxy. The
//! world stops after every call that changes something, the reload command included;
//! the process dies or power is lost; a new agent recovers on what is left, and is
//! itself stopped after each of its own calls. Whatever happened, the tree must be wholly
//! one set, the state must say which, no reload may have been asked for with a mix,
//! nothing of the agent's own may be left over, and the next apply must work.

mod clock;
mod faults;
mod haproxy;
mod pending;
mod remembered;
mod rules;
mod sets;
mod shapes;
mod stops;
mod worker;
mod world;

use crate::store::model::LoseUnsynced;

/// What a crash takes; the first is a killed agent, the others are lost power.
const LOSSES: [LoseUnsynced; 8] = [
    LoseUnsynced::Nothing,
    LoseUnsynced::All,
    LoseUnsynced::Random(1),
    LoseUnsynced::Random(2),
    LoseUnsynced::Random(3),
    LoseUnsynced::Random(4),
    LoseUnsynced::Random(5),
    LoseUnsynced::Random(6),
];

const ERRNOS: [i32; 6] = [
    libc::ENOSPC,
    libc::EIO,
    libc::EDQUOT,
    libc::EROFS,
    libc::EACCES,
    libc::EMFILE,
];

/// Whether there is time for every error number on every call and for every pair of cuts;
/// without it each comes for some call.
fn long_run() -> bool {
    std::env::var("HAPTIC_SOAK").is_ok_and(|value| value == "1")
}

/// What a run over many points came to.
#[derive(Debug, Default)]
struct Tally {
    points: u64,
    failed: Vec<String>,
}

impl Tally {
    /// Runs one point; its panic is kept, so that one run shows all of them.
    fn point(&mut self, run: impl FnOnce()) {
        self.points += 1;
        let run = std::panic::AssertUnwindSafe(run);
        if let Err(panic) = std::panic::catch_unwind(run) {
            let text = panic.downcast_ref::<String>().cloned();
            self.failed.push(text.unwrap_or_default());
        }
    }
}

/// Runs `each` over `items` on two threads; the sum of their points. Fails if a point did.
fn spread<T: Send>(items: Vec<T>, each: impl Fn(T) -> Tally + Sync) -> u64 {
    let queue = std::sync::Mutex::new(items);
    let work = || {
        let mut sum = Tally::default();
        loop {
            let next = queue.lock().unwrap().pop();
            match next {
                Some(item) => {
                    let tally = each(item);
                    sum.points += tally.points;
                    sum.failed.extend(tally.failed);
                }
                None => return sum,
            }
        }
    };
    let (here, there) = std::thread::scope(|scope| {
        let other = scope.spawn(work);
        (work(), other.join().unwrap())
    });
    let failed: Vec<String> = here.failed.into_iter().chain(there.failed).collect();
    assert!(
        failed.is_empty(),
        "{} points failed, for example:\n{}",
        failed.len(),
        failed
            .iter()
            .step_by(failed.len() / 40 + 1)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    );
    here.points + there.points
}
