//! A transaction machine as small as the store allows, for the crash tests.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::store::install::{Intent, install, prune, replay};
use crate::store::journal::{Change, Journal, back_up, clear, plan_entries};
use crate::store::model::ModelFs;
use crate::store::prepare::prepare;
use crate::store::restore::restore;
use crate::store::stage::StageRequest;
use crate::store::state_file::{Loaded, StateFile, Stored};
use crate::store::sweep::sweep;
use crate::store::{Durability, Store, StoreError};
use crate::wire::digest::DigestKind;
use crate::wire::path::ManifestPath;

use super::shapes::{CONFIG, End, FIRST_SET, Shape, manifest_path};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct State {
    format: u32,
    txn: u64,
    /// The set that is applied, and the one that is known good.
    pub(super) plan: usize,
    lkg: usize,
    /// Every set that was applied up to now, and how many of them up to the known good one:
    /// what owner and mode a file must have depends on them.
    pub(super) history: Vec<usize>,
    lkg_history: usize,
    pub(super) stage: Stage,
    owned: BTreeMap<ManifestPath, DigestKind>,
    own_dirs: BTreeSet<String>,
    pub(super) journal: Journal,
    next_backup: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Stage {
    Idle,
    BackedUp { intent: Intent, plan: usize },
    Aborting,
}

impl Stored for State {
    const FORMAT: u32 = 1;

    fn txn(&self) -> u64 {
        self.txn
    }
}

/// Any error, for tests that only print it.
pub(super) type Failed = Box<dyn std::error::Error>;

pub(super) struct Machine<'a> {
    shape: &'a Shape,
    store: Store,
    file: StateFile,
}

impl<'a> Machine<'a> {
    pub(super) fn new(fs: &ModelFs, shape: &'a Shape) -> Self {
        let store = Store::new(fs.shared(), shape.mounts.clone(), Durability::Full);
        let file = StateFile::new(&store, ".haptic-agent.json");
        Self { shape, store, file }
    }

    pub(super) fn load(&self) -> Result<State, Failed> {
        match self.file.load::<State, ()>()? {
            Loaded::Found(state, _) => Ok(state),
            Loaded::Absent => Ok(State {
                format: State::FORMAT,
                txn: 0,
                plan: 0,
                lkg: 0,
                history: vec![0],
                lkg_history: 1,
                stage: Stage::Idle,
                owned: self
                    .shape
                    .owned_at_first
                    .iter()
                    .map(|path| (manifest_path(path), DigestKind::Xxh64))
                    .collect(),
                own_dirs: BTreeSet::new(),
                journal: Journal::default(),
                next_backup: 0,
            }),
            Loaded::Unusable { reason, .. } => Err(reason.into()),
        }
    }

    /// All sets one after the other, then the shape's end.
    pub(super) fn run(&self) -> Result<(), Failed> {
        for plan in FIRST_SET..self.shape.sets.len() {
            self.apply(plan, &format!("r{plan}"))?;
        }
        match self.shape.end {
            End::Keep => Ok(()),
            End::Commit => self.promote(),
            End::Abort => self.abort_to_lkg(),
        }
    }

