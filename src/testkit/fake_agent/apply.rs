//! One apply on the pod, in the order of the contract.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::wire::manifest::{Manifest, Mode};
use crate::wire::path::ManifestPath;
use crate::wire::result::{
    ApplyResult, Conflict, Failure, Missing, OpResult, Reload, ResultMode, Rollback, Stage, Timing,
};

use super::judge::Judge;
use super::knobs::Knobs;
use super::ops::{self, Ended};
use super::pod::{Content, Fold, Owned, Pod, now};

/// What came in.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) manifest: Manifest,
    pub(super) parts: BTreeMap<ManifestPath, Content>,
    pub(super) blob: Option<Vec<u8>>,
}

/// What goes out.
#[derive(Debug)]
pub(super) enum Answer {
    Result(Box<ApplyResult>),
    Conflict(Box<Conflict>),
    Missing(Missing),
}

/// What an answer says beside the ids.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) plan_id: String,
    pub(super) op_results: Vec<OpResult>,
    pub(super) reload: Option<Reload>,
    pub(super) rollback: Option<Rollback>,
    pub(super) error: Option<Failure>,
}

/// The pod, and what the test wants of it.
pub(super) struct Run<'a> {
    pub(super) pod: &'a mut Pod,
    pub(super) knobs: &'a mut Knobs,
    pub(super) judge: &'a Judge,
}

/// What travels through one apply.
pub(super) struct Job {
    pub(super) manifest: Manifest,
    blob: Option<Vec<u8>>,
    /// Commands of it may have changed the worker.
    pub(super) touched: bool,
    pub(super) baseline_gone: bool,
    pub(super) report: Report,
}

