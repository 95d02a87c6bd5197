//! Making what is on disk the worker's: by a reload now, or by one that is due later.

use std::io::Read as _;

use crate::haproxy::lexical;
use crate::haproxy::reload::ReloadOutcome;
use crate::metrics::ReloadResult;
use crate::wire::digest::hex;
use crate::wire::limits::MAX_FILES_BYTES;
use crate::wire::result::{
    Failure, HAPROXY_GONE, NOT_RUNNING, Reload, ResultMode, Stage, UNREACHABLE,
};

use super::agent::Agent;
use super::machine::Event;
use super::outcome::millis;
use super::plan::ReloadWhy;
use super::port::words;
use super::record::Commands;
use super::run::Job;
use super::tx::Tx;
use super::upload::Answer;

/// What became of a reload, for whoever asked for it.
pub(super) enum Activation {
    /// A new worker serves what is on disk.
    Loaded(Reload),
    /// HAProxy, or the look at the set before, refused it. `verdict`: the same bytes
    /// would be refused again.
    Refused {
        reload: Reload,
        message: String,
        verdict: bool,
    },
    /// It is not known which worker runs with which files.
    Unconfirmed { reload: Reload, message: String },
    /// The command never reached the master; nothing has happened.
    Unreachable { reload: Reload, message: String },
}

impl Tx {
    /// The reload that an apply needs: now, or when the pacing window ends.
    pub(super) fn activate(&mut self, mut job: Job<'_>, why: ReloadWhy) -> Answer {
        let agent = job.agent;
        job.session = None;
        if let Some(due) = self.earliest_reload(agent) {
            return self.schedule(job, due, why);
        }
        log::info!(plan_id = job.manifest.plan_id, why = why.as_str(); "reloading");
        match self.reload(agent) {
            Activation::Loaded(reload) => {
                job.report.reload = Some(reload);
                let worker = self.record.worker;
                if let Err(error) = self.step(agent, Event::ReloadDone, |note| note.worker = worker)
                {
                    // The worker has loaded the set: a restart that finds no note of it
                    // reloads once more and comes to the same end.
                    let _ = error.at(Stage::Reload);
                }
                self.commit(job, ResultMode::Reload)
            }
            Activation::Refused {
                reload,
                message,
                verdict,
            } => {
                job.report.reload = Some(reload);
                let failure = Failure {
                    stage: Stage::Reload,
                    message,
                };
                self.abort_refused(agent, job.report, failure, verdict, job.touched)
            }
            Activation::Unconfirmed { reload, message } => {
                job.report.reload = Some(reload);
                self.keep_unconfirmed(agent);
                let failure = Failure {
                    stage: Stage::Reload,
                    message,
                };
                self.reject(agent, job.report, failure)
            }
            // It runs with no set at all, and whatever starts it starts it from disk: putting
            // the set back that it does not run with would only keep a cure away.
            Activation::Unreachable { reload, message } if self.is_down() && !job.touched => {
                job.report.reload = Some(reload);
                self.keep_unconfirmed(agent);
                // It is what was asked for by whoever knows that HAProxy is down.
                self.record.unproven = false;
                let failure = Failure {
                    stage: Stage::Reload,
                    message: format!(
                        "{NOT_RUNNING}, and that is what it starts with; nothing has confirmed it ({message})"
                    ),
                };
                self.reject(agent, job.report, failure)
            }
            Activation::Unreachable { reload, message } => {
                job.report.reload = Some(reload);
                let failure = Failure {
                    stage: Stage::Reload,
                    message,
                };
                self.abort_unreached(agent, job.report, failure, job.touched)
            }
        }
    }

    /// Nobody knows which worker runs with which files. That is no verdict on them: they
    /// stay, the journal stays, and the baseline is unknown.
    pub(super) fn keep_unconfirmed(&mut self, agent: &Agent) {
        self.record.forget_baseline();
        self.phase = None;
        self.record.intent = None;
        self.prune(agent);
    }

