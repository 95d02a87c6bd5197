//! The real disk: every access relative to one open descriptor of the base
//! directory, resolved beneath it without following a symbolic link.
//!
//! The kernel does the resolving (`openat2` with RESOLVE_BENEATH, NO_SYMLINKS and
//! NO_MAGICLINKS; mount points may be crossed, because an HAProxy pod's directories
//! are mounts). Where it cannot, or a sandbox forbids it, directories are opened one
//! component at a time with O_NOFOLLOW, which refuses the same things. Which of the
//! two is decided once, when the base is opened. The last component is only ever
//! used with calls that do not follow it.
//!
//! The base itself may be a symbolic link. It is resolved once: an agent keeps
//! working in the directory it was started on, and says so when its name leads elsewhere.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Gid, Mode, OFlags, ResolveFlags, Uid,
};
use rustix::io::{Errno, retry_on_intr};

use crate::clock::{Clock as _, SystemClock};

use super::fs::{Attrs, Entry, FileOut, Fs, Stat, Tell, split};
use super::shares;
use super::stat::{found, kind, look, look_at};

/// The file system below one base directory.
#[derive(Debug)]
pub struct DiskFs {
    base: OwnedFd,
    /// What the base was opened by, absolute.
    name: PathBuf,
    /// Of [`LOOK_THREADS`], those that the machine has cores for.
    look_threads: usize,
    openat2: bool,
}

/// Resolution for everything below the base. RESOLVE_NO_XDEV is left out on purpose.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Without O_NOFOLLOW: the resolution refuses symbolic links, and says so with ELOOP,
/// where O_NOFOLLOW beside O_DIRECTORY says ENOTDIR.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Threads that sync many files at once: their commits are merged by the file system,
/// which makes eight about five times as fast as one, and more not faster.
const SYNC_THREADS: usize = 8;

/// Threads that look at many names at once, as far as there are cores: a look costs the
/// kernel about a microsecond, and nothing is merged.
const LOOK_THREADS: usize = 4;

/// Names below which a second thread is not worth its start.
const NAMES_PER_LOOK_THREAD: usize = 512;

/// Files below which a second thread is not worth its start.
const FILES_PER_SYNC_THREAD: usize = 8;

