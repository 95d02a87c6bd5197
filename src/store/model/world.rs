//! The model's inodes and names.
//!
//! A name carries every inode it has stood for since its directory was last synced; a
//! crash picks one. Inodes are never freed, because a name that was lost may come back.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::store::fs::{Attrs, Entry, FileKind, Stat, join, split};

use super::{Seen, stopped};

/// An index into [`World::inodes`].
pub(super) type Ino = usize;

pub(super) const ROOT: Ino = 0;

/// What a name costs of the capacity.
const NAME_COST: u64 = 64;

#[derive(Clone)]
pub(super) struct Inode {
    pub(super) kind: FileKind,
    pub(super) now: Content,
    /// `None`: never synced, so a power loss leaves it empty.
    pub(super) synced: Option<Content>,
    pub(super) names: BTreeMap<String, Slot>,
    dev: u64,
    mount: u64,
    pub(super) nlink: u64,
    mtime: i128,
    ctime: i128,
}

#[derive(Clone, Default)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// What a name stood for: as of the last sync, then after each change.
#[derive(Clone)]
pub(super) struct Slot(pub(super) Vec<Option<Ino>>);

impl Slot {
    pub(super) fn current(&self) -> Option<Ino> {
        self.0.last().copied().flatten()
    }
}

pub(super) struct World {
    pub(super) inodes: Vec<Inode>,
    pub(super) next_mount: u64,
    pub(super) clock: i128,
    pub(super) file_mounts: BTreeSet<String>,
    pub(super) links_refused: Option<i32>,
    pub(super) chown_refused: bool,
    pub(super) max_write: usize,
    pub(super) capacity: Option<u64>,
    pub(super) calls: u64,
    pub(super) mutations: u64,
    pub(super) stop_at: Option<u64>,
    pub(super) stopped: bool,
    /// First call, last call, error number.
    pub(super) fail: Option<(u64, u64, i32)>,
    pub(super) struck: bool,
    /// Target and error number of the rename that fails next.
    pub(super) rename_fails: Option<(String, i32)>,
    /// Mutations that took effect, in words; kept only if asked for.
    pub(super) trace: Option<Vec<String>>,
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl World {
    pub(super) fn new() -> Self {
        let mut world = Self {
            inodes: Vec::new(),
            next_mount: 2,
            clock: 0,
            file_mounts: BTreeSet::new(),
            links_refused: None,
            chown_refused: false,
            max_write: usize::MAX,
            capacity: None,
            calls: 0,
            mutations: 0,
            stop_at: None,
            stopped: false,
            fail: None,
            struck: false,
            rename_fails: None,
            trace: None,
        };
        world.add(FileKind::Dir, 0o755, 1, 1);
        world
    }

    fn add(&mut self, kind: FileKind, mode: u32, dev: u64, mount: u64) -> Ino {
        self.clock += 1;
        self.inodes.push(Inode {
            kind,
            now: Content {
                mode,
                ..Content::default()
            },
            synced: None,
            names: BTreeMap::new(),
            dev,
            mount,
            nlink: 0,
            mtime: self.clock,
            ctime: self.clock,
        });
        self.inodes.len() - 1
    }

    // Counting and faults.

    pub(super) fn look(&mut self) -> io::Result<()> {
        if self.stopped {
            return Err(stopped());
        }
        self.calls += 1;
        match self.fail {
            Some((first, last, number)) if self.calls == first && last == first => {
                self.struck = true;
                Err(errno(number))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn mutate(&mut self) -> io::Result<()> {
        if self.stopped {
            return Err(stopped());
        }
        self.calls += 1;
        self.mutations += 1;
        self.clock += 1;
        if self.stop_at == Some(self.mutations) {
            self.stopped = true;
            self.struck = true;
            return Err(stopped());
        }
        match self.fail {
            Some((first, last, number)) if (first..=last).contains(&self.calls) => {
                self.struck = true;
                Err(errno(number))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn note(&mut self, words: std::fmt::Arguments<'_>) {
        if let Some(trace) = &mut self.trace {
            trace.push(words.to_string());
        }
    }

    fn used(&self) -> u64 {
        let live = self.inodes.iter().filter(|inode| inode.nlink > 0);
        live.map(|inode| inode.now.bytes.len() as u64 + NAME_COST * inode.nlink)
            .sum()
    }

    fn room_for(&self, bytes: u64) -> io::Result<()> {
        match self.capacity {
            Some(capacity) if self.used() + bytes > capacity => Err(errno(libc::ENOSPC)),
            Some(_) | None => Ok(()),
        }
    }

    // Names.

    fn dir(&self, path: &str) -> io::Result<Ino> {
        let mut at = ROOT;
        if path.is_empty() {
            return Ok(at);
        }
        for name in path.split('/') {
            at = self.child(at, name).ok_or_else(|| errno(libc::ENOENT))?;
            match self.inodes[at].kind {
                FileKind::Dir => {}
                FileKind::Symlink => return Err(errno(libc::ELOOP)),
                FileKind::File | FileKind::Fifo | FileKind::Socket | FileKind::Other => {
                    return Err(errno(libc::ENOTDIR));
                }
            }
        }
        Ok(at)
    }

    fn child(&self, dir: Ino, name: &str) -> Option<Ino> {
        self.inodes[dir].names.get(name).and_then(Slot::current)
    }

    fn find<'a>(&self, path: &'a str) -> io::Result<(Ino, &'a str, Option<Ino>)> {
        let (dir, name) = split(path);
        if matches!(name, "" | "." | "..") {
            return Err(errno(libc::EINVAL));
        }
        let dir = self.dir(dir)?;
        Ok((dir, name, self.child(dir, name)))
    }

    fn existing(&self, path: &str) -> io::Result<(Ino, Ino)> {
        let (dir, _, ino) = self.find(path)?;
        Ok((dir, ino.ok_or_else(|| errno(libc::ENOENT))?))
    }

    fn file(&self, path: &str) -> io::Result<Ino> {
        let (_, ino) = self.existing(path)?;
        match self.inodes[ino].kind {
            FileKind::File => Ok(ino),
            FileKind::Symlink => Err(errno(libc::ELOOP)),
            FileKind::Dir | FileKind::Fifo | FileKind::Socket | FileKind::Other => {
                Err(errno(libc::EINVAL))
            }
        }
    }

    fn point(&mut self, dir: Ino, name: &str, to: Option<Ino>) {
        let clock = self.clock;
        let slot = self.inodes[dir]
            .names
            .entry(name.to_owned())
            .or_insert_with(|| Slot(vec![None]));
        let before = slot.current();
        slot.0.push(to);
        if let Some(ino) = before {
            self.inodes[ino].nlink -= 1;
            self.inodes[ino].ctime = clock;
        }
        if let Some(ino) = to {
            self.inodes[ino].nlink += 1;
            self.inodes[ino].ctime = clock;
        }
    }

    // The trait's calls.

    pub(super) fn stat(&self, path: &str) -> io::Result<Option<Stat>> {
        let (mount, ino) = if path.is_empty() {
            (self.inodes[ROOT].mount, ROOT)
        } else {
            match self.find(path) {
                Ok((_, _, None)) => return Ok(None),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
                Err(error) => return Err(error),
                Ok((dir, _, Some(ino))) => match self.inodes[ino].kind {
                    FileKind::Dir => (self.inodes[ino].mount, ino),
                    _ if self.file_mounts.contains(path) => (u64::MAX, ino),
                    _ => (self.inodes[dir].mount, ino),
                },
            }
        };
        let inode = &self.inodes[ino];
        Ok(Some(Stat {
            kind: inode.kind,
            mode: inode.now.mode,
            uid: inode.now.uid,
            gid: inode.now.gid,
            size: inode.now.bytes.len() as u64,
            dev: inode.dev,
            ino: ino as u64,
            mount_id: Some(mount),
            nlink: inode.nlink,
            mtime: inode.mtime,
            ctime: inode.ctime,
        }))
    }

    pub(super) fn open(&self, path: &str) -> io::Result<Vec<u8>> {
        Ok(self.inodes[self.file(path)?].now.bytes.clone())
    }

    pub(super) fn create(&mut self, path: &str, mode: u32) -> io::Result<Ino> {
        let (dir, name, there) = self.find(path)?;
        if there.is_some() {
            return Err(errno(libc::EEXIST));
        }
        self.room_for(NAME_COST)?;
        let parent = &self.inodes[dir];
        let (dev, mount, set_gid, gid) = (
            parent.dev,
            parent.mount,
            parent.now.mode & 0o2000 != 0,
            parent.now.gid,
        );
        let ino = self.add(FileKind::File, mode & 0o777, dev, mount);
        if set_gid {
            self.inodes[ino].now.gid = gid;
        }
        self.point(dir, name, Some(ino));
        Ok(ino)
    }

    pub(super) fn append(&mut self, ino: Ino, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(self.max_write)];
        self.room_for(bytes.len() as u64)?;
        let clock = self.clock;
        let inode = &mut self.inodes[ino];
        inode.now.bytes.extend_from_slice(bytes);
        (inode.mtime, inode.ctime) = (clock, clock);
        Ok(bytes.len())
    }

    pub(super) fn sync_ino(&mut self, ino: Ino) {
        self.inodes[ino].synced = Some(self.inodes[ino].now.clone());
    }

    pub(super) fn set_attrs(&mut self, path: &str, attrs: Attrs) -> io::Result<()> {
        let ino = self.file(path)?;
        let clock = self.clock;
        let owns = attrs.uid.is_some() || attrs.gid.is_some();
        let inode = &mut self.inodes[ino];
        inode.ctime = clock;
        if let Some(mode) = attrs.mode {
            inode.now.mode = mode & 0o777;
        }
        if owns && self.chown_refused {
            return Err(errno(libc::EPERM));
        }
        inode.now.uid = attrs.uid.unwrap_or(inode.now.uid);
        inode.now.gid = attrs.gid.unwrap_or(inode.now.gid);
        if attrs.sync {
            self.sync_ino(ino);
        }
        Ok(())
    }

    pub(super) fn sync_file(&mut self, path: &str) -> io::Result<()> {
        let ino = self.file(path)?;
        self.sync_ino(ino);
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        let dir = self.dir(dir)?;
        let names = &mut self.inodes[dir].names;
        names.retain(|_, slot| slot.current().is_some());
        for slot in names.values_mut() {
            slot.0 = vec![slot.current()];
        }
        Ok(())
    }

    pub(super) fn link(&mut self, from: &str, to: &str) -> io::Result<()> {
        let (from_dir, ino) = self.existing(from)?;
        let (to_dir, name, there) = self.find(to)?;
        if there.is_some() {
            return Err(errno(libc::EEXIST));
        }
        if self.inodes[from_dir].mount != self.inodes[to_dir].mount {
            return Err(errno(libc::EXDEV));
        }
        if let Some(number) = self.links_refused {
            return Err(errno(number));
        }
        if self.inodes[ino].kind == FileKind::Dir {
            return Err(errno(libc::EPERM));
        }
        self.room_for(NAME_COST)?;
        self.point(to_dir, name, Some(ino));
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        if let Some((_, number)) = self.rename_fails.take_if(|(target, _)| target == to) {
            return Err(errno(number));
        }
        let (from_dir, ino) = self.existing(from)?;
        let (to_dir, name, there) = self.find(to)?;
        if self.inodes[from_dir].mount != self.inodes[to_dir].mount {
            return Err(errno(libc::EXDEV));
        }
        if self.file_mounts.contains(to) || self.file_mounts.contains(from) {
            return Err(errno(libc::EBUSY));
        }
        if there == Some(ino) {
            return Ok(());
        }
        if there.is_some_and(|there| self.inodes[there].kind == FileKind::Dir) {
            return Err(errno(libc::EISDIR));
        }
        let (_, from_name) = split(from);
        self.point(from_dir, from_name, None);
        self.point(to_dir, name, Some(ino));
        Ok(())
    }

    pub(super) fn unlink(&mut self, path: &str) -> io::Result<()> {
        let (dir, ino) = self.existing(path)?;
        if self.inodes[ino].kind == FileKind::Dir {
            return Err(errno(libc::EISDIR));
        }
        if self.file_mounts.contains(path) {
            return Err(errno(libc::EBUSY));
        }
        self.point(dir, split(path).1, None);
        Ok(())
    }

    pub(super) fn mkdir(&mut self, path: &str, mode: u32) -> io::Result<()> {
        let (dir, name, there) = self.find(path)?;
        if there.is_some() {
            return Err(errno(libc::EEXIST));
        }
        self.room_for(NAME_COST)?;
        let parent = &self.inodes[dir];
        let (dev, mount) = (parent.dev, parent.mount);
        let inherit = parent.now.mode & 0o2000;
        let gid = parent.now.gid;
        let ino = self.add(FileKind::Dir, (mode & 0o777) | inherit, dev, mount);
        if inherit != 0 {
            self.inodes[ino].now.gid = gid;
        }
        self.point(dir, name, Some(ino));
        Ok(())
    }

    pub(super) fn rmdir(&mut self, path: &str) -> io::Result<()> {
        let (dir, ino) = self.existing(path)?;
        let inode = &self.inodes[ino];
        if inode.kind != FileKind::Dir {
            return Err(errno(libc::ENOTDIR));
        }
        if inode.mount != self.inodes[dir].mount {
            return Err(errno(libc::EBUSY));
        }
        if inode.names.values().any(|slot| slot.current().is_some()) {
            return Err(errno(libc::ENOTEMPTY));
        }
        self.point(dir, split(path).1, None);
        Ok(())
    }

    pub(super) fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let dir = self.dir(dir)?;
        let live = self.inodes[dir]
            .names
            .iter()
            .filter_map(|(name, slot)| Some((name, slot.current()?)));
        Ok(live
            .map(|(name, ino)| Entry {
                name: name.clone(),
                kind: self.inodes[ino].kind,
            })
            .collect())
    }

    // The scene.

    fn make_parents(&mut self, path: &str) {
        let (dir, _) = split(path);
        if !dir.is_empty() && self.dir(dir).is_err() {
            self.put_dir(dir, 0o755, 0);
        }
    }

    fn settle(&mut self, path: &str) {
        self.sync_dir(split(path).0).unwrap();
    }

    pub(super) fn put(&mut self, path: &str, bytes: &[u8], mode: u32, uid: u32, gid: u32) {
        self.make_parents(path);
        let _ = self.unlink(path);
        let ino = self.create(path, mode).unwrap();
        self.inodes[ino].now.bytes = bytes.to_vec();
        (self.inodes[ino].now.uid, self.inodes[ino].now.gid) = (uid, gid);
        self.sync_ino(ino);
        self.settle(path);
    }

    pub(super) fn put_dir(&mut self, path: &str, mode: u32, gid: u32) {
        self.make_parents(path);
        self.mkdir(path, 0).unwrap();
        let ino = self.dir(path).unwrap();
        self.inodes[ino].now.mode = mode;
        self.inodes[ino].now.gid = gid;
        self.settle(path);
    }

    pub(super) fn put_special(&mut self, path: &str, kind: FileKind) {
        self.put(path, b"", 0o777, 0, 0);
        let (_, ino) = self.existing(path).unwrap();
        self.inodes[ino].kind = kind;
    }

    pub(super) fn mount(&mut self, dir: &str, own_device: bool) {
        if self.dir(dir).is_err() {
            self.put_dir(dir, 0o755, 0);
        }
        let ino = self.dir(dir).unwrap();
        self.inodes[ino].mount = self.next_mount;
        if own_device {
            self.inodes[ino].dev = self.next_mount;
        }
        self.next_mount += 1;
    }

    pub(super) fn scribble(&mut self, path: &str, bytes: &[u8], sync: bool) {
        self.clock += 1;
        let ino = self.file(path).unwrap();
        let clock = self.clock;
        self.inodes[ino].now.bytes = bytes.to_vec();
        (self.inodes[ino].mtime, self.inodes[ino].ctime) = (clock, clock);
        if sync {
            self.sync_ino(ino);
        }
    }

    pub(super) fn scribble_untimed(&mut self, path: &str, bytes: &[u8]) {
        let ino = self.file(path).unwrap();
        self.inodes[ino].now.bytes = bytes.to_vec();
    }

    // The result.

    pub(super) fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.open(path).ok()
    }

    fn walk(&self, dir: Ino, path: &str, visit: &mut impl FnMut(&str, &Inode)) {
        for (name, slot) in &self.inodes[dir].names {
            let Some(ino) = slot.current() else { continue };
            let path = join(path, name);
            visit(&path, &self.inodes[ino]);
            if self.inodes[ino].kind == FileKind::Dir {
                self.walk(ino, &path, visit);
            }
        }
    }

    pub(super) fn files(&self, hidden: bool) -> BTreeMap<String, Seen> {
        let mut files = BTreeMap::new();
        self.walk(ROOT, "", &mut |path, inode| {
            let is_hidden = path.split('/').any(|name| name.starts_with('.'));
            if inode.kind == FileKind::File && is_hidden == hidden {
                let seen = Seen {
                    bytes: inode.now.bytes.clone(),
                    mode: inode.now.mode,
                    uid: inode.now.uid,
                    gid: inode.now.gid,
                };
                files.insert(path.to_owned(), seen);
            }
        });
        files
    }

    pub(super) fn dirs(&self) -> Vec<String> {
        let mut dirs = Vec::new();
        self.walk(ROOT, "", &mut |path, inode| {
            if inode.kind == FileKind::Dir {
                dirs.push(path.to_owned());
            }
        });
        dirs
    }
}
