//! For every failure the next step: a command to type or a place to look.

use serde_json::json;

use super::aftermath::{self, Before};
use super::view::{Block, Failure};
use super::words;
use crate::client::{Client, StateRead};
use crate::client::{Error, PushError, Refusal, Refused, Transport, stats_socket_line};
use crate::http::client::{Error as HttpError, Phase};
use crate::wire::result::{ApplyResult, ConflictReason, Stage};

/// Of a call.
pub(super) fn of_error(error: &Error) -> Failure {
    Failure {
        kind: kind(error),
        message: error.to_string(),
        next: next(error),
    }
}

/// The same for somebody who has waited: more of it is what `longer` says.
pub(super) fn of_waiting(error: &Error, longer: &str) -> Failure {
    let silent = match error {
        Error::Transport(Transport::Http(HttpError::Timeout(phase))) => *phase != Phase::Connect,
        _ => error
            .failure()
            .is_some_and(|failure| failure.stage == Stage::Startup),
    };
    let mut failure = of_error(error);
    if silent {
        failure.next = format!(
            "the agent may be waiting for HAProxy: its log and /readyz say for what; {longer}"
        );
    }
    failure
}

/// A push or revert that did not get there, with the agent's answer if it gave one.
/// `socket`: where the agent looks for the worker, if it tells; `before`: how things stood.
pub(super) fn failed(error: &PushError, socket: Option<&str>, before: Option<&Before>) -> Block {
    let mut block = Block::failure(&of_push(error, socket));
    match error {
        PushError::Nack(result) => {
            block.field("refusal", json!(Refusal::of(result)));
            block.field("result", json!(result));
            if let Some(line) = aftermath::line(result, before) {
                block.line(line);
            }
        }
        PushError::Overtaken {
            applied_plan_id,
            applied_token,
            by,
        } => {
            block.field("applied_plan_id", applied_plan_id.as_str());
            block.field("applied_token", json!(applied_token));
            block.field("pushed_by", json!(by));
        }
        PushError::Stale {
            applied_plan_id,
            applied_token,
            highest_epoch,
            by,
            ..
        } => {
            block.field("applied_plan_id", applied_plan_id.as_str());
            block.field("applied_token", json!(applied_token));
            block.field("highest_epoch", json!(highest_epoch));
            block.field("pushed_by", json!(by));
        }
        PushError::Client(_)
        | PushError::NotRunning { .. }
        | PushError::StillPending { .. }
        | PushError::NoEnd => {}
    }
    block
}

/// The first step where HAProxy itself is gone.
pub(super) const START_HAPROXY: &str =
    "is HAProxy running, as a master (-W) with the master socket that the agent was told? start it";

/// What helps where HAProxy itself is gone.
pub(super) const HAPROXY_IS_AWAY: &str = "is HAProxy running, as a master (-W) with the master socket that the agent was told? start it, then push again";

/// What helps where the worker answers and nobody takes a reload.
pub(super) const MASTER_IS_AWAY: &str = "HAProxy's worker answers and its master does not: does it run as a master (-W) with the master socket (-S) that the agent was told?";

/// What brings a worker to what is applied.
pub(super) const PUSH_RELOADS: &str = "hapticctl push DIR, which reloads";

/// Where it is enough to wait.
pub(super) const WAITS: &str = "hapticctl wait waits for it";

/// What helps where a directory or the like stands in the place of a file.
pub(super) const WAY_BLOCKED: &str =
    "move away what stands in a file's place on the agent's machine, then hapticctl push DIR";

/// What helps where HAProxy refused a set and what is on disk since is none that it loaded.
const REWRITE: &str =
    "mend what is named above, then push the directory again, which writes every file anew";

/// What helps where a reload is due and the agent cannot ask for it.
pub(super) const HELD_RELOAD: &str = "is HAProxy running, as a master (-W) with the master socket that the agent was told? start it; the agent asks again by itself, and hapticctl wait waits for it";

/// After a set that was not taken, by the sort of its refusal.
pub(super) fn after(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Files => {
            "mend what is named above, then push again; hapticctl state shows what serves meanwhile"
        }
        Refusal::Silent => {
            "HAProxy's own log says what it does not like; mend that, then push again"
        }
        Refusal::Unasked => HAPROXY_IS_AWAY,
        Refusal::Kept => "start HAProxy, then push again, which confirms it",
        Refusal::Ended => {
            "HAProxy's own log says what ended it; start it again, which loads the set from before, then mend that and push again"
        }
        Refusal::Unconfirmed => {
            "HAProxy's log says what its master is doing; once it answers, push again, which reloads"
        }
        Refusal::NoWorker => {
            "see that the configuration opens the agent's --worker-socket, then push again"
        }
        Refusal::Unread => "hapticctl push DIR writes it again",
        Refusal::Disk => {
            "make possible on the agent's machine what is named above, then push again"
        }
        Refusal::NothingGood => "push a set first: hapticctl push DIR",
        Refusal::GoodLost => "only a whole set helps: hapticctl push DIR",
    }
}

/// The same where it was the way back that was refused.
fn after_revert(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Files | Refusal::Silent | Refusal::Unread => {
            "what was good once is so no more: push a set that HAProxy accepts, hapticctl push DIR"
        }
        Refusal::Unasked => {
            "is HAProxy running, as a master (-W) with the master socket that the agent was told? start it, then hapticctl revert again"
        }
        Refusal::Kept => after(refusal),
        Refusal::Ended => {
            "HAProxy's own log says what ended it; start it again, then hapticctl state shows what runs"
        }
        Refusal::Unconfirmed => {
            "HAProxy's log says what its master is doing; once it answers, hapticctl revert again"
        }
        Refusal::Disk => {
            "make possible on the agent's machine what is named above, then hapticctl revert again"
        }
        Refusal::NoWorker | Refusal::NothingGood | Refusal::GoodLost => after(refusal),
    }
}

