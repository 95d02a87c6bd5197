//! Startup, step by step: recover the files, wait for HAProxy, recover the worker, be ready.
//!
//! Files come first and need no HAProxy: a tree that a crash left between two sets is
//! made whole before anything is waited for, because HAProxy may itself be about to
//! start from it. What is waited for is only said and tried again; what a crash left is
//! judged in [`recover`](super::recover) and [`resume`](super::resume).

use std::time::{Duration, Instant};

use crate::wire::result::{Failure, Stage};

use super::agent::Agent;
use super::port::words;
use super::recover::Rest;

/// How often the sockets are tried while HAProxy starts. A refused connect costs
/// microseconds, and an agent that is late is a pod that is late.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// How long a set that no worker has confirmed may wait for HAProxy to come up. If it
/// does not, the set may be why: the last known good one goes back.
const UNCONFIRMED_GRACE: Duration = Duration::from_secs(10);

/// After which time of waiting for HAProxy applies are taken without it.
const REPAIR_AFTER: Duration = Duration::from_secs(30);

/// How long HAProxy may take to come up with a committed set that it has seen nothing of.
/// It may merely be late, so it gets longer than with one that nobody was told of.
const LATE_GRACE: Duration = Duration::from_secs(60);

/// How long a worker that answers may refuse to list what it has loaded.
const LISTINGS_PATIENCE: Duration = Duration::from_secs(10);

/// How often a wait that goes on is told again.
const SAY_AGAIN: Duration = Duration::from_secs(30);

/// How long a startup step that the disk refused waits before it is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Agent {
    /// Recovers, waits for HAProxy, and opens the gate. False if the process was stopped
    /// before that.
    pub fn start(&self) -> bool {
        let rest = loop {
            let mut tx = self.lock();
            match tx.recover_files(self) {
                Ok(rest) => break rest,
                Err(error) => {
                    drop(tx);
                    log::error!(error:% = words(&error); "cannot start yet; trying again");
                    if self.wait_until(self.clock.now() + RETRY_AFTER) {
                        return false;
                    }
                }
            }
        };
        let Some(rest) = self.wait_for_haproxy(rest) else {
            return false;
        };
        {
            let mut tx = self.lock();
            tx.recover_worker(self, rest);
            tx.arm(self);
            tx.expect_deletes(self);
            self.publish(&tx);
        }
        if !self.wait_for_inventory() {
            return false;
        }
        self.gate.ready();
        self.metrics.ready.set(1);
        log::info!("ready");
        true
    }

    /// Waits for both sockets. `None` if the process stops.
    fn wait_for_haproxy(&self, mut rest: Rest) -> Option<Rest> {
        let began = self.clock.now();
        let mut said = began;
        let mut told = String::new();
        loop {
            let waiting_for = match (self.haproxy.worker(), self.haproxy.master()) {
                (Ok(_), Ok(())) => return Some(rest),
                (Err(worker), _) => format!("worker socket: {worker}"),
                (Ok(_), Err(master)) => format!("master socket: {master}"),
            };
            let now = self.clock.now();
            let waited = now.saturating_duration_since(began);
            if told != waiting_for {
                log::info!(reason = waiting_for; "waiting for HAProxy");
                self.gate.waits_for(&waiting_for);
                told = waiting_for;
            }
            if now.saturating_duration_since(said) >= SAY_AGAIN {
                log::warn!(reason = told, seconds = waited.as_secs(); "still waiting for HAProxy");
                said = now;
            }
            if matches!(rest, Rest::Activate) && waited > UNCONFIRMED_GRACE {
                let mut tx = self.lock();
                log::warn!(
                    "HAProxy does not come up with a set that no worker has confirmed; the last known good one goes back"
                );
                let message = format!(
                    "HAProxy did not come up after a restart in the middle of the apply: {told}"
                );
                let failure = Failure {
                    stage: Stage::Reload,
                    message,
                };
                match tx.give_up_intent(self, &failure) {
                    Ok(()) => {
                        rest = Rest::Nothing;
                        tx.reload_if_asked(self);
                    }
                    Err(error) => {
                        log::error!(error:% = words(&error); "it cannot be put back yet; trying again");
                    }
                }
            }
            if waited > REPAIR_AFTER {
                self.let_repair(&mut rest, began);
            }
            if self.wait_until(self.clock.now() + TRY_EVERY) {
                return None;
            }
        }
    }

    /// HAProxy has not come up for a while: takes applies all the same, because what they
    /// bring may be what it lacks, and sees to it that what is on disk is not the reason.
    fn let_repair(&self, rest: &mut Rest, since: Instant) {
        let mut tx = self.lock();
        match *rest {
            // Its set goes back before that; until the disk lets it, nothing is taken.
            Rest::Activate => return,
            Rest::Nothing => {}
            Rest::CommitIf(_, mode) => {
                // A worker had it, and is gone.
                tx.commit_intent(self, mode, None);
                tx.record.forget_worker();
                tx.save_quietly(self);
                *rest = Rest::Nothing;
            }
        }
        tx.fall_back_if_down(self, since, LATE_GRACE);
        if !self.gate.is_open() {
            log::warn!(
                "HAProxy does not come up; applies are taken all the same, and it starts with what they leave on disk"
            );
            self.publish(&tx);
            self.gate.open();
        }
    }

    fn wait_for_inventory(&self) -> bool {
        let began = self.clock.now();
        let mut told = String::new();
        loop {
            let mut tx = self.lock();
            match tx.refresh_inventory(self) {
                Ok(()) => {
                    self.publish(&tx);
                    return true;
                }
                Err(error)
                    if self.clock.now().saturating_duration_since(began) > LISTINGS_PATIENCE =>
                {
                    // The background look goes on trying.
                    log::error!(error; "HAProxy's listings cannot be read; going on without them");
                    tx.degrade(self, &format!("HAProxy's listings cannot be read: {error}"));
                    self.publish(&tx);
                    return true;
                }
                Err(error) => {
                    drop(tx);
                    if told != error {
                        log::error!(error; "waiting for HAProxy's listings");
                        told = error;
                    }
                    if self.wait_until(self.clock.now() + TRY_EVERY) {
                        return false;
                    }
                }
            }
        }
    }
}
