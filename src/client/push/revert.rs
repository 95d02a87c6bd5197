//! Back to the last known good set.

use crate::client::client::{Client, StateRead};
use crate::client::decide::pushed_by;
use crate::client::error::Error;
use crate::wire::manifest::{Manifest, Mode, Token};
use crate::wire::result::{ApplyResult, Conflict, ConflictReason};
use crate::wire::state::State;

use super::attempt::{above, is_lost, sequence_above};
use super::{MAX_ROUNDS, PushError, is_silent};

/// How a revert ended well.
#[derive(Debug, Clone, PartialEq)]
pub enum Reverted {
    /// The last known good set is what is applied and runs: there was nothing to go back
    /// from.
    Already {
        /// That set.
        plan_id: String,
    },
    /// It was put back and reloaded.
    Back(Box<ApplyResult>),
}

/// After a look at disk and worker.
const LOOK: StateRead = StateRead {
    verify: true,
    plan: false,
};

/// Puts the agent's last known good set back and reloads it, whatever is applied: a
/// revert is fenced on the epoch alone. With `take_over` also where a newer leader has
/// spoken. The agent keeps no such set before its first reload: that is a
/// [`PushError::Nack`] of the stage `revert`. Where it is applied and runs already, by a
/// look at disk and worker, nothing is sent.
///
/// # Errors
/// [`PushError::Nack`], [`PushError::Stale`], [`PushError::Client`].
pub fn revert(client: &Client, epoch: u64, take_over: bool) -> Result<Reverted, PushError> {
    let mut before = client.state(StateRead::default())?;
    if runs_last_good(&before) {
        before = client.state(LOOK)?;
        if runs_last_good(&before) {
            let plan_id = before.lkg_plan_id;
            return Ok(Reverted::Already { plan_id });
        }
    }
    let mut epoch = epoch.max(before.applied_token.leader_epoch);
    for raises in 0..MAX_ROUNDS {
        let manifest = manifest(&before, epoch);
        match client.apply(&manifest, &mut [], None) {
            Ok(result) if result.ok => return Ok(Reverted::Back(Box::new(result))),
            Ok(result) => return Err(PushError::Nack(Box::new(result))),
            Err(Error::Conflict(conflict)) if is_stale(&conflict) => {
                if !take_over {
                    let with_plan = client.state(super::WITH_PLAN).ok();
                    return Err(PushError::Stale {
                        epoch,
                        highest_epoch: conflict.highest_epoch,
                        applied_plan_id: conflict.applied_plan_id.clone(),
                        applied_token: conflict.applied_token,
                        by: with_plan.as_ref().and_then(pushed_by),
                    });
                }
                epoch = above(&conflict, epoch, raises);
            }
            Err(error) if is_lost(&error) => return looked_up(client, &manifest, error),
            Err(error) => return Err(error.into()),
        }
    }
    Err(PushError::NoEnd)
}

/// Whether disk and worker are where a revert would bring them.
fn runs_last_good(state: &State) -> bool {
    let good = &state.lkg_plan_id;
    !good.is_empty()
        && state.applied_plan_id == *good
        && state.running_plan_id == *good
        && state.worker_ops_plan_id == *good
        && state.reload_pending_at.is_none()
        && state.degraded.is_none()
        && !is_silent(state)
}

/// The answer was lost; the token says whether the revert was carried out.
fn looked_up(client: &Client, sent: &Manifest, error: Error) -> Result<Reverted, PushError> {
    let state = client.state(StateRead::default())?;
    match state.last_apply {
        Some(last) if state.applied_token == sent.token && last.ok => {
            Ok(Reverted::Back(Box::new(last)))
        }
        Some(_) | None => Err(error.into()),
    }
}

fn is_stale(conflict: &Conflict) -> bool {
    match conflict.reason {
        ConflictReason::StaleEpoch => true,
        ConflictReason::PrevMismatch
        | ConflictReason::UnknownBaseline
        | ConflictReason::WorkerOpsMismatch => false,
    }
}

fn manifest(state: &State, leader_epoch: u64) -> Manifest {
    // The id of a revert is not looked at, but it must not be empty.
    let plan_id = match state.lkg_plan_id.as_str() {
        "" => "last known good".to_owned(),
        id => id.to_owned(),
    };
    Manifest {
        plan_id,
        plan_schema_version: state.plan_schema_version,
        token: Token {
            leader_epoch,
            render_seq: sequence_above(state.applied_token.render_seq),
        },
        expected_prev_plan_id: state.applied_plan_id.clone(),
        expected_prev_token: state.applied_token,
        expected_worker_ops_plan_id: None,
        worker_ops_plan_id: None,
        validated_plan_id: None,
        files: Vec::new(),
        ops: Vec::new(),
        in_place_ops: Vec::new(),
        mode: Mode::RevertLkg,
    }
}
