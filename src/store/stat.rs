//! What the kernel says about one name, by statx, or without it before Linux 4.11 and where
//! a sandbox forbids it. Nothing is followed that the caller does not ask for.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::io::Errno;

use super::fs::{FileKind, Stat};

pub(super) fn kind(file_type: FileType) -> FileKind {
    match file_type {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Dir,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => FileKind::Other,
    }
}

fn nanos(seconds: i64, nanos: u32) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanos)
}

pub(super) fn look(dir: impl AsFd, name: &str, flags: AtFlags) -> Result<Stat, Errno> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let statx = match rustix::fs::statx(&dir, name, flags, mask) {
        Ok(statx) => statx,
        Err(Errno::NOSYS | Errno::PERM) => return look_without_statx(dir, name, flags),
        Err(error) => return Err(error),
    };
    let mode = u32::from(statx.stx_mode);
    let has_mount_id = statx.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    Ok(Stat {
        kind: kind(FileType::from_raw_mode(mode)),
        mode: mode & 0o7777,
        uid: statx.stx_uid,
        gid: statx.stx_gid,
        size: statx.stx_size,
        dev: rustix::fs::makedev(statx.stx_dev_major, statx.stx_dev_minor),
        ino: statx.stx_ino,
        mount_id: has_mount_id.then_some(statx.stx_mnt_id),
        nlink: u64::from(statx.stx_nlink),
        mtime: nanos(statx.stx_mtime.tv_sec, statx.stx_mtime.tv_nsec),
        ctime: nanos(statx.stx_ctime.tv_sec, statx.stx_ctime.tv_nsec),
    })
}

/// A name in an open directory, not followed.
pub(super) fn look_at(parent: impl AsFd, name: &str) -> Result<Stat, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    look(parent, name, flags)
}

/// A name that is not there is an answer.
pub(super) fn found(looked: Result<Stat, Errno>) -> io::Result<Option<Stat>> {
    match looked {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[allow(
    clippy::useless_conversion,
    clippy::unnecessary_fallible_conversions,
    reason = "the field types differ between architectures"
)]
fn look_without_statx(dir: impl AsFd, name: &str, flags: AtFlags) -> Result<Stat, Errno> {
    let stat = rustix::fs::statat(dir, name, flags)?;
    let part = |n: u64| u32::try_from(n).unwrap_or(0);
    Ok(Stat {
        kind: kind(FileType::from_raw_mode(stat.st_mode)),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        dev: u64::from(stat.st_dev),
        ino: u64::from(stat.st_ino),
        mount_id: None,
        nlink: u64::from(stat.st_nlink),
        mtime: nanos(
            i64::from(stat.st_mtime),
            part(u64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
        ),
        ctime: nanos(
            i64::from(stat.st_ctime),
            part(u64::try_from(stat.st_ctime_nsec).unwrap_or(0)),
        ),
    })
}
