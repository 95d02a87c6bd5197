//! One apply of a push, and what its answer means.

use std::cell::Cell;
use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Read};

use crate::client::client::Part;
use crate::client::decide::{Change, Decision, PLAN_SCHEMA_VERSION, pushed_by};
use crate::client::error::{Error, Refused, Transport};
use crate::client::fileset::Entry;
use crate::http::client::Error as HttpError;
use crate::wire::manifest::{Manifest, Token};
use crate::wire::path::ManifestPath;
use crate::wire::result::{ApplyResult, Conflict, ConflictReason, Stage};
use crate::wire::state::State;

use super::settle::Whose;
use super::{Epoch, Push, PushError, Pushed, Step, WITH_PLAN};

/// Low bits of a sequence that only say whose it is.
const WRITER_BITS: u32 = 16;

/// What a round came to.
pub(super) enum Reaction {
    Done(Box<Pushed>),
    /// Another round, and why.
    Again(&'static str),
    /// The same, after a moment.
    Pause(&'static str),
}

impl Push<'_> {
    /// Applies the set to what `state` shows.
    pub(super) fn attempt(
        &mut self,
        round: u32,
        epoch: u64,
        state: &State,
        decision: Decision,
    ) -> Result<Reaction, PushError> {
        let manifest = self.manifest(epoch, state, &decision);
        let blob = match &self.options.by {
            Some(by) => self.set.plan_blob_by(by),
            None => self.set.plan_blob(),
        };
        let mut all = decision.send_all;
        let outcome = loop {
            let outcome = self.apply(&manifest, &decision, all, blob.as_deref());
            match outcome {
                Err(Error::Missing(_)) if !all => {
                    (self.watch)(&Step::Again(
                        "the agent lacks content, so all of it is sent",
                    ));
                    all = true;
                }
                outcome => break outcome,
            }
        };
        match outcome {
            Ok(result) => self.answered(round, &manifest, decision, result),
            Err(Error::Conflict(conflict)) => self.conflict(round, &manifest, decision, &conflict),
            Err(error) if is_busy(&error) => {
                Ok(Reaction::Pause("the agent has no time at the moment"))
            }
            Err(error) if is_lost(&error) => self.lost(round, state, &manifest, decision, error),
            Err(error) => Err(error.into()),
        }
    }

    fn manifest(&self, leader_epoch: u64, state: &State, decision: &Decision) -> Manifest {
        let applied = state.applied_token;
        Manifest {
            plan_id: self.set.plan_id().to_owned(),
            plan_schema_version: PLAN_SCHEMA_VERSION,
            token: Token {
                leader_epoch,
                render_seq: sequence_above(applied.render_seq),
            },
            expected_prev_plan_id: state.applied_plan_id.clone(),
            expected_prev_token: applied,
            expected_worker_ops_plan_id: None,
            worker_ops_plan_id: None,
            validated_plan_id: None,
            files: self
                .set
                .files()
                .map(|entry| entry.manifest_file())
                .collect(),
            ops: decision.ops.clone(),
            in_place_ops: Vec::new(),
            mode: decision.mode(),
        }
    }

    /// Sends it, and without the plan blob where both do not fit one request: the blob
    /// only makes later decisions better.
    fn apply(
        &mut self,
        manifest: &Manifest,
        decision: &Decision,
        all: bool,
        blob: Option<&[u8]>,
    ) -> Result<ApplyResult, Error> {
        match self.apply_once(manifest, decision, all, blob) {
            Err(Error::Refused(Refused::BodyBytes(_))) if blob.is_some() => {
                self.apply_once(manifest, decision, all, None)
            }
            outcome => outcome,
        }
    }

    fn apply_once(
        &mut self,
        manifest: &Manifest,
        decision: &Decision,
        all: bool,
        blob: Option<&[u8]>,
    ) -> Result<ApplyResult, Error> {
        let lacking = lacking(decision);
        let entries: Vec<Entry<'_>> = self
            .set
            .files()
            .filter(|entry| all || lacking.contains(entry.path))
            .collect();
        let total = entries.iter().map(|entry| entry.size).sum();
        let sent = SentBytes {
            count: Cell::new(0),
            total,
            watch: self.watch,
        };
        let outcome = {
            let mut parts: Vec<Part<'_>> = entries
                .iter()
                .map(|entry| {
                    let counted = Counted {
                        rest: entry.content,
                        sent: &sent,
                    };
                    Part::new(entry.path.clone(), counted)
                })
                .collect();
            if total == 0 {
                (self.watch)(&Step::Applying);
            }
            self.client.apply(manifest, &mut parts, blob)
        };
        self.sent = self.sent.saturating_add(sent.count.get());
        outcome
    }

    /// Somebody else applied the very same set at the same time: what was wanted, unless a
    /// reload was asked for, which they may have done without.
    pub(super) fn theirs(
        &mut self,
        round: u32,
        decision: Decision,
        token: Token,
    ) -> Result<Reaction, PushError> {
        if self.options.reload {
            self.first = Some(token);
            return Ok(Reaction::Again(
                "somebody else has applied the same set, and a reload was asked for",
            ));
        }
        self.settle(round, Whose::Theirs, decision, None)
    }

    /// Who pushed what is applied; the plan beside their set may say it.
    pub(super) fn by(&self) -> Option<String> {
        pushed_by(&self.client.state(WITH_PLAN).ok()?)
    }

    /// The fence does not say who it was; the plan beside their set may.
    fn overtaken(&self, conflict: &Conflict) -> PushError {
        match self.client.state(WITH_PLAN) {
            Ok(state) => PushError::overtaken(&state),
            Err(_) => PushError::Overtaken {
                applied_plan_id: conflict.applied_plan_id.clone(),
                applied_token: conflict.applied_token,
                by: None,
            },
        }
    }

    fn conflict(
        &mut self,
        round: u32,
        manifest: &Manifest,
        decision: Decision,
        conflict: &Conflict,
    ) -> Result<Reaction, PushError> {
        match conflict.reason {
            ConflictReason::PrevMismatch if is_ours(manifest, conflict) => {
                // An earlier try whose answer was lost has been carried out.
                self.settle(round, Whose::Ours, decision, None)
            }
            ConflictReason::PrevMismatch if conflict.applied_plan_id == manifest.plan_id => {
                self.theirs(round, decision, conflict.applied_token)
            }
            ConflictReason::PrevMismatch if self.options.overwrite => {
                Ok(Reaction::Again("somebody else has pushed meanwhile"))
            }
            ConflictReason::PrevMismatch => Err(self.overtaken(conflict)),
            ConflictReason::StaleEpoch if self.options.take_over => {
                let ours = manifest.token.leader_epoch;
                self.epoch = Epoch::AtLeast(above(conflict, ours, self.raises));
                self.raises += 1;
                Ok(Reaction::Again(
                    "a newer leader has spoken and is overruled",
                ))
            }
            ConflictReason::StaleEpoch => Err(PushError::Stale {
                epoch: manifest.token.leader_epoch,
                highest_epoch: conflict.highest_epoch,
                applied_plan_id: conflict.applied_plan_id.clone(),
                applied_token: conflict.applied_token,
                by: self.by(),
            }),
            ConflictReason::UnknownBaseline => {
                self.force = true;
                Ok(Reaction::Again("the agent does not know what it holds"))
            }
            ConflictReason::WorkerOpsMismatch => Ok(Reaction::Again(
                "the worker holds another plan than its agent said",
            )),
        }
    }
}

/// Whether what is applied is this very request.
fn is_ours(manifest: &Manifest, conflict: &Conflict) -> bool {
    conflict.applied_plan_id == manifest.plan_id && conflict.applied_token == manifest.token
}

/// What the agent does not hold, as far as its state says.
fn lacking(decision: &Decision) -> HashSet<&ManifestPath> {
    let lacks = |change: Change| match change {
        Change::Added | Change::Changed => true,
        Change::Removed => false,
    };
    let files = decision.files.iter().filter(|file| lacks(file.change));
    files.map(|file| &file.path).collect()
}

/// 503 that passes: the agent is starting, or has as many uploads as it takes.
fn is_busy(error: &Error) -> bool {
    error
        .failure()
        .is_some_and(|failure| matches!(failure.stage, Stage::Startup | Stage::Busy))
}

/// Whether the agent may have carried the apply out without our knowing.
pub(super) fn is_lost(error: &Error) -> bool {
    match error {
        Error::Transport(Transport::Answer(_)) => true,
        Error::Transport(Transport::Http(error)) => match error {
            // Refused only after an earlier try was reset, since the state was read
            // a moment ago.
            HttpError::NotConnected(_)
            | HttpError::Reset(_)
            | HttpError::Cut(_)
            | HttpError::Timeout(_)
            | HttpError::Malformed(_)
            | HttpError::TooLarge { .. } => true,
            HttpError::Cancelled | HttpError::Source(_) | HttpError::Request(_) => false,
        },
        Error::Conflict(_)
        | Error::Missing(_)
        | Error::Http { .. }
        | Error::Refused(_)
        | Error::Source { .. } => false,
    }
}

/// An epoch above the highest that the agent has accepted.
pub(super) fn above(conflict: &Conflict, ours: u64, raises: u32) -> u64 {
    match conflict.highest_epoch {
        Some(highest) => highest.saturating_add(1),
        None => raise(ours, raises),
    }
}

/// An epoch above one that was refused, by an agent that does not tell which it has met:
/// it is above ours, and mostly the next one.
pub(super) fn raise(epoch: u64, raises: u32) -> u64 {
    epoch.saturating_add(1 << (10 * raises).min(40))
}

/// A sequence above `seen` whose low bits are nobody else's. At the very end of the
/// numbers it stays there: the plan id still tells sets apart.
pub(super) fn sequence_above(seen: u64) -> u64 {
    let random = RandomState::new().build_hasher().finish() >> (64 - WRITER_BITS);
    (seen >> WRITER_BITS)
        .checked_add(1)
        .filter(|next| next.leading_zeros() >= WRITER_BITS)
        .map_or(u64::MAX, |next| (next << WRITER_BITS) | random)
}

struct SentBytes<'s> {
    count: Cell<u64>,
    total: u64,
    watch: &'s dyn Fn(&Step<'_>),
}

/// Content at hand whose sending is watched. Only the pushing thread reads it.
struct Counted<'s> {
    rest: &'s [u8],
    sent: &'s SentBytes<'s>,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.rest.read(buffer)?;
        if count > 0 {
            let sent = self.sent.count.get() + count as u64;
            self.sent.count.set(sent);
            (self.sent.watch)(&Step::Sending {
                sent,
                total: self.sent.total,
            });
            if sent == self.sent.total {
                (self.sent.watch)(&Step::Applying);
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_is_above_the_one_seen_and_ends_in_bits_of_its_own() {
        for seen in [0, 1, 65_535, 65_536, 1 << 52] {
            let next = sequence_above(seen);
            assert!(next > seen, "{seen}");
            assert!(next <= seen + (2 << WRITER_BITS), "{seen}: {next}");
        }
        let some: std::collections::BTreeSet<u64> = (0..20).map(|_| sequence_above(7)).collect();
        assert!(some.len() > 1);
        assert_eq!(sequence_above(u64::MAX), u64::MAX);
        assert!(sequence_above(u64::MAX - (1 << 20)) > u64::MAX - (1 << 20));
    }
}
