//! `hapticctl push`: the set to every agent, with an eye on the way there.

use std::cell::RefCell;

use serde_json::json;

use super::aftermath::Before;
use super::progress::Progress;
use super::view::{Block, Report};
use super::{labels, next, plan, when, words};
use crate::cli::ctl::PushFlags;
use crate::client::decide::Verdict;
use crate::client::push::warnings;
use crate::client::{Epoch, FileSet, Fleet, Outcome, PushOptions, Pushed, Step};
use crate::wire::result::ResultMode;

/// Reasons that are told after the fact; a plan tells more.
const MAX_REASONS: usize = 4;

/// Lines of what HAProxy warned of.
const MAX_SAID: usize = 10;

pub(super) fn run(fleet: &Fleet, set: &FileSet, flags: PushFlags) -> Report {
    let options = PushOptions {
        by: Some(who()),
        epoch: Epoch::AtLeast(flags.epoch),
        reload: flags.reload,
        overwrite: flags.overwrite,
        take_over: flags.take_over,
        wait: flags.wait,
        ..PushOptions::default()
    };
    let labels = labels(fleet);
    let progress = Progress::new(labels.clone());
    let outcomes = fleet.each(|place, client| {
        let warnings = RefCell::new(Vec::new());
        let before = RefCell::new(None);
        let watch = |step: &Step<'_>| {
            progress.step(place, step);
            match step {
                Step::Doubtful { text, next } => {
                    warnings.borrow_mut().push(format!("{text}; {next}"));
                }
                Step::Found(state) => *before.borrow_mut() = Some(Before::of(state)),
                Step::Reading { .. }
                | Step::Silent { .. }
                | Step::Decided(_)
                | Step::Sending { .. }
                | Step::Applying
                | Step::Again(_)
                | Step::Lost(_)
                | Step::Waiting { .. }
                | Step::Stuck { .. } => {}
            }
        };
        let outcome = crate::client::push_watched(client, set, &options, &watch);
        progress.done(place, outcome.as_ref().is_ok_and(Pushed::is_converged));
        let block = match &outcome {
            Ok(pushed) => done(pushed),
            Err(error) => {
                let socket = next::socket(client, error);
                next::failed(error, socket.as_deref(), before.into_inner().as_ref())
            }
        };
        (block, warnings.into_inner())
    });
    progress.end();
    let blocks = outcomes
        .into_iter()
        .map(|(mut block, warnings)| {
            if !warnings.is_empty() {
                block.field("warnings", warnings);
            }
            block
        })
        .collect();
    let mut report = Report::new(labels, blocks);
    plan::describe(set, &mut report);
    report
}

/// The user and the machine, for others who find the set there.
fn who() -> String {
    let user = ["USER", "LOGNAME"]
        .iter()
        .find_map(|name| crate::cli::process_env(name).filter(|user| !user.is_empty()))
        .unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match machine.trim() {
        "" => user,
        machine => format!("{user}@{machine}"),
    }
}

fn done(pushed: &Pushed) -> Block {
    let mut block = Block::new(pushed.is_converged(), title(pushed));
    block.field("outcome", json!(pushed.outcome));
    block.field("rounds", pushed.rounds);
    block.field("sent_bytes", pushed.sent);
    block.field("decision", json!(pushed.decision));
    if let Some(result) = &pushed.result {
        block.field("result", json!(result));
        if let Some(unsaved) = &result.unsaved {
            block.line(unsaved);
        }
    }
    // What a reload brought was brought by nothing else.
    let reloaded = pushed
        .result
        .as_ref()
        .is_none_or(|result| match result.mode {
            ResultMode::Reload | ResultMode::Scheduled | ResultMode::Rejected => true,
            ResultMode::Runtime | ResultMode::FileOnly | ResultMode::Noop => false,
        });
    match &pushed.outcome {
        Outcome::Unchanged | Outcome::AppliedByOther { .. } => {}
        Outcome::Applied => {
            plan::reasons_of(&mut block, &pushed.decision, MAX_REASONS, &|needs| {
                !reloaded || needs == Verdict::Reload
            });
            for failed in pushed.result.iter().flat_map(|result| {
                result
                    .op_results
                    .iter()
                    .filter(|op| !op.ok)
                    .map(|op| (&op.kind, op.output.as_deref().unwrap_or("no words")))
            }) {
                block.line(format!(
                    "the command {} did not do, so HAProxy was reloaded: {}",
                    failed.0,
                    words::outcome(failed.1)
                ));
            }
            let said = pushed.result.as_ref().map(warnings).unwrap_or_default();
            if !said.is_empty() {
                block.line("HAProxy loaded it, and warns:");
            }
            for line in words::head(&said, MAX_SAID) {
                block.line(format!("  {line}"));
            }
        }
        Outcome::Pending { reason, .. } => {
            block.next = Some(match reason {
                Some(reason) => {
                    block.line(reason.as_str());
                    next::HELD_RELOAD.into()
                }
                None => "hapticctl wait waits for the reload".into(),
            });
        }
        Outcome::InPart(failure) => {
            block.line(format!(
                "stage {}: {}",
                failure.stage.as_str(),
                failure.message
            ));
            block.next = Some("push again, which reloads".into());
        }
    }
    block
}

fn title(pushed: &Pushed) -> String {
    match &pushed.outcome {
        Outcome::Unchanged => "unchanged: it runs this set already".into(),
        Outcome::AppliedByOther { by } => format!(
            "applied by somebody else at the same time: {} pushed the same set, and it runs",
            by.as_deref().unwrap_or("they")
        ),
        Outcome::Pending { due, .. } => {
            format!("written; the reload is put off to {}", when::moment(due))
        }
        Outcome::InPart(_) => "written, but a command on the running worker failed".into(),
        Outcome::Applied => {
            let Some(result) = &pushed.result else {
                return "applied; the agent's answer was lost, its state says so".into();
            };
            let how = match result.mode {
                ResultMode::Runtime => format!(
                    "applied without a reload, {}",
                    words::counted(result.op_results.len(), "command")
                ),
                ResultMode::FileOnly => "applied without a reload, files alone".into(),
                ResultMode::Noop => "applied, nothing had to be done".into(),
                ResultMode::Reload | ResultMode::Scheduled => match reload_ms(pushed) {
                    Some(ms) => format!("applied with a reload of {ms} ms"),
                    None => "applied with a reload".into(),
                },
                ResultMode::Rejected => "rejected".into(),
            };
            format!(
                "{how}; {} sent, {} ms",
                words::bytes(pushed.sent),
                result.timing.total_ms
            )
        }
    }
}

fn reload_ms(pushed: &Pushed) -> Option<u64> {
    pushed.result.as_ref()?.reload.as_ref()?.took_ms
}
