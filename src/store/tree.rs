//! What is on disk, as last looked at.
//!
//! The state file carries no digest of any file: the disk is the authority, and this
//! is the agent's memory of it. A file's bytes are hashed when it is first seen; later
//! looks compare device, inode, size and times, and hash again only where one of them
//! moved. A file whose last change is so fresh that another one could carry the same
//! time is hashed again anyway, unless it bears the mark of the agent's own writing: a
//! time that no other write can have.
//!
//! A path at which no regular file stands counts as absent, whatever else is there:
//! the fold then differs, which is the point. What else it is is kept for whoever has to
//! move it out of the way. Memory is one entry a path.

use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;

use sha2::{Digest as _, Sha256};

use crate::clock::UnixNanos;
use crate::wire::digest::{ContentHash, ContentHasher, hex_of};
use crate::wire::path::ManifestPath;

use super::error::{Op, StoreError};
use super::fs::{FileKind, Fs, Stat};
use super::transfer::{BUFFER_BYTES, read_some};

/// File systems keep times as coarse as two seconds (FAT); a change within that of the
/// look could leave the time as it is.
const FRESH_NANOS: i128 = 2_000_000_000;

/// A mark that ends in zeros does not show whether the file system keeps all digits, so
/// it counts for nothing.
const MARK_DIGITS: i128 = 1_000;

/// Lines of the fold are hashed this many bytes at a time; one has at most half as many.
const FOLD_BYTES: usize = 4096;

/// The owned files that exist.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    files: BTreeMap<ManifestPath, Observed>,
    absent: BTreeMap<ManifestPath, Option<FileKind>>,
    /// [`Tree::fold`] of `files` as they are now, once it was asked for.
    folded: OnceLock<[u8; 32]>,
}

impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        (&self.files, &self.absent) == (&other.files, &other.absent)
    }
}

impl Eq for Tree {}

/// One file as it was when it was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observed {
    /// Size and digests of its bytes.
    pub hash: ContentHash,
    /// By what a change is noticed.
    pub stamp: Stamp,
}

/// What changes when a file's bytes do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    dev: u64,
    ino: u64,
    size: u64,
    mtime: i128,
    ctime: i128,
    /// The file had rested long enough when it was looked at for the times to speak.
    settled: bool,
}

impl Stamp {
    fn new(stat: &Stat, now: UnixNanos) -> Self {
        Self {
            dev: stat.dev,
            ino: stat.ino,
            size: stat.size,
            mtime: stat.mtime,
            ctime: stat.ctime,
            settled: now.0.saturating_sub(stat.ctime) > FRESH_NANOS,
        }
    }

    /// Where the file system kept all digits of the mark, any other write shows in the
    /// time of last change, however soon it comes.
    fn marked(mut self, stat: &Stat, mark: Option<i128>) -> Self {
        let whole = mark.is_some_and(|mark| mark % MARK_DIGITS != 0);
        self.settled |= whole && mark == Some(stat.mtime);
        self
    }

    fn still(&self, stat: &Stat) -> bool {
        self.settled
            && (self.dev, self.ino, self.size) == (stat.dev, stat.ino, stat.size)
            && (self.mtime, self.ctime) == (stat.mtime, stat.ctime)
    }
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

    /// Spares the next [`fold`](Self::fold): the caller has folded these very files, each
    /// [`note`](Self::note) of which was true.
    pub fn folds_to(&mut self, fold: [u8; 32]) {
        debug_assert_eq!(self.fold(), fold, "the fold of other files");
        self.folded = OnceLock::from(fold);
    }

    /// Drops a path that is no longer owned.
    pub fn forget(&mut self, path: &ManifestPath) {
        self.folded.take();
        self.files.remove(path);
        self.absent.remove(path);
    }

    /// Drops every path that `owned` does not want.
    pub fn retain(&mut self, owned: impl Fn(&ManifestPath) -> bool) {
        self.folded.take();
        self.files.retain(|path, _| owned(path));
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
        let moved = self.moved(fs);
        let mut changed = Vec::new();
        for (path, looked) in moved {
            looked?;
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
    fn moved(&self, fs: &dyn Fs) -> Vec<(ManifestPath, Result<(), StoreError>)> {
        let files = self.files.iter();
        let files = files.map(|(path, seen)| (path, Ok(seen.stamp)));
        let absent = self.absent.iter();
        let absent = absent.map(|(path, instead)| (path, Err(*instead)));
        let known: Vec<_> = files.chain(absent).collect();
        let names: Vec<&str> = known.iter().map(|(path, _)| path.as_str()).collect();
        let looks = fs.stat_all(&names);
        let mut moved = Vec::new();
        for ((path, before), looked) in known.into_iter().zip(looks) {
            let still = match looked_at(path.as_str(), looked) {
                Err(error) => {
                    moved.push((path.clone(), Err(error)));
                    continue;
                }
                Ok(Looked::File(stat)) => before.is_ok_and(|stamp| stamp.still(&stat)),
                Ok(Looked::Else(kind)) => before == Err(Some(kind)),
                Ok(Looked::Nothing) => before == Err(None),
            };
            if !still {
                moved.push((path.clone(), Ok(())));
            }
        }
        moved
    }

    /// The files that exist, by path.
    #[must_use]
    pub fn files(&self) -> &BTreeMap<ManifestPath, Observed> {
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

    /// SHA-256 over `path SP sha256 LF` for every owned path that exists, bytewise by
    /// path: one value that stands for the whole tree.
    #[must_use]
    pub fn fold(&self) -> [u8; 32] {
        *self
            .folded
            .get_or_init(|| fold_of(self.files.iter().map(|(path, seen)| (path, seen.hash))))
    }

    fn set(&mut self, path: &ManifestPath, observed: Option<Observed>, instead: Option<FileKind>) {
        if self.files.get(path).map(|seen| seen.hash) != observed.map(|seen| seen.hash) {
            self.folded.take();
        }
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

/// [`Tree::fold`] of files that need not be on disk; they must come sorted by path.
#[must_use]
pub fn fold_of<'a>(files: impl IntoIterator<Item = (&'a ManifestPath, ContentHash)>) -> [u8; 32] {
    let mut fold = Sha256::new();
    let mut lines = Vec::with_capacity(2 * FOLD_BYTES);
    for (path, hash) in files {
        lines.extend_from_slice(path.as_str().as_bytes());
        lines.push(b' ');
        lines.extend_from_slice(&hex_of(&hash.sha256));
        lines.push(b'\n');
        if lines.len() >= FOLD_BYTES {
            fold.update(&lines);
            lines.clear();
        }
    }
    fold.update(&lines);
    fold.finalize().into()
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
