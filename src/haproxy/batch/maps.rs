//! Replacing a whole map: a new version is filled beside the one in use and takes its
//! place at once.
//!
//! A version that was not committed stays, unseen by lookups: there is no abort. It
//! goes with the next commit or with the reload that follows every failure. Nothing is
//! sent for the map after one.

use super::run::{Runner, Stop, broken};
use crate::haproxy::command::Command;
use crate::haproxy::ops::expect;
use crate::haproxy::ops::program::MapReplace;
use crate::haproxy::ops::{Note, Outcome};
use crate::haproxy::reply::Reply;
use crate::haproxy::session;
use crate::wire::limits::MAX_PAYLOAD_BYTES;
use std::ops::ControlFlow;

/// Chunks that are made into commands, and answered, before the next ones are.
const CHUNKS_AT_A_TIME: usize = 64;

impl Runner<'_> {
    pub(super) fn map_replace(&mut self, program: &MapReplace) -> Result<(), Stop> {
        let MapReplace { op, path, chunks } = program;
        let answer = self.ask_line(&format!("prepare map {path}"));
        let reply = self.lost(*op, answer)?;
        let Some(version) = new_version(&reply) else {
            return Err(self.refuse(*op, &reply));
        };
        let filled = self.fill(program, version, chunks);
        self.lost(*op, filled)?;
        let answer = self.ask_line(&format!("commit map @{version} {path}"));
        let reply = self.lost(*op, answer)?;
        if !reply.is_silent() {
            return Err(self.refuse(*op, &reply));
        }
        self.done(*op, Note::Done);
        Ok(())
    }

    fn fill(&mut self, program: &MapReplace, version: u64, chunks: &[Vec<u8>]) -> Result<(), Stop> {
        let text = format!("add map @{version} {}", program.path);
        for some in chunks.chunks(CHUNKS_AT_A_TIME) {
            self.fill_some(program.op, &text, some)?;
        }
        Ok(())
    }

    fn fill_some(&mut self, op: usize, text: &str, chunks: &[Vec<u8>]) -> Result<(), Stop> {
        let commands = chunks
            .iter()
            .map(|chunk| Command::with_payload(text, chunk, MAX_PAYLOAD_BYTES));
        let commands: Vec<Command> = match commands.collect() {
            Ok(commands) => commands,
            Err(fault) => return Err(self.fail(op, Outcome::TooBig, fault.to_string())),
        };
        let mut refused: Option<Reply> = None;
        let exchange = self
            .session
            .exchange(&commands, self.deadline, &mut |_, reply| {
                if reply.is_silent() {
                    return session::go_on();
                }
                refused.get_or_insert(reply.clone());
                ControlFlow::Break(())
            });
        if let Some(error) = exchange.broken {
            return Err(broken(&error));
        }
        match refused {
            None => Ok(()),
            Some(reply) => {
                let outcome = Outcome::Rejected;
                Err(self.fail(op, outcome, expect::words(&reply)))
            }
        }
    }
}

/// The number of a new version, from the full text only: anything else behind an `@`
/// would mean the version in use.
fn new_version(reply: &Reply) -> Option<u64> {
    let text = reply.text();
    let digits = text.strip_prefix("New version created: ")?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let version = digits.parse().ok().filter(|&version: &u64| version >= 1)?;
    (reply.severity() == Some(6) && plain).then_some(version)
}
