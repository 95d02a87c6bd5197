//! Certificates and CA files: set, look at the answer, commit, or abort and leave
//! nothing open.
//!
//! HAProxy has one transaction for certificates and one for CA files, shared by
//! everybody who talks to it. One that is open under another name is aborted, once; an
//! answer that names something else than what was set is never believed. A clean-up
//! that fails changes no outcome: the reload that follows resets everything.

use super::run::{Runner, Stop};
use crate::format::field::RuntimePath;
use crate::format::pem::CertPem;
use crate::haproxy::command::Command;
use crate::haproxy::ops::expect;
use crate::haproxy::ops::program::{CaProgram, CertProgram, ZeroUpdates};
use crate::haproxy::ops::{Note, Outcome};
use crate::haproxy::reply::Reply;
use crate::haproxy::wait::Backoff;
use crate::haproxy::worker::{DumpError, LOCKED};
use crate::wire::limits::MAX_PAYLOAD_BYTES;
use std::time::Duration;

/// How long somebody else may be at the certificates; a look at them is over in
/// milliseconds, and the next one may be there already.
const LOCKED_PATIENCE: Duration = Duration::from_secs(1);

/// Certificates or CA files: same steps, other words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cert,
    Ca,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Cert => "ssl cert",
            Self::Ca => "ssl ca-file",
        }
    }

    fn is_set(self, reply: &Reply, path: &RuntimePath) -> bool {
        let text = reply.text();
        let wanted = |verb: &str| match self {
            Self::Cert => format!("Transaction {verb} for certificate {path}!"),
            Self::Ca => format!("transaction {verb} for CA {path}!"),
        };
        reply.severity() == Some(5) && (text == wanted("created") || text == wanted("updated"))
    }

    /// The name in an answer of success that is not about what was set.
    fn other_name(self, reply: &Reply) -> Option<String> {
        let text = reply.text();
        let start = match self {
            Self::Cert => "Transaction updated for certificate ",
            Self::Ca => "transaction updated for CA ",
        };
        let name = text.strip_prefix(start)?.strip_suffix('!')?;
        (reply.severity() == Some(5)).then(|| name.to_owned())
    }

    fn new_text(self, path: &RuntimePath) -> String {
        match self {
            Self::Cert => format!("New empty certificate store '{path}'!"),
            Self::Ca => format!("New CA file created '{path}'!"),
        }
    }
}

/// One certificate or CA file on its way.
struct Work<'a> {
    kind: Kind,
    op: usize,
    path: &'a RuntimePath,
    new: bool,
    zero: ZeroUpdates,
}

/// Why it did not get through.
enum Failed {
    Stop(Stop),
    /// Clean up, then this is the op's outcome.
    Op(Outcome, String),
    /// The same, and what uses it may have some of the new one.
    Begun(Outcome, String),
}

impl From<Stop> for Failed {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl Runner<'_> {
    pub(super) fn certificate(&mut self, program: &CertProgram) -> Result<(), Stop> {
        let path = &program.path;
        let set = format!("set ssl cert {path}");
        let parts = match &program.pem {
            CertPem::Whole(pem) => vec![(set, pem)],
            CertPem::Split { chain, key } => {
                vec![(set, chain), (format!("set ssl cert {path}.key"), key)]
            }
        };
        let work = Work {
            kind: Kind::Cert,
            op: program.op,
            path,
            new: program.new,
            zero: program.zero,
        };
        self.transaction(&work, &parts)
    }

    pub(super) fn authority(&mut self, program: &CaProgram) -> Result<(), Stop> {
        let path = &program.path;
        let mut verb = "set";
        let mut parts = Vec::new();
        for piece in &program.bundle.pieces {
            parts.push((format!("{verb} ssl ca-file {path}"), piece));
            verb = "add";
        }
        let work = Work {
            kind: Kind::Ca,
            op: program.op,
            path,
            new: program.new,
            zero: match program.new {
                true => ZeroUpdates::Fine,
                false => ZeroUpdates::NotAppliedIfUsed,
            },
        };
        self.transaction(&work, &parts)
    }

