//! The fence: may this manifest build on what is applied?
//!
//! Pure, and asked twice: once before the body is read, so that a stale controller
//! costs no upload, and once under the apply lock, where the answer counts. Nothing
//! is written before it passed. The three refusals are distinct because a controller
//! reacts differently to each.

use crate::wire::manifest::{Manifest, Mode, Token};
use crate::wire::result::{Conflict, ConflictReason};

/// What the fence compares a manifest with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Baseline {
    /// Id of the applied plan, `""` when unknown.
    pub applied_plan_id: String,
    /// Token of the last accepted apply.
    pub applied_token: Token,
    /// What the worker loaded.
    pub running_plan_id: String,
    /// What the worker holds with the ops since.
    pub worker_ops_plan_id: String,
    /// What a rollback goes back to.
    pub lkg_plan_id: String,
    /// The highest leader epoch ever accepted here.
    pub highest_epoch: u64,
    /// Whether a reload waits, so that in-place ops of this apply would run.
    pub reload_pending: bool,
    /// Whether a reload asked for now would have to wait, so that they would run too.
    pub reload_paced: bool,
}

impl Baseline {
    /// Decides.
    ///
    /// # Errors
    /// The first rule that refuses, in the contract's order: epoch; a revert stops
    /// there; plan id; token; the worker's plan when in-place ops would run.
    pub fn admit(&self, manifest: &Manifest) -> Result<(), Box<Conflict>> {
        if manifest.token.leader_epoch < self.highest_epoch {
            return Err(self.conflict(ConflictReason::StaleEpoch));
        }
        if manifest.mode == Mode::RevertLkg {
            return Ok(());
        }
        if manifest.expected_prev_plan_id != self.applied_plan_id {
            return Err(self.conflict(if self.applied_plan_id.is_empty() {
                ConflictReason::UnknownBaseline
            } else {
                ConflictReason::PrevMismatch
            }));
        }
        if manifest.expected_prev_token != self.applied_token {
            return Err(self.conflict(ConflictReason::PrevMismatch));
        }
        let in_place_would_run = !manifest.in_place_ops.is_empty()
            && (self.reload_pending || (self.reload_paced && manifest.mode == Mode::Reload));
        // An unknown one is nothing that ops can be composed against.
        if in_place_would_run
            && (self.worker_ops_plan_id.is_empty()
                || manifest.expected_worker_ops_plan_id.as_deref()
                    != Some(self.worker_ops_plan_id.as_str()))
        {
            return Err(self.conflict(ConflictReason::WorkerOpsMismatch));
        }
        Ok(())
    }

