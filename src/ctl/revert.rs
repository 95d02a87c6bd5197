//! `hapticctl revert`: back to the last known good set.

use serde_json::json;

use super::view::{Block, Report};
use super::{labels, next, words};
use crate::client::{Fleet, PushError, Reverted, revert};

pub(super) fn run(fleet: &Fleet, epoch: u64, take_over: bool) -> Report {
    let blocks = fleet.each(|_, client| {
        let outcome = revert(client, epoch, take_over);
        let socket = outcome.as_ref().err().and_then(|e| next::socket(client, e));
        block(&outcome, socket.as_deref())
    });
    Report::new(labels(fleet), blocks)
}

fn block(outcome: &Result<Reverted, PushError>, socket: Option<&str>) -> Block {
    match outcome {
        Ok(Reverted::Already { plan_id }) => {
            let title = format!(
                "plan {}, the last good one, is applied and runs already: nothing was done",
                words::plan(plan_id)
            );
            let mut block = Block::new(true, title);
            block.field("outcome", "already");
            block.field("applied_plan_id", plan_id.as_str());
            block.next = Some(
                "for an older set push its directory; hapticctl push --reload DIR loads this one anew".into(),
            );
            block
        }
        Ok(Reverted::Back(result)) => {
            let title = format!(
                "plan {} is back and reloaded, {} ms",
                words::plan(&result.lkg_plan_id),
                result.timing.total_ms
            );
            let mut block = Block::new(true, title);
            block.field("outcome", "reverted");
            block.field("result", json!(result));
            block
        }
        Err(error) => next::failed(error, socket, None),
    }
}
