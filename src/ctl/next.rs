//! For every failure the next step: a command to type or a place to look.

use serde_json::json;

use super::view::{Block, Failure};
use crate::client::{Error, PushError, Transport};
use crate::http::client::Error as HttpError;
use crate::wire::result::{ApplyResult, ConflictReason, Stage};

/// Of a call.
pub(super) fn of_error(error: &Error) -> Failure {
    Failure {
        kind: kind(error),
        message: error.to_string(),
        next: next(error),
    }
}

/// A push or revert that did not get there, with the agent's answer if it gave one.
pub(super) fn failed(error: &PushError) -> Block {
    let mut block = Block::failure(&of_push(error));
    match error {
        PushError::Nack(result) => block.field("result", json!(result)),
        PushError::Client(_)
        | PushError::Overtaken { .. }
        | PushError::Stale { .. }
        | PushError::NotRunning { .. }
        | PushError::StillPending { .. }
        | PushError::NoEnd => {}
    }
    block
}

/// What helps where HAProxy itself is gone.
pub(super) const HAPROXY_IS_AWAY: &str = "is HAProxy running, as a master (-W) with the master socket that the agent was told? start it, then push again";

/// Whether the files were not even judged, because nobody took the reload.
pub(super) fn is_unreached(result: &ApplyResult) -> bool {
    let reload = result.reload.as_ref();
    !result.ok && reload.is_some_and(|reload| !reload.performed && reload.output.is_none())
}

fn of_push(error: &PushError) -> Failure {
    let next = match error {
        PushError::Client(error) => return of_error(error),
        PushError::Overtaken { .. } => {
            "look at what they pushed (hapticctl plan DIR), then push again; --overwrite pushes over it".into()
        }
        PushError::Stale { .. } => {
            "if a controller leads there, leave it to it; if it is gone for good, push with --take-over".into()
        }
        PushError::Nack(result) => match result.error.as_ref().map(|failure| failure.stage) {
            Some(Stage::Backup | Stage::Write) => {
                "the agent could not write its disk; its log has the reason, then push again".into()
            }
            Some(Stage::Revert | Stage::RevertReload) => {
                "hapticctl state shows what runs; push a set that HAProxy accepts: hapticctl push DIR".into()
            }
            Some(_) if is_unreached(result) => HAPROXY_IS_AWAY.into(),
            Some(_) | None => {
                "mend what is named above, then push again; hapticctl state shows what serves meanwhile".into()
            }
        },
        PushError::NotRunning { .. } => {
            "hapticctl state shows what runs; push again, which reloads".into()
        }
        PushError::StillPending { .. } => {
            "hapticctl wait waits on; the agent will reload by itself".into()
        }
        PushError::NoEnd => "push again; if it goes on like this, hapticctl state shows who else is at it".into(),
    };
    Failure {
        kind: error.kind(),
        message: error.to_string(),
        next,
    }
}

fn kind(error: &Error) -> &'static str {
    match error {
        Error::Conflict(conflict) => match conflict.reason {
            ConflictReason::PrevMismatch => "overtaken",
            ConflictReason::StaleEpoch => "stale_epoch",
            ConflictReason::UnknownBaseline => "unknown_baseline",
            ConflictReason::WorkerOpsMismatch => "worker_ops_mismatch",
        },
        Error::Missing(_) => "missing",
        Error::Http { status: 401, .. } => "credentials",
        Error::Http { .. } => "http",
        Error::Transport(_) => "transport",
        Error::Refused(_) => "limit",
        Error::Source { .. } => "source",
    }
}

fn next(error: &Error) -> String {
    match error {
        Error::Conflict(conflict) => match conflict.reason {
            ConflictReason::StaleEpoch => {
                "if a controller leads there, leave it to it; if it is gone for good, use --take-over".into()
            }
            ConflictReason::PrevMismatch
            | ConflictReason::UnknownBaseline
            | ConflictReason::WorkerOpsMismatch => "try again; hapticctl state shows what is applied".into(),
        },
        Error::Missing(_) => "push again; if it stays so, the agent's log says why".into(),
        Error::Http { status: 401, .. } => {
            "set HAPTIC_USERNAME and HAPTIC_PASSWORD to the agent's DATAPLANE_USERNAME and DATAPLANE_PASSWORD".into()
        }
        Error::Http { status: 404 | 405, .. } => {
            "is this an agent's API port (--listen, 5555 by default) and not its metrics or HAProxy itself?".into()
        }
        Error::Http { .. } => match error.failure().map(|failure| failure.stage) {
            Some(Stage::Startup) => "hapticctl wait waits until it is up; the agent's log says what it waits for".into(),
            Some(Stage::Busy) => "try again in a moment".into(),
            Some(Stage::Parts) => "make room on the agent's disk, or the set smaller".into(),
            Some(_) | None => "the agent's log has more".into(),
        },
        Error::Transport(Transport::Http(error)) => of_transport(error),
        Error::Transport(Transport::Answer(_)) => {
            "is this an agent's API port? if it is, its release and this one do not understand each other".into()
        }
        Error::Refused(_) => "make the set smaller".into(),
        Error::Source { .. } => "push again".into(),
    }
}

fn of_transport(error: &HttpError) -> String {
    match error {
        HttpError::NotConnected(_) if error.is_refused() => {
            "is the agent running, and is this its --listen address?".into()
        }
        HttpError::NotConnected(_) => "check the name and the network".into(),
        HttpError::Timeout(crate::http::client::Phase::Connect) => {
            "check address, network and firewall".into()
        }
        HttpError::Timeout(_) => {
            "the agent may be waiting for HAProxy: its log and /readyz say so; hapticctl wait waits on".into()
        }
        HttpError::Reset(_) | HttpError::Cut(_) => {
            "hapticctl state shows what became of it; the agent's log says whether it was restarted".into()
        }
        HttpError::Malformed(_) => "is this an agent's API port? something else seems to listen there".into(),
        HttpError::TooLarge { .. } | HttpError::Request(_) | HttpError::Source(_) => {
            "please report this".into()
        }
        HttpError::Cancelled => "start again".into(),
    }
}
