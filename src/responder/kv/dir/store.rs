//! The directory's format: one file a key, a mark, temporaries. Both ends use it: the
//! watcher reads, the writer of overrides writes.
//!
//! Names that start with a dot are never keys. A value is put in place by rename, so a
//! reader sees the old file or the new one whole.

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::clock::{Clock as _, SystemClock, UnixNanos};
use crate::responder::key::{self, KeyError};
use crate::responder::note::MAX_FILE_BYTES;
use crate::sys;

/// The file that says: this directory is the store, and in this format.
pub const MARK: &str = ".haptic-kv";
/// The format, as the mark has it.
const FORMAT: &str = "1";
/// What a temporary's name starts with.
const TEMPORARY: &str = ".tmp-";
/// How often each name may come on average before a listing ends.
const MAX_REPEATS: usize = 4;
/// Entries that are read of any directory, however few names it has.
const MIN_ENTRIES: usize = 4096;
/// A temporary that is older than this was left behind by a writer that died.
const STALE_NANOS: i128 = 3_600_000_000_000;

/// An open directory that carries the mark.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    dir: OwnedFd,
    device: u64,
    inode: u64,
}

/// What is at a key's name.
#[derive(Debug)]
pub enum Found {
    /// A regular file: its bytes, one more than [`MAX_FILE_BYTES`] at most.
    File {
        /// The bytes.
        bytes: Vec<u8>,
        /// When it was last written, by the file system's clock.
        modified: UnixNanos,
    },
    /// Something that is no regular file, in words.
    Other(&'static str),
    /// Nothing.
    Nothing,
}

/// The names of a directory.
#[derive(Debug, Default)]
pub struct Listing {
    /// The keys that have a file, or something else, of their name.
    pub keys: BTreeSet<String>,
    /// Names that are no key's, those with a leading dot left out.
    pub foreign: BTreeSet<Vec<u8>>,
}

impl Store {
    /// Opens the directory and checks its mark.
    ///
    /// # Errors
    ///
    /// [`DirError`]: missing, unmarked, of another format, or unreadable.
    pub fn open(path: &Path) -> Result<Self, DirError> {
        let io = |source: Errno| DirError::Io {
            path: path.to_path_buf(),
            source: source.into(),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = match fs::open(path, flags, Mode::empty()) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Err(DirError::Missing(path.to_path_buf())),
            Err(errno) => return Err(io(errno)),
        };
        let stat = fs::fstat(&dir).map_err(io)?;
        let store = Self {
            path: path.to_path_buf(),
            dir,
            device: stat.st_dev,
            inode: stat.st_ino,
        };
        match store.read_name(MARK) {
            Ok(Found::File { bytes, .. }) if bytes.trim_ascii() == FORMAT.as_bytes() => Ok(store),
            Ok(Found::File { bytes, .. }) => Err(DirError::Format {
                path: path.to_path_buf(),
                found: String::from_utf8_lossy(bytes.get(..40).unwrap_or(&bytes)).into_owned(),
            }),
            Ok(Found::Other(_) | Found::Nothing) => Err(DirError::Unmarked(path.to_path_buf())),
            Err(source) => Err(DirError::Io {
                path: path.join(MARK),
                source,
            }),
        }
    }

    /// Makes directory and mark, both at once, unless something has the name already.
    ///
    /// # Errors
    ///
    /// [`DirError::Make`].
    pub fn make(path: &Path) -> Result<(), DirError> {
        let failed = |source: io::Error| DirError::Make {
            path: path.to_path_buf(),
            source,
        };
        let name = path
            .file_name()
            .ok_or_else(|| failed(ErrorKind::InvalidInput.into()))?;
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            Some(_) | None => Path::new("."),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = fs::open(parent, flags, Mode::empty()).map_err(|e| failed(e.into()))?;
        let made = make_beside(&parent, name);
        made.map_err(failed)
    }

