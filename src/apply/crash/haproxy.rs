//! A HAProxy in memory: one worker, and what it loaded from the model file system.
//!
//! It keeps every set that it was ever told to load, so that a test can say that no
//! mix was among them, and it dies with the world: once the file system has stopped, a
//! command has no effect.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::apply::port::{Haproxy, Look};
use crate::haproxy::alerts::ReloadLog;
use crate::haproxy::batch::{Batch, BatchReport, OpenSession};
use crate::haproxy::deletes::{Pass, Policy, Queue};
use crate::haproxy::identity::{Identity, WorkerInfo};
use crate::haproxy::inventory::RuntimeInventory;
use crate::haproxy::ops::{Content, Touched};
use crate::haproxy::readback::{Object, Verdict, Void};
use crate::haproxy::reload::ReloadOutcome;
use crate::store::model::ModelFs;

use super::sets;
use super::worker::{Batches, Runtime};

/// A set with this in its configuration is refused.
pub(super) const REFUSED: &str = "REFUSED";

/// The alert of a refusal.
const ALERT: &[u8] =
    b"[ALERT]    (7) : config : parsing [haproxy.cfg:1] : unknown keyword 'REFUSED'.\n";

const TOOK: Duration = Duration::from_millis(3);

/// Files by path.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// How the next reloads go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    /// By the set.
    Judging,
    /// A new worker comes and loads the set, and nobody can tell.
    SilentlyLoading,
    /// No new worker comes, and nobody can tell.
    SilentlyNot,
    /// The master socket refuses.
    Unreachable,
}

#[derive(Debug)]
struct Inner {
    fs: ModelFs,
    worker: Identity,
    loaded: Files,
    runtime: Runtime,
    mood: Mood,
    /// Neither socket answers.
    down: bool,
    /// Every set that a reload was asked for with.
    asked: Vec<Files>,
}

/// The model.
#[derive(Debug)]
pub(super) struct ModelHaproxy(Mutex<Inner>);

/// Every visible file.
pub(super) fn files_of(fs: &ModelFs) -> Files {
    fs.snapshot()
        .into_iter()
        .map(|(path, seen)| (path, seen.bytes))
        .collect()
}

impl ModelHaproxy {
    /// Started from what is on disk.
    pub(super) fn new(fs: &ModelFs) -> Self {
        Self(Mutex::new(Inner {
            fs: fs.clone(),
            worker: Identity {
                pid: 100,
                start_micros: 1_000,
            },
            loaded: files_of(fs),
            runtime: Runtime::of(sets::name_of(&files_of(fs))),
            mood: Mood::Judging,
            down: false,
            asked: Vec::new(),
        }))
    }

