//! A clock that the test moves, and that ends the agent of a stopped world.

use std::sync::{Mutex, Weak};
use std::time::{Duration, Instant};

use crate::apply::agent::Agent;
use crate::clock::{Clock, UnixNanos};
use crate::store::model::ModelFs;

/// What one look at the clock takes while it runs by itself: longer than any wait of a
/// start, so that none of them waits for real.
const A_LOOK: Duration = Duration::from_millis(1_500);

#[derive(Debug)]
struct Inner {
    passed: Duration,
    /// What somebody has set the wall clock forward by, in nanoseconds.
    set_by: i128,
    runs: bool,
    agent: Weak<Agent>,
    fs: Option<ModelFs>,
}

/// The clock.
#[derive(Debug)]
pub(super) struct ModelClock {
    began: Instant,
    inner: Mutex<Inner>,
}

impl ModelClock {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            inner: Mutex::new(Inner {
                passed: Duration::from_secs(1_000),
                set_by: 0,
                runs: false,
                agent: Weak::new(),
                fs: None,
            }),
        }
    }

    /// The same time of day for the next process.
    pub(super) fn next_life(&self) -> Self {
        let clock = Self::new();
        {
            let (mut next, last) = (clock.inner.lock().unwrap(), self.inner.lock().unwrap());
            (next.passed, next.set_by) = (last.passed, last.set_by);
        }
        clock
    }

    /// Lets an agent that waits in a start end once its world has stopped: it is dead.
    pub(super) fn watch(&self, agent: Weak<Agent>, fs: &ModelFs) {
        let mut inner = self.inner.lock().unwrap();
        inner.agent = agent;
        inner.fs = Some(fs.clone());
    }

    pub(super) fn advance(&self, by: Duration) {
        self.inner.lock().unwrap().passed += by;
    }

    /// Sets the wall clock forward, or back, by so many nanoseconds.
    pub(super) fn jump(&self, by: i128) {
        self.inner.lock().unwrap().set_by += by;
    }

    /// Whether each look moves it on.
    pub(super) fn run(&self, runs: bool) {
        self.inner.lock().unwrap().runs = runs;
    }

    fn passed(&self) -> Duration {
        self.inner.lock().unwrap().passed
    }
}

impl Clock for ModelClock {
    fn now(&self) -> Instant {
        let mut inner = self.inner.lock().unwrap();
        if inner.runs {
            inner.passed += A_LOOK;
        }
        let now = self.began + inner.passed;
        let dead = inner.fs.as_ref().is_some_and(ModelFs::has_stopped);
        let agent = inner.agent.clone();
        drop(inner);
        if let (true, Some(agent)) = (dead, agent.upgrade()) {
            // Whoever holds the lock while it asks for the time asks again without it.
            if let Ok(mut alarm) = agent.alarm.state.try_lock() {
                alarm.stop = true;
            }
        }
        now
    }

    fn wall(&self) -> UnixNanos {
        let set_by = self.inner.lock().unwrap().set_by;
        UnixNanos(1_800_000_000_000_000_000 + set_by).plus(self.passed())
    }
}
