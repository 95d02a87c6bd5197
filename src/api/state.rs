//! `GET /v1/state`: what this HAProxy holds and runs.

use std::time::Duration;

use crate::apply::{Agent, StateRead};
use crate::http::auth::base64;
use crate::http::{Request, Response, Status, Waited};
use crate::wire::result::Stage;

use super::{json, refusal};

/// How often a held request looks whether startup has finished.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Answers, or holds the request until the agent is ready or the client leaves.
pub(super) fn get(agent: &Agent, request: &Request<'_>) -> Response {
    while !agent.gate.is_ready() {
        match request.wait_or_gone(LOOK_EVERY) {
            Waited::Elapsed => {}
            Waited::ClientGone | Waited::Stopping => {
                return refusal(Status::ServiceUnavailable, Stage::Startup, "not ready yet");
            }
        }
    }
    let (mut state, blob) = agent.state(read(request.query()));
    state.applied_plan = blob.map(|bytes| base64(&bytes));
    json(Status::Ok, &state)
}

/// Unknown keys and values are ignored; the last of a repeated key counts.
fn read(query: Option<&str>) -> StateRead {
    let mut read = StateRead {
        verify: false,
        plan: true,
    };
    for pair in query.unwrap_or_default().split('&') {
        match pair {
            "verify=1" => read.verify = true,
            "verify=0" => read.verify = false,
            "plan=0" => read.plan = false,
            "plan=1" => read.plan = true,
            _ => {}
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_is_read_leniently() {
        let table = [
            (None, false, true),
            (Some("verify=1"), true, true),
            (Some("plan=0&verify=1"), true, false),
            (Some("verify=1&verify=0"), false, true),
            (Some("verify=yes&plan=&x"), false, true),
        ];
        for (query, verify, plan) in table {
            assert_eq!(read(query), StateRead { verify, plan }, "{query:?}");
        }
    }
}
