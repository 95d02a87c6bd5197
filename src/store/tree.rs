//! What is on disk, as last looked at.
//!
//! The state file carries no digest of any file: the disk is the authority, and this
//! is the agent's memory of it. A file's bytes are hashed when it is first seen; later
//! looks compare what [`Stamp`] has, and hash again only where something moved.
//!
//! A path at which no regular file stands counts as absent, whatever else is there:
//! the fold then differs, which is the point. What else it is is kept for whoever has to
//! move it out of the way. Memory is one entry a path.

use std::collections::BTreeMap;
use std::io;

use crate::clock::UnixNanos;
use crate::wire::digest::{ContentHash, ContentHasher};
use crate::wire::path::ManifestPath;

use super::error::{Op, StoreError};
use super::files::Files;
use super::fs::{FileKind, Fs, Stat};
use super::stamp::{Observed, Stamp};
use super::transfer::{BUFFER_BYTES, read_some};

/// The owned files that exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    files: Files,
    absent: BTreeMap<ManifestPath, Option<FileKind>>,
}

impl Tree {
    /// Hashes every path. `now` is the wall clock.
    ///
    /// # Errors
    /// A file that cannot be read; the error names it.
    pub fn observe<'a>(
        fs: &dyn Fs,
        paths: impl IntoIterator<Item = &'a ManifestPath>,
        now: UnixNanos,
    ) -> Result<Self, StoreError> {
        let mut tree = Self::default();
        for path in paths {
            tree.observe_one(fs, path, now)?;
        }
        Ok(tree)
    }

    /// Hashes one path anew and returns what is there.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn observe_one(
        &mut self,
        fs: &dyn Fs,
        path: &ManifestPath,
        now: UnixNanos,
    ) -> Result<Option<Observed>, StoreError> {
        let (observed, instead) = match look(fs, path.as_str())? {
            Looked::Nothing => (None, None),
            Looked::Else(kind) => (None, Some(kind)),
            // Stamped before it is read: a change in between shows at the next look.
            Looked::File(stat) => {
                let hashed = hash_file(fs, path.as_str())?.map(|hash| Observed {
                    hash,
                    stamp: Stamp::new(&stat, now),
                });
                (hashed, None)
            }
        };
        self.set(path, observed, instead);
        Ok(observed)
    }

    /// Takes note of a file whose bytes the caller has just put there and knows. `mark` is
    /// the time that the file was given after its last write, if it was. False if something
    /// else was found there, which is what is remembered then.
    ///
    /// # Errors
    /// The file cannot be looked at.
    pub fn note(
        &mut self,
        fs: &dyn Fs,
        path: &ManifestPath,
        hash: ContentHash,
        mark: Option<i128>,
        now: UnixNanos,
    ) -> Result<bool, StoreError> {
        match look(fs, path.as_str())? {
            Looked::File(stat) if stat.size == hash.size => {
                let stamp = Stamp::new(&stat, now).marked(&stat, mark);
                self.set(path, Some(Observed { hash, stamp }), None);
                return Ok(true);
            }
            Looked::File(_) => {
                self.observe_one(fs, path, now)?;
            }
            Looked::Else(kind) => self.set(path, None, Some(kind)),
            Looked::Nothing => self.set(path, None, None),
        }
        Ok(false)
    }

    /// Drops a path that is no longer owned.
    pub fn forget(&mut self, path: &ManifestPath) {
        self.files.remove(path);
        self.absent.remove(path);
    }

    /// Drops every path that `owned` does not want.
    pub fn retain(&mut self, owned: impl Fn(&ManifestPath) -> bool) {
        self.files.retain(&owned);
        self.absent.retain(|path, _| owned(path));
    }

    /// Looks at every path again, hashes what moved, and returns the paths whose bytes
    /// are others, or that came or went, in order.
    ///
    /// # Errors
    /// A file that cannot be read; paths before it are up to date.
    pub fn recheck(
        &mut self,
        fs: &dyn Fs,
        now: UnixNanos,
    ) -> Result<Vec<ManifestPath>, StoreError> {
        let mut changed = Vec::new();
        for path in self.moved(fs) {
            let before = self.files.get(&path).copied();
            let after = self.observe_one(fs, &path, now)?;
            if before.map(|seen| seen.hash) != after.map(|seen| seen.hash) {
                changed.push(path);
            }
        }
        changed.sort();
        Ok(changed)
    }

    /// The paths whose stat is another one, or could not be had, in the order of the look.
    fn moved(&self, fs: &dyn Fs) -> Vec<ManifestPath> {
        let files = self
            .files
            .iter()
            .map(|(path, seen)| (path, Ok(&seen.stamp)));
        let absent = self
            .absent
            .iter()
            .map(|(path, instead)| (path, Err(*instead)));
        let known: Vec<_> = files.chain(absent).collect();
        let names: Vec<&str> = known.iter().map(|(path, _)| path.as_str()).collect();
        let moved = fs.stat_where(&names, &|place, looked| {
            let Some((path, before)) = known.get(place) else {
                return false;
            };
            let still = match looked_at(path.as_str(), looked) {
                Ok(Looked::File(stat)) => before.is_ok_and(|stamp| stamp.still(&stat)),
                Ok(Looked::Else(kind)) => *before == Err(Some(kind)),
                Ok(Looked::Nothing) => *before == Err(None),
                Err(_) => false,
            };
            !still
        });
        let path = |place: usize| known.get(place).map(|(path, _)| (*path).clone());
        moved.into_iter().filter_map(path).collect()
    }

    /// The files that exist, by path.
    #[must_use]
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// What stands at owned paths and is no file, by path; not where nothing stands.
    pub fn others(&self) -> impl Iterator<Item = (&ManifestPath, FileKind)> {
        let absent = self.absent.iter();
        absent.filter_map(|(path, instead)| Some((path, (*instead)?)))
    }

    /// What was last seen at a path.
    #[must_use]
    pub fn get(&self, path: &ManifestPath) -> Option<&Observed> {
        self.files.get(path)
    }

    /// One value that stands for the whole tree: [`Files::fold`] of what exists.
    #[must_use]
    pub fn fold(&self) -> [u8; 32] {
        self.files.fold()
    }

    /// The files as they will be once some are written and others removed. Nobody has
    /// looked at those that are written.
    #[must_use]
    pub fn after<'a>(
        &self,
        writes: impl IntoIterator<Item = (&'a ManifestPath, ContentHash)>,
        deletes: impl IntoIterator<Item = &'a ManifestPath>,
    ) -> Files {
        let mut files = self.files.clone();
        for (path, hash) in writes {
            files.insert(path.clone(), Observed::expected(hash));
        }
        for path in deletes {
            files.remove(path);
        }
        files
    }

    fn set(&mut self, path: &ManifestPath, observed: Option<Observed>, instead: Option<FileKind>) {
        match observed {
            Some(seen) => {
                self.absent.remove(path);
                self.files.insert(path.clone(), seen);
            }
            None => {
                self.files.remove(path);
                self.absent.insert(path.clone(), instead);
            }
        }
    }
}

