//! `hapticctl state`: what somebody needs to know at three in the morning.

use serde_json::json;

use super::next::{
    HAPROXY_IS_AWAY, HELD_RELOAD, MASTER_IS_AWAY, PUSH_RELOADS, WAITS, of_result, opens_the_socket,
};
use super::view::{Block, Report};
use super::{aftermath, labels, plan, when, words};
use crate::client::decide::pushed_by;
use crate::client::push::{about_the_set, is_silent, warnings};
use crate::client::{Fleet, Refusal, StateRead};
use crate::wire::result::{ApplyResult, ResultMode, UNREACHABLE};
use crate::wire::state::State;

/// Names that are listed one by one.
const MAX_SHOWN: usize = 10;

pub(super) fn run(fleet: &Fleet) -> Report {
    // The plan beside the set says who pushed it.
    let read = StateRead {
        plan: true,
        ..StateRead::default()
    };
    let blocks = fleet.each(|_, client| match client.state(read) {
        Ok(state) => block(&state),
        Err(error) => plan::unasked(&error),
    });
    Report::new(labels(fleet), blocks)
}

/// Where an agent stands, the worst that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// HAProxy does not answer the agent.
    Down,
    /// Nobody has pushed anything yet.
    Empty,
    /// Disk and worker may differ from what was asked for.
    Degraded,
    /// The agent does not know what is applied.
    Unknown,
    /// A reload is due.
    Pending,
    /// The worker does not run what is applied, and nothing is due.
    Behind,
    /// The worker runs what is applied.
    Good,
}

impl Standing {
    pub(super) fn of(state: &State) -> Self {
        if is_silent(state) || is_unseen(state) {
            Self::Down
        } else if state.degraded.is_some() {
            Self::Degraded
        } else if state.applied_plan_id.is_empty() {
            match state.last_apply.is_none() && state.files.is_empty() {
                true => Self::Empty,
                false => Self::Unknown,
            }
        } else if state.reload_pending_at.is_some() {
            Self::Pending
        } else if state.worker_ops_plan_id != state.applied_plan_id {
            Self::Behind
        } else {
            Self::Good
        }
    }

    /// For programs.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Empty => "empty",
            Self::Degraded => "degraded",
            Self::Unknown => "unknown",
            Self::Pending => "pending",
            Self::Behind => "behind",
            Self::Good => "good",
        }
    }

    /// Whether there is nothing to be done about it.
    pub(super) fn is_good(self) -> bool {
        match self {
            Self::Empty | Self::Good => true,
            Self::Down | Self::Degraded | Self::Unknown | Self::Pending | Self::Behind => false,
        }
    }

    pub(super) fn title(self, state: &State) -> String {
        match self {
            Self::Down if is_unseen(state) => {
                "DOWN: HAProxy has not answered its agent since that one started".into()
            }
            Self::Down => "DOWN: HAProxy does not answer its agent".into(),
            Self::Empty => "empty: nothing has been pushed here yet".into(),
            Self::Degraded if is_kept(state) => {
                "DEGRADED: a set is on disk that no HAProxy was there to load".into()
            }
            Self::Degraded if serves_last_good(state) => format!(
                "DEGRADED: the last push was refused, plan {} serves",
                words::plan(serving(state))
            ),
            Self::Degraded => "DEGRADED: it may not run what was asked for".into(),
            Self::Unknown => "UNKNOWN: the agent does not know what is applied".into(),
            Self::Pending => "PENDING: files are written, their reload is due".into(),
            Self::Behind if is_unknown(state) => {
                "BEHIND: the worker is not known to run what is applied".into()
            }
            Self::Behind => "BEHIND: the worker does not run what is applied".into(),
            Self::Good => format!("good: plan {} runs", words::plan(&state.applied_plan_id)),
        }
    }

    pub(super) fn next(self, state: &State) -> Option<String> {
        match self {
            Self::Empty => Some("hapticctl push DIR".into()),
            Self::Down => Some(down(state)),
            Self::Degraded => Some(degraded(state)),
            Self::Unknown => Some(
                "hapticctl verify DIR lists what differs; hapticctl push DIR puts it right".into(),
            ),
            Self::Behind if is_unknown(state) => Some(format!(
                "the agent mostly reloads it by itself within seconds, and {WAITS}; if not: {PUSH_RELOADS}"
            )),
            Self::Behind => Some(PUSH_RELOADS.into()),
            Self::Pending => Some(WAITS.into()),
            Self::Good => None,
        }
    }
}

/// Whether the agent has met no worker yet: it tells its state all the same after a while.
fn is_unseen(state: &State) -> bool {
    state.worker.is_none() && state.haproxy.worker_pid == 0
}

/// Whether nobody knows what the worker runs, as after a start by somebody else.
pub(super) fn is_unknown(state: &State) -> bool {
    state.worker_ops_plan_id.is_empty()
}