    /// Puts the reload off to `due`.
    fn schedule(&mut self, mut job: Job<'_>, due: i128, why: ReloadWhy) -> Answer {
        log::info!(plan_id = job.manifest.plan_id; "the reload waits for the pacing window to end");
        self.put_off(job.agent, job.manifest.plan_id.clone(), due, job.touched);
        if job.touched {
            // A part of the batch ran: until the reload nobody knows what the worker holds.
            self.record.worker_ops_plan_id.clear();
        }
        if why == ReloadWhy::Asked {
            self.run_in_place(&mut job);
        }
        self.end_scheduled(job, due)
    }

    /// A reload is pending already: it loads this set as well, when it is due.
    pub(super) fn join_pending(&mut self, mut job: Job<'_>) -> Answer {
        let Some(pending) = &mut self.record.pending else {
            let failure = Failure {
                stage: Stage::Write,
                message: "internal error: no reload is pending".to_owned(),
            };
            return self.abort(job.agent, job.report, failure);
        };
        pending.plan_id.clone_from(&job.manifest.plan_id);
        pending.fold = hex(&self.tree.fold());
        let due = pending.due;
        self.run_in_place(&mut job);
        self.end_scheduled(job, due)
    }

    fn end_scheduled(&mut self, mut job: Job<'_>, due: i128) -> Answer {
        let agent = job.agent;
        if self.phase.is_some() {
            let commands = self.commands_of(&job);
            let noted = self.step(agent, Event::ReloadScheduled, |note| {
                note.due = Some(due);
                note.commands = commands;
            });
            if let Err(error) = noted {
                let failure = error.at(Stage::Write);
                return self.abort(agent, job.report, failure);
            }
        }
        job.report.reload = Some(Reload {
            scheduled_at: Some(crate::clock::UnixNanos(due).rfc3339()),
            ..Reload::default()
        });
        let answer = self.commit(job, ResultMode::Scheduled);
        agent.ring();
        answer
    }

    /// What a restart has to know of the commands of an apply whose reload waits.
    fn commands_of(&self, job: &Job<'_>) -> Option<Commands> {
        let none = job.manifest.ops.is_empty() && job.manifest.in_place_ops.is_empty();
        (!none).then(|| Commands {
            worker_ops_plan_id: match job.baseline_gone {
                true => String::new(),
                false => self.record.worker_ops_plan_id.clone(),
            },
            deletes: self.record.deletes.clone(),
            touched: self.record.pending.as_ref().is_some_and(|p| p.touched),
            baseline_gone: job.baseline_gone,
        })
    }

    /// Reloads what is on disk, after a look at it. The outcome is counted, the end of the
    /// reload starts the pacing window, and the worker and its inventory are up to date.
    pub(super) fn reload(&mut self, agent: &Agent) -> Activation {
        if let Err((message, verdict)) = self.look_before_reload(agent) {
            agent.metrics.reloads.of(ReloadResult::Refused).inc();
            return Activation::Refused {
                reload: Reload::default(),
                message,
                verdict,
            };
        }
        // Asked now: an identity from before would take a worker that came up by itself
        // since then for the one that this reload brings.
        self.look_at_worker(agent);
        let before = self.worker.as_ref().map(|info| info.identity);
        let outcome = agent.haproxy.reload(before);
        match self.judge(agent, outcome) {
            Activation::Loaded(reload) => match self.written_meanwhile(agent) {
                None => Activation::Loaded(reload),
                Some(what) => Activation::Unconfirmed {
                    reload,
                    message: format!(
                        "{what} while HAProxy was reloaded: what it has read is unknown; the files stay"
                    ),
                },
            },
            other => other,
        }
    }

    /// What somebody else has written since the files were last looked at.
    fn written_meanwhile(&mut self, agent: &Agent) -> Option<String> {
        match self.written_by_others(agent) {
            Ok(changed) => {
                let first = changed.first()?;
                Some(format!("something other than the agent changed {first}"))
            }
            Err(error) => Some(words(&error)),
        }
    }