/// What stands at a name.
enum Looked {
    File(Stat),
    Else(FileKind),
    /// Nothing, also where the path leads through a symbolic link or a file.
    Nothing,
}

fn look(fs: &dyn Fs, path: &str) -> Result<Looked, StoreError> {
    looked_at(path, fs.stat(path))
}

fn looked_at(path: &str, looked: io::Result<Option<Stat>>) -> Result<Looked, StoreError> {
    match looked {
        Ok(Some(stat)) if stat.kind == FileKind::File => Ok(Looked::File(stat)),
        Ok(Some(stat)) => Ok(Looked::Else(stat.kind)),
        Ok(None) => Ok(Looked::Nothing),
        Err(error) if is_no_file(&error) => Ok(Looked::Nothing),
        Err(error) => Err(StoreError::io(Op::Stat, path, error)),
    }
}

/// Hashes a regular file through a bounded buffer; `None` if there is none.
pub(super) fn hash_file(fs: &dyn Fs, path: &str) -> Result<Option<ContentHash>, StoreError> {
    let mut file = match fs.open(path) {
        Ok(file) => file,
        Err(error) if is_no_file(&error) => return Ok(None),
        Err(error) => return Err(StoreError::io(Op::Read, path, error)),
    };
    let mut hasher = ContentHasher::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count =
            read_some(&mut file, &mut buffer).map_err(|e| StoreError::io(Op::Read, path, e))?;
        if count == 0 {
            return Ok(Some(hasher.finish()));
        }
        hasher.update(&buffer[..count]);
    }
}

fn is_no_file(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EINVAL)
    )
}
