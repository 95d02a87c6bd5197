//! `GET /healthz`, `GET /readyz`: for probes, without credentials.

use crate::apply::Agent;
use crate::http::{Response, Status};

/// The process is alive.
pub(super) fn healthz() -> Response {
    Response::text(Status::Ok, "ok\n")
}

/// Startup has finished; from then on always.
pub(super) fn readyz(agent: &Agent) -> Response {
    if agent.gate.is_ready() {
        Response::text(Status::Ok, "ready\n")
    } else {
        Response::text(Status::ServiceUnavailable, "initialising\n")
    }
}
