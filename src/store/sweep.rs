//! Removing what earlier lives left behind, at startup, before anything is staged.
//!
//! Everything in a staging or backup directory that the state does not name goes; so
//! does a half-made copy. Those directories are looked for in the whole tree and not
//! only on today's mounts, because mounts come and go between two starts. Other hidden
//! names are not looked into, nothing that a manifest can name is touched, and what
//! cannot be removed is logged and stays: an orphan costs space, not correctness.

use std::collections::BTreeSet;

use super::context::Store;
use super::fs::{Entry, FileKind, Fs, join};
use super::mounts::{LKG_DIR, TMP_DIR};
use super::transfer::COPY_NAME;

/// How deep directories are followed. A manifest path has at most 128 components.
const MAX_DEPTH: usize = 128;

/// Directories that are listed at most.
const MAX_DIRS: usize = 65_536;

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Files removed.
    pub removed: usize,
    /// Files and directories that could not be removed or listed.
    pub stuck: usize,
}

/// Removes everything of the agent's working files that `keep` (paths relative to the
/// base: backups of the journal, staged files of the intent) does not name.
pub fn sweep(store: &Store, keep: &BTreeSet<String>) -> Swept {
    let mut sweep = Sweep {
        fs: store.fs().as_ref(),
        keep,
        left: MAX_DIRS,
        swept: Swept::default(),
    };
    sweep.visible("", 0);
    sweep.swept
}

struct Sweep<'a> {
    fs: &'a dyn Fs,
    keep: &'a BTreeSet<String>,
    left: usize,
    swept: Swept,
}

impl Sweep<'_> {
    /// A directory of the tree proper.
    fn visible(&mut self, dir: &str, depth: usize) {
        for entry in self.list(dir, depth) {
            let path = join(dir, &entry.name);
            match (entry.name.as_str(), entry.kind) {
                (TMP_DIR | LKG_DIR, FileKind::Dir) => {
                    self.hidden(&path, depth + 1);
                }
                (COPY_NAME, FileKind::File) => {
                    self.remove(&path);
                }
                (name, FileKind::Dir) if !name.starts_with('.') => self.visible(&path, depth + 1),
                (
                    _,
                    FileKind::Dir
                    | FileKind::File
                    | FileKind::Symlink
                    | FileKind::Fifo
                    | FileKind::Socket
                    | FileKind::Other,
                ) => {}
            }
        }
    }

    /// A directory of ours. True if it is empty afterwards.
    fn hidden(&mut self, dir: &str, depth: usize) -> bool {
        let mut empty = true;
        for entry in self.list(dir, depth) {
            let path = join(dir, &entry.name);
            match entry.kind {
                FileKind::Dir => {
                    if !self.hidden(&path, depth + 1) {
                        empty = false;
                    } else if let Err(error) = self.fs.rmdir(&path) {
                        self.stuck(&path, &error);
                        empty = false;
                    }
                }
                FileKind::File
                | FileKind::Symlink
                | FileKind::Fifo
                | FileKind::Socket
                | FileKind::Other => {
                    if self.keep.contains(&path) || !self.remove(&path) {
                        empty = false;
                    }
                }
            }
        }
        empty
    }

    fn list(&mut self, dir: &str, depth: usize) -> Vec<Entry> {
        if depth > MAX_DEPTH || self.left == 0 {
            log::warn!(dir; "too deep or too many directories; not swept");
            self.swept.stuck += 1;
            return Vec::new();
        }
        self.left -= 1;
        match self.fs.list(dir) {
            Ok(entries) => entries,
            Err(error) => {
                self.stuck(dir, &error);
                Vec::new()
            }
        }
    }

    fn remove(&mut self, path: &str) -> bool {
        match self.fs.unlink(path) {
            Ok(()) => {
                self.swept.removed += 1;
                true
            }
            Err(error) => {
                self.stuck(path, &error);
                false
            }
        }
    }

    fn stuck(&mut self, path: &str, error: &std::io::Error) {
        log::warn!(path, error:%; "a left-over cannot be removed");
        self.swept.stuck += 1;
    }
}
