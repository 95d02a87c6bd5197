//! After the apply: a result, a reload that waits, or an answer that was lost.

use std::time::{Duration, Instant};

use crate::client::client::StateRead;
use crate::client::decide::Decision;
use crate::client::error::Error;
use crate::http::client::{Error as HttpError, after};
use crate::wire::manifest::Manifest;
use crate::wire::result::{ApplyResult, ResultMode, UNREACHABLE};
use crate::wire::state::State;

use super::attempt::Reaction;
use super::{Outcome, Push, PushError, Pushed, Step, is_silent};

/// Between two looks at an agent that waits or is away: the first, and the longest.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// What one look gets at least: the last one is taken when the time is over.
const ONE_LOOK: Duration = Duration::from_secs(1);

/// Who applied the set that is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Whose {
    /// This push.
    Ours,
    /// Somebody else, at the same time.
    Theirs,
}

impl Push<'_> {
    /// The agent answered with a result.
    pub(super) fn answered(
        &mut self,
        round: u32,
        manifest: &Manifest,
        decision: Decision,
        result: ApplyResult,
    ) -> Result<Reaction, PushError> {
        if !result.ok {
            return Err(PushError::Nack(Box::new(result)));
        }
        if let Some(failure) = result.error.clone() {
            return Ok(self.done(round, Outcome::InPart(failure), decision, Some(result)));
        }
        let due = result.reload.as_ref().and_then(|r| r.scheduled_at.clone());
        let waits = result.mode == ResultMode::Scheduled || due.is_some();
        if waits || result.worker_ops_plan_id != manifest.plan_id {
            // Files alone may land while an earlier reload still waits.
            return self.settle(round, Whose::Ours, decision, Some(result));
        }
        if self.options.look && matches!(result.mode, ResultMode::FileOnly | ResultMode::Noop) {
            // Nothing was asked of HAProxy, so nothing says that it is there.
            let state = self.client.state(StateRead::default())?;
            if is_silent(&state) {
                return Err(not_running(&state));
            }
        }
        Ok(self.done(round, Outcome::Applied, decision, Some(result)))
    }

    /// The set is applied: waits until nothing is pending any more, and the worker must
    /// run it then. A HAProxy that is away is waited for no longer than
    /// [`silence`](super::PushOptions::silence).
    pub(super) fn settle(
        &mut self,
        round: u32,
        whose: Whose,
        decision: Decision,
        result: Option<ApplyResult>,
    ) -> Result<Reaction, PushError> {
        let until = after(self.options.wait);
        // An agent that does not answer must not hold the push for longer than it was to wait.
        let bounded = || match self.options.wait.is_zero() {
            true => self.client.clone(),
            false => self.client.ends_by(until.max(after(ONE_LOOK))),
        };
        // What was seen last of a reload that waits.
        let mut pending: Option<(String, Option<String>)> = None;
        let mut away: Option<(String, Instant)> = None;
        let mut pause = FIRST_LOOK;
        loop {
            let state = match bounded().state(StateRead::default()) {
                Ok(state) => state,
                Err(error) if error.is_away() && Instant::now() < until => {
                    self.pause(&mut pause)?;
                    continue;
                }
                Err(error) => {
                    return Err(match pending.filter(|_| error.is_away()) {
                        Some((due, reason)) => PushError::StillPending { due, reason },
                        None => error.into(),
                    });
                }
            };
            let Some(due) = state.reload_pending_at.clone() else {
                self.must_run(&state)?;
                let (outcome, result) = match whose {
                    Whose::Ours => (Outcome::Applied, self.latest(&state).or(result)),
                    Whose::Theirs => (Outcome::AppliedByOther { by: self.by() }, None),
                };
                return Ok(self.done(round, outcome, decision, result));
            };
            if state.applied_plan_id != self.set.plan_id() {
                return Err(PushError::overtaken(&state));
            }
            let reason = unasked(&state);
            if self.options.wait.is_zero() {
                let outcome = Outcome::Pending { due, reason };
                return Ok(self.done(round, outcome, decision, result));
            }
            if pending.is_none() {
                (self.watch)(&Step::Waiting { due: &due });
            }
            pending = Some((due.clone(), reason.clone()));
            let now = Instant::now();
            away = reason.clone().map(|reason| {
                let since = away.as_ref().map_or(now, |(_, since)| *since);
                if away.as_ref().is_none_or(|(before, _)| *before != reason) {
                    (self.watch)(&Step::Stuck { reason: &reason });
                }
                (reason, since)
            });
            let given_up = away.as_ref().is_some_and(|(_, since)| {
                now.saturating_duration_since(*since) >= self.options.silence
            });
            if given_up || now >= until {
                return Err(PushError::StillPending { due, reason });
            }
            self.pause(&mut pause)?;
        }
    }

    /// Nothing is pending: the worker runs the set, whoever pushed it, or somebody can say
    /// why not.
    fn must_run(&self, state: &State) -> Result<(), PushError> {
        let plan = self.set.plan_id();
        if let Some(last) = self.latest(state).filter(|last| !last.ok) {
            return Err(PushError::Nack(Box::new(last)));
        }
        let applied = state.applied_plan_id == plan;
        if !applied && !state.applied_plan_id.is_empty() {
            return Err(PushError::overtaken(state));
        }
        if !applied || state.worker_ops_plan_id != plan {
            return Err(not_running(state));
        }
        Ok(())
    }

    /// The answer was lost. The token says whether the apply was carried out.
    pub(super) fn lost(
        &mut self,
        round: u32,
        before: &State,
        manifest: &Manifest,
        decision: Decision,
        error: Error,
    ) -> Result<Reaction, PushError> {
        (self.watch)(&Step::Lost(&error));
        let until = after(self.options.recover);
        let mut pause = FIRST_LOOK;
        let state = loop {
            match self.client.state(StateRead::default()) {
                Ok(state) => break state,
                Err(again) if again.is_away() && Instant::now() < until => {
                    self.pause(&mut pause)?;
                }
                // The first failure is the one that says what was being done.
                Err(again) if again.is_away() => return Err(error.into()),
                Err(again) => return Err(again.into()),
            }
        };
        if state.applied_token == manifest.token && state.applied_plan_id == manifest.plan_id {
            return self.settle(round, Whose::Ours, decision, None);
        }
        if state.last_apply != before.last_apply {
            if let Some(nack) = self.latest(&state).filter(|last| !last.ok) {
                return Err(PushError::Nack(Box::new(nack)));
            }
        }
        // Not carried out, or undone when the agent came back. A round more decides on
        // what is there now, and notices if that is somebody else's.
        Ok(Reaction::Again(
            "the answer was lost and the set is not applied",
        ))
    }

    fn pause(&self, pause: &mut Duration) -> Result<(), PushError> {
        let time = *pause;
        *pause = (time * 2).min(LONGEST_LOOK);
        if self.client.cancel_handle().pause(time) {
            Ok(())
        } else {
            Err(PushError::Client(HttpError::Cancelled.into()))
        }
    }

    /// The state's last result, if it is about this set.
    fn latest(&self, state: &State) -> Option<ApplyResult> {
        let last = state.last_apply.clone();
        last.filter(|last| last.plan_id == self.set.plan_id())
    }

    fn done(
        &self,
        round: u32,
        outcome: Outcome,
        decision: Decision,
        result: Option<ApplyResult>,
    ) -> Reaction {
        Reaction::Done(Box::new(Pushed {
            outcome,
            decision,
            result,
            rounds: round,
            sent: self.sent,
        }))
    }
}

/// Why the reload that waits cannot be asked for: the agent has tried, or HAProxy was
/// silent when it last looked.
fn unasked(state: &State) -> Option<String> {
    let degraded = state.degraded.as_ref();
    let tried = degraded.filter(|degraded| degraded.reason.starts_with(UNREACHABLE));
    tried
        .map(|degraded| degraded.reason.clone())
        .or_else(|| silence(state))
}

/// What HAProxy's silence is, if it does not answer.
fn silence(state: &State) -> Option<String> {
    let worker = state.worker.as_ref().filter(|worker| !worker.answers)?;
    let reason = worker.reason.as_deref().unwrap_or("its socket is silent");
    Some(format!("HAProxy does not answer: {reason}"))
}

fn not_running(state: &State) -> PushError {
    let silent = silence(state);
    PushError::NotRunning {
        running_plan_id: match silent {
            Some(_) => String::new(),
            None => state.running_plan_id.clone(),
        },
        silent: silent.is_some(),
        reason: silent.or_else(|| state.degraded.as_ref().map(|d| d.reason.clone())),
    }
}
