//! The desired set: every file of a directory, in memory, with its digest and its kind.
//!
//! What was hashed is what is sent: a file is read once, when the set is made, and a
//! change on disk after that changes nothing. A path is the name by which HAProxy's
//! configuration must call the file, so nothing is normalised: what cannot be a manifest
//! path is an error, never another name. Nothing is written, and nothing of an HAProxy
//! configuration is parsed.
//!
//! | entry of the directory | what becomes of it |
//! |---|---|
//! | regular file | in the set, read whole |
//! | name that starts with a dot | skipped with all below it, listed in [`FileSet::skipped`] |
//! | symbolic link to a file or directory inside the directory | followed, under the link's name |
//! | symbolic link out of it, or to nothing | an error that names link and target |
//! | socket, pipe, device | an error |
//! | `backends.json` beside the configuration | not sent: it is expanded into it, see [`super::backends`] |
//!
//! Kinds by rule, the first that fits; [`FileSetOptions::kinds`] comes before all:
//! the configuration is `config`; a private key anywhere in a file makes it `cert`, so
//! that it never gets a mode that everybody can read; `*.map` and all below a directory
//! `maps` are `map`; a PEM file of certificates is `ca`, or `cert` if its key stands
//! beside it as `NAME.key`; a name that ends in `.crtlist` or whose last part begins or
//! ends with `crt-list` is `crtlist`; all else is `general`.
//!
//! The plan id is the SHA-256, in lower-case hexadecimal, of these bytes: the line
//! `haptic-files 1`, then for each file in the byte order of the paths the line
//! `<path> <kind> <digest>`, each line ended by LF; kind and digest as the manifest
//! writes them, the digest always SHA-256. No path holds a control character, so no two
//! sets have the same bytes.

mod error;
mod kinds;
mod walk;

pub use error::FileSetError;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

use sha2::{Digest as _, Sha256};

use super::backends::{BACKENDS_FILE, Declared};
use super::decide::mentions::Mentions;
use crate::wire::digest::{Digest, hex};
use crate::wire::limits::{MAX_FILES, MAX_FILES_BYTES};
use crate::wire::manifest::{File, FileKind};
use crate::wire::path::ManifestPath;

/// How files become a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSetOptions {
    /// The main configuration, as a path below the directory.
    pub config: String,
    /// Kinds that the rules get wrong, by path.
    pub kinds: BTreeMap<String, FileKind>,
    /// Maps whose entries may stand in any order, by path: keys are looked up exactly
    /// (`str`, `ip`, `int`, `beg`), so that single entries of a big map can be changed.
    pub unordered_maps: BTreeSet<String>,
}

impl Default for FileSetOptions {
    /// `haproxy.cfg`, and nothing declared.
    fn default() -> Self {
        Self {
            config: "haproxy.cfg".to_owned(),
            kinds: BTreeMap::new(),
            unordered_maps: BTreeSet::new(),
        }
    }
}

/// One file of a set, borrowed from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its name in the manifest, at HAProxy, and below the directory.
    pub path: &'a ManifestPath,
    /// What it is for.
    pub kind: FileKind,
    /// SHA-256 of `content`.
    pub digest: Digest,
    /// Bytes of `content`.
    pub size: u64,
    /// All of it.
    pub content: &'a [u8],
}

impl Entry<'_> {
    /// As the manifest declares it.
    #[must_use]
    pub fn manifest_file(&self) -> File {
        File {
            path: self.path.clone(),
            digest: self.digest,
            size: self.size,
            kind: self.kind,
            reload_on_change: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    kind: FileKind,
    digest: Digest,
    size: u64,
    content: Vec<u8>,
}

/// A complete desired set. Never changes once it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSet {
    files: BTreeMap<ManifestPath, Held>,
    plan_id: String,
    config: ManifestPath,
    declared: Option<Declared>,
    unordered_maps: BTreeSet<String>,
    skipped: Vec<String>,
    mentions: Read,
}

/// What the files say of each other, read when somebody first asks. It says nothing that
/// the files do not, so sets are the same without it.
#[derive(Debug, Clone, Default)]
struct Read(OnceLock<Mentions>);

impl PartialEq for Read {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Read {}

impl FileSet {
    /// Reads all files below `directory`, which may itself be a symbolic link.
    ///
    /// # Errors
    /// [`FileSetError`] for the first entry that cannot be in a set, in the order of the
    /// names; nothing is left out silently but names that start with a dot.
    pub fn from_dir(directory: &Path, options: &FileSetOptions) -> Result<Self, FileSetError> {
        let walked = walk::walk(directory)?;
        let mut set = Self::build(walked.files, options)?;
        set.skipped = walked.skipped;
        Ok(set)
    }

    /// Makes a set of content at hand, for controllers that render it.
    ///
    /// # Errors
    /// [`FileSetError`]: a path that is none, twice, or also a directory of another; no
    /// configuration; more than the contract's limits; declared backends that break
    /// their rules.
    pub fn from_files<P: Into<String>>(
        files: impl IntoIterator<Item = (P, Vec<u8>)>,
        options: &FileSetOptions,
    ) -> Result<Self, FileSetError> {
        let mut taken: BTreeMap<ManifestPath, Vec<u8>> = BTreeMap::new();
        for (path, content) in files {
            let text = path.into();
            let path = match ManifestPath::parse(text.as_str()) {
                Ok(path) => path,
                Err(rule) => return Err(FileSetError::Path { path: text, rule }),
            };
            if taken.contains_key(&path) {
                return Err(FileSetError::Twice { path });
            }
            taken.insert(path, content);
        }
        Self::build(taken, options)
    }

