//! From an admitted manifest to staged, verified parts, outside the apply lock.
//!
//! A slow sender holds an upload place and its staging directory, nothing else. What
//! was staged is removed when the upload is dropped, however that comes about.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};

use crate::store::StoreError;
use crate::store::stage::{StageError, StageRequest, StagedBlob, StagedFile};
use crate::wire::limits::MAX_PLAN_BLOB_BYTES;
use crate::wire::manifest::{File, Manifest};
use crate::wire::path::ManifestPath;
use crate::wire::result::{ApplyResult, Conflict, Missing};

use super::agent::Agent;
use super::ahead::Looked;
use super::gate::UploadSlot;
use super::outcome::{Leg, Stopwatch};

/// What `POST /v1/apply` answers once its parts are in.
#[derive(Debug)]
pub enum Answer {
    /// The apply ran: ACK or NACK.
    Result(Box<ApplyResult>),
    /// The fence refused, this time under the apply lock.
    Conflict(Box<Conflict>),
    /// Content was neither sent nor is held.
    Missing(Missing),
}

/// Why a part is refused.
#[derive(Debug)]
pub enum PartError {
    /// The manifest does not declare that path.
    Undeclared(String),
    /// The path or the blob came before.
    Twice(String),
    /// More or fewer bytes than declared.
    Size(StageError),
    /// Other bytes than declared.
    Digest(ManifestPath),
    /// The blob is larger than the contract allows.
    BlobTooBig,
    /// The sender's stream broke.
    Source(io::Error),
    /// The disk.
    Store(StoreError),
}

impl fmt::Display for PartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undeclared(name) => {
                write!(
                    f,
                    "part {name:?} is not declared in the manifest; list it under files or leave it out"
                )
            }
            Self::Twice(name) => write!(f, "part {name:?} came twice"),
            Self::Size(error) => error.fmt(f),
            Self::Digest(path) => {
                write!(
                    f,
                    "{path}: the bytes sent do not have the digest that the manifest declares"
                )
            }
            Self::BlobTooBig => {
                write!(
                    f,
                    "the plan blob is larger than {MAX_PLAN_BLOB_BYTES} bytes"
                )
            }
            Self::Source(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Size(error) => error.source(),
            Self::Source(error) => error.source(),
            Self::Store(error) => error.source(),
            Self::Undeclared(_) | Self::Twice(_) | Self::Digest(_) | Self::BlobTooBig => None,
        }
    }
}

/// An apply whose parts are coming in.
#[derive(Debug)]
pub struct Upload<'a> {
    pub(super) agent: &'a Agent,
    pub(super) manifest: Manifest,
    pub(super) stage: StageRequest,
    pub(super) parts: BTreeMap<ManifestPath, StagedFile>,
    pub(super) blob: Option<StagedBlob>,
    pub(super) watch: Stopwatch,
    /// The request's name, from which the blob's staging area has its own.
    request: String,
    /// Where the manifest's files are, in the order of their paths.
    declared: Vec<usize>,
    /// The files were looked at while the manifest came in.
    pub(super) looked: Option<Looked>,
    _slot: UploadSlot<'a>,
}

impl<'a> Upload<'a> {
    pub(super) fn new(
        agent: &'a Agent,
        manifest: Manifest,
        request: String,
        slot: UploadSlot<'a>,
        looked: Option<Looked>,
    ) -> Self {
        let mut declared: Vec<usize> = (0..manifest.files.len()).collect();
        declared.sort_by(|a, b| manifest.files[*a].path.cmp(&manifest.files[*b].path));
        Self {
            stage: StageRequest::new(&agent.store, request.clone())
                .expect("a letter and digits are a plain request id"),
            agent,
            manifest,
            parts: BTreeMap::new(),
            blob: None,
            watch: Stopwatch::start(agent.clock.now()),
            request,
            declared,
            looked,
            _slot: slot,
        }
    }

    /// Whether the manifest declares a file of that path, so that a part of the name
    /// `plan` may be a file.
    #[must_use]
    pub fn declares(&self, path: &str) -> bool {
        self.declared(path).is_some()
    }

    fn declared(&self, path: &str) -> Option<&File> {
        let files = &self.manifest.files;
        let of = |at: &usize| files[*at].path.as_str();
        let found = self.declared.binary_search_by(|at| of(at).cmp(path)).ok()?;
        files.get(self.declared[found])
    }

    /// Stages one file part and checks its size and digest.
    ///
    /// # Errors
    /// Nothing of the part is left on disk.
    pub fn part(&mut self, name: &str, content: &mut dyn Read) -> Result<(), PartError> {
        let Some(file) = self.declared(name).cloned() else {
            return Err(PartError::Undeclared(name.to_owned()));
        };
        if self.parts.contains_key(&file.path) {
            return Err(PartError::Twice(name.to_owned()));
        }
        let mode = self.agent.settings.mode_of(file.kind);
        let staged = self
            .stage
            .stage(&file.path, mode, content, file.size)
            .map_err(|error| match error {
                StageError::Size { .. } => PartError::Size(error),
                StageError::Source(error) => PartError::Source(error),
                StageError::Store(error) => PartError::Store(error),
            })?;
        if !staged.hash.matches(&file.digest) {
            return Err(PartError::Digest(file.path.clone()));
        }
        self.parts.insert(file.path.clone(), staged);
        Ok(())
    }

    /// Takes the plan blob.
    ///
    /// # Errors
    /// It came before, is too big, or its stream broke.
    pub fn blob(&mut self, content: &mut dyn Read) -> Result<(), PartError> {
        if self.blob.is_some() {
            return Err(PartError::Twice("plan".to_owned()));
        }
        let id = format!("{}-plan", self.request);
        let blob = StagedBlob::receive(&self.agent.store, id, content, MAX_PLAN_BLOB_BYTES)
            .map_err(|error| match error {
                StageError::Size { .. } => PartError::BlobTooBig,
                StageError::Source(error) => PartError::Source(error),
                StageError::Store(error) => PartError::Store(error),
            })?;
        self.blob = Some(blob);
        Ok(())
    }

    /// All parts are in: makes them survive a power loss, waits for the apply lock and
    /// carries the apply out. From here on nothing depends on the client.
    #[must_use]
    pub fn run(mut self) -> Answer {
        let sealed = self.seal();
        self.watch.lap(Leg::Stage, self.agent.clock.now());
        super::run::run(self, sealed)
    }

    /// The slow part of durability, which nobody else has to wait for.
    fn seal(&self) -> Result<(), StoreError> {
        self.stage.seal()?;
        match &self.blob {
            Some(blob) => blob.seal(),
            None => Ok(()),
        }
    }
}