    /// The refusal, with everything a controller needs to go on.
    #[must_use]
    pub fn conflict(&self, reason: ConflictReason) -> Box<Conflict> {
        Box::new(Conflict {
            reason,
            applied_plan_id: self.applied_plan_id.clone(),
            applied_token: self.applied_token,
            running_plan_id: self.running_plan_id.clone(),
            worker_ops_plan_id: self.worker_ops_plan_id.clone(),
            lkg_plan_id: self.lkg_plan_id.clone(),
            highest_epoch: Some(self.highest_epoch),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::op::Op;

    fn token(leader_epoch: u64, render_seq: u64) -> Token {
        Token {
            leader_epoch,
            render_seq,
        }
    }

    fn manifest(prev: &str, prev_token: Token, mine: Token) -> Manifest {
        Manifest {
            plan_id: "next".into(),
            plan_schema_version: 0,
            token: mine,
            expected_prev_plan_id: prev.into(),
            expected_prev_token: prev_token,
            expected_worker_ops_plan_id: None,
            worker_ops_plan_id: None,
            validated_plan_id: None,
            files: Vec::new(),
            ops: Vec::new(),
            in_place_ops: Vec::new(),
            mode: Mode::Auto,
        }
    }

    fn known() -> Baseline {
        Baseline {
            applied_plan_id: "p1".into(),
            applied_token: token(5, 9),
            worker_ops_plan_id: "p1".into(),
            highest_epoch: 5,
            ..Baseline::default()
        }
    }

    fn verdict(baseline: &Baseline, manifest: &Manifest) -> Option<ConflictReason> {
        baseline
            .admit(manifest)
            .err()
            .map(|conflict| conflict.reason)
    }

    #[test]
    fn every_row_of_the_contract() {
        use ConflictReason::{PrevMismatch, StaleEpoch, UnknownBaseline};
        let unknown = Baseline {
            applied_plan_id: String::new(),
            ..known()
        };
        let table = [
            (known(), manifest("p1", token(5, 9), token(5, 10)), None),
            (known(), manifest("p1", token(5, 9), token(5, 1)), None), // render_seq need not grow
            (known(), manifest("p1", token(5, 9), token(6, 1)), None),
            (
                known(),
                manifest("p1", token(5, 9), token(4, 99)),
                Some(StaleEpoch),
            ),
            (
                known(),
                manifest("p0", token(5, 9), token(4, 99)),
                Some(StaleEpoch),
            ), // epoch first
            (
                known(),
                manifest("p0", token(5, 9), token(5, 10)),
                Some(PrevMismatch),
            ),
            (
                known(),
                manifest("", token(5, 9), token(5, 10)),
                Some(PrevMismatch),
            ),
            (
                known(),
                manifest("p1", token(5, 8), token(5, 10)),
                Some(PrevMismatch),
            ),
            (
                unknown.clone(),
                manifest("p1", token(5, 9), token(5, 10)),
                Some(UnknownBaseline),
            ),
            (
                unknown.clone(),
                manifest("", token(5, 9), token(5, 10)),
                None,
            ),
            (
                unknown,
                manifest("", token(0, 0), token(5, 10)),
                Some(PrevMismatch),
            ),
        ];
        for (index, (baseline, manifest, want)) in table.iter().enumerate() {
            assert_eq!(verdict(baseline, manifest), *want, "row {index}");
        }
    }

    #[test]
    fn a_revert_is_fenced_on_the_epoch_alone() {
        let mut revert = manifest("whatever", token(0, 0), token(5, 0));
        revert.mode = Mode::RevertLkg;
        assert_eq!(verdict(&known(), &revert), None);
        revert.token.leader_epoch = 4;
        assert_eq!(verdict(&known(), &revert), Some(ConflictReason::StaleEpoch));
    }

    #[test]
    fn in_place_ops_are_fenced_only_when_they_would_run() {
        let mut apply = manifest("p1", token(5, 9), token(5, 10));
        apply.in_place_ops = vec![Op {
            kind: "map_set".into(),
            ..Op::default()
        }];
        apply.expected_worker_ops_plan_id = Some("p0".into());
        assert_eq!(verdict(&known(), &apply), None);
        let pending = Baseline {
            reload_pending: true,
            ..known()
        };
        assert_eq!(
            verdict(&pending, &apply),
            Some(ConflictReason::WorkerOpsMismatch)
        );
        apply.mode = Mode::Reload;
        assert_eq!(verdict(&known(), &apply), None);
        let paced = Baseline {
            reload_paced: true,
            ..known()
        };
        assert_eq!(
            verdict(&paced, &apply),
            Some(ConflictReason::WorkerOpsMismatch)
        );
        apply.expected_worker_ops_plan_id = Some("p1".into());
        assert_eq!(verdict(&pending, &apply), None);
        let unknown = Baseline {
            worker_ops_plan_id: String::new(),
            ..pending
        };
        for expected in [Some(String::new()), Some("p1".into()), None] {
            apply.expected_worker_ops_plan_id = expected;
            assert_eq!(
                verdict(&unknown, &apply),
                Some(ConflictReason::WorkerOpsMismatch)
            );
        }
    }
}
