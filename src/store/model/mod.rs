//! A file system in memory that loses what was not synced, stops at any call, and
//! fails any call: what the crash tests of the store and of the apply layer run on.
//!
//! It is harsher than real ones, on purpose. After a power loss every *name* in a
//! directory is, independently, as of the directory's last sync or as of any change
//! since, so a rename between two directories can be found half done, with both names
//! or with neither. A file's *content* is what was last synced, or what was written, or a
//! beginning of it. What was synced is always there.
//!
//! Calls are counted from 1 in two ways: *calls* (every one, looks included), for
//! [`ModelFs::fail_at`], and *mutations* (what changes names, content, attributes or
//! durability), for [`ModelFs::stop_after`], because stopping before or after a look
//! is the same.

mod power;
mod world;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use super::fs::{Attrs, Entry, FileKind, FileOut, Fs, Stat};
use world::{Ino, World};

/// What a power loss takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoseUnsynced {
    /// Nothing: the process died, the machine did not.
    Nothing,
    /// Everything that was not synced.
    All,
    /// For each name and each content on its own, by this seed.
    Random(u64),
}

/// The file system; clones are the same one.
#[derive(Clone)]
pub struct ModelFs {
    world: Arc<Mutex<World>>,
}

/// One visible file of a [`ModelFs::snapshot`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Content.
    pub bytes: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl fmt::Debug for ModelFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelFs").finish_non_exhaustive()
    }
}

impl Default for ModelFs {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelFs {
    /// An empty base directory.
    #[must_use]
    pub fn new() -> Self {
        Self {
            world: Arc::new(Mutex::new(World::new())),
        }
    }

    /// As a trait object.
    #[must_use]
    pub fn shared(&self) -> Arc<dyn Fs> {
        Arc::new(self.clone())
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    // Setting the scene; none of these is counted, and all of it is durable.

    /// A file that has always been there; its directories too.
    pub fn put(&self, path: &str, bytes: &[u8], mode: u32, uid: u32, gid: u32) {
        self.world().put(path, bytes, mode, uid, gid);
    }

    /// A directory that has always been there.
    pub fn put_dir(&self, path: &str, mode: u32, gid: u32) {
        self.world().put_dir(path, mode, gid);
    }

    /// Something else than a file or directory.
    pub fn put_special(&self, path: &str, kind: FileKind) {
        self.world().put_special(path, kind);
    }

    /// Makes a directory the root of a file system of its own.
    pub fn mount(&self, dir: &str) {
        self.world().mount(dir, true);
    }

    /// Makes a directory a bind mount: another mount of the same device.
    pub fn bind(&self, dir: &str) {
        self.world().mount(dir, false);
    }

    /// Makes a file a mount point.
    pub fn bind_file(&self, path: &str) {
        self.world().file_mounts.insert(path.to_owned());
    }

    /// Every `link` fails with `errno`; `None` ends that.
    pub fn refuse_links(&self, errno: Option<i32>) {
        self.world().links_refused = errno;
    }

    /// Every change of owner or group fails with EPERM.
    pub fn refuse_chown(&self, refuse: bool) {
        self.world().chown_refused = refuse;
    }

    /// A write takes at most `bytes` at a time, so that files can be cut within.
    pub fn short_writes(&self, bytes: usize) {
        self.world().max_write = bytes;
    }

    /// Room for content and names, in bytes (a name costs 64); `None` is unlimited.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.world().capacity = bytes;
    }

    /// Changes a file's bytes in place, as something else than the agent would.
    pub fn scribble(&self, path: &str, bytes: &[u8]) {
        self.world().scribble(path, bytes, true);
    }

    /// Like [`scribble`](Self::scribble), by someone who does not sync.
    pub fn scribble_unsynced(&self, path: &str, bytes: &[u8]) {
        self.world().scribble(path, bytes, false);
    }

    /// Like [`scribble`](Self::scribble), so fast that the file's times do not show it.
    pub fn scribble_in_the_same_tick(&self, path: &str, bytes: &[u8]) {
        self.world().scribble_untimed(path, bytes);
    }

    /// Removes a name behind the agent's back.
    pub fn unlink_uncounted(&self, path: &str) {
        self.world().unlink(path).unwrap();
    }

    /// Gives a file a second name behind the agent's back.
    pub fn link_uncounted(&self, from: &str, to: &str) {
        self.world().link(from, to).unwrap();
    }

    // Faults.

    /// Mutation `n + 1` and everything after it, looks included, fails without effect with [`is_stopped`].
    pub fn stop_after(&self, n: u64) {
        let mut world = self.world();
        world.stop_at = Some(world.mutations + n + 1);
    }

    /// The `n`th call from now (the next is 1) fails with `errno`, without effect.
    pub fn fail_at(&self, n: u64, errno: i32) {
        let mut world = self.world();
        world.fail = Some((world.calls + n, world.calls + n, errno));
    }

    /// Every mutation from the `n`th call from now on fails with `errno`, until [`heal`](Self::heal).
    pub fn fail_from(&self, n: u64, errno: i32) {
        let mut world = self.world();
        world.fail = Some((world.calls + n, u64::MAX, errno));
    }

    /// The next rename onto `path` fails with `errno`, without effect.
    pub fn fail_rename_once(&self, path: &str, errno: i32) {
        self.world().rename_fails = Some((path.to_owned(), errno));
    }

