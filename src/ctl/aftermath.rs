//! Where a set that was not taken leaves disk and worker: what is back, what serves, and what
//! HAProxy would load if it were started again.
//!
//! Says only what the agent's answer bears out. An answer from memory has touched nothing,
//! and what went back on disk need not be what the worker has.

use super::words;
use crate::client::Refusal;
use crate::client::push::{is_remembered, is_silent};
use crate::wire::result::{ApplyResult, Stage};
use crate::wire::state::State;

/// How things stood before the push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Before {
    /// What the worker ran, commands and all; empty if that was not known.
    serving: String,
    /// What a refusal would have gone back to.
    good: String,
    /// HAProxy did not answer its agent.
    silent: bool,
}

impl Before {
    pub(super) fn of(state: &State) -> Self {
        Self {
            serving: serving(&state.worker_ops_plan_id, &state.running_plan_id).to_owned(),
            good: state.lkg_plan_id.clone(),
            silent: is_silent(state),
        }
    }
}

/// In a line; `before` where it was seen. `None`: the failure itself says all.
pub(super) fn line(result: &ApplyResult, before: Option<&Before>) -> Option<String> {
    let refusal = Refusal::of(result)?;
    if is_remembered(result) {
        return Some(untouched(result, before));
    }
    let reverted = result
        .error
        .as_ref()
        .is_some_and(|failure| failure.stage.is_revert());
    let rollback = result.rollback.filter(|rollback| rollback.performed)?;
    match (reverted, rollback.reloaded) {
        (true, _) => gone_back(result, refusal),
        (false, true) => Some(reloaded(result, before)),
        (false, false) if result.lkg_plan_id.is_empty() => Some(not_good(before)),
        (false, false) => parted(result),
    }
}

/// What was done with the disk, for a state that tells of it later.
pub(super) fn then(result: &ApplyResult) -> Option<&'static str> {
    let rollback = result.rollback.filter(|rollback| rollback.performed)?;
    let good = !result.lkg_plan_id.is_empty();
    Some(match (rollback.reloaded, Refusal::of(result)) {
        (true, None) => "the last good set was put back and reloaded",
        (true, Some(_)) if good => {
            "the last good set was put back and reloaded, since commands had reached the worker; what they had brought serves no more"
        }
        (true, Some(_)) => {
            "the files that stood there before were put back and reloaded, since commands had reached the worker; something else had changed them, so they are no last good set"
        }
        (false, _) if !good => {
            "the files that stood there before were put back; they are no set that the agent has seen HAProxy load"
        }
        // Nobody was there, so nothing is known of a worker.
        (false, Some(Refusal::Unasked | Refusal::Ended)) => {
            "the last good set was put back on disk"
        }
        (false, _) if result.worker_ops_plan_id == result.lkg_plan_id => {
            "the last good set was put back; the worker had never left it"
        }
        (false, _) => "the last good set was put back on disk, not on the worker",
    })
}

/// What the worker runs: the plan that it loaded, or the one that commands brought it to
/// since; empty if that is not known.
pub(super) fn serving<'s>(worker_ops: &'s str, running: &'s str) -> &'s str {
    match worker_ops {
        "" => running,
        plan => plan,
    }
}

/// Whether commands were run on the worker since its last reload.
fn by_commands(result: &ApplyResult) -> bool {
    result.worker_ops_plan_id != result.running_plan_id
}

/// The way back is gone on disk, and nobody was there to go it on.
fn gone_back(result: &ApplyResult, refusal: Refusal) -> Option<String> {
    let good = &result.lkg_plan_id;
    (refusal == Refusal::Unasked && !good.is_empty()).then(|| {
        format!(
            "plan {} is back on disk: HAProxy starts from that",
            words::plan(good)
        )
    })
}

fn untouched(result: &ApplyResult, before: Option<&Before>) -> String {
    let now = match result.worker_ops_plan_id.as_str() {
        _ if before.is_some_and(|before| before.silent) => {
            "and HAProxy does not answer its agent".to_owned()
        }
        "" => "and which plan the worker runs is not known".to_owned(),
        plan => format!("and the worker goes on with plan {}", words::plan(plan)),
    };
    format!("nothing was touched for this answer, {now}")
}

/// Commands of the refused push had reached the worker, so it was given what is on disk.
fn reloaded(result: &ApplyResult, before: Option<&Before>) -> String {
    let why = "commands had reached the worker before the refusal, so the agent put the set from before back and reloaded it";
    let now = match result.running_plan_id.as_str() {
        "" => "what the worker serves now is no set that HAProxy is known to have loaded before, because something else had changed the files".to_owned(),
        plan => format!(
            "the worker now serves plan {}, the last that HAProxy loaded",
            words::plan(plan)
        ),
    };
    let lost = before
        .map(|before| before.serving.as_str())
        .filter(|plan| !plan.is_empty() && *plan != result.running_plan_id)
        .map(|plan| {
            format!(
                ". Plan {}, which was applied, serves no more; to have it back until this set is mended, push its directory again",
                words::plan(plan)
            )
        });
    format!("{why}: {now}{}", lost.unwrap_or_default())
}

