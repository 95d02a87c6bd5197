//! Why a push did not get there.

use std::fmt;

use crate::client::Error;
use crate::client::decide::pushed_by;
use crate::client::error::short;
use crate::wire::manifest::Token;
use crate::wire::result::{ApplyResult, ConflictReason, REMEMBERED};
use crate::wire::state::State;

use super::{Refusal, is_remembered};

/// See the variants; each says what to do next.
#[derive(Debug)]
pub enum PushError {
    /// The agent could not be asked, or answered with something that no round mends.
    /// After [`Error::Transport`] read the state: it is not known what the agent holds.
    Client(Error),
    /// Somebody else has pushed since the first look; their set is in place and nothing
    /// of ours was written. Look at what they pushed, then push again, or push with
    /// [`overwrite`](super::PushOptions::overwrite).
    Overtaken {
        /// What is applied now; empty if the agent does not know.
        applied_plan_id: String,
        /// By which push.
        applied_token: Token,
        /// By whom, if they said.
        by: Option<String>,
    },
    /// A leader with a higher epoch has spoken. A controller stands down; a person who
    /// knows better pushes with [`take_over`](super::PushOptions::take_over).
    Stale {
        /// Ours.
        epoch: u64,
        /// The least that would pass, where the agent tells.
        highest_epoch: Option<u64>,
        /// What is applied.
        applied_plan_id: String,
        /// By which push; its epoch may be lower than the one that was met.
        applied_token: Token,
        /// By whom, if they said.
        by: Option<String>,
    },
    /// The agent did not take the set, or HAProxy did not. What is on disk then and what the
    /// worker serves is in the answer, what to do depends on the sort of it, see
    /// [`Refusal`](super::Refusal).
    Nack(Box<ApplyResult>),
    /// The set was written and its reload has been due, but the worker does not run
    /// it, or does not answer: read the state.
    NotRunning {
        /// What the worker runs.
        running_plan_id: String,
        /// HAProxy does not answer the agent.
        silent: bool,
        /// Why, as far as the agent says.
        reason: Option<String>,
    },
    /// The reload that the agent put off did not run within
    /// [`wait`](super::PushOptions::wait). The set is on disk; wait on.
    StillPending {
        /// RFC 3339.
        due: String,
        /// Why it cannot be asked for, where the agent has tried.
        reason: Option<String>,
    },
    /// Every round met another obstacle. Push again once it is quiet.
    NoEnd,
}

impl PushError {
    pub(super) fn overtaken(state: &State) -> Self {
        Self::Overtaken {
            applied_plan_id: state.applied_plan_id.clone(),
            applied_token: state.applied_token,
            by: pushed_by(state),
        }
    }

    /// A word for it, for programs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Client(Error::Conflict(conflict)) => match conflict.reason {
                ConflictReason::PrevMismatch => "prev_mismatch",
                ConflictReason::StaleEpoch => "stale_epoch",
                ConflictReason::UnknownBaseline => "unknown_baseline",
                ConflictReason::WorkerOpsMismatch => "worker_ops_mismatch",
            },
            Self::Client(Error::Missing(_)) => "missing",
            Self::Client(Error::Http { status: 401, .. }) => "credentials",
            Self::Client(Error::Http { .. }) => "http",
            Self::Client(Error::Transport(_)) => "transport",
            Self::Client(Error::Refused(_)) => "limit",
            Self::Client(Error::Source { .. }) => "source",
            Self::Overtaken { .. } => "overtaken",
            Self::Stale { .. } => "stale_epoch",
            Self::Nack(result) if Refusal::of(result) == Some(Refusal::Kept) => "not_running",
            Self::Nack(_) => "rejected",
            Self::NotRunning { .. } => "not_running",
            Self::StillPending { .. } => "still_pending",
            Self::NoEnd => "no_end",
        }
    }
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => write!(f, "{error}"),
            Self::Overtaken {
                applied_plan_id,
                applied_token: token,
                by,
            } => {
                match by {
                    Some(by) => write!(f, "{by} has pushed meanwhile: ")?,
                    None => write!(f, "somebody else has pushed meanwhile: ")?,
                }
                match applied_plan_id.as_str() {
                    "" => write!(f, "what is applied now is not known")?,
                    id => write!(f, "plan {} is applied now", short(id))?,
                }
                write!(
                    f,
                    ", epoch {}, sequence {}",
                    token.leader_epoch, token.render_seq
                )
            }
            Self::Stale {
                epoch,
                highest_epoch,
                applied_plan_id,
                applied_token,
                by,
            } => {
                write!(
                    f,
                    "a newer leader has spoken to this agent: epoch {epoch} is too low"
                )?;
                if let Some(highest) = highest_epoch {
                    write!(f, ", {highest} was the highest")?;
                }
                match applied_plan_id.as_str() {
                    "" => write!(f, "; what is applied is not known"),
                    id => {
                        write!(
                            f,
                            "; plan {} of epoch {} is applied",
                            short(id),
                            applied_token.leader_epoch
                        )?;
                        match by {
                            Some(by) => write!(f, ", pushed by {by}"),
                            None => Ok(()),
                        }
                    }
                }
            }
            Self::Nack(result) => {
                // HAProxy's words are several lines and come last. An agent that says
                // itself that it remembers them says it behind them.
                let told = result
                    .error
                    .as_ref()
                    .is_some_and(|failure| failure.message.ends_with(REMEMBERED));
                let remembered = match is_remembered(result) && !told {
                    true => {
                        " (the agent remembers it from less than a minute ago; HAProxy was not asked again)"
                    }
                    false => "",
                };
                match &result.error {
                    Some(failure) if Refusal::of(result) == Some(Refusal::Kept) => {
                        write!(f, "{}", failure.message)
                    }
                    Some(failure) => write!(
                        f,
                        "refused at stage {}{remembered}: {}",
                        failure.stage.as_str(),
                        failure.message
                    ),
                    None => write!(f, "refused without a reason{remembered}"),
                }
            }
            Self::NotRunning {
                running_plan_id,
                silent: _,
                reason,
            } => {
                match running_plan_id.as_str() {
                    "" => write!(
                        f,
                        "the set is on disk, but what the worker runs is not known"
                    )?,
                    id => write!(
                        f,
                        "the set is on disk, but the worker runs plan {}",
                        short(id)
                    )?,
                }
                match reason {
                    Some(reason) => write!(f, ": {reason}"),
                    None => Ok(()),
                }
            }
            Self::StillPending { due, reason } => {
                write!(
                    f,
                    "the set is on disk, and its reload, due at {due}, has not run yet"
                )?;
                match reason {
                    Some(reason) => write!(f, ": {reason}"),
                    None => Ok(()),
                }
            }
            Self::NoEnd => write!(f, "every round met another obstacle"),
        }
    }
}

impl std::error::Error for PushError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Client(error) => error.source(),
            Self::Overtaken { .. }
            | Self::Stale { .. }
            | Self::Nack(_)
            | Self::NotRunning { .. }
            | Self::StillPending { .. }
            | Self::NoEnd => None,
        }
    }
}

impl From<Error> for PushError {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}