    fn transaction(&mut self, work: &Work<'_>, parts: &[(String, &Vec<u8>)]) -> Result<(), Stop> {
        let before = self.reached;
        let mut made = false;
        let mut opened = false;
        let failed = match self.steps(work, parts, &mut made, &mut opened) {
            Ok(()) => {
                self.done(work.op, Note::Done);
                return Ok(());
            }
            Err(failed) => failed,
        };
        let began = made || matches!(failed, Failed::Begun(..));
        match failed {
            Failed::Stop(stop) => self.lost(work.op, Err(stop)),
            Failed::Op(outcome, words) | Failed::Begun(outcome, words) => {
                let word = work.kind.word();
                // The abort comes first: an open transaction blocks the delete.
                let closed = !opened || self.clean_up(&format!("abort {word} {}", work.path));
                if made {
                    self.clean_up(&format!("del {word} {}", work.path));
                }
                if closed && !began && outcome == Outcome::Rejected {
                    // All of it was in a transaction that is gone: what the worker serves is
                    // what it served before.
                    self.reached = before;
                }
                Err(self.fail(work.op, outcome, words))
            }
        }
    }

    fn steps(
        &mut self,
        work: &Work<'_>,
        parts: &[(String, &Vec<u8>)],
        made: &mut bool,
        opened: &mut bool,
    ) -> Result<(), Failed> {
        if work.new {
            self.make(work)?;
            *made = true;
        }
        for (text, body) in parts {
            let command = Command::with_payload(text, body, MAX_PAYLOAD_BYTES)
                .map_err(|fault| Failed::Op(Outcome::TooBig, fault.to_string()))?;
            *opened = true;
            self.set(work, &command)?;
        }
        let reply = self.unlocked(&format!("commit {} {}", work.kind.word(), work.path))?;
        self.committed(work, &reply)
    }

    fn make(&mut self, work: &Work<'_>) -> Result<(), Failed> {
        let reply = self.unlocked(&format!("new {} {}", work.kind.word(), work.path))?;
        let text = reply.text();
        if reply.severity() == Some(5) && text == work.kind.new_text(work.path) {
            return Ok(());
        }
        // Left over from a change that was given up: as good as new.
        let exists = reply.severity() == Some(3) && text.ends_with("already exists!");
        if exists && self.status(work)?.as_deref() == Some("Empty") {
            return Ok(());
        }
        Err(Failed::Op(refusal(&reply), expect::words(&reply)))
    }

    /// The `Status:` that HAProxy lists, if the object is there.
    fn status(&mut self, work: &Work<'_>) -> Result<Option<String>, Stop> {
        let command = format!("show {} {}", work.kind.word(), work.path);
        match self.worker.dump(&command, self.deadline) {
            Ok(dump) => {
                let text = String::from_utf8_lossy(&dump);
                let mut lines = text.lines();
                Ok(lines.find_map(|line| line.strip_prefix("Status: ").map(str::to_owned)))
            }
            Err(DumpError::Refused { words, .. }) if words.contains("Not found") => Ok(None),
            Err(error) => Err(Stop::Unknown(crate::error::Chain(&error).to_string())),
        }
    }

    fn set(&mut self, work: &Work<'_>, command: &Command) -> Result<(), Failed> {
        let mut aborted = false;
        loop {
            let reply = self.ask_unlocked(command)?;
            if work.kind.is_set(&reply, work.path) {
                return Ok(());
            }
            let words = expect::words(&reply);
            // Early 3.0 changes the transaction that is open, whoever's it is.
            if let Some(other) = work.kind.other_name(&reply) {
                self.abort_foreign(work.kind, &other)?;
                return Err(Failed::Op(Outcome::ForeignTransaction, words));
            }
            match foreign(&reply) {
                None => return Err(Failed::Op(refusal(&reply), words)),
                Some(other) if !aborted && self.abort_foreign(work.kind, &other)? => {
                    aborted = true;
                }
                Some(_) => return Err(Failed::Op(Outcome::ForeignTransaction, words)),
            }
        }
    }

