//! By what a change of a file is noticed without reading it.
//!
//! A file's bytes are hashed once; later looks compare device, inode, size and times. A
//! file whose last change is so fresh that another one could carry the same time proves
//! nothing that way, unless it bears the mark of the agent's own writing: a time that no
//! other write can have. It refuses to look at anything itself.

use crate::clock::UnixNanos;
use crate::wire::digest::ContentHash;

use super::fs::Stat;

/// File systems keep times as coarse as two seconds (FAT); a change within that of the
/// look could leave the time as it is.
const FRESH_NANOS: i128 = 2_000_000_000;

/// A mark that ends in zeros does not show whether the file system keeps all digits, so
/// it counts for nothing.
const MARK_DIGITS: i128 = 1_000;

/// One file as it was when it was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observed {
    /// Size and digests of its bytes.
    pub hash: ContentHash,
    /// By what a change is noticed.
    pub stamp: Stamp,
}

impl Observed {
    /// A file of such bytes that nobody has looked at.
    pub(super) fn expected(hash: ContentHash) -> Self {
        Self {
            hash,
            stamp: Stamp::default(),
        }
    }
}

/// What changes when a file's bytes do. The default is that of no file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
    pub(super) fn new(stat: &Stat, now: UnixNanos) -> Self {
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
    pub(super) fn marked(mut self, stat: &Stat, mark: Option<i128>) -> Self {
        let whole = mark.is_some_and(|mark| mark % MARK_DIGITS != 0);
        self.settled |= whole && mark == Some(stat.mtime);
        self
    }

    pub(super) fn still(&self, stat: &Stat) -> bool {
        self.settled
            && (self.dev, self.ino, self.size) == (stat.dev, stat.ino, stat.size)
            && (self.mtime, self.ctime) == (stat.mtime, stat.ctime)
    }
}
