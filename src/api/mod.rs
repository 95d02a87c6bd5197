//! The endpoints: from an HTTP request to a value of the core, and back.
//!
//! One file an endpoint family. This layer knows both sides and decides nothing: it
//! maps conditions to statuses by the contract's table, in the contract's order, and
//! turns values into JSON.

pub mod apply;
pub mod health;
pub mod router;
pub mod state;

use serde::Serialize;

use crate::clock::{Clock as _, SystemClock};
use crate::http::{Response, Status};
use crate::log::RateLimit;
use crate::wire::result::{Failure, Stage};

/// A JSON answer; the body ends in a newline.
pub(crate) fn json(status: Status, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(mut body) => {
            body.push(b'\n');
            Response::json(status, body)
        }
        Err(error) => {
            log::error!(error:%; "an answer cannot be encoded");
            Response::text(Status::InternalServerError, "internal error\n")
        }
    }
}

static REFUSALS: RateLimit = RateLimit::new();

/// One record a second of each kind of refusal: a peer can provoke them.
pub(crate) fn refused(kind: &'static str, status: Status, error: &str) {
    if let Some(held_back) = REFUSALS.pass(kind, SystemClock.now()) {
        log::warn!(kind, status = status.code(), error, held_back; "request refused");
    }
}

/// An error answer: `{"stage", "message"}`.
pub(crate) fn refusal(status: Status, stage: Stage, message: impl Into<String>) -> Response {
    json(
        status,
        &Failure {
            stage,
            message: message.into(),
        },
    )
}
