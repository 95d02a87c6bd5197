//! Reloads of the pod: asked for, put off, fired, undone.

use std::time::Duration;

use crate::clock::{Clock as _, SystemClock};
use crate::wire::manifest::Manifest;
use crate::wire::result::{
    ApplyResult, Failure, NOT_RUNNING, Reload, ResultMode, Rollback, Stage, UNREACHABLE,
};

use super::apply::{Answer, Job, Report, Run, failure};
use super::knobs::{Pacing, ReloadFault};
use super::pod::{Pending, later};

/// How far away the due time of a reload is shown that runs only when it is told to.
const DUE_IN: Duration = Duration::from_secs(5);

/// When a reload that could not be asked for is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What became of a reload.
enum Activation {
    Loaded(Reload),
    /// HAProxy would not have the set. `verdict`: it would refuse the same bytes again.
    Refused {
        reload: Reload,
        message: String,
        verdict: bool,
    },
    /// Nobody knows what runs.
    Unconfirmed {
        reload: Reload,
        message: String,
    },
    /// It could not be asked; nothing has happened.
    Unreachable {
        reload: Reload,
        message: String,
    },
}

impl Run<'_> {
    /// Whether a reload asked for now has to wait, and for how long if the fake knows.
    fn wait(&self) -> Option<Option<Duration>> {
        match (self.knobs.pacing, self.pod.last_reload) {
            (Pacing::None, _) | (Pacing::AfterEach | Pacing::Window(_), None) => None,
            (Pacing::AfterEach, Some(_)) | (Pacing::Always, _) => Some(None),
            (Pacing::Window(window), Some(last)) => {
                let since = SystemClock.now().saturating_duration_since(last);
                let left = window.checked_sub(since).filter(|left| !left.is_zero())?;
                Some(Some(left))
            }
        }
    }

    pub(super) fn is_paced(&self) -> bool {
        self.wait().is_some()
    }

    /// A reload of what is on disk, put off.
    pub(super) fn put_off(&mut self, plan_id: String, touched: bool) {
        let left = self.wait().flatten();
        self.pod.pending = Some(Pending {
            plan_id,
            due: later(left.unwrap_or(DUE_IN)),
            fires: left.map(|left| SystemClock.now() + left),
            fold: self.pod.fold(),
            touched,
        });
    }

    /// The reload that an apply needs: now, or later.
    pub(super) fn activate(&mut self, mut job: Job, asked: bool) -> Answer {
        if self.is_paced() {
            return self.schedule(job, asked);
        }
        match self.reload() {
            Activation::Loaded(reload) => {
                job.report.reload = Some(reload);
                self.commit(job, ResultMode::Reload)
            }
            Activation::Refused {
                reload,
                message,
                verdict,
            } => {
                job.report.reload = Some(reload);
                let failure = failure(Stage::Reload, message);
                self.abort_refused(job.report, failure, verdict, job.touched)
            }
            Activation::Unconfirmed { reload, message } => {
                job.report.reload = Some(reload);
                self.pod.forget_baseline();
                self.reject(job.report, failure(Stage::Reload, message))
            }
            Activation::Unreachable { reload, message }
                if !self.pod.worker.answer().answers && !job.touched =>
            {
                job.report.reload = Some(reload);
                self.pod.forget_baseline();
                let message = format!(
                    "{NOT_RUNNING}, and that is what it starts with; nothing has confirmed it ({message})"
                );
                self.reject(job.report, failure(Stage::Reload, message))
            }
            Activation::Unreachable { reload, message } => {
                job.report.reload = Some(reload);
                self.abort(job.report, failure(Stage::Reload, message), job.touched)
            }
        }
    }

    fn schedule(&mut self, mut job: Job, asked: bool) -> Answer {
        self.put_off(job.manifest.plan_id.clone(), job.touched);
        if job.touched {
            self.pod.worker_ops.clear();
            self.pod.worker.refresh();
        }
        if asked {
            self.run_in_place(&mut job);
        }
        self.end_scheduled(job)
    }

    /// A reload waits already: it loads this set as well.
    pub(super) fn join_pending(&mut self, mut job: Job) -> Answer {
        let fold = self.pod.fold();
        if let Some(pending) = &mut self.pod.pending {
            pending.plan_id.clone_from(&job.manifest.plan_id);
            pending.fold = fold;
        }
        self.run_in_place(&mut job);
        self.end_scheduled(job)
    }

    fn end_scheduled(&mut self, mut job: Job) -> Answer {
        let due = self.pod.pending.as_ref().map(|pending| pending.due.clone());
        job.report.reload = Some(Reload {
            scheduled_at: due,
            ..Reload::default()
        });
        self.commit(job, ResultMode::Scheduled)
    }

    /// The last known good set goes back; the worker is reloaded with it if commands may
    /// have changed it.
    fn abort(&mut self, mut report: Report, failure: Failure, touched: bool) -> Answer {
        self.pod.applied.clear();
        self.pod.degrade(&failure.message);
        self.pod.restore();
        let reloaded = touched && self.reload_restored();
        report.rollback = Some(Rollback {
            performed: true,
            reloaded,
        });
        self.reject(report, failure)
    }

    /// The same where HAProxy refused what is on disk. Its verdict on the bytes, if it is
    /// one, is remembered.
    fn abort_refused(
        &mut self,
        report: Report,
        failure: Failure,
        verdict: bool,
        touched: bool,
    ) -> Answer {
        // Before the restore: what was refused is what is on disk now.
        let set = self.pod.fold();
        let answer = self.abort(report, failure, touched);
        if let (true, Answer::Result(nack)) = (verdict, &answer) {
            self.pod.remember(set, (**nack).clone());
        }
        answer
    }

    fn reload_restored(&mut self) -> bool {
        match self.reload() {
            Activation::Loaded(_) => {
                match self.pod.holds_last_known_good() {
                    true => {
                        let lkg = self.pod.lkg.clone();
                        self.pod.worker_loaded(&lkg);
                    }
                    false => self.pod.forget_worker(),
                }
                true
            }
            Activation::Refused { .. }
            | Activation::Unconfirmed { .. }
            | Activation::Unreachable { .. } => {
                self.pod.forget_worker();
                self.pod.violation = Some("recovery_reload".to_owned());
                false
            }
        }
    }

    pub(super) fn revert(&mut self, manifest: &Manifest, mut report: Report) -> Answer {
        let lkg = self.pod.lkg.clone();
        if lkg.is_empty() {
            let message = "no last known good set is held: send a full set with mode reload";
            return self.refuse(report, failure(Stage::Revert, message));
        }
        self.pod.restore();
        self.pod.pending = None;
        report.rollback = Some(Rollback {
            performed: true,
            reloaded: false,
        });
        if self.pod.lkg.is_empty() {
            let message = format!(
                "files of {lkg} were changed by something else, and their last known good content is not held: send a full set with mode reload"
            );
            return self.reject(report, failure(Stage::Revert, message));
        }
        let (reload, message) = match self.reload() {
            Activation::Loaded(reload) => {
                report.reload = Some(reload);
                report.rollback = Some(Rollback {
                    performed: true,
                    reloaded: true,
                });
                let schema = self.pod.schema;
                self.settle(&lkg, manifest, schema, ResultMode::Reload);
                return self.conclude(report, ResultMode::Reload);
            }
            Activation::Refused {
                reload, message, ..
            }
            | Activation::Unreachable { reload, message } => (reload, message),
            Activation::Unconfirmed { reload, message } => {
                self.pod.forget_baseline();
                (reload, message)
            }
        };
        report.reload = Some(reload);
        self.reject(report, failure(Stage::RevertReload, message))
    }

    /// The reload that waits runs now. `None`: there is none.
    pub(super) fn fire(&mut self) -> Option<ApplyResult> {
        let pending = self.pod.pending.clone()?;
        self.pod.look();
        let foreign = self.pod.fold() != pending.fold;
        let report = Report {
            plan_id: pending.plan_id.clone(),
            ..Report::default()
        };
        let known = !foreign && !pending.plan_id.is_empty();
        self.reload_unasked(report, known.then_some(pending.plan_id), pending.touched)
    }

    /// HAProxy was restarted, or reloaded by somebody else: one reload of the applied set
    /// makes it known again what runs.
    pub(super) fn other_worker(&mut self) -> Option<ApplyResult> {
        self.pod.worker.load(&self.pod.disk, &self.pod.owned);
        self.pod.forget_worker();
        self.pod.forget_refusals();
        if self.pod.look() || self.pod.applied.is_empty() || self.pod.pending.is_some() {
            return None;
        }
        let plan_id = self.pod.applied.clone();
        if self.is_paced() {
            self.put_off(plan_id, false);
            return None;
        }
        let report = Report {
            plan_id: plan_id.clone(),
            ..Report::default()
        };
        self.reload_unasked(report, Some(plan_id), false)
    }

    /// A reload that no request waits for; its outcome replaces the last apply's.
    fn reload_unasked(
        &mut self,
        mut report: Report,
        plan_id: Option<String>,
        touched: bool,
    ) -> Option<ApplyResult> {
        let stage = Stage::ScheduledReload;
        let answer = match self.reload() {
            Activation::Loaded(reload) => {
                self.pod.pending = None;
                report.reload = Some(reload);
                match plan_id {
                    Some(plan_id) => self.pod.worker_loaded(&plan_id),
                    None => self.pod.forget_baseline(),
                }
                self.conclude(report, ResultMode::Reload)
            }
            Activation::Refused {
                reload,
                message,
                verdict,
            } => {
                self.pod.pending = None;
                report.reload = Some(reload);
                self.abort_refused(report, failure(stage, message), verdict, touched)
            }
            // Nothing was asked of the master, so nothing is decided: it stays pending.
            Activation::Unreachable { message, .. } => {
                self.pod.degrade(&message);
                if let Some(pending) = &mut self.pod.pending {
                    pending.fires = pending.fires.map(|_| SystemClock.now() + RETRY_AFTER);
                }
                return None;
            }
            Activation::Unconfirmed { reload, message } => {
                self.pod.pending = None;
                report.reload = Some(reload);
                self.pod.forget_baseline();
                self.reject(report, failure(stage, message))
            }
        };
        match answer {
            Answer::Result(result) => Some(*result),
            Answer::Conflict(_) | Answer::Missing(_) => None,
        }
    }

    /// Asks HAProxy, which is the test.
    fn reload(&mut self) -> Activation {
        if let Some(what) = self.config_fault() {
            return Activation::Refused {
                reload: Reload::default(),
                message: what,
                verdict: true,
            };
        }
        let performed = Reload {
            performed: true,
            took_ms: Some(1),
            ..Reload::default()
        };
        let fault = self.knobs.reload_faults.pop_front();
        let fault = fault.or_else(|| {
            let verdict = self.judge.ask(&self.pod.disk);
            verdict.err().map(ReloadFault::Refused)
        });
        let unreachable = matches!(fault, Some(ReloadFault::Unreachable(_)));
        if !unreachable {
            self.pod.last_reload = Some(SystemClock.now());
        }
        let Some(fault) = fault else {
            self.pod.worker.load(&self.pod.disk, &self.pod.owned);
            return Activation::Loaded(Reload {
                ok: true,
                worker_pid: Some(self.pod.worker.pid()),
                ..performed
            });
        };
        let message = fault.words().to_owned();
        let said = Reload {
            output: Some(message.clone()),
            ..performed
        };
        match fault {
            ReloadFault::Refused(_) => Activation::Refused {
                reload: said,
                message,
                verdict: true,
            },
            ReloadFault::Surroundings(_) => Activation::Refused {
                reload: said,
                message,
                verdict: false,
            },
            ReloadFault::Unconfirmed(_) => Activation::Unconfirmed {
                reload: said,
                message,
            },
            ReloadFault::Unreachable(_) => Activation::Unreachable {
                reload: Reload::default(),
                message: format!("{UNREACHABLE}: {message}"),
            },
        }
    }

    /// What is wrong with the main file before HAProxy is asked.
    fn config_fault(&self) -> Option<String> {
        let config = &self.pod.config;
        self.pod.owned.get(config)?;
        match self.pod.disk.get(config) {
            None => Some(format!("{config} cannot be read; no reload was sent")),
            Some(content) if content.bytes.is_empty() => {
                Some(format!("{config}: it is empty; no reload was sent"))
            }
            Some(_) => None,
        }
    }
}
