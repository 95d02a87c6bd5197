//! Running the pieces of a batch in their order.

use super::same_worker::{LOOK_PATIENCE, is_expected, open, usable};
use super::{BATCH_PATIENCE, Batch, BatchReport, Ended, OpOutcome, OpenSession};
use crate::clock::Clock;
use crate::error::Chain;
use crate::haproxy::command::Command;
use crate::haproxy::deletes::{Key, Queue};
use crate::haproxy::identity::Identity;
use crate::haproxy::ops::expect::{self, Judgement};
use crate::haproxy::ops::program::{MapDel, Segment, Step};
use crate::haproxy::ops::{Note, Outcome};
use crate::haproxy::reply::Reply;
use crate::haproxy::session::{self, Session, SessionError, WINDOW_BYTES};
use crate::haproxy::wait::Deadline;
use crate::haproxy::worker::{AskedInfo, WorkerSocket};
use crate::wire::limits::MAX_MAP_DEL_REPEAT;
use std::ops::ControlFlow;

/// Why nothing more is sent.
#[derive(Debug)]
pub(super) enum Stop {
    /// An op was refused; its result says so.
    Refused,
    /// No answer; what was answered before stands.
    Unknown(String),
    /// Answers that may belong to other commands.
    OutOfStep(String),
    /// Another worker, or a leaving one.
    WorkerChanged(String),
}

/// Everything that a procedure needs.
pub(super) struct Runner<'a> {
    pub(super) worker: &'a WorkerSocket,
    pub(super) session: Session,
    pub(super) queue: &'a mut Queue,
    pub(super) deadline: Deadline,
    pub(super) results: Vec<OpOutcome>,
    pub(super) reached: bool,
}

pub(super) fn run(
    batch: &Batch,
    open_before: &mut Option<OpenSession>,
    worker: &WorkerSocket,
    expected: Identity,
    queue: &mut Queue,
    clock: &dyn Clock,
) -> BatchReport {
    let results = batch.kinds.iter().map(|kind| OpOutcome {
        kind: kind.clone(),
        outcome: Outcome::NotRun,
        words: String::new(),
    });
    let results: Vec<_> = results.collect();
    let deadline = Deadline::from(clock.now(), BATCH_PATIENCE);
    let opened = match usable(open_before.take(), expected) {
        Some(open) => Ok(open),
        None => open(worker, expected, deadline),
    };
    let nothing = |results, ended| BatchReport {
        results,
        ended,
        reached_worker: false,
        deletes: Vec::new(),
    };
    let OpenSession { session, info, .. } = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let words = Chain(&error).to_string();
            return nothing(results, Ended::Unknown { words });
        }
    };
    if let Err(words) = is_expected(&info, expected) {
        return nothing(results, Ended::WorkerChanged { words });
    }
    queue.bind(expected);
    for key in &batch.cancels {
        queue.cancel(key);
    }
    let mut runner = Runner {
        worker,
        session,
        queue,
        deadline,
        results,
        reached: false,
    };
    let mut asked = None;
    let ran = runner.all(&batch.segments, expected, &mut asked);
    let (report, session) = runner.report(batch, expected, asked, ran);
    *open_before = session;
    report
}

