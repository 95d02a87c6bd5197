//! What happens meanwhile, on standard error.
//!
//! On a terminal one line, drawn again at most every [`REDRAW`]; elsewhere a line for
//! each thing that a log should have: another round, a wait, a lost answer.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{when, words};
use crate::client::Step;

/// Between two drawings of the line.
const REDRAW: Duration = Duration::from_millis(100);

/// Columns of the line: what the narrowest terminal has, less one.
const COLUMNS: usize = 79;

/// See the module.
pub(super) struct Progress {
    labels: Vec<String>,
    terminal: bool,
    inner: Mutex<Inner>,
}

struct Inner {
    phases: Vec<Phase>,
    drawn: Option<Instant>,
}

/// Where an agent's push is.
#[derive(Debug, Clone)]
enum Phase {
    Queued,
    Reading,
    Sending { sent: u64, total: u64 },
    Applying,
    Waiting(String),
    Done { good: bool },
}

impl Progress {
    pub(super) fn new(labels: Vec<String>) -> Self {
        let phases = vec![Phase::Queued; labels.len()];
        Self {
            labels,
            terminal: std::io::stderr().is_terminal(),
            inner: Mutex::new(Inner {
                phases,
                drawn: None,
            }),
        }
    }

    /// An agent's push made a step.
    pub(super) fn step(&self, place: usize, step: &Step<'_>) {
        let (phase, said) = match step {
            Step::Reading { .. } => (Phase::Reading, None),
            Step::Silent { reason, since } => (
                Phase::Reading,
                Some(format!(
                    "HAProxy's worker has not answered its agent since {}: {reason}; pushing all the same, but if HAProxy is not running nothing runs the set before it is started",
                    when::moment(since)
                )),
            ),
            Step::Doubtful { text, next } => {
                (Phase::Reading, Some(format!("warning: {text}\n  {next}")))
            }
            Step::Found(_) | Step::Decided(_) => return,
            Step::Sending { sent, total } => (
                Phase::Sending {
                    sent: *sent,
                    total: *total,
                },
                None,
            ),
            Step::Applying => (Phase::Applying, None),
            Step::Again(why) => (Phase::Reading, Some(format!("{why}; trying again"))),
            Step::Lost(error) => (
                Phase::Reading,
                Some(format!("{error}; looking what became of the push")),
            ),
            Step::Waiting { due } => {
                let until = when::moment(due);
                (
                    Phase::Waiting(until.clone()),
                    Some(format!("written; waiting for its reload at {until}")),
                )
            }
            Step::Stuck { reason } => (
                Phase::Waiting("its next try".to_owned()),
                Some(format!("its reload waits: {reason}; the agent tries again")),
            ),
        };
        self.set(place, phase, said);
    }

    /// An agent's push ended.
    pub(super) fn done(&self, place: usize, good: bool) {
        self.set(place, Phase::Done { good }, None);
    }

    /// All ended: the line goes away.
    pub(super) fn end(&self) {
        let inner = self.lock();
        if inner.drawn.is_some() {
            put("\r\x1b[K");
        }
    }

    fn set(&self, place: usize, phase: Phase, said: Option<String>) {
        let mut inner = self.lock();
        if let Some(of) = inner.phases.get_mut(place) {
            *of = phase;
        }
        if let Some(said) = said {
            let label = self.labels.get(place).map_or("", String::as_str);
            let clear = match inner.drawn.take() {
                Some(_) => "\r\x1b[K",
                None => "",
            };
            put(&format!("{clear}{label}  {}\n", words::clean(&said)));
        }
        let due = inner.drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW);
        if self.terminal && due {
            inner.drawn = Some(Instant::now());
            let line: String = line(&inner.phases, &self.labels)
                .chars()
                .take(COLUMNS)
                .collect();
            put(&format!("\r\x1b[K{line}"));
        }
    }

    /// The list is whole after every step.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody is left to be told if standard error is gone.
#[allow(clippy::print_stderr)]
fn put(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes());
    let _ = err.flush();
}

/// One agent's phase, or the sum of several.
fn line(phases: &[Phase], labels: &[String]) -> String {
    if let ([phase], [label]) = (phases, labels) {
        let what = match phase {
            Phase::Queued => "about to begin".to_owned(),
            Phase::Reading => "reading its state".to_owned(),
            Phase::Sending { sent, total } => {
                format!(
                    "sending {} of {}",
                    words::bytes(*sent),
                    words::bytes(*total)
                )
            }
            Phase::Applying => "applying".to_owned(),
            Phase::Waiting(until) => format!("waiting for its reload at {until}"),
            Phase::Done { .. } => "done".to_owned(),
        };
        return format!("{label}  {what}");
    }
    let mut counts = [0_usize; 5];
    let (mut sent, mut total) = (0_u64, 0_u64);
    for phase in phases {
        let slot = match phase {
            Phase::Done { good: true } => 0,
            Phase::Done { good: false } => 1,
            Phase::Sending { sent: s, total: t } => {
                sent = sent.saturating_add(*s);
                total = total.saturating_add(*t);
                2
            }
            Phase::Reading | Phase::Applying => 3,
            Phase::Waiting(_) => 4,
            Phase::Queued => continue,
        };
        if let Some(count) = counts.get_mut(slot) {
            *count += 1;
        }
    }
    let [good, bad, sending, working, waiting] = counts;
    let mut text = format!("{} of {} done", good + bad, phases.len());
    for (count, what) in [
        (bad, "failed".to_owned()),
        (
            sending,
            format!("sending {} of {}", words::bytes(sent), words::bytes(total)),
        ),
        (working, "working".to_owned()),
        (waiting, "waiting for a reload".to_owned()),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_agent_s_line_says_what_it_does_and_several_are_counted() {
        let labels = vec!["http://a:5555".to_owned()];
        let sending = Phase::Sending {
            sent: 1024,
            total: 4096,
        };
        assert_eq!(
            line(std::slice::from_ref(&sending), &labels),
            "http://a:5555  sending 1.0 KiB of 4.0 KiB"
        );
        let phases = [
            Phase::Done { good: true },
            Phase::Done { good: false },
            sending.clone(),
            sending,
            Phase::Applying,
            Phase::Queued,
        ];
        assert_eq!(
            line(&phases, &[]),
            "2 of 6 done, 1 failed, 2 sending 2.0 KiB of 8.0 KiB, 1 working"
        );
    }
}
