//! One entry's way to its end, as a pure function of answers and time.
//!
//! ```text
//! waiting ──busy──▶ draining ──grace over──▶ cutting ──5 attempts──▶ abandoned
//!    └──────────── gone: done; enabled again: superseded ──────────────┘
//! ```
//!
//! A probe is the delete itself. Probes of a draining entry count as nothing; an
//! attempt is counted when the grace is over and two seconds of probes did not help.

use super::probe::Probe;
use super::queue::{DeleteOutcome, Entry};
use std::time::{Duration, Instant};

/// Attempts before an entry is given up.
pub(crate) const MAX_ATTEMPTS: u32 = 5;
/// The first pause between two probes of a draining entry; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest one: a thousand busy entries must stay below 1 % of a core.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Between two probes of one attempt.
const CUT_PAUSE: Duration = Duration::from_millis(100);
/// How long one attempt probes, and the least time between two attempts.
const ATTEMPT: Duration = Duration::from_secs(2);

/// What an operator decides about deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How long sessions may end by themselves, where the op says nothing else.
    pub grace: Duration,
    /// Whether sessions are cut when the grace is over.
    pub cut: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(30),
            cut: true,
        }
    }
}

/// Where an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// To be probed at once.
    #[default]
    Waiting,
    /// Its sessions may end by themselves.
    Draining {
        grace_end: Instant,
        next: Instant,
        pause: Duration,
    },
    /// An attempt is on its way.
    Cutting { next: Instant, until: Instant },
    /// Refused for another reason than sessions; probed again.
    Retry { next: Instant },
}

/// What is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Probe,
    /// A new attempt: its sessions are cut before the probe.
    Attempt,
}

/// What an answer leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Stay,
    /// An attempt was refused; the entry stays.
    Deferred,
    End(DeleteOutcome),
}

impl Entry {
    /// What is due now.
    pub(crate) fn due(&self, now: Instant) -> Option<Turn> {
        match self.state {
            State::Waiting => Some(Turn::Probe),
            State::Draining { grace_end, .. } if now >= grace_end => Some(Turn::Attempt),
            State::Draining { next, .. } | State::Cutting { next, .. } | State::Retry { next } => {
                (now >= next).then_some(Turn::Probe)
            }
        }
    }

    /// When something is due; `None` is now.
    pub(crate) fn wake(&self) -> Option<Instant> {
        match self.state {
            State::Waiting => None,
            State::Draining {
                grace_end, next, ..
            } => Some(next.min(grace_end)),
            State::Cutting { next, .. } | State::Retry { next } => Some(next),
        }
    }

    /// The answer to what was due.
    pub(crate) fn answer(
        &mut self,
        turn: Turn,
        probe: Probe,
        policy: Policy,
        now: Instant,
    ) -> Step {
        match probe {
            Probe::Gone => Step::End(DeleteOutcome::Done),
            Probe::InUseAgain => Step::End(DeleteOutcome::Superseded),
            Probe::Never => Step::End(DeleteOutcome::Abandoned),
            // Its servers are not in the queue, or it would not have been probed.
            Probe::HasServers | Probe::Other => {
                self.state = State::Retry {
                    next: now + ATTEMPT,
                };
                self.count()
            }
            Probe::Busy => self.busy(turn, policy, now),
        }
    }

    fn busy(&mut self, turn: Turn, policy: Policy, now: Instant) -> Step {
        match (turn, self.state) {
            (Turn::Attempt, _) => {
                self.state = State::Cutting {
                    next: now + CUT_PAUSE,
                    until: now + ATTEMPT,
                };
                Step::Stay
            }
            (Turn::Probe, State::Cutting { until, .. }) if now < until => {
                self.state = State::Cutting {
                    next: now + CUT_PAUSE,
                    until,
                };
                Step::Stay
            }
            (Turn::Probe, State::Cutting { .. }) => {
                self.state = State::Draining {
                    grace_end: now,
                    next: now,
                    pause: FIRST_PAUSE,
                };
                self.count()
            }
            (
                Turn::Probe,
                State::Draining {
                    grace_end, pause, ..
                },
            ) => {
                let pause = (pause * 2).min(LONGEST_PAUSE);
                self.state = State::Draining {
                    grace_end,
                    next: now + pause,
                    pause,
                };
                Step::Stay
            }
            (Turn::Probe, State::Waiting | State::Retry { .. }) => {
                let grace = self.grace_ms.map_or(policy.grace, Duration::from_millis);
                self.state = State::Draining {
                    grace_end: now + grace,
                    next: now + FIRST_PAUSE,
                    pause: FIRST_PAUSE,
                };
                Step::Stay
            }
        }
    }

