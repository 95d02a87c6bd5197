//! What is sent, open and answered while one exchange runs. It reads and writes nothing:
//! the session tells it what went out and what came.

use super::{LAST_WORDS, Outcome, WINDOW_BYTES};
use crate::haproxy::command::Command;
use crate::haproxy::reply::Reply;
use crate::haproxy::wait::Deadline;
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// The state of one exchange.
pub(super) struct Run<'a> {
    commands: Vec<&'a Command>,
    outcomes: Vec<Outcome>,
    /// Places of the commands that are sent and not answered, oldest first.
    open: VecDeque<usize>,
    /// The first command that is not sent.
    next: usize,
    /// Bytes of the open ones.
    outstanding: usize,
    stopped: bool,
    /// The oldest open command and when it must be answered.
    due: Option<(usize, Deadline)>,
}

impl<'a> Run<'a> {
    pub(super) fn of(commands: Vec<&'a Command>) -> Self {
        Self {
            outcomes: vec![Outcome::NotSent; commands.len()],
            commands,
            open: VecDeque::new(),
            next: 0,
            outstanding: 0,
            stopped: false,
            due: None,
        }
    }

    /// The first command that is not sent.
    pub(super) fn next(&self) -> usize {
        self.next
    }

    /// Whether an answer is to come.
    pub(super) fn waits(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether nothing is to be sent nor to come.
    pub(super) fn is_over(&self) -> bool {
        self.open.is_empty() && (self.stopped || self.next >= self.commands.len())
    }

    pub(super) fn outcomes(self) -> Vec<Outcome> {
        self.outcomes
    }

    /// When the oldest open command must be answered. Counted from when it became the
    /// oldest: bytes that trickle in do not move it.
    pub(super) fn due(&mut self, deadline: Deadline) -> Deadline {
        let oldest = self.open.front().copied();
        match self.due {
            Some((at, due)) if Some(at) == oldest => due,
            Some(_) | None => {
                let command = oldest.and_then(|at| self.commands.get(at));
                let due = deadline.within(command.map_or(LAST_WORDS, |one| one.patience()));
                self.due = oldest.map(|at| (at, due));
                due
            }
        }
    }

    /// The next command if it may be sent behind `batch` bytes of this write.
    pub(super) fn fitting(&self, batch: usize) -> Option<&'a Command> {
        let command = *self.commands.get(self.next).filter(|_| !self.stopped)?;
        let fits = self.outstanding + command.bytes().len() <= WINDOW_BYTES;
        let alone = self.open.is_empty() && batch == 0;
        (fits || alone).then_some(command)
    }

    pub(super) fn mark_sent(&mut self) {
        if let Some(command) = self.commands.get(self.next) {
            self.outstanding += command.bytes().len();
            self.open.push_back(self.next);
            if let Some(outcome) = self.outcomes.get_mut(self.next) {
                *outcome = Outcome::Unknown;
            }
            self.next += 1;
        }
    }

    /// Of the commands from `first` on, only `written` bytes went out: those of which
    /// nothing did are not sent after all. Returns how many.
    pub(super) fn take_back(&mut self, first: usize, written: usize) -> usize {
        let mut start = 0;
        let mut unsent = 0;
        for (at, command) in self.commands.iter().enumerate().take(self.next).skip(first) {
            if start >= written {
                unsent += 1;
                self.open.pop_back();
                if let Some(outcome) = self.outcomes.get_mut(at) {
                    *outcome = Outcome::NotSent;
                }
            }
            start += command.bytes().len();
        }
        self.stopped = true;
        unsent
    }

    /// Gives the answers to the oldest open commands.
    pub(super) fn settle(
        &mut self,
        replies: &mut Vec<Reply>,
        judge: &mut dyn FnMut(usize, &Reply) -> ControlFlow<()>,
    ) {
        for reply in replies.drain(..) {
            let Some(at) = self.open.pop_front() else {
                return;
            };
            if let Some(command) = self.commands.get(at) {
                self.outstanding = self.outstanding.saturating_sub(command.bytes().len());
            }
            self.stopped = judge(at, &reply).is_break() || self.stopped;
            if let Some(outcome) = self.outcomes.get_mut(at) {
                *outcome = Outcome::Answered(reply);
            }
        }
    }
}
