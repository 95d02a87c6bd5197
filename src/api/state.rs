//! `GET /v1/state`: what this HAProxy holds and runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::apply::{Agent, StateRead};
use crate::http::auth::base64;
use crate::http::{Request, Response, Status, Waited};
use crate::wire::result::Stage;

use super::{json, refusal};

/// How often a held request looks whether it can go on.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Requests that may wait at one time: for startup, for the end of an apply, or for
/// their turn to carry the plan blob. More would leave no connection for a probe.
const MAX_HELD: usize = 16;

/// Answers with a plan blob in memory or being written at one time. Each holds it in
/// base64, and a reader may be slow.
const MAX_BLOBS: usize = 1;

static HELD: Places = Places::new(MAX_HELD);
static BLOBS: Places = Places::new(MAX_BLOBS);

/// A bounded number of places; a taken one is given back when it is dropped.
struct Places {
    taken: AtomicUsize,
    most: usize,
}

struct Place(&'static Places);

impl Places {
    const fn new(most: usize) -> Self {
        Self {
            taken: AtomicUsize::new(0),
            most,
        }
    }

    fn take(&'static self) -> Option<Place> {
        let taken = self
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
                (taken < self.most).then_some(taken + 1)
            });
        taken.is_ok().then(|| Place(self))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Answers, or holds the request until the agent is ready, the apply under way has
/// ended, or the client leaves.
pub(super) fn get(agent: &Agent, request: &Request<'_>) -> Response {
    let read = read(request.query());
    let asked = agent.now();
    let wait = |done: &mut dyn FnMut() -> bool| hold(request, done);
    if let Err(response) = wait(&mut || agent.gate.is_open()) {
        return response;
    }
    if read.verify {
        if let Err(response) = wait(&mut || agent.try_verify(asked)) {
            return response;
        }
    }
    let mut place = None;
    if read.plan && agent.has_blob() {
        let taken = wait(&mut || {
            place = BLOBS.take();
            place.is_some()
        });
        if let Err(response) = taken {
            return response;
        }
    }
    let (mut state, blob) = agent.state(read);
    state.applied_plan = blob.map(|bytes| base64(&bytes));
    let response = json(Status::Ok, &state);
    match place {
        Some(place) => response.holding(place),
        None => response,
    }
}

/// Looks until `done`, or gives the answer of a request that is given up.
fn hold(request: &Request<'_>, done: &mut dyn FnMut() -> bool) -> Result<(), Response> {
    if done() {
        return Ok(());
    }
    let Some(_place) = HELD.take() else {
        let message = "too many requests wait for the agent; try again in a second";
        return Err(
            refusal(Status::ServiceUnavailable, Stage::Busy, message).header("Retry-After", "1")
        );
    };
    loop {
        match request.wait_or_gone(LOOK_EVERY) {
            Waited::Elapsed => {}
            Waited::ClientGone | Waited::Stopping => {
                let message = "the agent is not ready, or stops";
                return Err(refusal(Status::ServiceUnavailable, Stage::Startup, message));
            }
        }
        if done() {
            return Ok(());
        }
    }
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
