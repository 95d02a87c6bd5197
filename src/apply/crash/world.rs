//! One base directory, one HAProxy, one agent at a time; and what must hold between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::apply::agent::{Agent, Early, Settings};
use crate::apply::record::Record;
use crate::apply::upload::{Answer, PartError};
use crate::apply::view::StateRead;
use crate::metrics::Metrics;
use crate::store::journal::Kind;
use crate::store::model::{LoseUnsynced, ModelFs};
use crate::store::mounts::Mounts;
use crate::store::{Durability, Store};
use crate::wire::digest::{ContentHash, DigestKind};
use crate::wire::manifest::{File, FileKind, Manifest, Mode, ReservedPaths, Token};
use crate::wire::path::ManifestPath;
use crate::wire::result::{ApplyResult, Conflict, ResultMode};
use crate::wire::state::State;

use super::clock::ModelClock;
use super::haproxy::{ModelHaproxy, Mood, files_of};
use super::sets::{self, AFTER, BAD_AFTER, BOOT};
use super::worker::{Batches, Cmd};

pub(super) const STATE: &str = ".haptic-agent.json";
const PHASE: &str = ".haptic-agent.json.phase";
pub(super) const BLOB: &str = ".haptic-agent-plan.bin";

/// The pacing interval where a shape has one.
pub(super) const INTERVAL: Duration = Duration::from_secs(100_000);

/// How an apply is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub(super) plan: &'static str,
    pub(super) mode: Mode,
    pub(super) epoch: u64,
    pub(super) validated: Option<&'static str>,
    pub(super) blob: bool,
    /// The set under another plan id.
    pub(super) under: Option<&'static str>,
    pub(super) ops: &'static [Cmd],
    /// With the plan that they bring the worker to.
    pub(super) in_place: &'static [Cmd],
}

/// What the worker holds once the in-place ops of a shape are through.
pub(super) const IN_PLACE: &str = "in-place";

impl Ask {
    pub(super) const fn reload(plan: &'static str) -> Self {
        Self {
            plan,
            mode: Mode::Reload,
            epoch: 1,
            validated: None,
            blob: false,
            under: None,
            ops: &[],
            in_place: &[],
        }
    }

    pub(super) const fn auto(plan: &'static str) -> Self {
        Self {
            mode: Mode::Auto,
            ..Self::reload(plan)
        }
    }

    /// On the running worker.
    pub(super) const fn runtime(plan: &'static str, ops: &'static [Cmd]) -> Self {
        Self {
            ops,
            ..Self::auto(plan)
        }
    }

    /// With ops for while the reload waits.
    pub(super) const fn in_place(plan: &'static str, in_place: &'static [Cmd]) -> Self {
        Self {
            in_place,
            ..Self::reload(plan)
        }
    }

    pub(super) const fn revert() -> Self {
        Self {
            mode: Mode::RevertLkg,
            ..Self::reload("revert")
        }
    }

    fn id(&self) -> &'static str {
        self.under.unwrap_or(self.plan)
    }
}

/// How an apply ended.
#[derive(Debug)]
pub(super) enum Ended {
    Result(Box<ApplyResult>),
    Conflict(Box<Conflict>),
    Missing,
    Part(#[allow(dead_code, reason = "shown when a test fails")] PartError),
}

impl Ended {
    pub(super) fn mode(&self) -> Option<ResultMode> {
        match self {
            Self::Result(result) => Some(result.mode),
            Self::Conflict(_) | Self::Missing | Self::Part(_) => None,
        }
    }