    /// The device that the directory is on.
    #[must_use]
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Which directory of that device it is.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// All names. On some file systems one that is replaced meanwhile may be missing, so
    /// a key that was there before has to be looked for by [`read`](Self::read) before
    /// it counts as gone; on others it comes again and again for as long as somebody
    /// goes on replacing, so the reading ends when names repeat too often.
    ///
    /// # Errors
    ///
    /// [`DirError::TooMany`] above `max` names, `Io`.
    pub fn list(&self, max: usize) -> Result<Listing, DirError> {
        let io = |source: Errno| DirError::Io {
            path: self.path.clone(),
            source: source.into(),
        };
        let mut listing = Listing::default();
        let mut seen = 0_usize;
        for entry in Dir::read_from(&self.dir).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name().to_bytes();
            if name.first() != Some(&b'.') {
                match key::key_of_name(name) {
                    Some(key) => listing.keys.insert(key),
                    None => listing.foreign.insert(name.to_vec()),
                };
            }
            let names = listing.keys.len() + listing.foreign.len();
            if names > max {
                return Err(DirError::TooMany {
                    path: self.path.clone(),
                    max,
                });
            }
            seen += 1;
            if seen > names * MAX_REPEATS + MIN_ENTRIES {
                break;
            }
        }
        Ok(listing)
    }

    /// What is stored under a key.
    ///
    /// # Errors
    ///
    /// The file is there and cannot be read.
    pub fn read(&self, key: &str) -> io::Result<Found> {
        match key::file_name(key) {
            Ok(name) => self.read_name(&name),
            Err(_) => Ok(Found::Nothing),
        }
    }

    fn read_name(&self, name: &str) -> io::Result<Found> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match fs::openat(&self.dir, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(Found::Nothing),
            Err(Errno::LOOP) => return Ok(Found::Other("a symbolic link, and none is followed")),
            Err(Errno::NXIO) => return Ok(Found::Other("a socket")),
            Err(errno) => return Err(errno.into()),
        };
        let stat = fs::fstat(&file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Ok(Found::Other("a directory")),
            FileType::Fifo => return Ok(Found::Other("a pipe")),
            _ => return Ok(Found::Other("no regular file")),
        }
        let mut bytes = Vec::new();
        let limit = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX);
        std::fs::File::from(file)
            .take(limit + 1)
            .read_to_end(&mut bytes)?;
        let modified = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
        Ok(Found::File {
            bytes,
            modified: UnixNanos(modified),
        })
    }

    /// Keeps other writers of ours out until the guard is dropped; `None` while one of
    /// them is at it.
    ///
    /// # Errors
    ///
    /// The mark cannot be locked.
    pub fn try_lock(&self) -> io::Result<Option<Lock>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mark = fs::openat(&self.dir, MARK, flags, Mode::empty())?;
        match fs::flock(&mark, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _mark: mark })),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Stores bytes under a key, on disk when this returns.
    ///
    /// # Errors
    ///
    /// [`PutError`]; what was there before is still there.
    pub fn put(&self, key: &str, bytes: &[u8]) -> Result<(), PutError> {
        let name = key::file_name(key).map_err(PutError::Key)?;
        self.sweep();
        put_at(&self.dir, &name, bytes)?;
        Ok(())
    }

    /// Removes a key; false if there was none.
    ///
    /// # Errors
    ///
    /// [`PutError`].
    pub fn delete(&self, key: &str) -> Result<bool, PutError> {
        let name = key::file_name(key).map_err(PutError::Key)?;
        match fs::unlinkat(&self.dir, name.as_str(), AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(PutError::Io(errno.into())),
        }
        fs::fsync(&self.dir).map_err(|errno| PutError::Io(errno.into()))?;
        Ok(true)
    }

    /// Removes temporaries of writers that died. Nothing depends on it.
    fn sweep(&self) {
        let Ok(entries) = Dir::read_from(&self.dir) else {
            return;
        };
        let now = SystemClock.wall();
        for entry in entries.flatten() {
            let name = entry.file_name();
            if !name.to_bytes().starts_with(TEMPORARY.as_bytes()) {
                continue;
            }
            let Ok(stat) = fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if now.0 - i128::from(stat.st_mtime) * 1_000_000_000 > STALE_NANOS {
                let _left_for_the_next_one = fs::unlinkat(&self.dir, name, AtFlags::empty());
            }
        }
    }
}

/// Holds other writers of ours off.
#[derive(Debug)]
pub struct Lock {
    _mark: OwnedFd,
}

/// Temporary, sync, rename, sync of the directory.
fn put_at(dir: impl AsFd, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary_name()?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = fs::openat(&dir, temporary.as_str(), flags, Mode::from_raw_mode(0o644))?;
    // Whatever the writer's umask: the responder is another user, and a key that it cannot
    // read would count for nothing.
    fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
    let mut file = std::fs::File::from(file);
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(fs::renameat(&dir, temporary.as_str(), &dir, name)?));
    if let Err(error) = written {
        let _left_for_the_sweep = fs::unlinkat(&dir, temporary.as_str(), AtFlags::empty());
        return Err(error);
    }
    Ok(fs::fsync(&dir)?)
}