    fn judge(&mut self, agent: &Agent, outcome: ReloadOutcome) -> Activation {
        let mut reload = Reload {
            performed: true,
            ..Reload::default()
        };
        let (activation, result, took) = match outcome {
            ReloadOutcome::Loaded { worker, took, log } => {
                reload.ok = true;
                reload.worker_pid = Some(worker.identity.pid);
                reload.took_ms = Some(millis(took));
                reload.output = said(&log.words());
                self.record.worker = Some(worker.identity);
                self.worker = Some(worker);
                self.note_answer(agent, None);
                self.record.deletes.supersede_all("HAProxy was reloaded");
                self.count_deletes(agent);
                if let Err(error) = self.refresh_inventory(agent) {
                    log::warn!(error; "the new worker's inventory cannot be read yet");
                }
                (Activation::Loaded(reload), ReloadResult::Ok, Some(took))
            }
            ReloadOutcome::Refused {
                log,
                took,
                verdict_on_files,
            } => {
                reload.took_ms = Some(millis(took));
                reload.output = said(&log.words());
                let message = reload
                    .output
                    .clone()
                    .unwrap_or_else(|| "HAProxy refused the reload and did not say why; its own log does (3.0 needs a writable /dev/shm to say it here)".to_owned());
                let refused = Activation::Refused {
                    reload,
                    message,
                    verdict: verdict_on_files,
                };
                (refused, ReloadResult::Refused, Some(took))
            }
            ReloadOutcome::Unconfirmed { what, took, log } => {
                reload.took_ms = Some(millis(took));
                reload.output = said(&log.words());
                let activation = if self.haproxy_is_gone(agent) {
                    // Whatever ended it, it will be started again from what is on disk, and
                    // of the two sets only the old one is known to load.
                    let message = format!("{what}; {HAPROXY_GONE}");
                    Activation::Refused {
                        reload,
                        message,
                        verdict: false,
                    }
                } else {
                    let message =
                        format!("{what}; the files stay, and what HAProxy runs is unknown");
                    Activation::Unconfirmed { reload, message }
                };
                (activation, ReloadResult::Unconfirmed, Some(took))
            }
            ReloadOutcome::Unreachable { what } => {
                reload.performed = false;
                // Often both are gone; the state says so at once.
                let _ = self.ask_worker(agent);
                let message = format!("{UNREACHABLE}: {what}");
                (
                    Activation::Unreachable { reload, message },
                    ReloadResult::Failed,
                    None,
                )
            }
        };
        agent.metrics.reloads.of(result).inc();
        if let Some(took) = took {
            agent.metrics.reload_duration.observe(took);
            self.last_reload_end = Some(agent.clock.now());
            self.record.last_reload_end = Some(agent.clock.wall().0);
        }
        activation
    }

    /// The worker did not answer when it was last asked.
    fn is_down(&self) -> bool {
        self.answering.as_ref().is_some_and(|last| !last.answers)
    }

    /// Neither master nor worker answers.
    fn haproxy_is_gone(&mut self, agent: &Agent) -> bool {
        let worker = self.ask_worker(agent);
        worker.is_err() && agent.haproxy.master().is_err()
    }

    /// The look that a fuse gets before the current goes through it: some files end more
    /// than the reload. It never refuses what HAProxy would accept.
    ///
    /// The words of a refusal, and whether it is about the bytes: a file that cannot be read,
    /// or that HAProxy would not find by its name, says nothing about them.
    fn look_before_reload(&self, agent: &Agent) -> Result<(), (String, bool)> {
        if let Err(error) = agent.store.require_in_place() {
            return Err((format!("{}; no reload was sent", words(&error)), false));
        }
        let config = agent.settings.config.as_str();
        let mut bytes = Vec::new();
        let read = agent
            .store
            .fs()
            .open(config)
            .and_then(|file| file.take(MAX_FILES_BYTES + 1).read_to_end(&mut bytes));
        if let Err(error) = read {
            let message = format!(
                "{config} cannot be read ({error}); no reload was sent, because HAProxy 3.2 and 3.4 end when it is missing"
            );
            return Err((message, false));
        }
        match &self.worker {
            // A worker that has never answered may be of any version, so the strictest
            // look is right: what it refuses no version accepts.
            None => lexical::precheck(&bytes),
            Some(info) => lexical::before_reload(&bytes, &info.version),
        }
        .map_err(|fault| (format!("{config}: {fault}; no reload was sent"), true))
    }
}

fn said(words: &str) -> Option<String> {
    (!words.is_empty()).then(|| words.to_owned())
}