    /// The same HAProxy, over another file system: the agent's disk after a crash.
    pub(super) fn over(&self, fs: &ModelFs) -> Self {
        let inner = self.inner();
        Self(Mutex::new(Inner {
            fs: fs.clone(),
            worker: inner.worker,
            loaded: inner.loaded.clone(),
            runtime: inner.runtime.met_again(),
            mood: Mood::Judging,
            down: false,
            asked: Vec::new(),
        }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    pub(super) fn set_mood(&self, mood: Mood) {
        self.inner().mood = mood;
    }

    pub(super) fn set_batches(&self, batches: Batches) {
        self.inner().runtime.batches = batches;
    }

    pub(super) fn set_busy(&self, busy: bool) {
        self.inner().runtime.busy = busy;
    }

    /// The next look after a batch finds a difference.
    pub(super) fn set_differs(&self) {
        self.inner().runtime.differs = true;
    }

    /// A controller says that for the worker that plan is no other one.
    pub(super) fn is_also(&self, plan: &str) {
        self.inner().runtime.also.insert(plan.to_owned());
    }

    pub(super) fn runtime(&self) -> Runtime {
        self.inner().runtime.clone()
    }

    pub(super) fn set_down(&self, down: bool) {
        self.inner().down = down;
    }

    /// Another worker, with what is on disk now.
    pub(super) fn restart(&self) {
        self.inner().load();
    }

    pub(super) fn loaded(&self) -> Files {
        self.inner().loaded.clone()
    }

    pub(super) fn asked(&self) -> Vec<Files> {
        self.inner().asked.clone()
    }

    pub(super) fn identity(&self) -> Identity {
        self.inner().worker
    }
}

impl Inner {
    fn load(&mut self) {
        self.loaded = files_of(&self.fs);
        self.runtime = Runtime::of(sets::name_of(&self.loaded));
        self.worker.pid += 1;
        self.worker.start_micros += 1_000;
    }

    fn info(&self) -> WorkerInfo {
        WorkerInfo {
            identity: self.worker,
            version: "3.4.7".parse().unwrap(),
            stopping: false,
        }
    }
}

impl Haproxy for ModelHaproxy {
    fn worker(&self) -> Result<WorkerInfo, String> {
        let inner = self.inner();
        if inner.down {
            return Err("connection refused".to_owned());
        }
        Ok(inner.info())
    }

    fn master(&self) -> Result<(), String> {
        if self.inner().down {
            return Err("connection refused".to_owned());
        }
        Ok(())
    }

    fn inventory(&self) -> Result<RuntimeInventory, String> {
        if self.inner().down {
            return Err("connection refused".to_owned());
        }
        Ok(RuntimeInventory::default())
    }

    fn look(&self, _: bool) -> Look {
        Look::Known(self.worker())
    }

    fn run(
        &self,
        batch: &Batch,
        _: &mut Option<OpenSession>,
        expected: Identity,
        queue: &mut Queue,
    ) -> BatchReport {
        let inner = &mut *self.inner();
        assert_eq!(expected, inner.worker, "the agent looked right before");
        let worker = inner.info();
        inner.runtime.run(&inner.fs, &worker, batch, queue)
    }

    fn delete(&self, queue: &mut Queue, _: Policy) -> Pass {
        let inner = &mut *self.inner();
        if queue.worker() != Some(inner.worker) {
            queue.supersede_all("another worker runs now");
        }
        let error = inner.runtime.delete(&inner.fs, queue).err();
        Pass { next: None, error }
    }

    fn read_back(
        &self,
        expected: Identity,
        touched: &Touched,
        _: &dyn Content,
        _: &Queue,
    ) -> Result<Vec<(Object, Verdict)>, Void> {
        let mut inner = self.inner();
        if expected != inner.worker {
            let why = "another worker answers".to_owned();
            return Err(Void { why });
        }
        let differs = std::mem::take(&mut inner.runtime.differs);
        let verdict = match differs {
            true => Verdict::Differs {
                what: "by a model".to_owned(),
            },
            false => Verdict::Agrees,
        };
        let objects = touched.backends.keys().cloned().map(Object::Backend);
        Ok(objects.map(|object| (object, verdict.clone())).collect())
    }

    fn reload(&self, _before: Option<Identity>) -> ReloadOutcome {
        let mut inner = self.inner();
        let unreachable = ReloadOutcome::Unreachable {
            what: "connection refused".to_owned(),
        };
        if inner.fs.event().is_err() || inner.mood == Mood::Unreachable || inner.down {
            return unreachable;
        }
        let set = files_of(&inner.fs);
        inner.asked.push(set.clone());
        let config = set.get("haproxy.cfg").cloned().unwrap_or_default();
        assert!(!config.is_empty(), "a reload without a configuration");
        let what = "no new worker".to_owned();
        let log = ReloadLog::default();
        match inner.mood {
            Mood::Unreachable => unreachable,
            Mood::SilentlyLoading => {
                inner.load();
                ReloadOutcome::Unconfirmed {
                    what,
                    took: TOOK,
                    log,
                }
            }
            Mood::SilentlyNot => ReloadOutcome::Unconfirmed {
                what,
                took: TOOK,
                log,
            },
            Mood::Judging if String::from_utf8_lossy(&config).contains(REFUSED) => {
                ReloadOutcome::Refused {
                    log: ReloadLog::new(ALERT, false),
                    took: TOOK,
                    verdict_on_files: true,
                }
            }
            Mood::Judging => {
                inner.load();
                ReloadOutcome::Loaded {
                    worker: inner.info(),
                    took: TOOK,
                    log,
                }
            }
        }
    }
}