/// A directory with its mark under a temporary name, then renamed, so that nobody sees
/// it without the mark.
fn make_beside(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let temporary = temporary_name()?;
    fs::mkdirat(parent, temporary.as_str(), Mode::from_raw_mode(0o755))?;
    let made = (|| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = fs::openat(parent, temporary.as_str(), flags, Mode::empty())?;
        fs::fchmod(&dir, Mode::from_raw_mode(0o755))?;
        put_at(&dir, MARK, format!("{FORMAT}\n").as_bytes())?;
        let flags = RenameFlags::NOREPLACE;
        match fs::renameat_with(parent, temporary.as_str(), parent, name, flags) {
            // Another one was faster.
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(io::Error::from(errno)),
            Ok(()) => Ok(true),
        }
    })();
    if !matches!(made, Ok(true)) {
        let mark = Path::new(&temporary).join(MARK);
        let _may_not_be_there = fs::unlinkat(parent, &mark, AtFlags::empty());
        let _nor_this = fs::unlinkat(parent, temporary.as_str(), AtFlags::REMOVEDIR);
    }
    made?;
    Ok(fs::fsync(parent)?)
}

fn temporary_name() -> io::Result<String> {
    let random = u64::from_le_bytes(sys::random_bytes::<8>()?);
    Ok(format!("{TEMPORARY}{random:016x}"))
}

/// Why a directory is not the store.
#[derive(Debug)]
pub enum DirError {
    /// It does not exist.
    Missing(PathBuf),
    /// It has no mark.
    Unmarked(PathBuf),
    /// Its mark is of another format.
    Format {
        /// The directory.
        path: PathBuf,
        /// What the mark says.
        found: String,
    },
    /// It has more files than are allowed.
    TooMany {
        /// The directory.
        path: PathBuf,
        /// How many are.
        max: usize,
    },
    /// It cannot be read.
    Io {
        /// The directory or its mark.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// It cannot be made.
    Make {
        /// The directory.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

impl fmt::Display for DirError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path) => write!(
                f,
                "there is no directory {0}: if a volume belongs there or above it, mount it; on a disk of this machine's own the responder makes it with --kv-missing make; by hand, and only for a new, empty store: mkdir -p {0} && echo {FORMAT} > {0}/{MARK}",
                path.display()
            ),
            Self::Unmarked(path) => write!(
                f,
                "{0} has no file {MARK}: either a volume is not mounted there, or it is no store yet; if it is meant to be one: echo {FORMAT} > {0}/{MARK}",
                path.display()
            ),
            Self::Format { path, found } => write!(
                f,
                "{}/{MARK} says format {found:?}, and this program knows {FORMAT}; use the version that wrote it",
                path.display()
            ),
            Self::TooMany { path, max } => write!(
                f,
                "{} has more than {max} files; remove what is no override, or raise --kv-max-keys",
                path.display()
            ),
            Self::Io { path, source } => {
                write!(f, "{} cannot be read: {source}", path.display())
            }
            Self::Make { path, source } => write!(
                f,
                "the directory {} cannot be made: {source}; make its parent, and let this user write there",
                path.display()
            ),
        }
    }
}

impl Error for DirError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::Make { source, .. } => Some(source),
            Self::Missing(_) | Self::Unmarked(_) | Self::Format { .. } | Self::TooMany { .. } => {
                None
            }
        }
    }
}

/// Why a key was not stored.
#[derive(Debug)]
pub enum PutError {
    /// It has no file name.
    Key(KeyError),
    /// The system refused.
    Io(io::Error),
}

impl From<io::Error> for PutError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for PutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(why) => write!(f, "the key cannot be stored: {why}"),
            Self::Io(source) => write!(f, "the key cannot be stored: {source}"),
        }
    }
}

impl Error for PutError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Key(why) => Some(why),
            Self::Io(source) => Some(source),
        }
    }
}

/// The bare file name of a key, for messages.
#[must_use]
pub fn shown_name(key: &str) -> String {
    key::file_name(key).unwrap_or_else(|_| key.to_owned())
}

/// The path of a key's file, for messages.
#[must_use]
pub fn display_name(path: &Path, key: &str) -> PathBuf {
    match key::file_name(key) {
        Ok(name) => path.join(OsStr::from_bytes(name.as_bytes())),
        Err(_) => path.to_path_buf(),
    }
}
