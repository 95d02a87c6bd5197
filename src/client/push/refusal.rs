//! What an answer that is no success comes to: whose turn it is, and on what.

use serde::Serialize;

use crate::wire::result::{
    ApplyResult, HAPROXY_GONE, NO_NEW_WORKER, NOT_RUNNING, STILL_ANSWERS, Stage, UNREACHABLE,
};

/// The sort of a NACK, for programs; its wire name is the variant in snake case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// HAProxy said what it does not like. Mend that, then push again.
    Files,
    /// HAProxy refused and did not say why. Its own log does.
    Silent,
    /// Nobody took the reload, so nobody judged the files. Start HAProxy, or free its
    /// master, then push the same again.
    Unasked,
    /// HAProxy did not run, so nobody judged the files. They are on disk, and HAProxy starts
    /// with them: start it, then push again.
    Kept,
    /// The reload ended HAProxy itself. Its log says of what; it has to be started again,
    /// and finds the set from before.
    Ended,
    /// The reload was asked for and nobody knows how it ended; the files stay. Push again
    /// once the master answers.
    Unconfirmed,
    /// HAProxy took the set, and the agent did not find the worker that loaded it; the
    /// files stay. See that the configuration opens the worker's socket where the agent
    /// looks, then push again.
    NoWorker,
    /// A file could not be read before the reload. Push again, which writes it.
    Unread,
    /// The agent's disk or base directory did not let it. The message says what.
    Disk,
    /// There is no last known good set to go back to. Push one.
    NothingGood,
    /// The last known good set is not whole any more. Push a full one.
    GoodLost,
}