/// What is on disk is not what a refusal goes back to.
fn not_good(before: Option<&Before>) -> String {
    let was = match before.map(|before| before.good.as_str()) {
        Some("") | None => "they are no set that the agent has seen HAProxy load".to_owned(),
        Some(plan) => format!(
            "they are not plan {}, which HAProxy loaded last, because something other than the agent had changed them",
            words::plan(plan)
        ),
    };
    format!(
        "the files that stood there before are back, and {was}; a restart of HAProxy would load them"
    )
}

/// Where disk went back further than the worker.
pub(super) fn parted(result: &ApplyResult) -> Option<String> {
    let refusal = Refusal::of(result)?;
    let failure = result.error.as_ref()?;
    let rollback = result.rollback.filter(|rollback| rollback.performed)?;
    if failure.stage.is_revert() || rollback.reloaded || result.lkg_plan_id.is_empty() {
        return None;
    }
    let (disk, worker) = (&result.lkg_plan_id, &result.worker_ops_plan_id);
    if disk == worker {
        return None;
    }
    let disk = format!(
        "disk is back at plan {}, the last that HAProxy loaded",
        words::plan(disk)
    );
    let serves = match (by_commands(result), worker.as_str()) {
        (true, "") => "what commands have brought since".to_owned(),
        (true, plan) => format!(
            "what commands have brought since, plan {}",
            words::plan(plan)
        ),
        (false, plan) => format!("plan {}", words::plan(plan)),
    };
    match refusal {
        Refusal::Files | Refusal::Silent | Refusal::Unread => Some(match worker.as_str() {
            "" if !by_commands(result) => {
                format!("{disk}; what the worker serves is not known")
            }
            _ => format!(
                "{disk}, and the worker serves {serves}: a restart would lose that. To keep it until this set is mended, push its directory again"
            ),
        }),
        Refusal::Unasked | Refusal::Ended => Some(match by_commands(result) {
            true => {
                format!("{disk}: HAProxy starts from that, without {serves}. Push again then")
            }
            false => format!("{disk}: HAProxy starts from that"),
        }),
        Refusal::Kept
        | Refusal::Unconfirmed
        | Refusal::NoWorker
        | Refusal::Disk
        | Refusal::NothingGood
        | Refusal::GoodLost => None,
    }
}

