//! The store's whole world: one small trait, so that a model can stand in for the
//! disk.
//!
//! Every path is relative to the base directory, spelled with slashes, without an
//! empty, `.` or `..` component; `""` is the base itself. No call follows a symbolic
//! link, in any component, and none leaves the base; crossing into a file system
//! that is mounted below the base is allowed. The trait refuses to be clever: a
//! method is one change or one look, and a failure is the operating system's own
//! error number.

use std::fmt;
use std::io::{self, Read, Write};

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link; never followed.
    Symlink,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A block or character device, or what the file system does not name.
    Other,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "a regular file",
            Self::Dir => "a directory",
            Self::Symlink => "a symbolic link",
            Self::Fifo => "a FIFO",
            Self::Socket => "a socket",
            Self::Other => "a device or special file",
        })
    }
}

/// What a file system says about one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky bits, `0o7777`; no type bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Device number of the file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// The mount that the name was reached through; `None` before Linux 5.8. Two bind
    /// mounts of one file system differ in this and in nothing else.
    pub mount_id: Option<u64>,
    /// Names that the inode has.
    pub nlink: u64,
    /// Last change of content, nanoseconds since the epoch.
    pub mtime: i128,
    /// Last change of content, attributes or names, nanoseconds since the epoch.
    pub ctime: i128,
}

impl Stat {
    /// Whether both are names of one inode.
    #[must_use]
    pub fn same_inode(&self, other: &Self) -> bool {
        self.dev == other.dev && self.ino == other.ino
    }

    /// Whether `link` and `rename` between the two, both directories or a directory and
    /// what stands in it, are refused for crossing a mount.
    #[must_use]
    pub fn crosses_mount(&self, other: &Self) -> bool {
        match (self.mount_id, other.mount_id) {
            (Some(a), Some(b)) => a != b,
            (Some(_) | None, None) | (None, Some(_)) => self.dev != other.dev,
        }
    }
}

/// Attributes to set; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attrs {
    /// Permission bits, `0o777`.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Sync the file afterwards, through the same descriptor: a file given away may
    /// no longer be the agent's to open.
    pub sync: bool,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name, without its directory. Names that are not UTF-8 are left out by
    /// [`Fs::list`]: no path of ours can be one.
    pub name: String,
    /// What it stands for.
    pub kind: FileKind,
}

/// A file being written for the first time.
pub trait FileOut: Write + Send {
    /// Begins what a later sync will wait for, without waiting. A hint: it promises
    /// nothing and cannot fail.
    fn begin_sync(&mut self) {}

    /// After the last write: sets the time of last change to this very instant, which is
    /// finer than the ticks that the kernel stamps writes with. A later write, in the same
    /// tick too, then leaves another time. Returns it in nanoseconds since the epoch, as
    /// [`Stat::mtime`] will show it where the file system keeps all of it; `None` if the
    /// time cannot be set.
    fn mark(&mut self) -> Option<i128> {
        None
    }

    /// Makes content and attributes survive a power loss (`fsync`).
    ///
    /// # Errors
    /// The system's. After one the file must be thrown away, never synced again: the
    /// kernel may have dropped the pages that it could not write and call the next
    /// sync a success.
    fn sync(&mut self) -> io::Result<()>;
}

/// Judges what stands at the name of that place in a list.
pub type Tell<'a> = dyn Fn(usize, io::Result<Option<Stat>>) -> bool + Sync + 'a;

/// The file system below the base directory.
///
/// Every method may fail with any error of the system; only what a caller can rely
/// on is documented.
pub trait Fs: Send + Sync + fmt::Debug {
    /// Whether the base directory's name still leads to the directory that is worked in.
    /// Whoever else goes by the name, HAProxy first of all, finds another one if not. A
    /// name that cannot be looked up although it is there tells nothing, and counts as
    /// yes.
    fn is_in_place(&self) -> bool {
        true
    }

    /// Looks at a name without following it. `None` if it, or a directory above it, does not exist.
    ///
    /// # Errors
    /// `ENOTDIR` if something above is no directory, `ELOOP` if it is a symbolic link.
    fn stat(&self, path: &str) -> io::Result<Option<Stat>>;

    /// The places of those `paths` whose [`stat`](Self::stat) `tell` says yes to, in
    /// order; it is called once for each, with its place, by any thread. Names of one
    /// directory that follow each other cost one look-up of it.
    fn stat_where(&self, paths: &[&str], tell: &Tell<'_>) -> Vec<usize> {
        (0..paths.len())
            .filter(|place| tell(*place, self.stat(paths[*place])))
            .collect()
    }

    /// Opens a regular file for reading. Never blocks, whatever stands there.
    ///
    /// # Errors
    /// `EINVAL` for what is not a regular file, `ELOOP` for a symbolic link.
    fn open(&self, path: &str) -> io::Result<Box<dyn Read + Send>>;

    /// Creates a regular file that must not exist, with exactly `mode`, whatever the umask.
    ///
    /// # Errors
    /// `EEXIST` if anything stands there.
    fn create(&self, path: &str, mode: u32) -> io::Result<Box<dyn FileOut>>;

    /// Sets the mode, then owner and group, of a regular file, then syncs it if asked to.
    ///
    /// # Errors
    /// `EPERM` where the agent may not.
    fn set_attrs(&self, path: &str, attrs: Attrs) -> io::Result<()>;

    /// Makes a file's content and attributes survive a power loss.
    ///
    /// # Errors
    /// The system's; see [`FileOut::sync`].
    fn sync_file(&self, path: &str) -> io::Result<()>;

    /// [`sync_file`](Self::sync_file) for many files, in any order and perhaps at once.
    ///
    /// # Errors
    /// The index of a file that failed and its error; others may or may not be synced.
    fn sync_files(&self, paths: &[&str]) -> Result<(), (usize, io::Error)> {
        for (n, path) in paths.iter().enumerate() {
            self.sync_file(path).map_err(|error| (n, error))?;
        }
        Ok(())
    }

    /// Makes the names in a directory survive a power loss.
    ///
    /// # Errors
    /// The system's.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;

    /// Gives a file a second name that must not exist.
    ///
    /// # Errors
    /// `EEXIST`; `EXDEV` across mounts; `EPERM`, `EMLINK`, `EOPNOTSUPP` where links are refused.
    fn link(&self, from: &str, to: &str) -> io::Result<()>;

    /// Moves a name over another one, atomically. If both name one inode nothing
    /// happens and both stay.
    ///
    /// # Errors
    /// `EXDEV` across mounts, `EBUSY` onto a mount point.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name that is not a directory.
    ///
    /// # Errors
    /// `ENOENT`; `EISDIR` for a directory.
    fn unlink(&self, path: &str) -> io::Result<()>;

    /// Makes a directory with exactly the permission bits `mode`, whatever the umask; a
    /// set-gid parent hands down its bit and group.
    ///
    /// # Errors
    /// `EEXIST` if anything stands there.
    fn mkdir(&self, path: &str, mode: u32) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOTEMPTY`, `ENOENT`, `EBUSY` for a mount point.
    fn rmdir(&self, path: &str) -> io::Result<()>;

    /// Every name in a directory, in no order.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`.
    fn list(&self, dir: &str) -> io::Result<Vec<Entry>>;
}

/// Joins a directory (`""` for the base) and a name.
#[must_use]
pub fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_owned()
    } else {
        format!("{dir}/{name}")
    }
}

/// Splits a path into its directory (`""` for the base) and its last component.
#[must_use]
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}