    /// The answer of an apply that must have been admitted.
    pub(super) fn result(self) -> ApplyResult {
        match self {
            Self::Result(result) => *result,
            other => panic!("{other:?}"),
        }
    }
}

/// One step of a shape.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Apply(Ask),
    /// The pending reload's time comes.
    Fire,
    /// HAProxy starts anew from disk, and the background look comes by.
    Restart,
    Mood(Mood),
    /// How the next batch goes.
    Batches(Batches),
    /// Whether sessions keep deletes from getting through.
    Busy(bool),
    /// What the background thread does about deferred deletes.
    Deletes,
    /// The look after a batch, which finds no difference or one.
    ReadBack(bool),
    /// The next rename onto that path fails.
    RenameFails(&'static str),
}

/// All of it.
#[derive(Debug)]
pub(super) struct World {
    pub(super) fs: ModelFs,
    pub(super) haproxy: Arc<ModelHaproxy>,
    pub(super) clock: Arc<ModelClock>,
    pub(super) agent: Arc<Agent>,
    interval: Duration,
    durability: Durability,
    /// Invariants that may be found broken.
    pub(super) breaks: Vec<&'static str>,
}

/// A tree that agents have never seen.
pub(super) fn bare() -> ModelFs {
    let fs = ModelFs::new();
    fs.mount("general");
    for (path, bytes) in sets::tree(BOOT) {
        fs.put(&path, &bytes, 0o640, 7, 8);
    }
    fs
}

impl World {
    /// An agent that has not started yet.
    pub(super) fn over(
        fs: ModelFs,
        haproxy: ModelHaproxy,
        clock: ModelClock,
        interval: Duration,
        durability: Durability,
    ) -> Self {
        let (haproxy, clock) = (Arc::new(haproxy), Arc::new(clock));
        let settings = Settings {
            config: ManifestPath::parse("haproxy.cfg").unwrap(),
            reload_interval: interval,
            file_mode: 0o644,
            secret_mode: 0o640,
            deletes: crate::haproxy::deletes::Policy::default(),
            reserved: ReservedPaths::default(),
            worker_socket: None,
        };
        let store = Store::new(
            fs.shared(),
            Mounts::from_lists(["general"], [""; 0]),
            durability,
        );
        let agent = Arc::new(Agent::new(
            settings,
            store,
            STATE,
            BLOB,
            haproxy.clone(),
            clock.clone(),
            Arc::new(Metrics::default()),
        ));
        clock.watch(Arc::downgrade(&agent), &fs);
        Self {
            fs,
            haproxy,
            clock,
            agent,
            interval,
            durability,
            breaks: Vec::new(),
        }
    }

    /// A first agent over the bootstrap configuration, started.
    pub(super) fn first(interval: Duration) -> Self {
        Self::first_with(interval, Durability::Full)
    }

    pub(super) fn first_with(interval: Duration, durability: Durability) -> Self {
        let fs = bare();
        let haproxy = ModelHaproxy::new(&fs);
        let world = Self::over(fs, haproxy, ModelClock::new(), interval, durability);
        world.start();
        world
    }

    /// The agent's death, or the machine's; HAProxy lives on. The next agent has not started.
    pub(super) fn crash(&self, lose: LoseUnsynced) -> Self {
        let fs = self.fs.crash(lose);
        let haproxy = self.haproxy.over(&fs);
        let clock = self.clock.next_life();
        Self {
            breaks: self.breaks.clone(),
            ..Self::over(fs, haproxy, clock, self.interval, self.durability)
        }
    }

    /// Starts the agent. False if the world stopped before it was ready.
    pub(super) fn start(&self) -> bool {
        self.clock.run(true);
        let ready = self.agent.start();
        self.clock.run(false);
        ready
    }

    /// A copy with an agent of its own, started.
    pub(super) fn copy(&self) -> Self {
        let copy = self.crash(LoseUnsynced::Nothing);
        copy.start();
        copy
    }

    pub(super) fn step(&self, step: Step) -> Option<Ended> {
        match step {
            Step::Apply(ask) => return Some(self.apply(ask)),
            Step::Fire => self.fire(),
            Step::Restart => {
                if self.fs.event().is_ok() {
                    self.haproxy.restart();
                    self.agent.look();
                }
            }
            Step::Mood(mood) => self.haproxy.set_mood(mood),
            Step::Batches(batches) => self.haproxy.set_batches(batches),
            Step::Busy(busy) => self.haproxy.set_busy(busy),
            Step::Deletes => {
                let mut tx = self.agent.lock();
                if !tx.record.deletes.is_empty() {
                    tx.delete_some(&self.agent);
                }
                self.agent.publish(&tx);
            }
            Step::ReadBack(differs) => {
                if differs {
                    self.haproxy.set_differs();
                }
                self.agent.read_back(self.agent.lock(), &mut None);
            }
            Step::RenameFails(path) => self.fs.fail_rename_once(path, libc::EIO),
        }
        None
    }

    /// All steps; the last apply's end.
    pub(super) fn run(&self, steps: &[Step]) -> Option<Ended> {
        let mut last = None;
        for step in steps {
            last = self.step(*step).or(last);
        }
        last
    }