/// What the answer that is no success asks for.
pub(super) fn of_result(result: &ApplyResult, socket: Option<&str>) -> String {
    let refusal = Refusal::of(result).unwrap_or(Refusal::Silent);
    if refusal == Refusal::NoWorker {
        return opens_the_socket(socket);
    }
    match result.error.as_ref().map(|failure| failure.stage) {
        Some(stage) if stage.is_revert() => after_revert(refusal).to_owned(),
        Some(_) | None if refusal == Refusal::Kept => start_haproxy(result),
        Some(_) | None if refusal == Refusal::Files && aftermath::is_not_good(result) => {
            REWRITE.to_owned()
        }
        Some(_) | None => after(refusal).to_owned(),
    }
}

/// The set waits on disk for HAProxy.
fn start_haproxy(result: &ApplyResult) -> String {
    let back = match result.lkg_plan_id.as_str() {
        good if good.is_empty() || good == result.plan_id => String::new(),
        good => format!(
            "; to go back to plan {} instead: hapticctl revert",
            words::plan(good)
        ),
    };
    format!("{}{back}", after(Refusal::Kept))
}

/// Where the agent looks for its worker, if that is what an error is about.
pub(super) fn socket(client: &Client, error: &PushError) -> Option<String> {
    let PushError::Nack(result) = error else {
        return None;
    };
    match Refusal::of(result) {
        Some(Refusal::NoWorker) => client.state(StateRead::default()).ok()?.worker_socket,
        Some(_) | None => None,
    }
}

/// The line that is missing where HAProxy loads sets and its agent does not meet it.
pub(super) fn opens_the_socket(socket: Option<&str>) -> String {
    format!(
        "HAProxy has loaded the set, but the agent does not find its worker: see that the global section has the line `{}`, then push again",
        stats_socket_line(socket)
    )
}

fn of_push(error: &PushError, socket: Option<&str>) -> Failure {
    let next = match error {
        PushError::Client(error) => return of_error(error),
        PushError::Overtaken { .. } => {
            "look at what they pushed (hapticctl plan DIR), then push again; --overwrite pushes over it".into()
        }
        PushError::Stale { .. } => {
            "if a controller leads there, leave it to it; if it is gone for good, push with --take-over".into()
        }
        PushError::Nack(result) => of_result(result, socket),
        PushError::NotRunning { silent: true, .. } => HAPROXY_IS_AWAY.into(),
        PushError::NotRunning { silent: false, .. } => {
            "hapticctl state shows what runs; push again, which reloads".into()
        }
        PushError::StillPending { reason: Some(_), .. } => HELD_RELOAD.into(),
        PushError::StillPending { reason: None, .. } => {
            "the agent reloads by itself, and hapticctl wait waits for it".into()
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
        Error::Refused(Refused::Reserved(_)) => {
            "give the file another name, here and in the configuration".into()
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
        HttpError::Timeout(Phase::Connect) => {
            "check address, network and firewall".into()
        }
        HttpError::Timeout(_) => {
            "the agent may be waiting for HAProxy: its log and /readyz say so; hapticctl wait waits until it is up".into()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever became of a set, the sentence names a step, and the way back that was
    /// refused is not among the steps where it cannot help.
    #[test]
    fn each_sort_of_refusal_has_its_step() {
        for (refusal, step, step_back) in [
            (
                Refusal::Files,
                "mend what is named above, then push",
                "push a set that HAProxy accepts",
            ),
            (
                Refusal::Silent,
                "HAProxy's own log says",
                "push a set that HAProxy accepts",
            ),
            (
                Refusal::Unasked,
                "start it, then push again",
                "start it, then hapticctl revert again",
            ),
            (
                Refusal::Kept,
                "start HAProxy, then push again, which confirms it",
                "start HAProxy, then push again, which confirms it",
            ),
            (
                Refusal::Ended,
                "start it again, which loads the set from before",
                "start it again",
            ),
            (
                Refusal::Unconfirmed,
                "once it answers, push again",
                "once it answers, hapticctl revert again",
            ),
            (
                Refusal::NoWorker,
                "opens the agent's --worker-socket",
                "opens the agent's --worker-socket",
            ),
            (
                Refusal::Unread,
                "hapticctl push DIR writes it",
                "push a set that HAProxy accepts",
            ),
            (
                Refusal::Disk,
                "what is named above, then push",
                "what is named above, then hapticctl revert",
            ),
            (
                Refusal::NothingGood,
                "hapticctl push DIR",
                "hapticctl push DIR",
            ),
            (
                Refusal::GoodLost,
                "hapticctl push DIR",
                "hapticctl push DIR",
            ),
        ] {
            assert!(
                after(refusal).contains(step),
                "{refusal:?}: {}",
                after(refusal)
            );
            let back = after_revert(refusal);
            assert!(back.contains(step_back), "{refusal:?}: {back}");
            let helps = back.contains("revert again");
            let passes = matches!(
                refusal,
                Refusal::Unasked | Refusal::Unconfirmed | Refusal::Disk
            );
            assert_eq!(helps, passes, "{refusal:?}: {back}");
        }
    }
}
