//! `hapticctl wait`: until an agent is up, runs what is applied, and nothing is pending.

use std::time::{Duration, Instant};

use super::next::{self, PUSH_RELOADS, WAITS};
use super::state::{self, Standing};
use super::view::{Block, Report};
use super::{labels, plan, when};
use crate::client::{Client, Error, Fleet, StateRead};
use crate::http::client::{Error as HttpError, after};
use crate::wire::state::State;

/// Between two looks: the first, and the longest.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// What a look gets at least: the last one is taken when the time is over, and a wait of no
/// time is one look.
const ONE_LOOK: Duration = Duration::from_secs(1);

pub(super) fn run(fleet: &Fleet, timeout: Duration, deletes: bool) -> Report {
    let blocks = fleet.each(|_, client| wait(client, timeout, deletes));
    Report::new(labels(fleet), blocks)
}

fn wait(client: &Client, timeout: Duration, deletes: bool) -> Block {
    let begun = Instant::now();
    let until = after(timeout);
    let mut pause = FIRST_LOOK;
    let mut strange = None;
    loop {
        let client = &client.ends_by(until.max(after(ONE_LOOK)));
        let looked = client
            .state(StateRead::default())
            .and_then(|state| sure(client, state, deletes));
        let late = Instant::now() >= until;
        match looked {
            Ok(state) => match still(&state, deletes) {
                Still::Waiting if !late => strange = None,
                Still::Soon
                    if !late && strange.get_or_insert_with(Instant::now).elapsed() < NOTICED => {}
                Still::Waiting | Still::Soon | Still::Stuck => {
                    let behind = Standing::of(&state) == Standing::Behind;
                    let mut block = state::block(&told(client, state));
                    block.next = match behind {
                        true => Some(PUSH_RELOADS.into()),
                        false => block.next.map(|next| next.replace(WAITS, LONGER)),
                    };
                    return block;
                }
                Still::Done => {
                    let mut block = state::block(&told(client, state));
                    block.lines.clear();
                    block.line(format!("waited {}", when::span(begun.elapsed())));
                    return block;
                }
            },
            Err(error) if error.is_away() && !late => {}
            Err(error) => return Block::failure(&next::of_waiting(&error, LONGER)),
        }
        let left = until.saturating_duration_since(Instant::now());
        if !client.cancel_handle().pause(pause.min(left)) {
            return plan::unasked(&HttpError::Cancelled.into());
        }
        pause = (pause * 2).min(LONGEST_LOOK);
    }
}

/// Within this an agent has noticed a worker that somebody else started, and reloaded it if it
/// is going to.
const NOTICED: Duration = Duration::from_secs(15);

/// What goes on waiting, for somebody who has just waited.
const LONGER: &str = "a longer --timeout waits for it";

/// The state, after a look at disk and worker where it would be the last: it may be some
/// seconds old, and HAProxy restarted since.
fn sure(client: &Client, state: State, deletes: bool) -> Result<State, Error> {
    let look = StateRead {
        verify: true,
        ..StateRead::default()
    };
    match still(&state, deletes) {
        Still::Done => client.state(look),
        Still::Waiting | Still::Soon | Still::Stuck => Ok(state),
    }
}

/// The same state with the plan beside it, which says who pushed; as it is where it has
/// moved on meanwhile.
fn told(client: &Client, state: State) -> State {
    let read = StateRead {
        plan: true,
        ..StateRead::default()
    };
    match client.state(read) {
        Ok(again) => State {
            applied_plan: again
                .applied_plan
                .filter(|_| again.applied_plan_id == state.applied_plan_id),
            ..state
        },
        Err(_) => state,
    }
}

enum Still {
    Waiting,
    /// The agent reloads a worker that somebody else started, once it has noticed.
    Soon,
    /// Waiting longer changes nothing.
    Stuck,
    Done,
}

fn still(state: &State, deletes: bool) -> Still {
    let pending = &state.pending_deletes;
    let removing = !(pending.servers.is_empty() && pending.backends.is_empty());
    match Standing::of(state) {
        // It may be on its way back.
        Standing::Down | Standing::Pending => Still::Waiting,
        Standing::Good | Standing::Empty if removing && deletes => Still::Waiting,
        Standing::Good | Standing::Empty => Still::Done,
        // A reload that is due may mend it.
        Standing::Degraded | Standing::Unknown | Standing::Behind
            if state.reload_pending_at.is_some() =>
        {
            Still::Waiting
        }
        Standing::Behind if state::is_unknown(state) => Still::Soon,
        Standing::Degraded | Standing::Unknown | Standing::Behind => Still::Stuck,
    }
}