    /// Moves the clock past the pending reload and fires it, if there is one.
    pub(super) fn fire(&self) {
        self.clock.advance(INTERVAL * 2);
        let mut tx = self.agent.lock();
        let due = tx.pending_at.is_some();
        tx.fire_if_due(&self.agent, due);
        self.agent.publish(&tx);
    }

    /// The manifest of an ask, on the baseline that the agent tells.
    pub(super) fn manifest(&self, ask: Ask) -> Manifest {
        let state = self.state();
        let files = match ask.mode {
            Mode::RevertLkg => Vec::new(),
            Mode::Auto | Mode::Reload => sets::owned(ask.plan)
                .iter()
                .map(|(path, bytes)| {
                    let hash = ContentHash::of(bytes);
                    File {
                        path: ManifestPath::parse(path.as_str()).unwrap(),
                        digest: hash.digest(DigestKind::Sha256),
                        size: hash.size,
                        kind: FileKind::General,
                        reload_on_change: false,
                    }
                })
                .collect(),
        };
        let in_place = !ask.in_place.is_empty();
        let manifest = Manifest {
            plan_id: ask.id().to_owned(),
            plan_schema_version: 1,
            token: Token {
                leader_epoch: ask.epoch,
                render_seq: state.generation + 1,
            },
            expected_prev_plan_id: state.applied_plan_id.clone(),
            expected_prev_token: state.applied_token,
            expected_worker_ops_plan_id: in_place.then(|| state.worker_ops_plan_id.clone()),
            worker_ops_plan_id: in_place.then(|| IN_PLACE.to_owned()),
            validated_plan_id: ask.validated.map(str::to_owned),
            files,
            ops: ask.ops.iter().map(|cmd| cmd.op()).collect(),
            in_place_ops: ask.in_place.iter().map(|cmd| cmd.op()).collect(),
            mode: ask.mode,
        };
        manifest.check(&ReservedPaths::default()).unwrap();
        manifest
    }

    /// Sends an apply as a controller would: only content that the agent does not hold.
    pub(super) fn apply(&self, ask: Ask) -> Ended {
        if ask.mode == Mode::Auto && ask.ops.is_empty() {
            self.haproxy.is_also(ask.plan);
        }
        let held = self.state().files;
        let manifest = self.manifest(ask);
        let mut parts = sets::owned(match ask.mode {
            Mode::RevertLkg => BOOT,
            Mode::Auto | Mode::Reload => ask.plan,
        });
        parts.retain(|path, bytes| {
            let hash = ContentHash::of(bytes);
            !held
                .get(path.as_str())
                .is_some_and(|file| hash.matches(&file.digest))
        });
        self.send(manifest, &parts, ask.blob.then_some(ask.plan))
    }

    pub(super) fn send(
        &self,
        manifest: Manifest,
        parts: &BTreeMap<String, Vec<u8>>,
        blob: Option<&str>,
    ) -> Ended {
        let slot = self.agent.gate.upload().unwrap();
        let mut upload = match self.agent.admit(manifest, slot, None) {
            Ok(upload) => upload,
            Err(Early::Conflict(conflict)) => return Ended::Conflict(conflict),
            Err(Early::KnownBad(nack)) => return Ended::Result(nack),
        };
        for (path, bytes) in parts {
            if let Err(error) = upload.part(path, &mut bytes.as_slice()) {
                return Ended::Part(error);
            }
        }
        if let Some(blob) = blob {
            if let Err(error) = upload.blob(&mut blob.as_bytes()) {
                return Ended::Part(error);
            }
        }
        match upload.run() {
            Answer::Result(result) => Ended::Result(result),
            Answer::Conflict(conflict) => Ended::Conflict(conflict),
            Answer::Missing(_) => Ended::Missing,
        }
    }

    pub(super) fn state(&self) -> State {
        let read = StateRead {
            verify: false,
            plan: false,
        };
        self.agent.state(read).0
    }

    pub(super) fn record(&self) -> Record {
        self.agent.lock().record.clone()
    }

    /// The set on disk.
    pub(super) fn on_disk(&self, what: &str) -> &'static str {
        let files = files_of(&self.fs);
        sets::name_of(&files).unwrap_or_else(|| panic!("{what}: a mix of sets: {}", told(&files)))
    }