/// Flags to read whatever stands at a name without waiting for it or changing it.
const LOOK: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl DiskFs {
    /// Opens the base directory.
    ///
    /// # Errors
    /// It does not exist or is no directory.
    pub fn open(base: &Path) -> io::Result<Self> {
        let mut disk = Self::open_by_components(base)?;
        let probe = rustix::fs::openat2(&disk.base, ".", DIRECTORY, Mode::empty(), BENEATH);
        disk.openat2 = probe.is_ok();
        Ok(disk)
    }

    /// Opens the base directory and never uses `openat2`: the way taken on an old
    /// kernel or in a sandbox, reachable for tests.
    ///
    /// # Errors
    /// It does not exist or is no directory.
    pub fn open_by_components(base: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let name = std::path::absolute(base)?;
        let base = retry_on_intr(|| rustix::fs::openat(CWD, &name, flags, Mode::empty()))?;
        Ok(Self {
            base,
            name,
            look_threads: std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(LOOK_THREADS),
            openat2: false,
        })
    }

    /// Opens (creating it if needed) `name` directly in the base and takes an exclusive
    /// advisory lock on it without waiting. `None` if someone else holds it.
    pub(super) fn try_lock(&self, name: &str) -> io::Result<Option<File>> {
        let flags = OFlags::RDWR
            | OFlags::CREATE
            | OFlags::NONBLOCK
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | OFlags::NOCTTY;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = retry_on_intr(|| rustix::fs::openat(&self.base, name, flags, mode))?;
        regular(&fd)?;
        match retry_on_intr(|| rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(Some(File::from(fd))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The directory that a path's last component lies in, and that component.
    fn locate<'a>(&self, path: &'a str) -> io::Result<(Parent<'_>, &'a str)> {
        let (dir, name) = split(path);
        if !is_component(name) {
            return Err(Errno::INVAL.into());
        }
        Ok((self.directory(dir)?, name))
    }

    fn directory(&self, dir: &str) -> io::Result<Parent<'_>> {
        if dir.is_empty() {
            return Ok(Parent::Base(self.base.as_fd()));
        }
        if !dir.split('/').all(is_component) {
            return Err(Errno::INVAL.into());
        }
        let fd = if self.openat2 {
            retry_on_intr(|| {
                rustix::fs::openat2(&self.base, dir, DIRECTORY, Mode::empty(), BENEATH)
            })?
        } else {
            descend(self.base.as_fd(), dir)?
        };
        Ok(Parent::Below(fd))
    }

    /// The answers for names of which those of one directory follow each other.
    fn stat_some(&self, first: usize, paths: &[&str], tell: &Tell<'_>) -> Vec<usize> {
        let mut here: Option<(&str, Parent<'_>)> = None;
        let mut told = Vec::new();
        for (place, path) in (first..).zip(paths) {
            let (dir, name) = split(path);
            let looked = match &here {
                Some((same, parent)) if *same == dir && is_component(name) => {
                    found(look_at(parent, name))
                }
                Some(_) | None => {
                    // Anything out of the ordinary is answered as for one name.
                    here = self.directory(dir).ok().map(|parent| (dir, parent));
                    match &here {
                        Some((_, parent)) if is_component(name) => found(look_at(parent, name)),
                        Some(_) | None => self.stat(path),
                    }
                }
            };
            if tell(place, looked) {
                told.push(place);
            }
        }
        told
    }

    /// A descriptor of the directory itself that can be listed and synced.
    fn readable_directory(&self, dir: &str) -> io::Result<OwnedFd> {
        let parent = self.directory(dir)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| rustix::fs::openat(&parent, ".", flags, Mode::empty()))?;
        Ok(fd)
    }

    fn regular_file(&self, path: &str) -> io::Result<OwnedFd> {
        let (parent, name) = self.locate(path)?;
        let fd = match retry_on_intr(|| rustix::fs::openat(&parent, name, LOOK, Mode::empty())) {
            Ok(fd) => fd,
            // A socket, or a FIFO or device that nobody serves.
            Err(Errno::NXIO) => return Err(Errno::INVAL.into()),
            Err(error) => return Err(error.into()),
        };
        regular(&fd)?;
        Ok(fd)
    }
}

/// An open directory: the base's own descriptor, or one opened for this call.
enum Parent<'a> {
    Base(BorrowedFd<'a>),
    Below(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Base(fd) => *fd,
            Self::Below(fd) => fd.as_fd(),
        }
    }
}

fn is_component(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains('/')
}

fn descend(base: BorrowedFd<'_>, dir: &str) -> io::Result<OwnedFd> {
    let mut at: Option<OwnedFd> = None;
    for name in dir.split('/') {
        let here = at.as_ref().map_or(base, OwnedFd::as_fd);
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let next = retry_on_intr(|| rustix::fs::openat(here, name, flags, Mode::empty()));
        at = Some(match next {
            Ok(fd) => fd,
            // O_DIRECTORY speaks before O_NOFOLLOW does; say what openat2 would have said.
            Err(Errno::NOTDIR) if is_symlink(here, name) => return Err(Errno::LOOP.into()),
            Err(error) => return Err(error.into()),
        });
    }
    at.ok_or_else(|| Errno::INVAL.into())
}

fn is_symlink(dir: BorrowedFd<'_>, name: &str) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

fn regular(fd: &OwnedFd) -> io::Result<()> {
    let stat = rustix::fs::fstat(fd)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        Ok(())
    } else {
        Err(Errno::INVAL.into())
    }
}

