//! The loop around a decision: read the state, decide, apply, react; at most
//! [`MAX_ROUNDS`] rounds.
//!
//! | answer | reaction |
//! |---|---|
//! | 409 `missing` | the same manifest once more with every part; a second one is an error |
//! | 409 `prev_mismatch`, the same plan | somebody else pushed the same set: waits for it like for our own |
//! | 409 `prev_mismatch` | an error that says who is on it; with [`PushOptions::overwrite`] another round |
//! | 409 `unknown_baseline` | another round with the full set and mode `reload` |
//! | 409 `worker_ops_mismatch` | another round |
//! | 409 `stale_epoch` | an error; with [`PushOptions::take_over`] another round above that epoch |
//! | 503 `startup`, `busy` | another round a second later |
//! | `ok: false` | an error with HAProxy's own words |
//! | `scheduled` | waits until the reload has run, then the worker must run the set |
//! | ok with `error` | [`Outcome::InPart`]: the next push is full and reloads |
//! | none, and nothing to send | [`Outcome::Unchanged`], once a look at disk and worker bears it out |
//! | none, the connection was lost | reads the state to learn whether the apply took effect |
//!
//! What somebody else applied after the first read is never overwritten unless asked:
//! every round builds on the token that the first one saw, and on no other.
//!
//! The epoch is a leader's own, or for somebody who leads nothing the agent's, see
//! [`Epoch`]. The sequence is above the agent's and ends in random bits, so that after a
//! lost answer the token says whose apply it is.
//!
//! No in-place ops are composed: where a reload waits, a set joins it, and what it changes
//! is served when the reload has run, which the push waits for.

mod attempt;
mod error;
mod refusal;
mod remarks;
mod revert;
mod settle;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

pub use error::PushError;
pub use refusal::Refusal;
pub use remarks::{about_the_set, warnings};
pub use revert::{Reverted, revert};

use super::client::{Client, StateRead};
use super::decide::{Decision, Reason, Verdict, decide, pushed_by};
use super::fileset::FileSet;
use crate::wire::limits::API_VERSION;
use crate::wire::manifest::Token;
use crate::wire::result::{ApplyResult, Failure, NOT_RUNNING, REMEMBERED, ResultMode};
use crate::wire::state::State;

use attempt::Reaction;

/// Rounds of one push.
pub const MAX_ROUNDS: u32 = 3;

/// With which epoch a set is pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epoch {
    /// A leader's own. An agent to which a higher one has spoken is not pushed to:
    /// [`PushError::Stale`], and the leader stands down.
    Exactly(u64),
    /// The agent's, if it is higher: for a person, who leads nothing and pushes beside
    /// whoever does.
    AtLeast(u64),
}

/// How a set is pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushOptions {
    /// Who pushes, for whoever finds the set there: kept beside it, and told to others
    /// who are overtaken by it.
    pub by: Option<String>,
    /// The leader epoch.
    pub epoch: Epoch,
    /// Reload, whatever the decision says.
    pub reload: bool,
    /// Go on where somebody else has pushed meanwhile.
    pub overwrite: bool,
    /// Go on where a newer leader has spoken.
    pub take_over: bool,
    /// Before [`Outcome::Unchanged`], and where HAProxy did not answer the agent, have the
    /// agent look at its files and at the worker: what its state says may be some seconds
    /// old. A loop that pushes all the time may do without; the agent looks every few
    /// seconds by itself.
    pub look: bool,
    /// How long a reload that the agent put off is waited for; zero returns at once
    /// with [`Outcome::Pending`].
    pub wait: Duration,
    /// How much of that a HAProxy gets that does not answer: nothing but somebody who
    /// starts it ends that, and the reload stays due without anybody waiting.
    pub silence: Duration,
    /// How long an agent that vanished in the middle of an apply is waited for.
    pub recover: Duration,
}

impl Default for PushOptions {
    /// Polite, and patient for longer than any reload can be put off and take.
    fn default() -> Self {
        Self {
            by: None,
            epoch: Epoch::AtLeast(1),
            reload: false,
            overwrite: false,
            take_over: false,
            look: true,
            wait: Duration::from_secs(150),
            silence: Duration::from_secs(15),
            recover: Duration::from_secs(20),
        }
    }
}