    /// Everything that must hold when no apply is under way. `clean`: nothing but what the
    /// state names is left in the working directories.
    pub(super) fn check(&self, what: &str, clean: bool) {
        let on_disk = self.on_disk(what);
        let state = self.state();
        let record = self.record();
        assert!(!self.agent.lock().unsaved, "{what}: the state is not saved");
        assert!(!self.agent.lock().unfinished, "{what}: not undone");
        assert_eq!(record.phase, None, "{what}");
        assert_eq!(record.intent, None, "{what}");
        let broken = state.invariant_violation.as_deref();
        let expected = broken.is_none_or(|name| self.breaks.contains(&name));
        assert!(expected, "{what}: {broken:?}");
        let saved: Record =
            serde_json::from_slice(&self.fs.read(STATE).unwrap_or_default()).unwrap_or_default();
        if self.fs.read(STATE).is_some() {
            assert_eq!(saved.applied_plan_id, record.applied_plan_id, "{what}");
            assert_eq!(saved.lkg_plan_id, record.lkg_plan_id, "{what}");
            assert_eq!(saved.journal, record.journal, "{what}");
            assert_eq!(saved.owned, record.owned, "{what}");
            let of = |record: &Record| (record.deletes.worker(), record.deletes.pending());
            assert_eq!(of(&saved), of(&record), "{what}: deferred deletes");
        }
        self.check_roles(what, on_disk, &state, &record);
        self.check_journal(what, on_disk, &record);
        let owned: BTreeSet<String> = record.owned.keys().map(ToString::to_string).collect();
        let want: BTreeSet<String> = sets::owned(on_disk).into_keys().collect();
        assert_eq!(owned, want, "{what}: owned paths of {on_disk}");
        let told: BTreeSet<String> = state.files.keys().map(ToString::to_string).collect();
        assert_eq!(told, want, "{what}: files told of {on_disk}");
        for set in self.haproxy.asked() {
            assert!(
                sets::name_of(&set).is_some(),
                "{what}: a reload was asked for with a mix: {}",
                told_of(&set)
            );
        }
        if clean {
            self.check_left_overs(what, &record);
        }
    }

    /// Who holds which plan.
    fn check_roles(&self, what: &str, on_disk: &str, state: &State, record: &Record) {
        let loaded = self.haproxy.loaded();
        let running = sets::name_of(&loaded).unwrap_or("a mix");
        let same =
            |id: &str, set: &str| id == set || (id.starts_with("again-") && id.ends_with(set));
        if !state.applied_plan_id.is_empty() {
            assert!(
                same(&state.applied_plan_id, on_disk),
                "{what}: applied {} on disk {on_disk}",
                state.applied_plan_id
            );
        }
        if !state.running_plan_id.is_empty() {
            assert!(
                same(&state.running_plan_id, running),
                "{what}: running {} and the worker loaded {running}",
                state.running_plan_id
            );
            assert_eq!(record.worker, Some(self.haproxy.identity()), "{what}");
        }
        self.check_runtime(what, state, record);
        if let Some(pending) = &record.pending {
            if !pending.plan_id.is_empty() {
                assert!(
                    same(&pending.plan_id, on_disk),
                    "{what}: pending {} on disk {on_disk}",
                    pending.plan_id
                );
            }
        }
        if let Some(blob) = record
            .blob
            .as_ref()
            .filter(|b| b.plan_id == record.applied_plan_id)
        {
            if state.applied_plan_stored {
                assert_eq!(
                    self.fs.read(BLOB).unwrap(),
                    blob.plan_id.as_bytes(),
                    "{what}"
                );
            }
        }
    }

    /// What commands did to the worker.
    fn check_runtime(&self, what: &str, state: &State, record: &Record) {
        let runtime = self.haproxy.runtime();
        let worker_ops = state.worker_ops_plan_id.as_str();
        if state.running_plan_id.is_empty() {
            assert_eq!(worker_ops, "", "{what}");
        }
        if !worker_ops.is_empty() {
            assert!(
                runtime.is(worker_ops),
                "{what}: the state says {worker_ops}, the worker holds {:?}",
                runtime.holds
            );
            // A delete that nobody remembers is never carried out.
            for key in &runtime.going {
                assert!(record.deletes.contains(key), "{what}: {key} is forgotten");
            }
        }
        if !record.deletes.is_empty() {
            let worker = Some(self.haproxy.identity());
            assert_eq!(record.deletes.worker(), worker, "{what}: whose deletes");
        }
        assert_eq!(runtime.wronged, [], "{what}: deleted and wanted");
    }