/// Whether what is on disk after it is no set that a refusal goes back to.
pub(super) fn is_not_good(result: &ApplyResult) -> bool {
    let back = result.rollback.is_some_and(|rollback| rollback.performed);
    let reverted = result
        .error
        .as_ref()
        .is_some_and(|failure| failure.stage.is_revert() || failure.stage == Stage::Startup);
    back && !reverted && result.lkg_plan_id.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::manifest::Token;
    use crate::wire::result::{
        Failure, NOT_RUNNING, REMEMBERED, Reload, ResultMode, Rollback, Timing, UNREACHABLE,
    };
    use crate::wire::state::Haproxy;

    const WORDS: &str = "[haproxy.cfg:3] : unknown keyword 'frob'";

    /// The set is on disk and waits: neither refused nor to be mended.
    #[test]
    fn a_set_that_waits_for_its_haproxy_is_no_refusal() {
        let kept = ApplyResult {
            rollback: None,
            reload: Some(Reload::default()),
            error: failed(format!("{NOT_RUNNING}: nobody listens")),
            ..nack()
        };
        assert_eq!(line(&kept, Some(&before())), None);
        let error = crate::client::PushError::Nack(Box::new(kept.clone()));
        let block = super::super::next::failed(&error, None, Some(&before()));
        assert_eq!(error.kind(), "not_running");
        assert!(!block.good);
        assert!(block.title.starts_with(NOT_RUNNING), "{}", block.title);
        assert_eq!(block.fields["refusal"], "kept");
        let next = block.next.unwrap_or_default();
        assert_eq!(
            next,
            "start HAProxy, then push again, which confirms it; to go back to plan a instead: hapticctl revert"
        );
        // The same set again: there is no other to go back to.
        let same = ApplyResult {
            lkg_plan_id: "c".into(),
            ..kept
        };
        let next = super::super::next::of_result(&same, None);
        assert_eq!(next, "start HAProxy, then push again, which confirms it");
    }

    /// Plan `a` was loaded, commands brought `b`, and `c` was refused: disk is at `a`.
    fn nack() -> ApplyResult {
        ApplyResult {
            plan_id: "c".into(),
            ok: false,
            mode: ResultMode::Rejected,
            applied_plan_id: String::new(),
            running_plan_id: "a".into(),
            worker_ops_plan_id: "b".into(),
            applied_token: Token::default(),
            lkg_plan_id: "a".into(),
            haproxy: Haproxy::default(),
            at: String::new(),
            timing: Timing {
                total_ms: 9,
                ..Timing::default()
            },
            op_results: Vec::new(),
            reload: Some(Reload {
                performed: true,
                took_ms: Some(5),
                output: Some(WORDS.into()),
                ..Reload::default()
            }),
            rollback: Some(Rollback {
                performed: true,
                reloaded: false,
            }),
            error: Some(Failure {
                stage: Stage::Reload,
                message: WORDS.into(),
            }),
            unsaved: None,
            runtime_inventory: None,
        }
    }

    fn failed(message: String) -> Option<Failure> {
        Some(Failure {
            stage: Stage::Reload,
            message,
        })
    }

    fn before() -> Before {
        Before {
            serving: "b".into(),
            good: "a".into(),
            silent: false,
        }
    }

    /// Each row: an answer, what must be said of it and what must not.
    #[test]
    fn what_is_said_holds_of_disk_and_worker() {
        let unasked = Some(Reload::default());
        let remembered = ApplyResult {
            rollback: None,
            timing: Timing::default(),
            reload: Some(Reload {
                output: Some(WORDS.into()),
                ..Reload::default()
            }),
            error: failed(format!("{WORDS}\n{REMEMBERED}")),
            ..nack()
        };
        let put_back = Some(Rollback {
            performed: true,
            reloaded: true,
        });
        let table: [(ApplyResult, &[&str], &[&str]); 8] = [
            (
                nack(),
                &[
                    "disk is back at plan a",
                    "commands have brought since, plan b",
                ],
                &["plan c"],
            ),
            // The worker is at the plan that it loaded: no commands since.
            (
                ApplyResult {
                    running_plan_id: "b".into(),
                    ..nack()
                },
                &["disk is back at plan a", "the worker serves plan b"],
                &["commands"],
            ),
            // Its recovery reload failed, too.
            (
                ApplyResult {
                    running_plan_id: String::new(),
                    worker_ops_plan_id: String::new(),
                    ..nack()
                },
                &["what the worker serves is not known"],
                &["commands"],
            ),
            (
                remembered.clone(),
                &["nothing was touched", "the worker goes on with plan b"],
                &["back", "restart"],
            ),
            // Disk and worker are at `b` since a later push.
            (
                ApplyResult {
                    applied_plan_id: "b".into(),
                    ..remembered
                },
                &["nothing was touched", "the worker goes on with plan b"],
                &["back", "restart"],
            ),
            (
                ApplyResult {
                    rollback: put_back,
                    worker_ops_plan_id: "a".into(),
                    ..nack()
                },
                &[
                    "the worker now serves plan a",
                    "Plan b, which was applied, serves no more",
                ],
                &["disk is back"],
            ),
            (
                ApplyResult {
                    rollback: put_back,
                    running_plan_id: String::new(),
                    worker_ops_plan_id: String::new(),
                    lkg_plan_id: String::new(),
                    ..nack()
                },
                &[
                    "something else had changed",
                    "Plan b, which was applied, serves no more",
                ],
                &["last that HAProxy loaded"],
            ),
            (
                ApplyResult {
                    lkg_plan_id: String::new(),
                    ..nack()
                },
                &[
                    "stood there before are back",
                    "not plan a",
                    "a restart of HAProxy would load",
                ],
                &["disk is back", "last good"],
            ),
        ];
        for (answer, wanted, not) in table {
            let said = line(&answer, Some(&before())).unwrap_or_default();
            for words in wanted {
                assert!(said.contains(words), "no {words:?} in {said:?}: {answer:?}");
            }
            for words in not {
                assert!(!said.contains(words), "{words:?} in {said:?}: {answer:?}");
            }
        }
        // Nothing differs, so nothing is to be told.
        let same = ApplyResult {
            worker_ops_plan_id: "a".into(),
            ..nack()
        };
        assert_eq!(line(&same, Some(&before())), None);
        let back = ApplyResult {
            reload: Some(Reload::default()),
            error: Some(Failure {
                stage: Stage::RevertReload,
                message: format!("{UNREACHABLE}: nobody listens"),
            }),
            ..nack()
        };
        let said = line(&back, None).unwrap_or_default();
        assert_eq!(said, "plan a is back on disk: HAProxy starts from that");
        // A HAProxy that is gone serves nothing.
        let gone = ApplyResult {
            reload: unasked,
            error: failed(format!("{UNREACHABLE}: nobody listens")),
            running_plan_id: "b".into(),
            ..nack()
        };
        let said = line(&gone, None).unwrap_or_default();
        assert!(said.ends_with("HAProxy starts from that"), "{said}");
    }

    #[test]
    fn a_first_set_that_is_refused_had_no_good_one_before_it() {
        let first = ApplyResult {
            running_plan_id: String::new(),
            worker_ops_plan_id: String::new(),
            lkg_plan_id: String::new(),
            ..nack()
        };
        let fresh = Before {
            serving: String::new(),
            good: String::new(),
            silent: false,
        };
        let said = line(&first, Some(&fresh)).unwrap_or_default();
        assert!(
            said.contains("no set that the agent has seen HAProxy load"),
            "{said}"
        );
        assert!(!said.contains("changed"), "{said}");
        assert!(is_not_good(&first));
    }
}