impl Run<'_> {
    /// Carries an apply out.
    pub(super) fn apply(&mut self, upload: Upload) -> Answer {
        let mut answer = self.decide(upload);
        if let Answer::Result(result) = &mut answer {
            result.runtime_inventory = self.pod.news();
        }
        answer
    }

    fn decide(&mut self, upload: Upload) -> Answer {
        let Upload {
            manifest,
            parts,
            blob,
        } = upload;
        let report = Report {
            plan_id: manifest.plan_id.clone(),
            ..Report::default()
        };
        self.pod.look();
        if let Err(conflict) = self.pod.fence(&manifest, self.is_paced()) {
            return Answer::Conflict(conflict);
        }
        self.pod.epoch = self.pod.epoch.max(manifest.token.leader_epoch);
        if manifest.mode == Mode::RevertLkg {
            return self.revert(&manifest, report);
        }
        let writes = match self.writes(&manifest, parts) {
            Ok(writes) => writes,
            Err(missing) => return Answer::Missing(Missing { missing }),
        };
        let set = self.set_with(&manifest, &writes);
        if let Some(nack) = self.pod.known_bad(&set, &manifest.plan_id) {
            return Answer::Result(Box::new(nack));
        }
        self.pod.promote(&manifest);
        let job = Job {
            manifest,
            blob,
            touched: false,
            baseline_gone: false,
            report,
        };
        self.carry_out(job, writes)
    }

    /// The content that is new; or the paths whose content is neither sent nor held.
    fn writes(
        &self,
        manifest: &Manifest,
        mut parts: BTreeMap<ManifestPath, Content>,
    ) -> Result<BTreeMap<ManifestPath, Content>, Vec<ManifestPath>> {
        let mut writes = BTreeMap::new();
        let mut missing = Vec::new();
        for file in &manifest.files {
            let held = self.pod.disk.get(&file.path);
            match (parts.remove(&file.path), held) {
                (Some(sent), Some(held)) if sent.hash == held.hash => {}
                (Some(sent), _) => {
                    writes.insert(file.path.clone(), sent);
                }
                (None, Some(held))
                    if held.hash.size == file.size && held.hash.matches(&file.digest) => {}
                (None, _) => missing.push(file.path.clone()),
            }
        }
        missing.sort_unstable();
        match missing.is_empty() {
            true => Ok(writes),
            false => Err(missing),
        }
    }

    /// The set that will be on disk.
    fn set_with(&self, manifest: &Manifest, writes: &BTreeMap<ManifestPath, Content>) -> Fold {
        let of = |path: &ManifestPath| {
            let content = writes.get(path).or_else(|| self.pod.disk.get(path))?;
            Some((path.clone(), content.hash.sha256))
        };
        manifest.files.iter().filter_map(|f| of(&f.path)).collect()
    }

    fn carry_out(&mut self, mut job: Job, writes: BTreeMap<ManifestPath, Content>) -> Answer {
        let owned: BTreeMap<ManifestPath, Owned> = job
            .manifest
            .files
            .iter()
            .map(|file| {
                let owned = Owned {
                    digest: file.digest.kind(),
                    kind: file.kind,
                };
                (file.path.clone(), owned)
            })
            .collect();
        let goes = |path: &ManifestPath| !owned.contains_key(path);
        let changes = !writes.is_empty() || self.pod.owned.keys().any(goes);
        let config = &self.pod.config;
        let config_goes = self.pod.owned.contains_key(config) && goes(config);
        let unknown = ops::unknown(&job.manifest.ops, self.knobs);
        let reload_why = if self.pod.pending.is_some() {
            None
        } else if job.manifest.mode == Mode::Reload {
            Some("not sent: the manifest asks for a reload")
        } else if self.pod.applied.is_empty() {
            Some("not sent: the applied plan is unknown, so the files are reloaded")
        } else if unknown.is_some() {
            Some("not sent: an op of the batch is not executable")
        } else if !self.pod.worker_known() {
            Some(
                "not sent: the worker is not the one the ops were composed for, so the files are reloaded",
            )
        } else {
            None
        };
        let pending = self.pod.pending.is_some();
        if pending {
            job.report.op_results = unsent(
                &job.manifest,
                "not sent: a reload is pending and will load the files",
            );
        } else if let Some(why) = reload_why {
            let asked = job.manifest.mode == Mode::Reload;
            job.report.op_results = match unknown {
                Some(fault) if !asked && !self.pod.applied.is_empty() => {
                    self.pod.violation = Some("ops_executable".to_owned());
                    fault.results(&job.manifest.ops)
                }
                Some(_) | None => unsent(&job.manifest, why),
            };
        }
        if config_goes {
            let message = format!(
                "the set has no {config}: HAProxy neither starts nor reloads without it; send it with every set"
            );
            return self.refuse(job.report, failure(Stage::Backup, message));
        }
        self.pod.write(owned, writes);
        if pending {
            return self.join_pending(job);
        }
        if reload_why.is_some() {
            let asked = job.manifest.mode == Mode::Reload;
            return self.activate(job, asked);
        }
        if !job.manifest.ops.is_empty() {
            return self.runtime(job);
        }
        let mode = match changes {
            true => ResultMode::FileOnly,
            false => ResultMode::Noop,
        };
        self.commit(job, mode)
    }

    fn runtime(&mut self, mut job: Job) -> Answer {
        if let Err(fault) = ops::check(&job.manifest.ops, self.pod, self.knobs) {
            if fault.outcome != "queue_full" {
                self.pod.violation = Some("ops_executable".to_owned());
            }
            job.report.op_results = fault.results(&job.manifest.ops);
            return self.activate(job, false);
        }
        let (results, ended) = ops::run(&job.manifest.ops, self.pod, self.knobs);
        job.report.op_results = results;
        job.touched = true;
        match ended {
            Ended::Complete => {
                self.pod.worker.refresh();
                self.commit(job, ResultMode::Runtime)
            }
            Ended::Refused(_) => self.activate(job, false),
            Ended::Unknown(_) => {
                self.pod.forget_worker();
                self.activate(job, false)
            }
        }
    }

    /// The ops that are safe on the running worker while a reload waits.
    pub(super) fn run_in_place(&mut self, job: &mut Job) {
        let ops = &job.manifest.in_place_ops;
        if ops.is_empty() {
            return;
        }
        let failed = match ops::check(ops, self.pod, self.knobs) {
            Err(fault) => {
                job.report.op_results = fault.results(ops);
                Some(fault.message())
            }
            Ok(()) => {
                let (results, ended) = ops::run(ops, self.pod, self.knobs);
                job.report.op_results = results;
                self.pod.worker.refresh();
                if let Some(pending) = &mut self.pod.pending {
                    pending.touched = true;
                }
                match ended {
                    Ended::Complete => None,
                    Ended::Refused(words) | Ended::Unknown(words) => Some(words),
                }
            }
        };
        match (failed, &job.manifest.worker_ops_plan_id) {
            (None, Some(plan_id)) => self.pod.worker_ops.clone_from(plan_id),
            (None, None) => {}
            (Some(message), _) => {
                job.baseline_gone = true;
                job.report.error = Some(failure(Stage::InPlace, message));
            }
        }
    }

    pub(super) fn commit(&mut self, mut job: Job, mode: ResultMode) -> Answer {
        let plan_id = job.manifest.plan_id.clone();
        self.pod.store_blob(&plan_id, job.blob.take());
        let schema = job.manifest.plan_schema_version;
        self.settle(&plan_id, &job.manifest, schema, mode);
        if job.baseline_gone {
            self.pod.applied.clear();
            self.pod.worker_ops.clear();
        }
        self.conclude(job.report, mode)
    }

    /// The plan roles after a success; the generation moves by one.
    pub(super) fn settle(
        &mut self,
        plan_id: &str,
        manifest: &Manifest,
        schema: i64,
        mode: ResultMode,
    ) {
        let pod = &mut *self.pod;
        pod.generation = pod.generation.saturating_add(1);
        plan_id.clone_into(&mut pod.applied);
        pod.token = manifest.token;
        pod.schema = schema;
        match mode {
            ResultMode::Reload => pod.worker_loaded(plan_id),
            ResultMode::FileOnly | ResultMode::Runtime | ResultMode::Noop => {
                plan_id.clone_into(&mut pod.worker_ops);
                pod.degraded = None;
            }
            ResultMode::Scheduled | ResultMode::Rejected => {}
        }
    }

    pub(super) fn reject(&mut self, report: Report, failure: Failure) -> Answer {
        self.pod.applied.clear();
        self.refuse(report, failure)
    }

    /// A failure before anything was touched: what is known stays known.
    pub(super) fn refuse(&mut self, mut report: Report, failure: Failure) -> Answer {
        self.pod.degrade(&failure.message);
        report.error = Some(failure);
        self.conclude(report, ResultMode::Rejected)
    }

    pub(super) fn conclude(&mut self, report: Report, mode: ResultMode) -> Answer {
        let pod = &mut *self.pod;
        let result = ApplyResult {
            plan_id: report.plan_id,
            ok: mode != ResultMode::Rejected,
            mode,
            applied_plan_id: match mode {
                ResultMode::Rejected => String::new(),
                ResultMode::Runtime
                | ResultMode::FileOnly
                | ResultMode::Reload
                | ResultMode::Scheduled
                | ResultMode::Noop => pod.applied.clone(),
            },
            running_plan_id: pod.running.clone(),
            worker_ops_plan_id: pod.worker_ops.clone(),
            applied_token: pod.token,
            lkg_plan_id: pod.lkg.clone(),
            haproxy: pod.haproxy(),
            at: now(),
            timing: Timing::default(),
            op_results: report.op_results,
            reload: report.reload,
            rollback: report.rollback,
            error: report.error,
            unsaved: None,
            runtime_inventory: None,
        };
        pod.last_apply = Some(result.clone());
        Answer::Result(Box::new(result))
    }
}

pub(super) fn failure(stage: Stage, message: impl Into<String>) -> Failure {
    Failure {
        stage,
        message: message.into(),
    }
}

fn unsent(manifest: &Manifest, why: &str) -> Vec<OpResult> {
    let one = |op: &crate::wire::op::Op| OpResult {
        kind: op.kind.clone(),
        ok: false,
        output: Some(why.to_owned()),
    };
    manifest.ops.iter().map(one).collect()
}

/// Bytes by path, as a judge sees a set.
pub(super) fn contents(disk: &BTreeMap<ManifestPath, Content>) -> BTreeMap<String, Arc<[u8]>> {
    let of =
        |(path, content): (&ManifestPath, &Content)| (path.to_string(), Arc::clone(&content.bytes));
    disk.iter().map(of).collect()
}
