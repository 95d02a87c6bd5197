//! `hapticctl plan`: the verdict and its reasons; writes nothing.

use serde_json::json;

use super::view::{Block, Report};
use super::{labels, next, words};
use crate::client::decide::{Change, Decision, Verdict, Why};
use crate::client::push::is_silent;
use crate::client::socket;
use crate::client::{
    Client, Error, FileSet, Fleet, Refused, StateRead, Transport, decide, reserved,
};
use crate::http::client::{Error as HttpError, Phase};
use crate::wire::result::Stage;
use crate::wire::state::State;

/// Files that are named one by one.
const MAX_SHOWN: usize = 20;

pub(super) fn run(fleet: &Fleet, set: &FileSet) -> Report {
    let blocks = fleet.each(|_, client| {
        let (state, hashed) = match looked(client) {
            Ok(seen) => seen,
            Err(error) => return unasked(&error),
        };
        if let Some(path) = reserved(set, &state) {
            return unasked(&Error::from(Refused::Reserved(path.clone())));
        }
        let mut block = block(set, &state, &decide(set, &state));
        block.field("hashed", hashed);
        if !hashed {
            block.line(
                "the agent is busy, so the files on its disk were not hashed; hapticctl verify does that",
            );
        }
        block
    });
    let mut report = Report::new(labels(fleet), blocks);
    describe(set, &mut report);
    report
}

/// The state after a look at the disk, which a push would build on; while an apply keeps
/// the agent from looking, the state as it knows it.
fn looked(client: &Client) -> Result<(State, bool), Error> {
    let read = |verify| client.state(StateRead { verify, plan: true });
    match read(true) {
        Ok(state) => Ok((state, true)),
        Err(error) if is_busy(&error) => read(false).map(|state| (state, false)),
        Err(error) => Err(error),
    }
}

fn is_busy(error: &Error) -> bool {
    let stage = error.failure().map(|failure| failure.stage);
    let waited = matches!(
        error,
        Error::Transport(Transport::Http(HttpError::Timeout(phase))) if *phase != Phase::Connect
    );
    waited || stage == Some(Stage::Busy)
}

/// The set itself, which is the same for all agents.
pub(super) fn describe(set: &FileSet, report: &mut Report) {
    let mut head = format!(
        "plan {}: {}, {}",
        words::plan(set.plan_id()),
        words::counted(set.files().len(), "file"),
        words::bytes(set.bytes())
    );
    if !set.skipped().is_empty() {
        head += &format!(
            "; left out, since their names start with a dot: {}",
            words::some(set.skipped(), 5)
        );
    }
    report.head.push(head);
    report.fields.insert("plan_id".into(), set.plan_id().into());
    report
        .fields
        .insert("files".into(), set.files().len().into());
    report.fields.insert("bytes".into(), set.bytes().into());
    report.fields.insert("skipped".into(), json!(set.skipped()));
}

fn block(set: &FileSet, state: &State, decision: &Decision) -> Block {
    let silent = is_silent(state);
    let mut block = Block::new(
        true,
        match silent {
            true => format!("{}, once HAProxy answers", title(decision)),
            false => title(decision),
        },
    );
    block.field("verdict", json!(decision.verdict));
    block.field("decision", json!(decision));
    block.field("applied_plan_id", state.applied_plan_id.as_str());
    reasons(&mut block, decision, MAX_SHOWN);
    changes(&mut block, decision);
    for op in decision.ops.iter().take(MAX_SHOWN) {
        let object = op
            .path
            .as_deref()
            .or(op.server.as_deref())
            .or(op.backend.as_deref())
            .unwrap_or_default();
        block.line(format!("command {} {object}", op.kind));
    }
    more(&mut block, decision.ops.len(), MAX_SHOWN, "command");
    if let Some(doubt) = socket::doubt(set, state) {
        block.line(format!("warning: {}", doubt.line()));
        block.line(format!("  {}", doubt.next));
        block.field(
            "warnings",
            vec![format!("{}; {}", doubt.line(), doubt.next)],
        );
    }
    if state.reload_pending_at.is_some() {
        block.line("a reload is pending there: it will load this set too");
    }
    block.next = match decision.verdict {
        _ if !state.in_the_way.is_empty() => Some(next::WAY_BLOCKED.into()),
        _ if silent => Some(format!(
            "{}; hapticctl push with the same flags does the rest",
            next::START_HAPROXY
        )),
        Verdict::Noop => None,
        Verdict::FileOnly | Verdict::Runtime | Verdict::Reload => {
            Some("hapticctl push with the same flags does it".into())
        }
    };
    block
}

/// The verdict in one line.
pub(super) fn title(decision: &Decision) -> String {
    match decision.verdict {
        Verdict::Noop => "nothing to do".into(),
        Verdict::FileOnly => format!(
            "{} to write, no reload",
            words::counted(decision.files.len(), "file")
        ),
        Verdict::Runtime => format!(
            "{} to write, {} on the running worker, no reload",
            words::counted(decision.files.len(), "file"),
            words::counted(decision.ops.len(), "command")
        ),
        Verdict::Reload => format!(
            "{} to write, and a reload",
            words::counted(decision.files.len(), "file")
        ),
    }
}

/// Why, those that decide first.
fn reasons(block: &mut Block, decision: &Decision, most: usize) {
    reasons_of(block, decision, most, &|_| true);
}

/// The same of those reasons alone that need what `which` says.
pub(super) fn reasons_of(
    block: &mut Block,
    decision: &Decision,
    most: usize,
    which: &dyn Fn(Verdict) -> bool,
) {
    let all: Vec<_> = decision
        .reasons
        .iter()
        .filter(|reason| which(reason.needs))
        .collect();
    for reason in all.iter().take(most) {
        let verdict = match reason.needs {
            Verdict::Noop => "nothing",
            Verdict::FileOnly => "file",
            Verdict::Runtime => "runtime",
            Verdict::Reload => "reload",
        };
        block.line(match &reason.path {
            Some(path) => format!("{verdict}: {path}: {}", reason.text),
            None if reason.why == Why::Asked => format!("{verdict}: {} (--reload)", reason.text),
            None => format!("{verdict}: {}", reason.text),
        });
    }
    more(block, all.len(), most, "reason");
}

fn changes(block: &mut Block, decision: &Decision) {
    for file in decision.files.iter().take(MAX_SHOWN) {
        let sign = match file.change {
            Change::Added => '+',
            Change::Changed => '~',
            Change::Removed => '-',
        };
        block.line(format!("{sign} {}", file.path));
    }
    more(block, decision.files.len(), MAX_SHOWN, "file");
}

fn more(block: &mut Block, count: usize, shown: usize, what: &str) {
    let rest = count.saturating_sub(shown);
    if rest > 0 {
        let what = words::counted(rest, what);
        block.line(format!("and {what} besides; -o json lists all"));
    }
}

/// An agent that could not be asked.
pub(super) fn unasked(error: &Error) -> Block {
    Block::failure(&next::of_error(error))
}
