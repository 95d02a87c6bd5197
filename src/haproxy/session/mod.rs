//! An interactive session with the worker: many commands, an exact answer for each.
//!
//! Commands are pipelined with at most [`WINDOW_BYTES`] outstanding, because some
//! releases stop reading when a buffer of input is full. A larger command is sent
//! alone. Each write ends in LF, and a write that fails in the middle of a line is
//! given a chance to end that line: an unfinished payload line keeps a thread of
//! HAProxy busy for as long as it lives.
//!
//! Nothing is sent twice. When the stream ends, falls out of step or is late, every
//! command that may have reached HAProxy has the outcome *unknown* and the session is
//! over. A session that was opened before a reload stays with the old worker: look at
//! [`Session::info`] and at a new connection before believing its answers.

mod error;
mod exchange;

pub use error::SessionError;
use exchange::Run;

use super::command::Command;
use super::identity::WorkerInfo;
use super::reply::{Reply, Splitter};
use super::socket::{Connection, SocketError, WriteError};
use super::wait::Deadline;
use super::worker::WorkerSocket;
use std::ops::ControlFlow;
use std::time::Duration;

/// Bytes of commands without an answer, half of HAProxy's buffer.
pub const WINDOW_BYTES: usize = 8192;
/// How long the rest of a line, and answers already on their way, may take after the
/// session broke.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The question who answers.
pub const INFO: &str = "show info float";
/// What makes a connection a session.
const GREETING: [&str; 2] = ["prompt\n", "set severity-output number\n"];
/// The same, and the question who answers.
const GREETING_AND_INFO: [&str; 3] = [GREETING[0], GREETING[1], "show info float\n"];

/// An open session. Dropping it closes the connection.
#[derive(Debug)]
pub struct Session {
    connection: Connection,
    splitter: Splitter,
    buffer: Vec<u8>,
    over: bool,
}

/// A session that was asked for; nothing of it has been read.
#[derive(Debug)]
pub struct Opening {
    session: Session,
}

impl Opening {
    /// Reads the answers: the session, and the worker at its other end. That worker stays
    /// the same for as long as the session lives.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; no command has been sent.
    pub fn finish(mut self, deadline: Deadline) -> Result<(Session, WorkerInfo), SessionError> {
        let replies = self.session.greeted(&GREETING_AND_INFO, deadline)?;
        let info = replies.first().map_or(&[][..], Reply::body);
        let info = WorkerInfo::parse(info).map_err(SessionError::Info)?;
        Ok((self.session, info))
    }
}

/// What became of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// HAProxy's answer.
    Answered(Reply),
    /// It may have been carried out or not.
    Unknown,
    /// No byte of it was sent.
    NotSent,
}

/// What became of all commands, in their order.
#[derive(Debug)]
pub struct Exchange {
    /// One for each command.
    pub outcomes: Vec<Outcome>,
    /// Why the session is over, if it is.
    pub broken: Option<SessionError>,
}

impl Session {
    /// Connects and switches to prompts and severity tags.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; no command has been sent.
    pub fn open(worker: &WorkerSocket, deadline: Deadline) -> Result<Self, SessionError> {
        let mut session = Self::greet(worker, &GREETING, deadline)?;
        session.greeted(&GREETING, deadline)?;
        Ok(session)
    }

    /// Connects, switches as [`open`](Self::open) does and asks who answers, in one
    /// write. The answers are read by [`Opening::finish`], so that other work can be done
    /// while HAProxy wakes up.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; no command has been sent.
    pub fn begin(worker: &WorkerSocket, deadline: Deadline) -> Result<Opening, SessionError> {
        let session = Self::greet(worker, &GREETING_AND_INFO, deadline)?;
        Ok(Opening { session })
    }

    fn greet(
        worker: &WorkerSocket,
        lines: &[&str],
        deadline: Deadline,
    ) -> Result<Self, SessionError> {
        let connection = Connection::open(worker.path(), deadline).map_err(SessionError::Socket)?;
        let mut session = Self {
            connection,
            splitter: Splitter::default(),
            buffer: vec![0; 16 * 1024],
            over: false,
        };
        for _ in lines {
            session.splitter.expect(false);
        }
        session
            .connection
            .write(lines.concat().as_bytes(), deadline)
            .map_err(|error| SessionError::Socket(error.source))?;
        Ok(session)
    }

