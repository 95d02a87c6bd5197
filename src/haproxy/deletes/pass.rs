//! One pass over the queue in one session.
//!
//! All that is due is pipelined, servers first, so that one that is stuck costs the
//! others nothing. No answer counts before the end of the round proved that the
//! answers are in step; a lost one is no attempt, because a delete that did happen says
//! "no such server" next time.

use super::machine::{Policy, Step, Turn};
use super::queue::{Key, ObjectKind, Queue};
use crate::clock::Clock;
use crate::error::Chain;
use crate::haproxy::command::Command;
use crate::haproxy::deletes::DeleteOutcome;
use crate::haproxy::ops::expect;
use crate::haproxy::reply::Reply;
use crate::haproxy::session::{self, Outcome, Session};
use crate::haproxy::wait::Deadline;
use crate::haproxy::worker::WorkerSocket;
use std::time::{Duration, Instant};

/// How long one pass may take: thousands of commands need milliseconds.
pub const PASS_PATIENCE: Duration = Duration::from_secs(10);
/// Before the next pass after one that got no answer.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// What a pass leaves to its caller, beside the queue's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// When the next one is due; `None` when nothing waits.
    pub next: Option<Instant>,
    /// Why there were no answers.
    pub error: Option<String>,
}

/// Sends what is due and takes the answers. Blocks for [`PASS_PATIENCE`] and some
/// seconds at most; no dump may run meanwhile. Entries of another worker than the one
/// that answers are superseded.
pub fn pass(queue: &mut Queue, worker: &WorkerSocket, policy: Policy, clock: &dyn Clock) -> Pass {
    let now = clock.now();
    if due(queue, ObjectKind::Server, now).is_empty()
        && due(queue, ObjectKind::Backend, now).is_empty()
    {
        return Pass {
            next: next(queue, now),
            error: None,
        };
    }
    match run(queue, worker, policy, clock) {
        Ok(()) => Pass {
            next: next(queue, clock.now()),
            error: None,
        },
        Err(words) => Pass {
            next: (!queue.is_empty()).then(|| clock.now() + AFTER_ERROR),
            error: Some(words),
        },
    }
}

fn run(
    queue: &mut Queue,
    worker: &WorkerSocket,
    policy: Policy,
    clock: &dyn Clock,
) -> Result<(), String> {
    let deadline = Deadline::from(clock.now(), PASS_PATIENCE);
    let (mut session, info) = Session::begin(worker, deadline)
        .and_then(|opening| opening.finish(deadline))
        .map_err(|error| Chain(&error).to_string())?;
    // A former worker that took this connection says nothing about the present one.
    if queue
        .worker()
        .is_some_and(|worker| info.identity.is_older_than(worker))
    {
        return Err("a former worker still answers".to_owned());
    }
    if queue.worker() != Some(info.identity) || info.stopping {
        queue.supersede_all("another worker runs now");
        return Ok(());
    }
    for kind in [ObjectKind::Server, ObjectKind::Backend] {
        let all = due(queue, kind, clock.now());
        let answers = round(&mut session, &all, policy, deadline)?;
        for ((key, turn), reply) in all.iter().zip(answers) {
            take(queue, key, *turn, &reply, policy, clock.now());
        }
    }
    Ok(())
}

/// A backend waits for its servers.
fn due(queue: &Queue, kind: ObjectKind, now: Instant) -> Vec<(Key, Turn)> {
    let of_kind = queue.entries().iter().filter(|(key, _)| key.kind() == kind);
    of_kind
        .filter(|(key, _)| kind == ObjectKind::Server || queue.servers_of(key.backend()).is_empty())
        .filter_map(|(key, entry)| Some((key.clone(), entry.due(now)?)))
        .collect()
}

fn next(queue: &Queue, now: Instant) -> Option<Instant> {
    let ready = queue.entries().iter().filter(|(key, _)| {
        key.kind() == ObjectKind::Server || queue.servers_of(key.backend()).is_empty()
    });
    ready.map(|(_, entry)| entry.wake().unwrap_or(now)).min()
}

/// The answer to each delete.
fn round(
    session: &mut Session,
    all: &[(Key, Turn)],
    policy: Policy,
    deadline: Deadline,
) -> Result<Vec<Reply>, String> {
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let mut commands = Vec::new();
    let mut deletes = Vec::new();
    for (key, turn) in all {
        let cut = *turn == Turn::Attempt && policy.cut && key.kind() == ObjectKind::Server;
        if cut {
            let text = format!("shutdown sessions server {key}");
            commands.push(Command::line(&text).map_err(|fault| fault.to_string())?);
        }
        deletes.push(commands.len());
        let text = key.delete_command();
        commands.push(Command::line(&text).map_err(|fault| fault.to_string())?);
    }
    let exchange = session.exchange(&commands, deadline, &mut |_, _| session::go_on());
    if let Some(error) = exchange.broken {
        return Err(Chain(&error).to_string());
    }
    // Out of step, and no answer above means anything.
    session
        .info(deadline)
        .map_err(|error| Chain(&error).to_string())?;
    let mut outcomes: Vec<Option<Outcome>> = exchange.outcomes.into_iter().map(Some).collect();
    deletes
        .into_iter()
        .map(|at| match outcomes.get_mut(at).and_then(Option::take) {
            Some(Outcome::Answered(reply)) => Ok(reply),
            Some(Outcome::Unknown | Outcome::NotSent) | None => {
                Err("a delete has no answer".to_owned())
            }
        })
        .collect()
}

fn take(queue: &mut Queue, key: &Key, turn: Turn, reply: &Reply, policy: Policy, now: Instant) {
    let Some(entry) = queue.entries_mut().get_mut(key) else {
        return;
    };
    let words = expect::words(reply);
    match entry.answer(turn, key.judge(reply), policy, now) {
        Step::Stay => {}
        Step::Deferred => queue.note(key, DeleteOutcome::Deferred, &words),
        Step::End(outcome) => {
            queue.finish(key, outcome, &words);
        }
    }
}
