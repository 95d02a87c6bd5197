//! `hapticctl revert`: back to the last known good set.

use serde_json::json;

use super::view::{Block, Failure, Report};
use super::{labels, next, plan, words};
use crate::client::{Client, Error, Fleet, StateRead};
use crate::wire::manifest::{Manifest, Mode, Token};
use crate::wire::result::{ApplyResult, Conflict, ConflictReason};
use crate::wire::state::State;

/// Tries with a higher epoch each.
const MAX_TRIES: u32 = 3;

pub(super) fn run(fleet: &Fleet, epoch: u64, take_over: bool) -> Report {
    let blocks = fleet.each(|_, client| revert(client, epoch, take_over));
    Report::new(labels(fleet), blocks)
}

fn revert(client: &Client, epoch: u64, take_over: bool) -> Block {
    let before = match client.state(StateRead::default()) {
        Ok(state) => state,
        Err(error) => return plan::unasked(&error),
    };
    if before.lkg_plan_id.is_empty() {
        return Block::failure(&Failure {
            kind: "no_last_good",
            message: "there is no last good set yet: HAProxy has not loaded any that was pushed"
                .into(),
            next: "hapticctl push DIR".into(),
        });
    }
    let mut epoch = epoch.max(before.applied_token.leader_epoch);
    let mut tries = 1;
    loop {
        match client.apply(&manifest(&before, epoch), &mut [], None) {
            Ok(result) => return block(&before, &result),
            Err(Error::Conflict(conflict))
                if take_over && is_stale(&conflict) && tries < MAX_TRIES =>
            {
                epoch = epoch.saturating_add(1 << (10 * (tries - 1)));
                tries += 1;
            }
            Err(error) => return Block::failure(&next::of_error(&error)),
        }
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
    Manifest {
        plan_id: state.lkg_plan_id.clone(),
        plan_schema_version: state.plan_schema_version,
        token: Token {
            leader_epoch,
            render_seq: state.applied_token.render_seq.saturating_add(1),
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

fn block(before: &State, result: &ApplyResult) -> Block {
    let lkg = words::plan(&before.lkg_plan_id);
    let mut block = match result.ok {
        true => Block::new(true, format!("plan {lkg} is back and reloaded")),
        false => {
            let message = match &result.error {
                Some(failure) => format!(
                    "plan {lkg} could not be put back, stage {}: {}",
                    failure.stage.as_str(),
                    failure.message
                ),
                None => format!("plan {lkg} could not be put back"),
            };
            Block::failure(&Failure {
                kind: "rejected",
                message,
                next: "hapticctl state shows what runs; push a set that HAProxy accepts: hapticctl push DIR".into(),
            })
        }
    };
    if before.applied_plan_id != before.lkg_plan_id {
        block.line(format!("before: {}", words::plan(&before.applied_plan_id)));
    }
    block.field("lkg_plan_id", before.lkg_plan_id.as_str());
    block.field("result", json!(result));
    block
}