/// Where a push is, for whoever watches.
#[derive(Debug)]
pub enum Step<'s> {
    /// The agent's state is being read.
    Reading {
        /// From 1.
        round: u32,
    },
    /// HAProxy does not answer its agent. The push goes on: it may be on its way.
    Silent {
        /// In an operator's words.
        reason: &'s str,
        /// RFC 3339.
        since: &'s str,
    },
    /// The agent may not reach the worker that loads this set. The push goes on.
    Doubtful {
        /// Why, and in which file.
        text: &'s str,
        /// The line that helps.
        next: &'s str,
    },
    /// What the agent holds and its worker runs, before anything is sent.
    Found(&'s State),
    /// What is to be done.
    Decided(&'s Decision),
    /// Content is on its way.
    Sending {
        /// Bytes of files so far.
        sent: u64,
        /// Of so many.
        total: u64,
    },
    /// All is sent, the agent works.
    Applying,
    /// Another round, and why.
    Again(&'s str),
    /// The answer was lost; the state will say what became of the apply.
    Lost(&'s super::Error),
    /// The agent put the reload off until then.
    Waiting {
        /// RFC 3339.
        due: &'s str,
    },
    /// HAProxy is away, so it cannot be asked for; the agent goes on trying.
    Stuck {
        /// In an operator's words.
        reason: &'s str,
    },
}

/// How a push ended well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The agent held and ran the set before; nothing was sent.
    Unchanged,
    /// The agent holds the set, and the worker runs it.
    Applied,
    /// The same, and it was somebody else's push of the same set that did it, at the
    /// same time.
    AppliedByOther {
        /// Who, if they said.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The agent holds the set, and its reload is due then; it was not waited for.
    Pending {
        /// RFC 3339.
        due: String,
        /// Why it cannot be asked for, where the agent has tried.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The agent holds the set, but a command on the worker failed. The next push is
    /// full and reloads.
    InPart(Failure),
}

/// What a push did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pushed {
    /// How it ended.
    pub outcome: Outcome,
    /// The last decision.
    pub decision: Decision,
    /// The agent's answer; none if nothing was sent, or if it was lost and the state
    /// says no more than that the set is applied.
    pub result: Option<ApplyResult>,
    /// Rounds that it took, from 1.
    pub rounds: u32,
    /// Bytes of files that were sent, all rounds together.
    pub sent: u64,
}

impl Pushed {
    /// Whether the worker runs the set.
    #[must_use]
    pub fn is_converged(&self) -> bool {
        match self.outcome {
            Outcome::Unchanged | Outcome::Applied | Outcome::AppliedByOther { .. } => true,
            Outcome::Pending { .. } | Outcome::InPart(_) => false,
        }
    }
}

/// Brings an agent to `set`.
///
/// # Errors
/// See [`PushError`].
pub fn push(client: &Client, set: &FileSet, options: &PushOptions) -> Result<Pushed, PushError> {
    push_watched(client, set, options, &|_| ())
}

/// As [`push`], telling `watch` each step from this thread.
///
/// # Errors
/// See [`PushError`].
pub fn push_watched(
    client: &Client,
    set: &FileSet,
    options: &PushOptions,
    watch: &dyn Fn(&Step<'_>),
) -> Result<Pushed, PushError> {
    let mut push = Push {
        client,
        set,
        options,
        watch,
        first: None,
        force: options.reload,
        epoch: options.epoch,
        raises: 0,
        sent: 0,
    };
    for round in 1..=MAX_ROUNDS {
        match push.round(round)? {
            Reaction::Done(pushed) => return Ok(*pushed),
            Reaction::Again(why) => watch(&Step::Again(why)),
            Reaction::Pause(why) => {
                watch(&Step::Again(why));
                if !client.cancel_handle().pause(BUSY_PAUSE) {
                    return Err(PushError::Client(
                        crate::http::client::Error::Cancelled.into(),
                    ));
                }
            }
        }
    }
    Err(PushError::NoEnd)
}

/// What a decision needs, and a name.
const WITH_PLAN: StateRead = StateRead {
    verify: false,
    plan: true,
};

/// The same after a look at disk and worker.
const LOOK: StateRead = StateRead {
    verify: true,
    plan: true,
};

/// Before another round where the agent has no time.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// One push under way.
struct Push<'p> {
    client: &'p Client,
    set: &'p FileSet,
    options: &'p PushOptions,
    watch: &'p dyn Fn(&Step<'_>),
    /// What was applied when the first round looked.
    first: Option<Token>,
    /// The full set and a reload, whatever the decision says.
    force: bool,
    epoch: Epoch,
    /// How often a newer leader was met.
    raises: u32,
    sent: u64,
}

impl Push<'_> {
    fn round(&mut self, round: u32) -> Result<Reaction, PushError> {
        (self.watch)(&Step::Reading { round });
        let mut state = self.client.state(WITH_PLAN)?;
        let mut looked = !self.options.look;
        let (epoch, decision) = loop {
            match self.first {
                None => self.first = Some(state.applied_token),
                Some(first) if first == state.applied_token || self.options.overwrite => {}
                Some(_) if state.applied_plan_id == self.set.plan_id() => {
                    let decision = self.decision(&state);
                    return self.theirs(round, decision, state.applied_token);
                }
                Some(_) => return Err(PushError::overtaken(&state)),
            }
            let epoch = self.epoch_for(&state)?;
            let decision = self.decision(&state);
            let doubtful = self.is_settled(&state, &decision) || is_silent(&state);
            if looked || !doubtful {
                break (epoch, decision);
            }
            looked = true;
            state = self.client.state(LOOK)?;
        };
        if let Some(path) = super::reserved(self.set, &state) {
            return Err(super::Error::from(super::Refused::Reserved(path.clone())).into());
        }
        if let Some(worker) = state.worker.as_ref().filter(|worker| !worker.answers) {
            let reason = worker.reason.as_deref().unwrap_or("its socket is silent");
            let since = &worker.since;
            (self.watch)(&Step::Silent { reason, since });
        }
        if let (1, Some(doubt)) = (round, super::socket::doubt(self.set, &state)) {
            (self.watch)(&Step::Doubtful {
                text: &doubt.line(),
                next: &doubt.next,
            });
        }
        (self.watch)(&Step::Found(&state));
        (self.watch)(&Step::Decided(&decision));
        if self.is_settled(&state, &decision) {
            return Ok(Reaction::Done(Box::new(Pushed {
                outcome: Outcome::Unchanged,
                decision,
                result: None,
                rounds: round,
                sent: self.sent,
            })));
        }
        self.attempt(round, epoch, &state, decision)
    }

    /// The epoch to push with.
    fn epoch_for(&self, state: &State) -> Result<u64, PushError> {
        let theirs = state.applied_token.leader_epoch;
        match self.epoch {
            Epoch::AtLeast(least) => Ok(least.max(theirs)),
            Epoch::Exactly(ours) if ours >= theirs => Ok(ours),
            Epoch::Exactly(_) if self.options.take_over => Ok(attempt::raise(theirs, 0)),
            Epoch::Exactly(ours) => Err(PushError::Stale {
                epoch: ours,
                highest_epoch: None,
                applied_plan_id: state.applied_plan_id.clone(),
                applied_token: state.applied_token,
                by: pushed_by(state),
            }),
        }
    }

    /// The pure decision, and what overrules it.
    fn decision(&self, state: &State) -> Decision {
        let mut decision = decide(self.set, state);
        let other_release = state.api_version != API_VERSION;
        let unknown_op = decision
            .ops
            .iter()
            .any(|op| !state.agent_ops.contains(&op.kind));
        if other_release || unknown_op || self.force {
            decision.verdict = Verdict::Reload;
            decision.ops.clear();
        }
        decision.send_all |= other_release;
        if self.options.reload {
            decision.reasons.insert(0, Reason::asked());
        }
        decision
    }

    /// Whether agent and worker are where they should be, so that an apply would say
    /// nothing new.
    fn is_settled(&self, state: &State, decision: &Decision) -> bool {
        decision.verdict == Verdict::Noop
            && state.applied_plan_id == self.set.plan_id()
            && state.worker_ops_plan_id == state.applied_plan_id
            && state.reload_pending_at.is_none()
            && state.degraded.is_none()
    }
}

/// Whether HAProxy's worker did not answer the agent when it last looked.
#[must_use]
pub fn is_silent(state: &State) -> bool {
    state.worker.as_ref().is_some_and(|worker| !worker.answers)
}

/// Whether a refusal is one that the agent remembered, so that HAProxy was not asked
/// again: the agent says so, or nothing was reloaded for it and it took no time.
#[must_use]
pub fn is_remembered(result: &ApplyResult) -> bool {
    let message = result.error.as_ref().map_or("", |error| &error.message);
    if message.ends_with(REMEMBERED) {
        return true;
    }
    result.mode == ResultMode::Rejected
        && !message.starts_with(NOT_RUNNING)
        && result.timing.total_ms == 0
        && result.rollback.is_none()
        && result
            .reload
            .as_ref()
            .is_some_and(|reload| !reload.performed && reload.took_ms.is_none())
}

impl fmt::Debug for Push<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push")
            .field("origin", self.client.origin())
            .finish_non_exhaustive()
    }
}
