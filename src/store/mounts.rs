//! Which directories below the base can be linked and renamed between.
//!
//! A *mount* here is the base, every mount point below it, and every directory whose
//! device differs from its parent's without being a mount point (a btrfs
//! subvolume): each gets its own staging and backup directory, because a hard link
//! cannot leave it. The kernel's list (`/proc/self/mountinfo`) says where to look,
//! the mount ids that `statx` reports decide: two bind mounts of one file system
//! share their device number and still refuse each other's links, and a mount that
//! another one covers is on the list and not in the tree.
//!
//! A *file* can be a mount point too (a single file bind-mounted into a container).
//! It can be written but never replaced, so it is only ever reported, for a refusal
//! before anything is touched. Nothing here creates a directory.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use crate::wire::path::ManifestPath;

use super::error::{Op, StoreError};
use super::fs::{FileKind, Fs, Stat, join, split};

/// Staged parts live here, below each mount.
pub const TMP_DIR: &str = ".haptic-tmp";

/// Backups of the last known good files live here, below each mount.
pub const LKG_DIR: &str = ".haptic-lkg";

/// Whether a base-relative name is one that the store itself may have made in one of these
/// directories.
#[must_use]
pub fn is_own_name(name: &str) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    name.split('/').all(plain)
        && name
            .split('/')
            .any(|part| part == TMP_DIR || part == LKG_DIR)
}

/// Mode of both: a staged or backed up certificate is nobody else's to read.
pub(super) const PRIVATE_DIR_MODE: u32 = 0o700;

/// Directories that the search for device borders visits. A base directory has tens;
/// beyond this only what the kernel's mount list names is found.
const MAX_WALKED_DIRS: usize = 4096;

/// Bytes of the kernel's mount list that are read. A node with thousands of pods
/// stays well below.
const MAX_MOUNTINFO_BYTES: u64 = 16 * 1024 * 1024;

const MOUNTINFO: &str = "/proc/self/mountinfo";

/// The mounts below a base directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mounts {
    /// Base-relative directories that begin a mount; the base (`""`) is implied.
    dirs: BTreeSet<String>,
    /// Base-relative files that are mount points themselves.
    files: BTreeSet<String>,
}

impl Mounts {
    /// Finds the mounts below `base`, which `fs` was opened on.
    ///
    /// # Errors
    /// The base itself cannot be looked at. A directory that cannot be listed is passed over.
    pub fn probe(fs: &dyn Fs, base: &Path) -> Result<Self, StoreError> {
        let listed = match read_mountinfo() {
            Ok(text) => points_below(&text, base),
            Err(error) => {
                log::warn!(error:%; "cannot read {MOUNTINFO}; mounts are found by walking the base directory");
                Vec::new()
            }
        };
        Self::find(fs, &listed)
    }

    /// Mounts as given: base-relative directories, and base-relative files that are
    /// mount points themselves.
    pub fn from_lists<D, F>(dirs: D, files: F) -> Self
    where
        D: IntoIterator,
        D::Item: Into<String>,
        F: IntoIterator,
        F::Item: Into<String>,
    {
        let mut mounts = Self {
            dirs: dirs.into_iter().map(Into::into).collect(),
            files: files.into_iter().map(Into::into).collect(),
        };
        mounts.dirs.remove("");
        mounts
    }

    /// The directory of the deepest mount above a path; `""` is the base.
    #[must_use]
    pub fn mount_of(&self, path: &ManifestPath) -> &str {
        path.ancestors()
            .find_map(|dir| self.dirs.get(dir))
            .map_or("", String::as_str)
    }

    /// Whether the path itself is a mount point, so that it cannot be replaced.
    #[must_use]
    pub fn is_mount_point(&self, path: &ManifestPath) -> bool {
        self.files.contains(path.as_str()) || self.dirs.contains(path.as_str())
    }

    /// Every mount's directory, the base (`""`) first.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        std::iter::once("").chain(self.dirs.iter().map(String::as_str))
    }

    /// Files that are mount points themselves.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// `candidates` checked against the tree, then a bounded walk for borders that no
    /// mount list shows.
    pub(super) fn find(fs: &dyn Fs, candidates: &[String]) -> Result<Self, StoreError> {
        let base = fs
            .stat("")
            .and_then(|stat| stat.ok_or_else(|| std::io::Error::from_raw_os_error(libc::ENOENT)))
            .map_err(|e| StoreError::io(Op::Stat, "", e))?;
        let mut mounts = Self::default();
        for path in candidates {
            mounts.check(fs, path);
        }
        mounts.walk(fs, base);
        Ok(mounts)
    }

    /// Records `path` if a border lies between it and its directory.
    fn check(&mut self, fs: &dyn Fs, path: &str) {
        let (dir, _) = split(path);
        if let (Ok(Some(parent)), Ok(Some(here))) = (fs.stat(dir), fs.stat(path)) {
            self.note(path, &parent, &here);
        }
    }

    fn note(&mut self, path: &str, parent: &Stat, here: &Stat) {
        match here.kind {
            FileKind::Dir => {
                if here.crosses_mount(parent) || here.dev != parent.dev {
                    self.dirs.insert(path.to_owned());
                }
            }
            FileKind::File
            | FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::Other => {
                // A file's device may differ from its directory's without a mount (overlayfs),
                // so only the mount id speaks here.
                if here.mount_id.is_some()
                    && parent.mount_id.is_some()
                    && here.crosses_mount(parent)
                {
                    self.files.insert(path.to_owned());
                }
            }
        }
    }

    fn walk(&mut self, fs: &dyn Fs, base: Stat) {
        let mut pending = vec![(String::new(), base)];
        let mut visited = 0;
        while let Some((dir, stat)) = pending.pop() {
            visited += 1;
            if visited > MAX_WALKED_DIRS {
                log::warn!(
                    "more than {MAX_WALKED_DIRS} directories below the base directory; the rest is not searched for mounts"
                );
                return;
            }
            let entries = match fs.list(&dir) {
                Ok(entries) => entries,
                Err(error) => {
                    log::debug!(dir, error:%; "not searched for mounts");
                    continue;
                }
            };
            for entry in entries {
                // No manifest path has a component that starts with a dot.
                if entry.kind != FileKind::Dir || entry.name.starts_with('.') {
                    continue;
                }
                let path = join(&dir, &entry.name);
                if let Ok(Some(here)) = fs.stat(&path) {
                    self.note(&path, &stat, &here);
                    pending.push((path, here));
                }
            }
        }
    }
}