    /// Every mutation from the `n`th call from now on fails with `errno`, for `calls` calls.
    pub fn fail_for(&self, n: u64, calls: u64, errno: i32) {
        let mut world = self.world();
        world.fail = Some((world.calls + n, world.calls + n + calls, errno));
    }

    /// Something outside the file system that is to be a point of its own: it counts as
    /// a mutation, and can be stopped before and failed like one.
    ///
    /// # Errors
    /// The fault that was set for it.
    pub fn event(&self) -> io::Result<()> {
        self.world().mutate()
    }

    /// Whether the world has stopped.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.world().stopped
    }

    /// Ends every fault that was set.
    pub fn heal(&self) {
        let mut world = self.world();
        world.fail = None;
        world.rename_fails = None;
        world.stop_at = None;
        world.stopped = false;
    }

    /// From now on, remembers every change of a name that took effect.
    pub fn start_trace(&self) {
        self.world().trace = Some(Vec::new());
    }

    /// The changes since [`start_trace`](Self::start_trace), such as `rename a b`.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.world().trace.clone().unwrap_or_default()
    }

    /// Calls so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.world().calls
    }

    /// Mutations so far.
    #[must_use]
    pub fn mutations(&self) -> u64 {
        self.world().mutations
    }

    /// Whether a set fault has struck.
    #[must_use]
    pub fn struck(&self) -> bool {
        self.world().struck
    }

    /// The file system as the next process finds it: another one, without faults, all of it durable.
    #[must_use]
    pub fn crash(&self, lose: LoseUnsynced) -> Self {
        Self {
            world: Arc::new(Mutex::new(self.world().crash(lose))),
        }
    }

    // Looking at the result, uncounted.

    /// A file's content.
    #[must_use]
    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.world().read(path)
    }

    /// Every file without a hidden component in its path.
    #[must_use]
    pub fn snapshot(&self) -> BTreeMap<String, Seen> {
        self.world().files(false)
    }

    /// Every file with a hidden component in its path.
    #[must_use]
    pub fn hidden(&self) -> BTreeMap<String, Seen> {
        self.world().files(true)
    }

    /// Every directory.
    #[must_use]
    pub fn dirs(&self) -> Vec<String> {
        self.world().dirs()
    }
}

/// The error of a stopped world.
#[derive(Debug)]
struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the world has stopped")
    }
}

impl std::error::Error for Stopped {}

fn stopped() -> io::Error {
    io::Error::other(Stopped)
}

/// Whether an error is that of a stopped world.
#[must_use]
pub fn is_stopped(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Stopped>())
}

impl Fs for ModelFs {
    fn stat(&self, path: &str) -> io::Result<Option<Stat>> {
        let mut world = self.world();
        world.look()?;
        world.stat(path)
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn Read + Send>> {
        let mut world = self.world();
        world.look()?;
        let bytes = world.open(path)?;
        Ok(Box::new(ModelIn {
            world: Arc::clone(&self.world),
            bytes,
            at: 0,
        }))
    }

    fn create(&self, path: &str, mode: u32) -> io::Result<Box<dyn FileOut>> {
        let mut world = self.world();
        world.mutate()?;
        let ino = world.create(path, mode)?;
        Ok(Box::new(ModelOut {
            world: Arc::clone(&self.world),
            ino,
        }))
    }

    fn set_attrs(&self, path: &str, attrs: Attrs) -> io::Result<()> {
        let mut world = self.world();
        world.mutate()?;
        world.set_attrs(path, attrs)
    }

    fn sync_file(&self, path: &str) -> io::Result<()> {
        let mut world = self.world();
        world.mutate()?;
        world.sync_file(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut world = self.world();
        world.mutate()?;
        world.sync_dir(dir)?;
        world.note(format_args!("sync {dir}"));
        Ok(())
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.world();
        world.mutate()?;
        world.link(from, to)?;
        world.note(format_args!("link {from} {to}"));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.world();
        world.mutate()?;
        world.rename(from, to)?;
        world.note(format_args!("rename {from} {to}"));
        Ok(())
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        let mut world = self.world();
        world.mutate()?;
        world.unlink(path)?;
        world.note(format_args!("unlink {path}"));
        Ok(())
    }

    fn mkdir(&self, path: &str, mode: u32) -> io::Result<()> {
        let mut world = self.world();
        world.mutate()?;
        world.mkdir(path, mode)
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        let mut world = self.world();
        world.mutate()?;
        world.rmdir(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let mut world = self.world();
        world.look()?;
        world.list(dir)
    }
}

struct ModelIn {
    world: Arc<Mutex<World>>,
    bytes: Vec<u8>,
    at: usize,
}

impl Read for ModelIn {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.world.lock().unwrap().look()?;
        let mut rest = &self.bytes[self.at..];
        let count = rest.read(buffer)?;
        self.at += count;
        Ok(count)
    }
}

struct ModelOut {
    world: Arc<Mutex<World>>,
    ino: Ino,
}

impl Write for ModelOut {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut world = self.world.lock().unwrap();
        world.mutate()?;
        world.append(self.ino, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FileOut for ModelOut {
    fn sync(&mut self) -> io::Result<()> {
        let mut world = self.world.lock().unwrap();
        world.mutate()?;
        world.sync_ino(self.ino);
        Ok(())
    }
}