    /// A failure before the intent is saved leaves everything as it was; after it, the
    /// set is aborted; if that fails too, it is left to recovery.
    pub(super) fn apply(&self, plan: usize, request: &str) -> Result<(), Failed> {
        let mut state = self.load()?;
        let mut staging = StageRequest::new(&self.store, request)?;
        let mut writes = Vec::new();
        for (path, bytes) in self.shape.changed(state.plan, plan) {
            writes.push(staging.stage_bytes(&path, 0o644, bytes)?);
        }
        staging.seal()?;
        let removals = self.shape.removed(state.plan, plan);
        let prepared = prepare(&self.store, &writes, &removals, &BTreeSet::new())?;
        let changes = writes
            .iter()
            .map(|file| (&file.path, false))
            .chain(removals.iter().map(|path| (path, true)))
            .map(|(path, removal)| Change {
                path,
                exists: prepared.existing.contains_key(path),
                removal,
                was_owned: state.owned.get(path).copied(),
                hash: None,
            });
        let planned = plan_entries(
            &state.journal,
            changes,
            self.store.mounts(),
            &mut state.next_backup,
        );
        let only_new = Journal {
            entries: planned.clone(),
        };
        if let Err(error) = back_up(&self.store, &planned) {
            let _ = clear(&self.store, &only_new);
            return Err(error.into());
        }
        let before = state.clone();
        state.txn += 1;
        state.journal.add(planned);
        state.own_dirs.extend(prepared.missing_dirs.iter().cloned());
        let intent = Intent::new(&writes, &removals, &prepared, CONFIG);
        state.stage = Stage::BackedUp {
            intent: intent.clone(),
            plan,
        };
        if let Err(error) = self.file.save(&state) {
            // The save may have taken hold all the same: take it back, or leave it to recovery.
            if self.file.save(&before).is_ok() {
                let _ = clear(&self.store, &only_new);
            } else {
                staging.leave();
            }
            return Err(error.into());
        }
        if let Err(error) = install(&self.store, &intent) {
            match self.abort(state) {
                Ok(()) => drop(staging),
                Err(_) => staging.leave(),
            }
            return Err(error.into());
        }
        staging.finish();
        self.commit(state, plan)
    }

    fn commit(&self, mut state: State, plan: usize) -> Result<(), Failed> {
        let gone = prune(&self.store, state.own_dirs.iter().map(String::as_str))?;
        for dir in gone {
            state.own_dirs.remove(&dir);
        }
        state.plan = plan;
        state.history.push(plan);
        state.stage = Stage::Idle;
        state.owned = self
            .shape
            .paths(plan)
            .map(|path| (path, DigestKind::Sha256))
            .collect();
        Ok(self.file.save(&state)?)
    }

    fn promote(&self) -> Result<(), Failed> {
        let mut state = self.load()?;
        let old = std::mem::take(&mut state.journal);
        state.lkg = state.plan;
        state.lkg_history = state.history.len();
        self.file.save(&state)?;
        Ok(clear(&self.store, &old)?)
    }

    pub(super) fn abort_to_lkg(&self) -> Result<(), Failed> {
        let state = self.load()?;
        self.abort(state)
    }

    fn abort(&self, mut state: State) -> Result<(), Failed> {
        state.stage = Stage::Aborting;
        self.file.save(&state)?;
        self.finish_abort(state)
    }

    fn finish_abort(&self, mut state: State) -> Result<(), Failed> {
        let restored = restore(&self.store, &state.journal, CONFIG)?;
        state.own_dirs.extend(restored.dirs_made);
        for dir in prune(&self.store, state.own_dirs.iter().map(String::as_str))? {
            state.own_dirs.remove(&dir);
        }
        state.journal.restore_ownership(&mut state.owned);
        let old = std::mem::take(&mut state.journal);
        state.plan = state.lkg;
        state.history.truncate(state.lkg_history);
        state.stage = Stage::Idle;
        self.file.save(&state)?;
        Ok(clear(&self.store, &old)?)
    }

    pub(super) fn recover(&self) -> Result<(), Failed> {
        let state = self.load()?;
        let mut keep: BTreeSet<String> = state.journal.backups().map(str::to_owned).collect();
        if let Stage::BackedUp { intent, .. } = &state.stage {
            keep.extend(intent.staged().map(str::to_owned));
        }
        self.file.tidy(true);
        sweep(&self.store, &keep);
        match state.stage.clone() {
            // Written, so that a first start has a state as well.
            Stage::Idle => self.file.save(&state)?,
            Stage::BackedUp { intent, plan } => match replay(&self.store, &intent) {
                Ok(()) => self.commit(state, plan)?,
                Err(StoreError::StagedLost { .. }) => self.abort(state)?,
                Err(error) => return Err(error.into()),
            },
            Stage::Aborting => self.finish_abort(state)?,
        }
        // Recovery ends with nothing staged.
        let backups = self.load()?.journal.backups().map(str::to_owned).collect();
        sweep(&self.store, &backups);
        Ok(())
    }
}