/// The staging directory of a mount.
#[must_use]
pub fn tmp_dir(mount: &str) -> String {
    join(mount, TMP_DIR)
}

/// The backup directory of a mount.
#[must_use]
pub fn lkg_dir(mount: &str) -> String {
    join(mount, LKG_DIR)
}

fn read_mountinfo() -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::open(MOUNTINFO)?
        .take(MAX_MOUNTINFO_BYTES)
        .read_to_end(&mut text)?;
    Ok(text)
}

/// The mount points strictly below `base`, relative to it, that a manifest path could
/// lie on: UTF-8, no component with a leading dot.
fn points_below(mountinfo: &[u8], base: &Path) -> Vec<String> {
    // The list spells mount points without symbolic links.
    let base = std::fs::canonicalize(base).unwrap_or_else(|_| base.to_owned());
    let Some(base) = base.to_str() else {
        return Vec::new();
    };
    let prefix = format!("{}/", base.trim_end_matches('/'));
    let mut points: Vec<String> = mountinfo
        .split(|byte| *byte == b'\n')
        .filter_map(mount_point)
        .filter_map(|point| String::from_utf8(point).ok())
        .filter_map(|point| point.strip_prefix(&prefix).map(str::to_owned))
        .filter(|point| ManifestPath::parse(point.as_str()).is_ok())
        .collect();
    points.sort();
    points.dedup();
    points
}

/// The fifth field of a line of mountinfo, decoded.
fn mount_point(line: &[u8]) -> Option<Vec<u8>> {
    line.split(|byte| *byte == b' ').nth(4).map(decode)
}

/// Undoes the kernel's octal escapes: `\040` for a space, and tab, newline, backslash, hash alike.
fn decode(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        match tail {
            [
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                after @ ..,
            ] if *first == b'\\' => {
                out.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                rest = after;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ManifestPath {
        ManifestPath::parse(text).unwrap()
    }

    #[test]
    fn a_path_belongs_to_the_deepest_mount_above_it() {
        let mounts = Mounts::from_lists(["", "general", "general/deep/er"], ["haproxy.cfg"]);
        for (of, want) in [
            ("haproxy.cfg", ""),
            ("generals/x", ""),
            ("general", ""),
            ("general/x", "general"),
            ("general/deep/x", "general"),
            ("general/deep/er/x/y", "general/deep/er"),
        ] {
            assert_eq!(mounts.mount_of(&path(of)), want, "{of}");
        }
        assert!(mounts.is_mount_point(&path("haproxy.cfg")));
        assert!(mounts.is_mount_point(&path("general")));
        assert!(!mounts.is_mount_point(&path("general/x")));
        let all: Vec<_> = mounts.iter().collect();
        assert_eq!(all, ["", "general", "general/deep/er"]);
    }

    #[test]
    fn the_kernel_s_escapes_are_decoded() {
        for (text, want) in [
            ("/a\\040b", "/a b"),
            ("/a\\011\\012\\134\\043", "/a\t\n\\#"),
            ("/end\\04", "/end\\04"),
            ("/end\\", "/end\\"),
            ("/no\\400", "/no\\400"),
            ("/\\303\\274", "/ü"),
        ] {
            assert_eq!(decode(text.as_bytes()), want.as_bytes(), "{text}");
        }
    }

    #[test]
    fn mount_points_below_the_base_are_read_from_the_kernel_s_list() {
        let list = b"36 35 98:0 /root /nowhere/etc rw - ext4 /dev/vda rw\n\
            37 36 0:42 / /nowhere/etc/general rw shared:1 - tmpfs tmpfs rw\n\
            38 36 0:43 / /nowhere/etc/a\\040b rw - tmpfs tmpfs rw\n\
            39 36 0:43 / /nowhere/etc/general rw - tmpfs tmpfs rw\n\
            40 36 0:44 / /nowhere/etcetera/x rw - tmpfs tmpfs rw\n\
            41 36 0:45 / /nowhere/etc/.hidden rw - tmpfs tmpfs rw\n\
            42 36 0:45 / /nowhere/etc/\\377 rw - tmpfs tmpfs rw\n\
            short line\n\
            43 36 98:0 /f /nowhere/etc/haproxy.cfg rw - ext4 /dev/vda rw\n";
        assert_eq!(
            points_below(list, Path::new("/nowhere/etc")),
            ["a b", "general", "haproxy.cfg"]
        );
        assert_eq!(points_below(list, Path::new("/nowhere/other")), [""; 0]);
    }
}
