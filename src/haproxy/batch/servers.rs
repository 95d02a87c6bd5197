//! Addresses that are applied after they were answered, and deletes that cannot wait.

use super::run::{Runner, Stop};
use crate::error::Chain;
use crate::haproxy::deletes::{DeleteOutcome, Key, Probe};
use crate::haproxy::ops::expect;
use crate::haproxy::ops::program::{Remove, Settle, Target};
use crate::haproxy::ops::{Note, Outcome};
use crate::haproxy::servers_state;
use crate::haproxy::wait::pause;
use std::collections::BTreeSet;
use std::time::Duration;

/// Between two looks at an address.
const SETTLE_EVERY: Duration = Duration::from_millis(2);
/// How long a new address may stay unseen.
const SETTLE_PATIENCE: Duration = Duration::from_millis(200);
/// Attempts at a delete that cannot wait, and the pause between them.
const REMOVE_ATTEMPTS: usize = 5;
const REMOVE_EVERY: Duration = Duration::from_millis(20);

impl Runner<'_> {
    /// Waits until `show servers state` shows all the addresses.
    pub(super) fn settle(&mut self, wanted: &[Settle]) -> Result<(), Stop> {
        let deadline = self.deadline.within(SETTLE_PATIENCE);
        let mut open: Vec<&Settle> = wanted.iter().collect();
        loop {
            let backends: BTreeSet<_> = open.iter().map(|s| s.server.backend.clone()).collect();
            let mut seen = String::new();
            for backend in backends {
                let rows = servers_state::read(self.worker, backend.as_str(), self.deadline);
                let rows = match rows {
                    Ok(rows) => rows,
                    Err(error) => {
                        let lost = Err(Stop::Unknown(Chain(&error).to_string()));
                        let waits = open.iter().find(|s| s.server.backend == backend);
                        return self.lost(waits.map_or(0, |s| s.op), lost);
                    }
                };
                open.retain(|settle| {
                    if settle.server.backend != backend {
                        return true;
                    }
                    let row = rows
                        .iter()
                        .find(|row| row.name == settle.server.server.as_str());
                    if let Some(row) = row {
                        seen = row.address.clone();
                    }
                    !row.is_some_and(|row| row.has_address(settle.ip, settle.port))
                });
            }
            let Some(first) = open.first() else {
                return Ok(());
            };
            if deadline.passed() {
                let words = format!(
                    "HAProxy took the address {} of {} and still shows {seen:?}",
                    first.ip, first.server
                );
                return Err(self.fail(first.op, Outcome::Rejected, words));
            }
            pause(SETTLE_EVERY);
        }
    }

    /// Deletes at once, or not at all.
    pub(super) fn remove(&mut self, remove: &Remove) -> Result<(), Stop> {
        let mut note = Note::Absent;
        for target in &remove.targets {
            let answer = self.remove_one(remove.op, target);
            if self.lost(remove.op, answer)? {
                note = Note::Done;
            }
            self.queue.finish(&target.key, DeleteOutcome::Done, "");
        }
        if remove.is_delete {
            self.done(remove.op, note);
        }
        Ok(())
    }

    /// True when the object was there.
    fn remove_one(&mut self, op: usize, target: &Target) -> Result<bool, Stop> {
        let key = &target.key;
        let stop = match key {
            Key::Server { .. } => vec![
                format!("disable agent {key}"),
                format!("disable server {key}"),
            ],
            Key::Backend { .. } => vec![format!("unpublish backend {key}")],
        };
        for text in stop {
            let reply = self.ask_line(&text)?;
            if expect::is_gone(&reply) {
                return Ok(false);
            }
            if !(reply.is_silent() || reply.text() == "Backend unpublished.") {
                return Err(self.refuse(op, &reply));
            }
        }
        if let (true, Key::Server { .. }) = (target.cut, key) {
            let reply = self.ask_line(&format!("shutdown sessions server {key}"))?;
            if !reply.is_silent() {
                return Err(self.refuse(op, &reply));
            }
        }
        let mut attempt = 1;
        loop {
            let reply = self.ask_line(&key.delete_command())?;
            match key.judge(&reply) {
                Probe::Gone => return Ok(true),
                Probe::Busy if attempt < REMOVE_ATTEMPTS => {
                    attempt += 1;
                    pause(REMOVE_EVERY);
                }
                Probe::Busy => {
                    return Err(self.fail(op, Outcome::Busy, expect::words(&reply)));
                }
                Probe::HasServers | Probe::InUseAgain | Probe::Never | Probe::Other => {
                    return Err(self.refuse(op, &reply));
                }
            }
        }
    }
}