/// HAProxy is away, or runs without the socket.
fn down(state: &State) -> String {
    let last = state.last_apply.as_ref();
    match last.map(|last| (Refusal::of(last), last)) {
        Some((Some(Refusal::NoWorker), _)) => opens_the_socket(state.worker_socket.as_deref()),
        Some((Some(Refusal::Kept), last)) => of_result(last, None),
        Some(_) | None if state.reload_pending_at.is_some() => HELD_RELOAD.into(),
        Some(_) | None => HAPROXY_IS_AWAY.into(),
    }
}

/// What ends it, by what it came of.
fn degraded(state: &State) -> String {
    let reason = state.degraded.as_ref().map_or("", |d| d.reason.as_str());
    let unreachable = reason.starts_with(UNREACHABLE);
    let seen = Seen::of(state);
    if unreachable && state.reload_pending_at.is_some() {
        return match seen {
            Seen::Not => HELD_RELOAD.into(),
            Seen::Back => format!(
                "HAProxy answers again; the agent asks for the reload by itself, and {WAITS}"
            ),
            Seen::Always => {
                format!("{MASTER_IS_AWAY}; the agent asks again by itself, and {WAITS}")
            }
        };
    }
    let refused = state.last_apply.as_ref().filter(|last| !last.ok);
    match refused.map(|last| (Refusal::of(last), last)) {
        Some((Some(Refusal::Unasked | Refusal::Kept), last)) if seen == Seen::Back => {
            match is_push(last) {
                true => "HAProxy answers again: push again, hapticctl push DIR".into(),
                false => "HAProxy answers again: hapticctl revert again".into(),
            }
        }
        Some((Some(Refusal::Ended), _)) if seen == Seen::Back => {
            "HAProxy answers again; its own log says what ended it: mend that and push again".into()
        }
        Some((Some(Refusal::Unasked), last)) if seen == Seen::Always => match is_push(last) {
            true => format!("{MASTER_IS_AWAY}; then push again"),
            false => format!("{MASTER_IS_AWAY}; then hapticctl revert again"),
        },
        // The set before serves; a revert settles for it.
        Some((Some(Refusal::Files | Refusal::Silent), last)) if serves_last_good(state) => {
            let settle = match state.lkg_plan_id.as_str() {
                _ if !is_push(last) => String::new(),
                lkg if lkg == serving(state) => format!(
                    "; hapticctl revert settles for plan {} instead",
                    words::plan(lkg)
                ),
                lkg => format!(
                    "; hapticctl revert settles for plan {} instead, and drops what commands brought since",
                    words::plan(lkg)
                ),
            };
            format!("push a set that HAProxy accepts: hapticctl push DIR{settle}")
        }
        Some((_, last)) => of_result(last, state.worker_socket.as_deref()),
        None if unreachable && seen == Seen::Not => HAPROXY_IS_AWAY.into(),
        None => "hapticctl push DIR, which sends everything and reloads".into(),
    }
}

/// Whether the last answer is of a set that waits on disk for a HAProxy.
fn is_kept(state: &State) -> bool {
    let last = state.last_apply.as_ref();
    last.is_some_and(|last| Refusal::of(last) == Some(Refusal::Kept))
}

/// What is known of the worker beside the last apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It does not answer, or nobody has looked.
    Not,
    /// It answers, and that since later than the last apply.
    Back,
    /// It answered before that already.
    Always,
}

impl Seen {
    fn of(state: &State) -> Self {
        let last = state.last_apply.as_ref();
        match state.worker.as_ref().filter(|worker| worker.answers) {
            None => Self::Not,
            Some(worker) => match last.is_none_or(|last| when::is_later(&worker.since, &last.at)) {
                true => Self::Back,
                false => Self::Always,
            },
        }
    }
}

/// Whether it was a set that was refused, not the way back.
fn is_push(last: &ApplyResult) -> bool {
    let failure = last.error.as_ref();
    !failure.is_some_and(|failure| failure.stage.is_revert())
}

fn serving(state: &State) -> &str {
    aftermath::serving(&state.worker_ops_plan_id, &state.running_plan_id)
}

/// Whether a push was refused and the worker stayed with, or went back to, the last good
/// set.
fn serves_last_good(state: &State) -> bool {
    let refused = state.last_apply.as_ref().is_some_and(|last| !last.ok);
    refused && !state.lkg_plan_id.is_empty() && state.running_plan_id == state.lkg_plan_id
}

