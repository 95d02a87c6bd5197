//! The part of an apply that touches the tree: backups, the intent, renames and unlinks.
//!
//! Up to the saved intent nothing of the tree has changed and nothing saved names what was
//! made; from then on a restart can finish the whole of it or put the whole of it back.

use std::collections::BTreeMap;

use crate::store::install;
use crate::store::journal::{self, Change, Journal};
use crate::store::prepare::{PrepareError, prepare};
use crate::store::stage::StagedFile;
use crate::wire::digest::hex;
use crate::wire::path::ManifestPath;
use crate::wire::result::{Failure, Stage};

use super::agent::Agent;
use super::machine::Event;
use super::owned::Owned;
use super::plan::Plan;
use super::port::words;
use super::record::Intent;
use super::run::{Job, at_backup};
use super::tx::Tx;

impl Tx {
    /// Takes the backups and records the intent. Nothing of the tree has changed when
    /// this fails, and no saved state names what it made.
    pub(super) fn take_journal(
        &mut self,
        job: &Job<'_>,
        plan: &Plan,
        writes: &[StagedFile],
        fold: [u8; 32],
    ) -> Result<(), Failure> {
        let agent = job.agent;
        // Parts are verified while they are staged, so one note stands for both.
        self.enter(Event::PartsStaged)
            .map_err(|e| e.at(Stage::Backup))?;
        self.step(agent, Event::PartsVerified, |_| {})
            .map_err(|e| e.at(Stage::Backup))?;
        if plan.deletes.contains(&agent.settings.config) {
            return Err(at_backup(format!(
                "the set has no {}: HAProxy neither starts nor reloads without it; send it with every set",
                agent.settings.config
            )));
        }
        let prepared = prepare(&agent.store, writes, &plan.deletes, &self.record.made_dirs)
            .map_err(|error| {
                at_backup(match &error {
                    PrepareError::Refused(refusal) => refusal.to_string(),
                    PrepareError::Store(error) => words(error),
                })
            })?;
        let targets = plan.writes.iter().map(|write| (&write.path, false));
        let changes: Vec<Change<'_>> = targets
            .chain(plan.deletes.iter().map(|path| (path, true)))
            .map(|(path, removal)| Change {
                path,
                exists: prepared.existing.contains_key(path),
                removal,
                was_owned: self.record.owned.get(path).copied(),
                hash: self.held(path),
            })
            .collect();
        // Numbers are spent even if this apply fails: a backup's name is never used twice.
        let entries = journal::plan_entries(
            &self.record.journal,
            changes,
            agent.store.mounts(),
            &mut self.record.next_backup,
        );
        let taken = Journal {
            entries: entries.clone(),
        };
        if let Err(error) = journal::back_up(&agent.store, &entries) {
            self.retired.push(taken);
            return Err(at_backup(words(&error)));
        }
        let before = (
            self.record.journal.clone(),
            self.record.made_dirs.clone(),
            self.own_too(plan),
        );
        self.record.journal.add(entries);
        self.record
            .made_dirs
            .extend(prepared.missing_dirs.iter().cloned());
        self.record.intent = Some(Intent {
            plan_id: job.manifest.plan_id.clone(),
            token: job.manifest.token,
            mode: job.manifest.mode,
            commands: !(job.manifest.ops.is_empty() && job.manifest.in_place_ops.is_empty()),
            plan_schema_version: job.manifest.plan_schema_version,
            tree: install::Intent::new(
                writes,
                &plan.deletes,
                &prepared,
                agent.settings.config.as_str(),
            ),
            owned: before.2.is_some().then(|| plan.owned.clone()),
            fold: hex(&fold),
        });
        let recorded = self
            .enter(Event::JournalTaken)
            .map_err(|error| error.at(Stage::Backup))
            .and_then(|()| self.save(agent).map_err(|error| at_backup(words(&error))));
        if let Err(failure) = recorded {
            let (journal, made_dirs, owned) = before;
            self.record.journal = journal;
            self.record.made_dirs = made_dirs;
            if let Some(owned) = owned {
                self.record.owned = owned;
            }
            self.record.intent = None;
            self.phase = None;
            // A failed sync may still have left the intent on disk. It must not be found
            // there once its backups are gone, so they wait for the next save.
            self.retired.push(taken);
            return Err(failure);
        }
        Ok(())
    }

    /// Adds the plan's paths to the owned ones; what was owned before, if that differs.
    fn own_too(&mut self, plan: &Plan) -> Option<Owned> {
        if self.record.owned == plan.owned {
            return None;
        }
        let before = self.record.owned.clone();
        let added = plan.owned.iter().map(|(path, kind)| (path.clone(), *kind));
        self.record.owned.change(|paths| paths.extend(added));
        Some(before)
    }

    /// Renames, unlinks, and the note that they are done.
    pub(super) fn write_tree(
        &mut self,
        agent: &Agent,
        plan: &Plan,
        parts: &BTreeMap<ManifestPath, StagedFile>,
        fold: [u8; 32],
    ) -> Result<(), Failure> {
        let failed = |error: &crate::store::StoreError| Failure {
            stage: Stage::Write,
            message: words(error),
        };
        if let Some(intent) = &self.record.intent {
            install::install(&agent.store, &intent.tree).map_err(|error| failed(&error))?;
        }
        let now = agent.clock.wall();
        let mut as_planned = true;
        for file in &plan.writes {
            let fs = &**agent.store.fs();
            let mark = parts.get(&file.path).and_then(|part| part.mark);
            as_planned &= self
                .tree
                .note(fs, &file.path, file.hash, mark, now)
                .map_err(|error| failed(&error))?;
        }
        for path in &plan.deletes {
            self.tree.forget(path);
        }
        debug_assert!(
            !as_planned || self.tree.fold() == fold,
            "the fold of other files"
        );
        self.record.owned = plan.owned.clone();
        self.step(agent, Event::TreeWritten, |_| {})
            .map_err(|e| e.at(Stage::Write))
    }
}