    /// Reads the answers to a greeting; what is not about the session itself is returned.
    fn greeted(&mut self, lines: &[&str], deadline: Deadline) -> Result<Vec<Reply>, SessionError> {
        let mut replies = Vec::new();
        while replies.len() < lines.len() {
            self.receive(&mut replies, deadline)?;
            // What is no session must not be waited for to answer the rest.
            let switches = replies.iter().take(GREETING.len());
            if let Some(reply) = switches.clone().find(|reply| !reply.is_silent()) {
                return Err(SessionError::NoSession {
                    words: reply.text().chars().take(200).collect(),
                });
            }
        }
        Ok(replies.split_off(GREETING.len()))
    }

    /// Whether nothing has come since the last answer, the end of the stream included.
    /// HAProxy closes a session that is idle for its `stats timeout`.
    pub fn is_quiet(&mut self) -> bool {
        !self.over && matches!(self.connection.read_now(&mut self.buffer), Ok(None))
    }

    /// Asks on this session who answers. As the last command of a batch it also proves
    /// that the answers before it were attributed right: a shift by one cannot pass.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; the session is over then.
    pub fn info(&mut self, deadline: Deadline) -> Result<WorkerInfo, SessionError> {
        let command = Command::line(INFO).map_err(|_| SessionError::Over)?;
        let mut exchange = self.exchange(&[command], deadline, &mut |_, _| go_on());
        match (exchange.outcomes.pop(), exchange.broken) {
            (Some(Outcome::Answered(reply)), None) => self.who(&reply),
            (_, Some(broken)) => Err(broken),
            (Some(Outcome::Unknown | Outcome::NotSent) | None, None) => Err(SessionError::Over),
        }
    }

    /// What the answer to [`INFO`] says; after one that says nothing the session is over.
    ///
    /// # Errors
    ///
    /// `Info`.
    pub fn who(&mut self, reply: &Reply) -> Result<WorkerInfo, SessionError> {
        WorkerInfo::parse(reply.body()).map_err(|error| {
            self.over = true;
            SessionError::Info(error)
        })
    }

    /// Sends the commands in their order and reads their answers. `judge` sees each
    /// answer as it comes, with the command's place; after a `Break` nothing more is
    /// sent, and what is outstanding is still read. Returns when all that was sent is
    /// answered or lost, by the deadline plus a second at the latest.
    ///
    /// A barrier is the end of a call.
    pub fn exchange(
        &mut self,
        commands: &[Command],
        deadline: Deadline,
        judge: &mut dyn FnMut(usize, &Reply) -> ControlFlow<()>,
    ) -> Exchange {
        self.exchange_and(commands, None, deadline, &mut || (), judge)
    }

    /// [`exchange`](Self::exchange) with one more command behind the others, in the same
    /// window if it fits. Its outcome is the last one; it is not sent after a `Break`.
    /// `meanwhile` is called once, when the first window is on its way.
    pub fn exchange_and(
        &mut self,
        commands: &[Command],
        last: Option<&Command>,
        deadline: Deadline,
        meanwhile: &mut dyn FnMut(),
        judge: &mut dyn FnMut(usize, &Reply) -> ControlFlow<()>,
    ) -> Exchange {
        let commands: Vec<&Command> = commands.iter().chain(last).collect();
        let mut run = Run::of(commands);
        let broken = if self.over {
            Some(SessionError::Over)
        } else {
            self.drive(&mut run, deadline, meanwhile, judge).err()
        };
        self.over = self.over || broken.is_some();
        Exchange {
            outcomes: run.outcomes(),
            broken,
        }
    }

    fn drive(
        &mut self,
        run: &mut Run<'_>,
        deadline: Deadline,
        meanwhile: &mut dyn FnMut(),
        judge: &mut dyn FnMut(usize, &Reply) -> ControlFlow<()>,
    ) -> Result<(), SessionError> {
        let mut replies = Vec::new();
        let mut meanwhile = Some(meanwhile);
        loop {
            let sent = self.send_window(run, &mut replies, deadline);
            if let Some(call) = meanwhile.take() {
                call();
            }
            let sent = sent.and_then(|()| {
                if !run.waits() {
                    return Ok(());
                }
                // What came while sending is looked at first.
                match replies.is_empty() {
                    true => self.receive(&mut replies, run.due(deadline)),
                    false => Ok(()),
                }
            });
            if let Err(error) = sent {
                run.settle(&mut replies, judge);
                self.last_words(&error, &mut replies);
                run.settle(&mut replies, judge);
                return Err(error.with_words(self.splitter.partial()));
            }
            run.settle(&mut replies, judge);
            if run.is_over() {
                return Ok(());
            }
        }
    }