    fn build(
        mut files: BTreeMap<ManifestPath, Vec<u8>>,
        options: &FileSetOptions,
    ) -> Result<Self, FileSetError> {
        let config = match ManifestPath::parse(options.config.as_str()) {
            Ok(config) => config,
            Err(rule) => {
                return Err(FileSetError::Path {
                    path: options.config.clone(),
                    rule,
                });
            }
        };
        let beside = match config.parent() {
            "" => BACKENDS_FILE.to_owned(),
            parent => format!("{parent}/{BACKENDS_FILE}"),
        };
        let source = files.remove(beside.as_str());
        let Some(template) = files.remove(&config) else {
            let found = files.keys().find(|path| path.as_str().ends_with(".cfg"));
            return Err(FileSetError::NoConfig {
                config,
                found: found.cloned(),
            });
        };
        let declared = Declared::read(&beside, source.as_deref(), config.as_str(), &template)
            .map_err(FileSetError::Backends)?;
        let text = declared.as_ref().map_or(template, Declared::text);
        files.insert(config.clone(), text);

        if files.len() > MAX_FILES {
            return Err(FileSetError::TooManyFiles { count: files.len() });
        }
        let bytes: u64 = files.values().map(|content| content.len() as u64).sum();
        if bytes > MAX_FILES_BYTES {
            return Err(FileSetError::TooManyBytes { bytes });
        }
        let directory = files
            .keys()
            .flat_map(ManifestPath::ancestors)
            .find(|dir| files.contains_key(*dir));
        if let Some(path) = directory.and_then(|dir| ManifestPath::parse(dir).ok()) {
            return Err(FileSetError::FileAndDirectory { path });
        }
        for named in options.kinds.keys().chain(&options.unordered_maps) {
            if !files.contains_key(named.as_str()) {
                return Err(FileSetError::NoSuchFile {
                    path: named.clone(),
                });
            }
        }
        let kinds: BTreeMap<ManifestPath, FileKind> = files
            .iter()
            .map(|(path, content)| {
                let declared = options.kinds.get(path.as_str()).copied();
                let has = |name: &str| files.contains_key(name);
                let by_rule = || kinds::by_rule(path, content, *path == config, &has);
                (path.clone(), declared.unwrap_or_else(by_rule))
            })
            .collect();
        let files: BTreeMap<ManifestPath, Held> = files
            .into_iter()
            .zip(kinds.into_values())
            .map(|((path, content), kind)| {
                let held = Held {
                    kind,
                    digest: Digest::Sha256(Sha256::digest(&content).into()),
                    size: content.len() as u64,
                    content,
                };
                (path, held)
            })
            .collect();
        Ok(Self {
            plan_id: plan_id(&files),
            files,
            config,
            declared,
            unordered_maps: options.unordered_maps.clone(),
            skipped: Vec::new(),
            mentions: Read::default(),
        })
    }

    /// Names these files and kinds, and no others; see the module's documentation.
    #[must_use]
    pub fn plan_id(&self) -> &str {
        &self.plan_id
    }

    /// All files, in the byte order of their paths.
    pub fn files(&self) -> impl ExactSizeIterator<Item = Entry<'_>> {
        self.files.iter().map(|(path, held)| entry(path, held))
    }

    /// The file of that path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Entry<'_>> {
        self.files
            .get_key_value(path)
            .map(|(path, held)| entry(path, held))
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|held| held.size).sum()
    }

    /// The main configuration's path; the set always has it.
    #[must_use]
    pub fn config(&self) -> &ManifestPath {
        &self.config
    }

    /// The backends of `backends.json`, if there is one.
    #[must_use]
    pub fn declared(&self) -> Option<&Declared> {
        self.declared.as_ref()
    }

    /// Where its files name each other.
    pub(crate) fn mentions(&self) -> &Mentions {
        self.mentions.0.get_or_init(|| Mentions::of(self))
    }

    /// Whether that map's entries were declared to stand in any order.
    #[must_use]
    pub fn is_unordered(&self, path: &str) -> bool {
        self.unordered_maps.contains(path)
    }

    /// What was left out because its name starts with a dot; a skipped directory stands
    /// for all below it.
    #[must_use]
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// What to send beside the files as the plan, so that the next decision knows what
    /// this set was made of; at most [`crate::wire::limits::MAX_PLAN_BLOB_BYTES`].
    /// `None` when even the least of it is larger.
    #[must_use]
    pub fn plan_blob(&self) -> Option<Vec<u8>> {
        super::decide::record::encode(self, None)
    }

    /// The same with the name of whoever pushes, for [`super::decide::pushed_by`].
    #[must_use]
    pub fn plan_blob_by(&self, by: &str) -> Option<Vec<u8>> {
        super::decide::record::encode(self, Some(by))
    }
}

fn entry<'a>(path: &'a ManifestPath, held: &'a Held) -> Entry<'a> {
    Entry {
        path,
        kind: held.kind,
        digest: held.digest,
        size: held.size,
        content: &held.content,
    }
}

fn plan_id(files: &BTreeMap<ManifestPath, Held>) -> String {
    let mut hash = Sha256::new();
    hash.update(b"haptic-files 1\n");
    for (path, held) in files {
        let kind = kinds::name(held.kind);
        hash.update(format!("{path} {kind} {}\n", held.digest));
    }
    hex(&hash.finalize())
}

#[cfg(test)]
mod tests;
