//! When HAProxy is looked at: every so often, and sooner for somebody who waits for a look.
//!
//! One thread looks. Those who wait share the next look that has not begun yet, because one
//! that has may have seen what was before. However many wait, looks take no more than a
//! tenth of the time, or one a second where they take long, so that a fleet of impatient
//! clients costs HAProxy little.
//!
//! One lock, held for a few assignments; nobody looks under it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{Clock as _, SystemClock};

/// The least time from the end of a look to the beginning of one that somebody waits for.
const LEAST_GAP: Duration = Duration::from_millis(100);

/// And at least so many times as long as the look took,
const GAP_FACTOR: u32 = 9;

/// but never longer than this: who waits for a look has to get one in time.
const MOST_GAP: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Looks that have begun.
    begun: u64,
    /// The last one that has ended.
    ended: u64,
    /// Whether somebody waits for one that has not begun.
    wanted: bool,
    stopped: bool,
}

impl Turns {
    /// Looks again and again until the stop.
    pub(super) fn run(&self, every: Duration, look: impl Fn()) {
        loop {
            let number = self.begin();
            let start = SystemClock.now();
            look();
            let took = SystemClock.now().saturating_duration_since(start);
            self.end(number);
            let gap = LEAST_GAP.max(took * GAP_FACTOR).min(MOST_GAP).min(every);
            if self.pause(gap, every) {
                return;
            }
        }
    }

    fn begin(&self) -> u64 {
        let mut state = self.lock();
        state.wanted = false;
        state.begun += 1;
        state.begun
    }

    fn end(&self, number: u64) {
        self.lock().ended = number;
        self.changed.notify_all();
    }

    /// Waits for `gap` whatever comes, and then until `every` is over or somebody wants a
    /// look; true when the stop came.
    fn pause(&self, gap: Duration, every: Duration) -> bool {
        let state = self.wait(self.lock(), gap, |_| false);
        let rest = every.saturating_sub(gap);
        self.wait(state, rest, |state| state.wanted).stopped
    }

    /// Waits for a look that has not begun yet; false if there was none in time.
    pub(super) fn refresh(&self, time: Duration) -> bool {
        let mut state = self.lock();
        let number = state.begun + 1;
        state.wanted = true;
        self.changed.notify_all();
        let state = self.wait(state, time, |state| state.ended >= number);
        state.ended >= number
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Waits for the stop, `enough`, or the time.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        time: Duration,
        enough: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        let goes_on = |state: &mut State| !state.stopped && !enough(state);
        let waited = self.changed.wait_timeout_while(state, time, goes_on);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(3600);

    struct Looking {
        turns: Arc<Turns>,
        looks: Arc<AtomicU64>,
        thread: Option<thread::JoinHandle<()>>,
    }

    impl Looking {
        /// Looks once an hour; a look does this.
        fn start(look: impl Fn() + Send + 'static) -> Self {
            let (turns, looks) = (Arc::new(Turns::default()), Arc::new(AtomicU64::new(0)));
            let (theirs, count) = (Arc::clone(&turns), Arc::clone(&looks));
            let thread = thread::spawn(move || {
                theirs.run(LONG, || {
                    look();
                    count.fetch_add(1, Ordering::SeqCst);
                });
            });
            Self {
                turns,
                looks,
                thread: Some(thread),
            }
        }

        fn count(&self) -> u64 {
            self.looks.load(Ordering::SeqCst)
        }
    }

    impl Drop for Looking {
        fn drop(&mut self) {
            self.turns.stop();
            self.thread.take().unwrap().join().unwrap();
        }
    }

    #[test]
    fn who_waits_gets_a_look_that_began_later() {
        let looking = Looking::start(|| {});
        for _ in 0..3 {
            let before = looking.count();
            assert!(looking.turns.refresh(LONG));
            assert!(looking.count() > before);
        }
    }

    /// One that has begun may have seen what was before.
    #[test]
    fn a_look_under_way_is_not_enough() {
        let (begun, is_begun) = channel();
        let (go, may_go) = channel::<()>();
        let may_go = Mutex::new(may_go);
        let looking = Looking::start(move || {
            let _nobody_may_listen = begun.send(());
            let _gone = may_go.lock().unwrap().recv();
        });
        is_begun.recv().unwrap();
        let turns = Arc::clone(&looking.turns);
        let waiter = thread::spawn(move || turns.refresh(LONG));
        while !looking.turns.lock().wanted {
            thread::yield_now();
        }
        go.send(()).unwrap();
        is_begun.recv().unwrap();
        assert!(!waiter.is_finished());
        go.send(()).unwrap();
        waiter.join().unwrap();
        drop(go);
    }

    #[test]
    fn many_who_wait_share_a_look() {
        let looking = Looking::start(|| thread::sleep(Duration::from_millis(20)));
        looking.turns.refresh(LONG);
        let (before, start) = (looking.count(), Instant::now());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..3 {
                        looking.turns.refresh(LONG);
                    }
                });
            }
        });
        // Each has waited three times, and looks are a tenth of the time.
        let most = start.elapsed().as_millis() / 200 + 1;
        let looks = u128::from(looking.count() - before);
        assert!((3..=most).contains(&looks), "{looks} of {most}");
    }

    #[test]
    fn nobody_waits_for_ever() {
        let turns = Turns::default();
        // Nobody looks at all.
        assert!(!turns.refresh(Duration::from_millis(1)));
        turns.stop();
        assert!(!turns.refresh(LONG));
    }
}
