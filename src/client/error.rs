//! What can go wrong between a controller and an agent, in the contract's classes.
//!
//! A NACK is none of them: `ok: false` is an answer, with HAProxy's own words in it.

use std::fmt;
use std::io;

use crate::http::client as http;
use crate::wire::limits::{MAX_APPLY_BODY_BYTES, MAX_MANIFEST_BYTES, MAX_PLAN_BLOB_BYTES};
use crate::wire::manifest::ManifestError;
use crate::wire::path::ManifestPath;
use crate::wire::result::{Conflict, ConflictReason, Failure};

/// Why there is no result.
#[derive(Debug)]
pub enum Error {
    /// 409: the fence refused, nothing was written. By `reason`: on `prev_mismatch`
    /// read the state and decide again, since somebody else has pushed; on
    /// `stale_epoch` stand down, since a newer leader has spoken; on
    /// `unknown_baseline` send the full set with mode `reload`; on
    /// `worker_ops_mismatch` read the state and decide again.
    Conflict(Box<Conflict>),
    /// 409: the agent lacks the content of these paths, nothing was written. Send the
    /// same manifest once more with a part for each.
    Missing(Vec<ManifestPath>),
    /// Another status. 401 is the credentials; 503 with stage `startup` or `busy` is
    /// worth another try in a second, with stage `parts` the agent's disk is full; 400
    /// and 413 are a defect at this end. The body is cut at [`MAX_REFUSAL_BYTES`].
    Http {
        /// The status.
        status: u16,
        /// What the agent said.
        body: String,
    },
    /// No answer, or none that can be understood. An apply may have taken effect: read
    /// the state before anything else.
    Transport(Transport),
    /// The request breaks a limit of the contract; not a byte was sent. Make it smaller
    /// or split it.
    Refused(Refused),
    /// A part's source failed, or gave fewer or more bytes than the manifest declares;
    /// the agent never got the whole request and wrote nothing. Build the manifest from
    /// the bytes that are sent.
    Source {
        /// The part.
        path: ManifestPath,
        /// What its reader said.
        error: io::Error,
    },
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Transport {
    /// The exchange failed.
    Http(http::Error),
    /// A 200 that is not what the contract says.
    Answer(serde_json::Error),
}

/// A limit that was about to be broken.
#[derive(Debug)]
pub enum Refused {
    /// The manifest breaks a rule of its own.
    Manifest(ManifestError),
    /// The manifest is longer than [`MAX_MANIFEST_BYTES`].
    ManifestBytes(usize),
    /// The plan blob is longer than [`MAX_PLAN_BLOB_BYTES`].
    PlanBytes(usize),
    /// The request would be longer than [`MAX_APPLY_BODY_BYTES`].
    BodyBytes(u64),
    /// A part for a path that the manifest does not declare.
    Undeclared(ManifestPath),
    /// Two parts for one path.
    Twice(ManifestPath),
    /// A file with a name that the agent keeps for itself.
    Reserved(ManifestPath),
}

/// How much of an error's body is kept.
pub const MAX_REFUSAL_BYTES: usize = 4 * 1024;

impl Error {
    /// The agent's `{stage, message}`, where it sent one.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Self::Http { body, .. } => serde_json::from_str(body).ok(),
            Self::Conflict(_)
            | Self::Missing(_)
            | Self::Transport(_)
            | Self::Refused(_)
            | Self::Source { .. } => None,
        }
    }

    /// Whether the agent may be starting, or starting again: it is worth asking later.
    #[must_use]
    pub fn is_away(&self) -> bool {
        match self {
            Self::Transport(Transport::Http(error)) => match error {
                http::Error::NotConnected(_)
                | http::Error::Reset(_)
                | http::Error::Cut(_)
                | http::Error::Timeout(_) => true,
                http::Error::Malformed(_)
                | http::Error::TooLarge { .. }
                | http::Error::Cancelled
                | http::Error::Source(_)
                | http::Error::Request(_) => false,
            },
            Self::Http { status, .. } => *status == 503,
            Self::Transport(Transport::Answer(_))
            | Self::Conflict(_)
            | Self::Missing(_)
            | Self::Refused(_)
            | Self::Source { .. } => false,
        }
    }

    /// Whether another thread cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(
            self,
            Self::Transport(Transport::Http(http::Error::Cancelled))
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(conflict) => match conflict.reason {
                ConflictReason::PrevMismatch => write!(
                    f,
                    "somebody else has pushed: plan {:?} is applied now, by epoch {} and sequence {}",
                    short(&conflict.applied_plan_id),
                    conflict.applied_token.leader_epoch,
                    conflict.applied_token.render_seq
                ),
                ConflictReason::StaleEpoch => match conflict.highest_epoch {
                    Some(highest) => write!(
                        f,
                        "a newer leader has spoken: epoch {highest} or above is needed"
                    ),
                    None => write!(f, "a newer leader has spoken, with a higher epoch"),
                },
                ConflictReason::UnknownBaseline => write!(
                    f,
                    "the agent does not know what it holds; it needs the full set and a reload"
                ),
                ConflictReason::WorkerOpsMismatch => write!(
                    f,
                    "the worker holds plan {:?}, not the one that the commands were made for",
                    short(&conflict.worker_ops_plan_id)
                ),
            },
            Self::Missing(paths) => {
                write!(f, "the agent lacks the content of {} files", paths.len())?;
                match paths.first() {
                    Some(first) => write!(f, ", {first} among them"),
                    None => Ok(()),
                }
            }
            Self::Http { status, body } => match self.failure() {
                Some(failure) => write!(
                    f,
                    "the agent answered {status}, stage {}: {}",
                    failure.stage.as_str(),
                    failure.message
                ),
                None if *status == 401 => {
                    write!(f, "the agent does not take these credentials")
                }
                None => write!(f, "the agent answered {status}: {}", body.trim_end()),
            },
            Self::Transport(Transport::Http(error)) => write!(f, "{error}"),
            Self::Transport(Transport::Answer(error)) => {
                write!(f, "the answer is not what the contract says: {error}")
            }
            Self::Refused(refused) => write!(f, "{refused}"),
            Self::Source { path, error } => write!(f, "cannot read {path} to send it: {error}"),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest(error) => write!(f, "{error}"),
            Self::ManifestBytes(bytes) => write!(
                f,
                "the manifest is {bytes} bytes long, at most {MAX_MANIFEST_BYTES} fit"
            ),
            Self::PlanBytes(bytes) => write!(
                f,
                "the plan blob is {bytes} bytes long, at most {MAX_PLAN_BLOB_BYTES} fit"
            ),
            Self::BodyBytes(bytes) => write!(
                f,
                "the request would be {bytes} bytes long, at most {MAX_APPLY_BODY_BYTES} fit one apply"
            ),
            Self::Undeclared(path) => {
                write!(f, "{path} is to be sent, but the manifest does not list it")
            }
            Self::Twice(path) => write!(f, "{path} is to be sent twice"),
            Self::Reserved(path) => write!(
                f,
                "{path} is a name that the agent keeps for itself, one of its sockets"
            ),
        }
    }
}

/// As much of a plan id as tells it from others: ours are digests.
pub(super) fn short(id: &str) -> &str {
    let digest = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    match digest {
        true => id.get(..12).unwrap_or(id),
        false => id,
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Transport(Transport::Http(error)) => std::error::Error::source(error),
            Self::Transport(Transport::Answer(error)) => Some(error),
            Self::Refused(Refused::Manifest(error)) => Some(error),
            Self::Source { error, .. } => Some(error),
            Self::Refused(
                Refused::ManifestBytes(_)
                | Refused::PlanBytes(_)
                | Refused::BodyBytes(_)
                | Refused::Undeclared(_)
                | Refused::Twice(_)
                | Refused::Reserved(_),
            )
            | Self::Conflict(_)
            | Self::Missing(_)
            | Self::Http { .. } => None,
        }
    }
}

impl From<http::Error> for Error {
    fn from(error: http::Error) -> Self {
        Self::Transport(Transport::Http(error))
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}