    fn count(&mut self) -> Step {
        self.attempts += 1;
        match self.attempts >= MAX_ATTEMPTS {
            true => Step::End(DeleteOutcome::Abandoned),
            false => Step::Deferred,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};

    fn entry(grace_ms: Option<u64>) -> Entry {
        Entry {
            grace_ms,
            attempts: 0,
            state: State::Waiting,
        }
    }

    const POLICY: Policy = Policy {
        grace: Duration::from_secs(1),
        cut: true,
    };

    /// Runs an entry whose probes say `probe`, hopping from wake to wake: each turn with
    /// the milliseconds since the start, and the end.
    fn life(mut entry: Entry, probe: Probe, most: usize) -> (Vec<(u128, Turn, Step)>, Entry) {
        let start = SystemClock.now();
        let mut now = start;
        let mut seen = Vec::new();
        for _ in 0..most {
            let turn = entry.due(now).unwrap();
            let step = entry.answer(turn, probe, POLICY, now);
            seen.push(((now - start).as_millis(), turn, step));
            if matches!(step, Step::End(_)) {
                break;
            }
            let wake = entry.wake().unwrap_or(now);
            if wake > now {
                let before = wake - Duration::from_millis(1);
                assert_eq!(entry.due(before.max(now)), None, "{entry:?}");
            }
            now = wake.max(now);
        }
        (seen, entry)
    }

    #[test]
    fn a_busy_entry_drains_then_is_cut_five_times() {
        let (seen, _) = life(entry(None), Probe::Busy, 10_000);
        let drained: Vec<u128> = seen
            .iter()
            .take_while(|(_, turn, _)| *turn == Turn::Probe)
            .map(|(at, ..)| *at)
            .collect();
        assert_eq!(drained, [0, 20, 60, 140, 300, 620]);
        let attempts: Vec<u128> = seen
            .iter()
            .filter(|(_, turn, _)| *turn == Turn::Attempt)
            .map(|(at, ..)| *at)
            .collect();
        assert_eq!(attempts, [1000, 3000, 5000, 7000, 9000]);
        let deferred = seen.iter().filter(|(.., step)| *step == Step::Deferred);
        assert_eq!(deferred.count(), 4);
        let last = seen.last().unwrap();
        assert_eq!(
            (last.0, last.2),
            (11_000, Step::End(DeleteOutcome::Abandoned))
        );
    }

    #[test]
    fn a_grace_of_its_own_counts_and_none_cuts_at_once() {
        let first_attempt = |grace| {
            let (seen, _) = life(entry(grace), Probe::Busy, 10_000);
            let attempt = seen.iter().find(|(_, turn, _)| *turn == Turn::Attempt);
            attempt.unwrap().0
        };
        assert_eq!(first_attempt(Some(0)), 0);
        assert_eq!(first_attempt(Some(300)), 300);
        assert_eq!(first_attempt(Some(30_000)), 30_000);
    }

    #[test]
    fn probes_of_a_thousand_busy_entries_stay_rare() {
        let (seen, _) = life(entry(Some(30_000)), Probe::Busy, 10_000);
        let probes = seen.iter().filter(|(at, ..)| *at < 30_000).count();
        assert!(probes < 25, "{probes}");
    }

    #[test]
    fn other_answers_end_it_or_are_counted() {
        let end = |probe| {
            let (seen, entry) = life(entry(None), probe, 100);
            (seen.len(), seen.last().unwrap().2, entry.attempts)
        };
        assert_eq!(end(Probe::Gone), (1, Step::End(DeleteOutcome::Done), 0));
        assert_eq!(
            end(Probe::InUseAgain),
            (1, Step::End(DeleteOutcome::Superseded), 0)
        );
        assert_eq!(
            end(Probe::Never),
            (1, Step::End(DeleteOutcome::Abandoned), 0)
        );
        for probe in [Probe::Other, Probe::HasServers] {
            assert_eq!(end(probe), (5, Step::End(DeleteOutcome::Abandoned), 5));
        }
    }

    #[test]
    fn attempts_survive_and_the_rest_begins_again() {
        let mut one = entry(Some(0));
        one.attempts = 3;
        let text = serde_json::to_string(&one).unwrap();
        let back: Entry = serde_json::from_str(&text).unwrap();
        let (seen, _) = life(back, Probe::Busy, 10_000);
        let attempts = seen.iter().filter(|(_, turn, _)| *turn == Turn::Attempt);
        assert_eq!(attempts.count(), 2);
    }
}