    /// The journal, put over what is on disk, is the last known good set.
    fn check_journal(&self, what: &str, on_disk: &str, record: &Record) {
        let mut files = files_of(&self.fs);
        let hidden = self.fs.hidden();
        for (path, entry) in &record.journal.entries {
            match &entry.kind {
                Kind::Created => {
                    files.remove(path.as_str());
                }
                Kind::Modified { backup } | Kind::Deleted { backup } => {
                    let seen = hidden
                        .get(backup)
                        .unwrap_or_else(|| panic!("{what}: backup {backup} of {path} is gone"));
                    files.insert(path.to_string(), seen.bytes.clone());
                }
            }
        }
        let lkg = sets::name_of(&files)
            .unwrap_or_else(|| panic!("{what}: {on_disk} goes back to a mix: {}", told(&files)));
        let named = record.lkg_plan_id.as_str();
        let named = if named.is_empty() { BOOT } else { named };
        assert!(
            lkg == named || named.ends_with(lkg),
            "{what}: {on_disk} goes back to {lkg} and the state says {named}"
        );
    }

    fn check_left_overs(&self, what: &str, record: &Record) {
        let hidden: BTreeSet<String> = self.fs.hidden().into_keys().collect();
        let mut want: BTreeSet<String> = record.journal.backups().map(str::to_owned).collect();
        want.extend([STATE, PHASE].map(str::to_owned));
        if record.blob.is_some() {
            want.insert(BLOB.to_owned());
        }
        let over: Vec<_> = hidden.difference(&want).collect();
        assert!(over.is_empty(), "{what}: left over: {over:?}");
        let needed: BTreeSet<String> = files_of(&self.fs)
            .keys()
            .chain(sets::tree(BOOT).keys())
            .flat_map(|path| {
                let path = ManifestPath::parse(path.as_str()).unwrap();
                path.ancestors().map(str::to_owned).collect::<Vec<_>>()
            })
            .chain(["general".to_owned()])
            .collect();
        let extra: Vec<String> = self
            .fs
            .dirs()
            .into_iter()
            .filter(|dir| {
                let own = dir.split('/').any(|name| name.starts_with('.'));
                (!own && !needed.contains(dir)) || dir.contains(".haptic-tmp/")
            })
            .collect();
        assert!(extra.is_empty(), "{what}: directories left over: {extra:?}");
    }

    /// An apply works and ends clean, and what it then journals is still right.
    pub(super) fn check_next(&self, what: &str) {
        self.haproxy.set_mood(Mood::Judging);
        self.fire();
        self.check(&format!("{what}, fired"), true);
        self.clock.advance(INTERVAL * 2);
        let epoch = self.record().epoch.max(1);
        let ask = Ask {
            epoch,
            ..Ask::reload(AFTER)
        };
        let before = self.state();
        let next = self.apply(ask).result();
        assert_eq!(next.mode, ResultMode::Reload, "{what}: next: {next:?}");
        self.check(&format!("{what}, next"), true);
        let state = self.state();
        for id in [
            &state.applied_plan_id,
            &state.running_plan_id,
            &state.worker_ops_plan_id,
            &state.lkg_plan_id,
        ] {
            assert_eq!(id, AFTER, "{what}");
        }
        assert_eq!(state.degraded, None, "{what}");
        assert_eq!(state.generation, before.generation + 1, "{what}");
        self.clock.advance(INTERVAL * 2);
        let bad = self.apply(Ask {
            epoch,
            ..Ask::reload(BAD_AFTER)
        });
        assert_eq!(bad.mode(), Some(ResultMode::Rejected), "{what}");
        assert_eq!(self.on_disk(what), AFTER, "{what}");
        self.check(&format!("{what}, refused"), true);
        assert!(self.record().journal.entries.is_empty(), "{what}");
    }
}

fn told(files: &BTreeMap<String, Vec<u8>>) -> String {
    told_of(files)
}

fn told_of(files: &BTreeMap<String, Vec<u8>>) -> String {
    files
        .iter()
        .map(|(path, bytes)| format!("{path}={:?}", String::from_utf8_lossy(bytes)))
        .collect::<Vec<_>>()
        .join(" ")
}