impl Fs for DiskFs {
    fn is_in_place(&self) -> bool {
        let named = rustix::fs::stat(&self.name);
        match (rustix::fs::fstat(&self.base), named) {
            (Ok(here), Ok(named)) => (here.st_dev, here.st_ino) == (named.st_dev, named.st_ino),
            (_, Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => false,
            (Err(_), Ok(_)) | (_, Err(_)) => true,
        }
    }

    fn stat(&self, path: &str) -> io::Result<Option<Stat>> {
        if path.is_empty() {
            return found(look(&self.base, "", AtFlags::EMPTY_PATH));
        }
        match self.locate(path) {
            Ok((parent, name)) => found(look_at(&parent, name)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn stat_where(&self, paths: &[&str], tell: &Tell<'_>) -> Vec<usize> {
        let looked = shares::run(
            paths,
            self.look_threads,
            NAMES_PER_LOOK_THREAD,
            |first, share| self.stat_some(first, share, tell),
        );
        looked.into_iter().flatten().collect()
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::from(self.regular_file(path)?)))
    }

    fn create(&self, path: &str, mode: u32) -> io::Result<Box<dyn FileOut>> {
        let (parent, name) = self.locate(path)?;
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | OFlags::NOCTTY;
        let mode = Mode::from_raw_mode(mode & 0o777);
        let fd = retry_on_intr(|| rustix::fs::openat(&parent, name, flags, mode))?;
        if let Err(error) = rustix::fs::fchmod(&fd, mode) {
            let _ = rustix::fs::unlinkat(&parent, name, AtFlags::empty());
            return Err(error.into());
        }
        Ok(Box::new(DiskFile(File::from(fd))))
    }

    fn set_attrs(&self, path: &str, attrs: Attrs) -> io::Result<()> {
        let fd = self.regular_file(path)?;
        if let Some(mode) = attrs.mode {
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode & 0o777))?;
        }
        if attrs.uid.is_some() || attrs.gid.is_some() {
            rustix::fs::fchown(
                &fd,
                attrs.uid.map(Uid::from_raw),
                attrs.gid.map(Gid::from_raw),
            )?;
        }
        if attrs.sync {
            rustix::fs::fsync(&fd)?;
        }
        Ok(())
    }

    fn sync_file(&self, path: &str) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.regular_file(path)?)?)
    }

    fn sync_files(&self, paths: &[&str]) -> Result<(), (usize, io::Error)> {
        let synced = shares::run(
            paths,
            SYNC_THREADS,
            FILES_PER_SYNC_THREAD,
            |first, share| {
                for (n, path) in share.iter().enumerate() {
                    self.sync_file(path).map_err(|error| (first + n, error))?;
                }
                Ok(())
            },
        );
        synced.into_iter().collect()
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        match rustix::fs::fsync(self.readable_directory(dir)?) {
            // Some network and FUSE file systems have no sync for directories.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let (old_dir, old) = self.locate(from)?;
        let (new_dir, new) = self.locate(to)?;
        Ok(rustix::fs::linkat(
            old_dir,
            old,
            new_dir,
            new,
            AtFlags::empty(),
        )?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (old_dir, old) = self.locate(from)?;
        let (new_dir, new) = self.locate(to)?;
        Ok(rustix::fs::renameat(old_dir, old, new_dir, new)?)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.locate(path)?;
        Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?)
    }

    fn mkdir(&self, path: &str, mode: u32) -> io::Result<()> {
        let (parent, name) = self.locate(path)?;
        let mode = mode & 0o777;
        rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode))?;
        let made = rustix::fs::openat(&parent, name, LOOK | OFlags::DIRECTORY, Mode::empty());
        // A umask that takes even the owner's read bit leaves nothing to repair with.
        let Ok(made) = made else { return Ok(()) };
        let now = rustix::fs::fstat(&made)?.st_mode & 0o7777;
        if now & 0o777 != mode {
            rustix::fs::fchmod(&made, Mode::from_raw_mode((now & 0o7000) | mode))?;
        }
        Ok(())
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.locate(path)?;
        Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let fd = self.readable_directory(dir)?;
        let mut entries = Vec::new();
        for entry in Dir::new(fd)? {
            let entry = entry?;
            let bytes = entry.file_name().to_bytes();
            if matches!(bytes, b"." | b"..") {
                continue;
            }
            let Some(name) = OsStr::from_bytes(bytes).to_str() else {
                continue;
            };
            let kind = match entry.file_type() {
                FileType::Unknown => match self.stat(&super::fs::join(dir, name))? {
                    Some(stat) => stat.kind,
                    None => continue,
                },
                known => kind(known),
            };
            entries.push(Entry {
                name: name.to_owned(),
                kind,
            });
        }
        Ok(entries)
    }
}

struct DiskFile(File);

impl Write for DiskFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FileOut for DiskFile {
    fn begin_sync(&mut self) {
        crate::sys::start_writeback(self.0.as_fd());
    }

    fn mark(&mut self) -> Option<i128> {
        let now = SystemClock.wall();
        let since = Duration::from_nanos(u64::try_from(now.0).ok()?);
        self.0.set_modified(UNIX_EPOCH + since).ok()?;
        Some(now.0)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}