impl Refusal {
    /// Of an answer; `None` where it is a success.
    #[must_use]
    pub fn of(result: &ApplyResult) -> Option<Self> {
        if result.ok {
            return None;
        }
        let Some(failure) = &result.error else {
            return Some(Self::Silent);
        };
        let reload = result.reload.as_ref();
        Some(match failure.stage {
            Stage::Backup | Stage::Write => Self::Disk,
            // The disk let it, and what it has is another set.
            Stage::Revert if result.rollback.is_some_and(|rollback| rollback.performed) => {
                Self::GoodLost
            }
            Stage::Revert if result.lkg_plan_id.is_empty() => Self::NothingGood,
            Stage::Revert => Self::Disk,
            _ if failure.message.starts_with(NOT_RUNNING) => Self::Kept,
            _ if failure.message.starts_with(UNREACHABLE) => Self::Unasked,
            _ if failure.message.ends_with(HAPROXY_GONE) => Self::Ended,
            Stage::Reload | Stage::RevertReload | Stage::ScheduledReload => match reload {
                Some(reload) if !reload.performed && reload.output.is_none() => {
                    // The look at the files before; HAProxy was not asked.
                    match failure.message.contains("cannot be read") {
                        true => Self::Unread,
                        false => Self::Files,
                    }
                }
                // What was refused is put back; a revert has done so before.
                Some(reload) if reload.performed && result.rollback.is_none() => {
                    let unseen = failure.message.starts_with(NO_NEW_WORKER);
                    match unseen && !failure.message.contains(STILL_ANSWERS) {
                        true => Self::NoWorker,
                        false => Self::Unconfirmed,
                    }
                }
                Some(reload) if reload.output.is_none() => Self::Silent,
                Some(_) | None => Self::Files,
            },
            Stage::Startup
            | Stage::Busy
            | Stage::Request
            | Stage::Manifest
            | Stage::Parts
            | Stage::InPlace => Self::Files,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::result::{Failure, Reload, ResultMode, Rollback, Timing};
    use crate::wire::state::Haproxy;

    fn nack(
        stage: Stage,
        message: &str,
        reload: Option<(bool, Option<&str>)>,
        rolled_back: Option<bool>,
    ) -> ApplyResult {
        ApplyResult {
            plan_id: "p".into(),
            ok: false,
            mode: ResultMode::Rejected,
            applied_plan_id: String::new(),
            running_plan_id: "g".into(),
            worker_ops_plan_id: "g".into(),
            applied_token: crate::wire::manifest::Token::default(),
            lkg_plan_id: "g".into(),
            haproxy: Haproxy::default(),
            at: String::new(),
            timing: Timing::default(),
            op_results: Vec::new(),
            reload: reload.map(|(performed, output)| Reload {
                performed,
                output: output.map(str::to_owned),
                ..Reload::default()
            }),
            rollback: rolled_back.map(|performed| Rollback {
                performed,
                reloaded: false,
            }),
            error: Some(Failure {
                stage,
                message: message.to_owned(),
            }),
            unsaved: None,
            runtime_inventory: None,
        }
    }

    #[test]
    fn each_end_is_told_from_the_others() {
        let words = "[haproxy.cfg:3] : unknown keyword 'frob'";
        let silent = "HAProxy refused the reload and did not say why";
        let gone = format!("no answer; {HAPROXY_GONE}");
        let unreachable = format!("{UNREACHABLE}: connection refused");
        let kept = format!("{NOT_RUNNING}, and HAProxy starts with it");
        let asked = |output| Some((true, output));
        let unasked = Some((false, None));
        for (wanted, answer) in [
            (
                Refusal::Files,
                nack(Stage::Reload, words, asked(Some(words)), Some(true)),
            ),
            (
                Refusal::Unconfirmed,
                nack(
                    Stage::Reload,
                    &format!("{NO_NEW_WORKER}: pid 7 {STILL_ANSWERS}; the files stay"),
                    asked(None),
                    None,
                ),
            ),
            (
                Refusal::NoWorker,
                nack(
                    Stage::Reload,
                    &format!("{NO_NEW_WORKER}: nobody listens; the files stay"),
                    asked(None),
                    None,
                ),
            ),
            // Remembered from before.
            (
                Refusal::Files,
                nack(Stage::Reload, words, Some((false, Some(words))), None),
            ),
            (
                Refusal::Files,
                nack(
                    Stage::Reload,
                    "haproxy.cfg: line 3 has a quote; no reload was sent",
                    unasked,
                    Some(true),
                ),
            ),
            (
                Refusal::Files,
                nack(
                    Stage::ScheduledReload,
                    words,
                    asked(Some(words)),
                    Some(true),
                ),
            ),
            (
                Refusal::Silent,
                nack(Stage::Reload, silent, asked(None), Some(true)),
            ),
            (
                Refusal::Unasked,
                nack(Stage::Reload, &unreachable, unasked, Some(true)),
            ),
            (
                Refusal::Unasked,
                nack(Stage::RevertReload, &unreachable, unasked, Some(true)),
            ),
            (
                Refusal::Ended,
                nack(Stage::Reload, &gone, asked(None), Some(true)),
            ),
            (
                Refusal::Unconfirmed,
                nack(
                    Stage::Reload,
                    "no answer; the files stay",
                    asked(None),
                    None,
                ),
            ),
            (
                Refusal::Unread,
                nack(
                    Stage::ScheduledReload,
                    "haproxy.cfg cannot be read (gone); no reload was sent",
                    unasked,
                    Some(true),
                ),
            ),
            (
                Refusal::Disk,
                nack(Stage::Backup, "no space left", None, None),
            ),
            (
                Refusal::Disk,
                nack(Stage::Write, "no space left", None, Some(true)),
            ),
            (
                Refusal::Disk,
                nack(Stage::Revert, "no space left", None, Some(false)),
            ),
            (
                Refusal::GoodLost,
                nack(Stage::Revert, "files of g were changed", None, Some(true)),
            ),
            // What is not whole any more is nothing to go back to from then on.
            (
                Refusal::GoodLost,
                ApplyResult {
                    lkg_plan_id: String::new(),
                    ..nack(Stage::Revert, "files of g were changed", None, Some(true))
                },
            ),
            (Refusal::Kept, nack(Stage::Reload, &kept, unasked, None)),
            (
                Refusal::Kept,
                nack(Stage::Reload, &kept, unasked, Some(false)),
            ),
            (
                Refusal::NothingGood,
                ApplyResult {
                    lkg_plan_id: String::new(),
                    ..nack(Stage::Revert, "none", None, None)
                },
            ),
        ] {
            assert_eq!(Refusal::of(&answer), Some(wanted), "{answer:?}");
        }
        let good = ApplyResult {
            ok: true,
            ..nack(Stage::Reload, words, None, None)
        };
        assert_eq!(Refusal::of(&good), None);
    }
}