    /// Sends as many commands as the window takes.
    fn send_window(
        &mut self,
        run: &mut Run<'_>,
        replies: &mut Vec<Reply>,
        deadline: Deadline,
    ) -> Result<(), SessionError> {
        let first = run.next();
        let mut batch = Vec::new();
        while let Some(command) = run.fitting(batch.len()) {
            batch.extend_from_slice(command.bytes());
            self.splitter.expect(command.has_payload());
            run.mark_sent();
        }
        let mut written = 0;
        while let Some(rest) = batch.get(written..).filter(|rest| !rest.is_empty()) {
            let slice = whole_lines(rest);
            if let Err(error) = self.connection.write(slice, deadline) {
                self.end_line(slice, &error);
                let unsent = run.take_back(first, written + error.written);
                self.splitter.forget_newest(unsent);
                return Err(SessionError::Socket(error.source));
            }
            written += slice.len();
            if written < batch.len() {
                // Payload echoes must not fill HAProxy's way out while we only write.
                self.drain(replies)?;
            }
        }
        Ok(())
    }

    /// Ends the line that a failed write left open.
    fn end_line(&mut self, slice: &[u8], error: &WriteError) {
        let rest = slice.get(error.written..).unwrap_or_default();
        let open = error.written > 0 && slice.get(error.written.saturating_sub(1)) != Some(&b'\n');
        if let Some(end) = rest.iter().position(|&b| b == b'\n').filter(|_| open) {
            let line = rest.get(..=end).unwrap_or_default();
            // Nothing else can be done if this fails as well.
            let _ = self.connection.write(line, Deadline::after(LAST_WORDS));
        }
    }

    /// One read.
    fn receive(
        &mut self,
        replies: &mut Vec<Reply>,
        deadline: Deadline,
    ) -> Result<(), SessionError> {
        let count = self
            .connection
            .read(&mut self.buffer, deadline)
            .map_err(SessionError::Socket)?;
        self.take(count, replies)
    }

    /// Reads what is there.
    fn drain(&mut self, replies: &mut Vec<Reply>) -> Result<(), SessionError> {
        match self
            .connection
            .read_now(&mut self.buffer)
            .map_err(SessionError::Socket)?
        {
            Some(count) => self.take(count, replies),
            None => Ok(()),
        }
    }

    fn take(&mut self, count: usize, replies: &mut Vec<Reply>) -> Result<(), SessionError> {
        if count == 0 {
            return Err(SessionError::Ended {
                words: String::new(),
            });
        }
        let bytes = self.buffer.get(..count).unwrap_or_default();
        self.splitter
            .feed(bytes, replies)
            .map_err(SessionError::OutOfStep)
    }

    /// After a write failed, answers to what was sent before may still be there.
    fn last_words(&mut self, error: &SessionError, replies: &mut Vec<Reply>) {
        let deadline = Deadline::after(LAST_WORDS);
        let writing = |error: &SessionError| match error {
            SessionError::Socket(
                SocketError::Closed { doing, .. } | SocketError::Deadline { doing, .. },
            ) => *doing == "writing",
            SessionError::Socket(_)
            | SessionError::Ended { .. }
            | SessionError::OutOfStep(_)
            | SessionError::NoSession { .. }
            | SessionError::Info(_)
            | SessionError::Over => false,
        };
        while writing(error) && self.splitter.open() > 0 {
            if self.receive(replies, deadline).is_err() {
                return;
            }
        }
    }
}

/// `Continue` for a judge that never stops.
pub fn go_on() -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// The longest piece of whole lines within the window, else one line.
fn whole_lines(rest: &[u8]) -> &[u8] {
    let window = rest.get(..WINDOW_BYTES).unwrap_or(rest);
    let end = window
        .iter()
        .rposition(|&b| b == b'\n')
        .or_else(|| rest.iter().position(|&b| b == b'\n'));
    end.and_then(|end| rest.get(..=end)).unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_whole_lines_within_the_window() {
        assert_eq!(whole_lines(b"ab\ncd\n"), b"ab\ncd\n");
        let line = |len: usize| [vec![b'x'; len - 1], vec![b'\n']].concat();
        let two = [line(5000), line(5000)].concat();
        assert_eq!(whole_lines(&two).len(), 5000);
        let long = [line(9000), line(10)].concat();
        assert_eq!(whole_lines(&long).len(), 9000, "a line is never cut");
        let exact = [line(WINDOW_BYTES), line(10)].concat();
        assert_eq!(whole_lines(&exact).len(), WINDOW_BYTES);
    }
}
