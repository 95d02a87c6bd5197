//! `mode: revert_lkg`: back to the last known good set and a reload of it, at once.
//!
//! Fenced on the epoch alone, never paced, and it consumes a pending reload: a
//! controller sends it because what it applied turned out to be wrong.

use crate::wire::manifest::Manifest;
use crate::wire::result::{Failure, ResultMode, Rollback, Stage};

use super::activate::Activation;
use super::agent::Agent;
use super::outcome::{Leg, Report};
use super::port::words;
use super::tx::Tx;
use super::upload::Answer;

impl Tx {
    /// Carries a revert out. The epoch has passed.
    pub(super) fn revert(
        &mut self,
        agent: &Agent,
        manifest: &Manifest,
        mut report: Report,
    ) -> Answer {
        let lkg = self.record.lkg_plan_id.clone();
        let at_revert = |message: String| Failure {
            stage: Stage::Revert,
            message,
        };
        if lkg.is_empty() {
            let message = "no last known good set is held: send a full set with mode reload";
            return self.refuse(agent, report, at_revert(message.to_owned()));
        }
        log::info!(plan_id = lkg; "reverting to the last known good set");
        report.watch.lap(Leg::Admit, agent.clock.now());
        let asked = at_revert("a revert was under way".to_owned());
        if let Err(error) = self.begin_restore(agent, &asked) {
            // Nothing was touched. Should the record be on disk all the same, a restart
            // restores what was asked for here.
            self.phase = None;
            return self.refuse(agent, report, at_revert(words(&error)));
        }
        if let Err(error) = self.restore(agent) {
            self.unfinished = true;
            report.rollback = Some(Rollback::default());
            return self.reject(agent, report, at_revert(words(&error)));
        }
        self.record.pending = None;
        self.pending_at = None;
        report.rollback = Some(Rollback {
            performed: true,
            reloaded: false,
        });
        report.watch.lap(Leg::Write, agent.clock.now());
        if self.record.lkg_plan_id.is_empty() {
            let message = format!(
                "files of {lkg} were changed by something other than the agent, and their last known good content is not held: send a full set with mode reload"
            );
            return self.reject(agent, report, at_revert(message));
        }
        let activation = self.reload(agent);
        report.watch.lap(Leg::Ops, agent.clock.now());
        let (reload, message) = match activation {
            Activation::Loaded(reload) => {
                report.reload = Some(reload);
                report.rollback = Some(Rollback {
                    performed: true,
                    reloaded: true,
                });
                let schema = self.record.plan_schema_version;
                self.settle(&lkg, manifest.token, schema, ResultMode::Reload);
                self.restored_worker = None;
                let result = self.conclude(agent, report, ResultMode::Reload);
                return Answer::Result(Box::new(result));
            }
            Activation::Unconfirmed { reload, message } => {
                self.keep_unconfirmed(agent);
                (reload, message)
            }
            Activation::Refused {
                reload, message, ..
            }
            | Activation::Unreachable { reload, message } => (reload, message),
        };
        report.reload = Some(reload);
        self.reject(
            agent,
            report,
            Failure {
                stage: Stage::RevertReload,
                message,
            },
        )
    }
}