pub(super) fn block(state: &State) -> Block {
    let standing = Standing::of(state);
    let mut block = Block::new(standing.is_good(), standing.title(state));
    block.next = standing.next(state);
    block.field("standing", standing.as_str());
    let mut document = json!(state);
    if let Some(fields) = document.as_object_mut() {
        // For the decision alone, and long.
        fields.remove("applied_plan");
    }
    block.field("state", document);
    if let Some(silent) = state.worker.as_ref().filter(|worker| !worker.answers) {
        block.row("since", when::moment(&silent.since));
        block.row(
            "because",
            silent.reason.as_deref().unwrap_or("its socket is silent"),
        );
    } else if let Some(degraded) = &state.degraded {
        block.row("since", when::moment(&degraded.since));
        // Mostly it is the last push's failure, which is told below.
        let failure = state
            .last_apply
            .as_ref()
            .and_then(|last| last.error.as_ref());
        if failure.is_none_or(|failure| !failure.message.contains(degraded.reason.trim())) {
            block.row("because", &degraded.reason);
        }
    }
    roles(&mut block, state);
    if let Some(due) = &state.reload_pending_at {
        block.row("reload due", when::moment(due));
    }
    deletes(&mut block, state);
    if let Some(last) = &state.last_apply {
        last_apply(&mut block, last);
        let still = state.worker_ops_plan_id == last.worker_ops_plan_id
            && state.running_plan_id == last.running_plan_id
            && !is_silent(state);
        if let Some(parted) = aftermath::parted(last).filter(|_| still) {
            block.row("but", parted);
        }
    }
    if let Some(unsaved) = &state.unsaved {
        block.row(
            "not saved",
            format!(
                "the agent cannot save its state since {}: {}",
                when::moment(&unsaved.since),
                unsaved.reason
            ),
        );
    }
    if let Some(name) = &state.invariant_violation {
        block.row(
            "broken",
            format!("the agent found its rule {name} broken; its log has more"),
        );
    }
    haproxy(&mut block, state);
    block
}

fn roles(block: &mut Block, state: &State) {
    let token = state.applied_token;
    let by = pushed_by(state);
    block.row(
        "applied",
        format!(
            "{}{}  (epoch {}, sequence {}, generation {})",
            words::plan(&state.applied_plan_id),
            by.as_ref()
                .map(|by| format!(", pushed by {by}"))
                .unwrap_or_default(),
            token.leader_epoch,
            token.render_seq,
            state.generation
        ),
    );
    let mut running = words::plan(&state.running_plan_id);
    if state.worker_ops_plan_id != state.running_plan_id {
        running += &match state.worker_ops_plan_id.as_str() {
            "" => "  and commands since, of which it is not known how they ended".to_owned(),
            id => format!("  brought to {} by commands", words::plan(id)),
        };
    }
    block.field("pushed_by", json!(by));
    block.row("running", running);
    block.row(
        "last good",
        match state.lkg_plan_id.as_str() {
            "" => "none".to_owned(),
            good => words::plan(good),
        },
    );
    let bytes = state.files.values().map(|file| file.size).sum();
    block.row(
        "files",
        format!("{}, {}", state.files.len(), words::bytes(bytes)),
    );
}

fn deletes(block: &mut Block, state: &State) {
    for (names, what) in [
        (&state.pending_deletes.servers, "server"),
        (&state.pending_deletes.backends, "backend"),
    ] {
        if !names.is_empty() {
            block.row(
                "removing",
                format!(
                    "{}, as soon as their connections have ended: {}",
                    words::counted(names.len(), what),
                    words::some(names, MAX_SHOWN)
                ),
            );
        }
    }
}

/// The last apply in a line, and HAProxy's words if it went wrong.
pub(super) fn last_apply(block: &mut Block, last: &ApplyResult) {
    let how = match (last.ok, last.mode) {
        (false, _) if Refusal::of(last) == Some(Refusal::Kept) => format!(
            "plan {} written, with no HAProxy there to load it",
            words::plan(&last.plan_id)
        ),
        (false, _) => format!("plan {} REFUSED", words::plan(&last.plan_id)),
        (true, ResultMode::Scheduled) => "written, its reload put off".to_owned(),
        (true, mode) => format!("ok, {}", mode.as_str()),
    };
    block.row("last push", format!("{how}, at {}", when::moment(&last.at)));
    if let Some(failure) = &last.error {
        block.row(
            "failure",
            format!("stage {}: {}", failure.stage.as_str(), failure.message),
        );
    }
    let said = warnings(last);
    if !said.is_empty() {
        block.row("warnings", words::head(&said, MAX_SHOWN).join("\n"));
    }
    let refused = last.reload.as_ref().filter(|reload| !reload.ok);
    if let Some(output) = refused.and_then(|reload| reload.output.as_deref()) {
        let told = last
            .error
            .as_ref()
            .is_some_and(|e| e.message.contains(output.trim()));
        let said = about_the_set(output);
        if !told && !said.is_empty() {
            block.row("HAProxy", words::head(&said, MAX_SHOWN).join("\n"));
        }
    }
    for op in last.op_results.iter().filter(|op| !op.ok).take(MAX_SHOWN) {
        let output = words::outcome(op.output.as_deref().unwrap_or("no words"));
        block.row("command", format!("{}: {output}", op.kind));
    }
    if let Some(then) = aftermath::then(last) {
        block.row("then", then);
    }
}

fn haproxy(block: &mut Block, state: &State) {
    let version = match state.haproxy.full_version.as_str() {
        "" => "HAProxy has not been seen yet".to_owned(),
        version => {
            let up = when::since_micros(state.haproxy.worker_start_time_unix_micros);
            format!(
                "HAProxy {version}, worker {}{}",
                state.haproxy.worker_pid,
                up.map(|up| format!(", up {up}")).unwrap_or_default()
            )
        }
    };
    block.row("agent", format!("{}, {version}", state.agent_version));
}

#[cfg(test)]
mod tests;
