//! `hapticctl revert`: back to the last known good set.

use serde_json::json;

use super::view::{Block, Report};
use super::{labels, next, words};
use crate::client::{Fleet, PushError, revert};
use crate::wire::result::ApplyResult;

pub(super) fn run(fleet: &Fleet, epoch: u64, take_over: bool) -> Report {
    let blocks = fleet.each(|_, client| block(&revert(client, epoch, take_over)));
    Report::new(labels(fleet), blocks)
}

fn block(outcome: &Result<ApplyResult, PushError>) -> Block {
    match outcome {
        Ok(result) => {
            let mut block = Block::new(
                true,
                format!(
                    "plan {} is back and reloaded, {} ms",
                    words::plan(&result.lkg_plan_id),
                    result.timing.total_ms
                ),
            );
            block.field("result", json!(result));
            block
        }
        Err(error) => next::failed(error),
    }
}