    /// True when no transaction of that name is open any more.
    fn abort_foreign(&mut self, kind: Kind, name: &str) -> Result<bool, Stop> {
        let text = format!("abort {} {name}", kind.word());
        if name.contains([' ', '\t']) || Command::line(&text).is_err() {
            return Ok(false);
        }
        let reply = self.ask_line(&text)?;
        let said = reply.text();
        let aborted = reply.severity() == Some(5)
            && said.starts_with("Transaction aborted for ")
            && said.ends_with(&format!("'{name}'!"));
        Ok(aborted || said.starts_with("No ongoing transaction!"))
    }

    fn committed(&mut self, work: &Work<'_>, reply: &Reply) -> Result<(), Failed> {
        let text = reply.text();
        let first = text.lines().next().unwrap_or_default();
        let dots = first.strip_prefix(&format!("Committing {}", work.path));
        let dots = dots.filter(|dots| dots.bytes().all(|b| b == b'.'));
        let success = text.lines().next_back() == Some("Success!");
        let (None, Some(dots), true) = (reply.severity(), dots, success) else {
            let (outcome, words) = (refusal(reply), expect::words(reply));
            return Err(match reply.severity() {
                Some(_) => Failed::Op(outcome, words),
                None => Failed::Begun(outcome, words),
            });
        };
        let stays_old = dots.is_empty()
            && match work.zero {
                ZeroUpdates::Fine => false,
                ZeroUpdates::NotApplied => true,
                ZeroUpdates::NotAppliedIfUsed => self.status(work)?.as_deref() == Some("Used"),
            };
        match stays_old {
            false => Ok(()),
            true => Err(Failed::Begun(
                Outcome::NotApplied,
                format!(
                    "HAProxy committed {} and updated nothing that uses it: {}",
                    work.path,
                    expect::words(reply)
                ),
            )),
        }
    }

    /// Its answer is read and changes no outcome. True if nothing is left.
    fn clean_up(&mut self, text: &str) -> bool {
        match self.ask_line(text) {
            Ok(reply) => {
                log::debug!(command = text, answer = &*reply.text(); "cleaned up");
                let nothing = reply.text().starts_with("No ongoing transaction!");
                reply.severity() == Some(5) || nothing
            }
            Err(stop) => {
                log::warn!(command = text, why:? = stop; "the clean-up failed");
                false
            }
        }
    }

    fn unlocked(&mut self, text: &str) -> Result<Reply, Stop> {
        match Command::line(text) {
            Ok(command) => self.ask_unlocked(&command),
            Err(fault) => Err(Stop::Unknown(format!("{text:.80}: {fault}"))),
        }
    }

    /// Asks again while the certificates are locked.
    pub(super) fn ask_unlocked(&mut self, command: &Command) -> Result<Reply, Stop> {
        let patience = self.deadline.within(LOCKED_PATIENCE);
        let mut backoff = Backoff::default();
        loop {
            let reply = self.ask(command)?;
            // What it could not do stands around it.
            let locked = reply.severity() == Some(3) && reply.text().lines().any(|l| l == LOCKED);
            if !locked || !backoff.pause(patience) {
                return Ok(reply);
            }
        }
    }
}

fn refusal(reply: &Reply) -> Outcome {
    match expect::is_leaving(&reply.text()) {
        true => Outcome::WorkerChanged,
        false => Outcome::Rejected,
    }
}

/// Whose transaction is in the way.
fn foreign(reply: &Reply) -> Option<String> {
    let text = reply.text();
    let rest = text.strip_prefix("The ongoing transaction is about '")?;
    let (name, _) = rest.split_once("' but you are trying to ")?;
    (reply.severity() == Some(3)).then(|| name.to_owned())
}