impl Runner<'_> {
    /// All pieces, and the proof that the worker is still the expected one. When the last
    /// piece is a handful of commands, the questions for that proof travel with it.
    ///
    /// `asked`, the new connection, may then be older than those commands, which takes
    /// nothing from it: the files lie in place since before it was made, so a worker that
    /// comes later has read them, and one that came earlier answers it.
    fn all(
        &mut self,
        segments: &[Segment],
        expected: Identity,
        asked: &mut Option<AskedInfo>,
    ) -> Result<(), Stop> {
        let (last, before) = match segments.split_last() {
            Some((Segment::Plain { commands, steps }, before)) => (Some((commands, steps)), before),
            Some(_) | None => (None, segments),
        };
        before.iter().try_for_each(|one| self.segment(one))?;
        let Some((commands, steps)) = last else {
            return self.same_worker(expected);
        };
        let bytes: usize = commands.iter().map(|one| one.bytes().len()).sum();
        let question =
            Command::line(session::INFO).map_err(|fault| Stop::Unknown(fault.to_string()))?;
        let (worker, patience) = (self.worker, self.deadline.within(LOOK_PATIENCE));
        let mut ask = || {
            if bytes <= WINDOW_BYTES {
                // Nobody there: asked again afterwards, where it counts.
                *asked = worker.ask_info(patience).ok();
            }
        };
        match self.plain(commands, steps, Some(&question), &mut ask)? {
            Some(reply) => self.is_same(&reply, expected),
            None => self.same_worker(expected),
        }
    }

    fn segment(&mut self, segment: &Segment) -> Result<(), Stop> {
        match segment {
            Segment::Plain { commands, steps } => {
                self.plain(commands, steps, None, &mut || ()).map(drop)
            }
            Segment::MapDels(dels) => self.map_dels(dels),
            Segment::Settle(all) => self.settle(all),
            Segment::Remove(remove) => self.remove(remove),
            Segment::MapReplace(replace) => self.map_replace(replace),
            Segment::Cert(program) => self.certificate(program),
            Segment::Ca(program) => self.authority(program),
            Segment::CrtAdd {
                op,
                path,
                cert,
                rest,
            } => self.crt_list_add(*op, path, cert, rest),
            Segment::CrtDel {
                op,
                path,
                cert,
                on_disk,
            } => self.crt_list_del(*op, path, cert, on_disk.as_ref()),
        }
    }

    /// `question` is sent behind the commands; its answer is returned. `meanwhile` is
    /// called while HAProxy works.
    fn plain(
        &mut self,
        commands: &[Command],
        steps: &[Step],
        question: Option<&Command>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Option<Reply>, Stop> {
        let results = &mut self.results;
        let mut stop = None;
        let deadline = self.deadline;
        let mut exchange =
            self.session
                .exchange_and(commands, question, deadline, meanwhile, &mut |at, reply| {
                    let Some(step) = steps.get(at) else {
                        return session::go_on();
                    };
                    let judgement = step.expect.judge(reply);
                    let Some(result) = results.get_mut(step.op) else {
                        return session::go_on();
                    };
                    match judgement {
                        Judgement::Good(note) => {
                            if step.last && !result.outcome.is_failure() {
                                result.outcome = Outcome::Ok(note);
                            }
                            session::go_on()
                        }
                        Judgement::Bad(outcome) => {
                            if !result.outcome.is_failure() {
                                result.outcome = outcome;
                                result.words = expect::words(reply);
                            }
                            stop.get_or_insert(outcome);
                            ControlFlow::Break(())
                        }
                    }
                });
        for (outcome, step) in exchange.outcomes.iter().zip(steps) {
            let result = results.get_mut(step.op);
            match (outcome, result) {
                (session::Outcome::Answered(_), _) | (_, None) => self.reached = true,
                (session::Outcome::Unknown, Some(result)) => {
                    self.reached = true;
                    if !result.outcome.is_failure() {
                        result.outcome = Outcome::Unknown;
                    }
                }
                (session::Outcome::NotSent, Some(_)) => {}
            }
        }
        if let Some(error) = exchange.broken {
            return Err(broken(&error));
        }
        match (stop, question.and_then(|_| exchange.outcomes.pop())) {
            (None, Some(session::Outcome::Answered(reply))) => Ok(Some(reply)),
            (None, _) => Ok(None),
            (Some(Outcome::WorkerChanged), _) => Err(leaving()),
            (Some(_), _) => Err(Stop::Refused),
        }
    }

    /// Each `del map` is repeated until the key is not found: one call removes one
    /// duplicate on 3.4 and all of them before. Keys do not disturb each other, so one
    /// round of all of them is pipelined.
    fn map_dels(&mut self, dels: &[MapDel]) -> Result<(), Stop> {
        let mut open: Vec<(&MapDel, Note)> = dels.iter().map(|del| (del, Note::Absent)).collect();
        for _ in 0..=MAX_MAP_DEL_REPEAT {
            let commands: Vec<Command> = open.iter().map(|(del, _)| del.command.clone()).collect();
            let results = &mut self.results;
            let mut stop = None;
            let exchange = self
                .session
                .exchange(&commands, self.deadline, &mut |at, reply| {
                    let Some((del, note)) = open.get_mut(at) else {
                        return session::go_on();
                    };
                    let Some(result) = results.get_mut(del.op) else {
                        return session::go_on();
                    };
                    if reply.is_silent() {
                        *note = Note::Done;
                        return session::go_on();
                    }
                    if reply.severity() == Some(3) && reply.text() == "Key not found." {
                        result.outcome = Outcome::Ok(*note);
                        return session::go_on();
                    }
                    result.outcome = Outcome::Rejected;
                    result.words = expect::words(reply);
                    stop.get_or_insert(());
                    ControlFlow::Break(())
                });
            self.reached = true;
            for (outcome, (del, note)) in exchange.outcomes.iter().zip(&open) {
                if let Some(result) = results.get_mut(del.op) {
                    let unread = matches!(outcome, session::Outcome::Unknown);
                    let half = stop.is_some() && *note == Note::Done;
                    if result.outcome == Outcome::NotRun && (unread || half) {
                        result.outcome = Outcome::Unknown;
                    }
                }
            }
            if let Some(error) = exchange.broken {
                return Err(broken(&error));
            }
            if stop.is_some() {
                return Err(Stop::Refused);
            }
            let results = &self.results;
            let settled = |op: usize| results.get(op).is_none_or(|r| r.outcome != Outcome::NotRun);
            open.retain(|(del, _)| !settled(del.op));
            if open.is_empty() {
                return Ok(());
            }
        }
        for (del, _) in open {
            let words = format!(
                "after {MAX_MAP_DEL_REPEAT} deletes HAProxy still finds the key in the map"
            );
            self.fail(del.op, Outcome::Rejected, words);
        }
        Err(Stop::Refused)
    }

    /// One command by itself.
    pub(super) fn ask(&mut self, command: &Command) -> Result<Reply, Stop> {
        self.reached = true;
        let commands = std::slice::from_ref(command);
        let mut exchange = self
            .session
            .exchange(commands, self.deadline, &mut |_, _| session::go_on());
        match (exchange.outcomes.pop(), exchange.broken) {
            (Some(session::Outcome::Answered(reply)), None) => Ok(reply),
            (_, Some(error)) => Err(broken(&error)),
            (_, None) => Err(Stop::Unknown("a command has no answer".to_owned())),
        }
    }

    pub(super) fn ask_line(&mut self, text: &str) -> Result<Reply, Stop> {
        match Command::line(text) {
            Ok(command) => self.ask(&command),
            // Every text was checked when the batch was made.
            Err(fault) => Err(Stop::Unknown(format!("{text:.80}: {fault}"))),
        }
    }

    pub(super) fn done(&mut self, op: usize, note: Note) {
        if let Some(result) = self.results.get_mut(op) {
            result.outcome = Outcome::Ok(note);
        }
    }

    /// The op failed; the batch ends.
    pub(super) fn fail(&mut self, op: usize, outcome: Outcome, words: String) -> Stop {
        if let Some(result) = self.results.get_mut(op) {
            result.outcome = outcome;
            result.words = words;
        }
        match outcome {
            Outcome::WorkerChanged => leaving(),
            _ => Stop::Refused,
        }
    }

    /// HAProxy refused the op with these words.
    pub(super) fn refuse(&mut self, op: usize, reply: &Reply) -> Stop {
        let outcome = match expect::is_leaving(&reply.text()) {
            true => Outcome::WorkerChanged,
            false => Outcome::Rejected,
        };
        self.fail(op, outcome, expect::words(reply))
    }

    /// An answer of the op was lost: marks it, and hands the reason on.
    pub(super) fn lost<T>(&mut self, op: usize, answer: Result<T, Stop>) -> Result<T, Stop> {
        match (&answer, self.results.get_mut(op)) {
            (Err(Stop::Unknown(words) | Stop::OutOfStep(words)), Some(result)) => {
                result.outcome = Outcome::Unknown;
                result.words.clone_from(words);
            }
            (Err(Stop::Refused | Stop::WorkerChanged(_)) | Ok(_), _) | (Err(_), None) => {}
        }
        answer
    }

    fn report(
        mut self,
        batch: &Batch,
        expected: Identity,
        asked: Option<AskedInfo>,
        ran: Result<(), Stop>,
    ) -> (BatchReport, Option<OpenSession>) {
        let mut deletes = Vec::new();
        let ran = ran.and_then(|()| self.outside(expected, asked));
        let (ran, outside) = match ran {
            Ok((worker, asked)) => (Ok(worker), Some(asked)),
            Err(stop) => (Err(stop), None),
        };
        // They have no command of their own: those before the first that failed are done.
        let mut all = self.results.iter().enumerate();
        let stopped = all.position(|(op, r)| !r.outcome.is_ok() && !batch.absorbed.contains(&op));
        let reached = stopped.unwrap_or(self.results.len());
        for &op in batch.absorbed.range(..reached) {
            self.done(op, Note::Done);
        }
        let ended = match ran {
            Ok(worker) => {
                deletes = self.commit(batch, expected);
                match self.results.iter().position(|r| !r.outcome.is_ok()) {
                    None => Ended::Complete { worker },
                    Some(index) => Ended::Refused { index },
                }
            }
            Err(Stop::Refused) => Ended::Refused {
                index: self.first_failure(),
            },
            Err(Stop::Unknown(words)) => Ended::Unknown { words },
            Err(Stop::OutOfStep(words)) => {
                self.distrust(Outcome::Unknown, &words);
                Ended::Unknown { words }
            }
            Err(Stop::WorkerChanged(words)) => {
                self.distrust(Outcome::WorkerChanged, &words);
                Ended::WorkerChanged { words }
            }
        };
        let kept = match &ended {
            Ended::Complete { worker } => Some(OpenSession {
                session: self.session,
                info: worker.clone(),
                _outside: outside,
            }),
            Ended::Refused { .. } | Ended::Unknown { .. } | Ended::WorkerChanged { .. } => None,
        };
        let report = BatchReport {
            results: self.results,
            ended,
            reached_worker: self.reached,
            deletes,
        };
        (report, kept)
    }

    /// Deletes whose object is gone already need no entry.
    fn commit(&mut self, batch: &Batch, expected: Identity) -> Vec<Key> {
        let mut requests = Vec::new();
        for (op, request) in &batch.deferred {
            if let Some(result) = self.results.get_mut(*op) {
                if result.outcome == Outcome::Ok(Note::Done) {
                    result.outcome = Outcome::Deferred;
                    requests.push(request.clone());
                }
            }
        }
        self.queue.add(&requests, expected);
        requests.into_iter().map(|request| request.key).collect()
    }

    fn first_failure(&self) -> usize {
        let failed = self.results.iter().position(|r| r.outcome.is_failure());
        failed.unwrap_or_default()
    }

    /// What was answered before cannot be believed either.
    fn distrust(&mut self, outcome: Outcome, words: &str) {
        for result in &mut self.results {
            if result.outcome.is_ok() {
                result.outcome = outcome;
                words.clone_into(&mut result.words);
            }
        }
    }
}

/// Why the session ended decides whether its earlier answers stand.
pub(super) fn broken(error: &SessionError) -> Stop {
    let words = Chain(error).to_string();
    match error {
        SessionError::Socket(_) | SessionError::Ended { .. } | SessionError::Over => {
            Stop::Unknown(words)
        }
        SessionError::OutOfStep(_) | SessionError::NoSession { .. } | SessionError::Info(_) => {
            Stop::OutOfStep(words)
        }
    }
}

fn leaving() -> Stop {
    Stop::WorkerChanged("the worker is leaving".to_owned())
}
