//! Moving and doubling one file: by rename and link where the file system lets us,
//! by a copy where it does not.
//!
//! A copy is never seen half written: it is made under a name of ours, given the
//! original's owner and mode, synced, and only then renamed into place. Copies that
//! crossing a mount forced are counted, because the mounts are probed so that none
//! is needed.

use std::io::{self, Write as _};

use super::context::Store;
use super::error::{Op, StoreError};
use super::fs::{Attrs, Stat, join, split};

/// The name under which a copy grows, in the directory it is meant for. One at a time
/// is enough: whatever moves files holds the apply lock.
pub const COPY_NAME: &str = ".haptic-copy";

/// Bytes copied or hashed at a time.
pub(super) const BUFFER_BYTES: usize = 64 * 1024;

/// Renames `from` onto `to`. If both already name one inode, `from` alone is removed:
/// a rename would leave both names. Across a mount it copies and counts.
pub(super) fn move_file(store: &Store, from: &str, to: &str) -> Result<(), StoreError> {
    match store.fs().rename(from, to) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {
            store.counters().crossed(to);
            copy_onto(store, from, to)?;
            store.unlink_if_there(from)
        }
        Err(error) => Err(StoreError::io(Op::Rename, to, error)),
    }
}

/// Like [`move_file`], for a replay or a restore, where an earlier run or a power loss may have left both
/// names on one inode.
pub(super) fn move_file_again(
    store: &Store,
    from: &str,
    from_stat: &Stat,
    to: &str,
) -> Result<(), StoreError> {
    match store.stat(to)? {
        Some(there) if there.same_inode(from_stat) => store.unlink_if_there(from),
        Some(_) | None => move_file(store, from, to),
    }
}

/// Gives `from` the second name `to`, which must not exist: a hard link where links
/// work, else a copy with the same owner and mode.
///
/// # Errors
/// `EEXIST` from the link comes back as it is, for the caller to judge.
pub(super) fn double(store: &Store, from: &str, to: &str) -> Result<(), StoreError> {
    match store.fs().link(from, to) {
        Ok(()) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::EXDEV) => {
                store.counters().crossed(to);
                copy_onto(store, from, to)
            }
            Some(libc::EPERM | libc::EMLINK | libc::EOPNOTSUPP | libc::ENOSYS) => {
                store.counters().link_refused(to, &error);
                copy_onto(store, from, to)
            }
            _ => Err(StoreError::io(Op::Link, to, error)),
        },
    }
}

/// Copies `from` with owner and mode into the directory of `to`, syncs it, and renames it onto `to`.
fn copy_onto(store: &Store, from: &str, to: &str) -> Result<(), StoreError> {
    let (dir, _) = split(to);
    let copy = join(dir, COPY_NAME);
    store.unlink_if_there(&copy)?;
    let done = copy_to(store, from, &copy).and_then(|()| {
        store
            .fs()
            .rename(&copy, to)
            .map_err(|e| StoreError::io(Op::Rename, to, e))
    });
    if done.is_err() {
        let _ = store.fs().unlink(&copy);
    }
    done
}

fn copy_to(store: &Store, from: &str, copy: &str) -> Result<(), StoreError> {
    let Some(original) = store.stat(from)? else {
        let gone = io::Error::from_raw_os_error(libc::ENOENT);
        return Err(StoreError::io(Op::Read, from, gone));
    };
    let mut input = store.open(from)?;
    let mut output = store.create(copy, 0o600)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count =
            read_some(&mut input, &mut buffer).map_err(|e| StoreError::io(Op::Read, from, e))?;
        if count == 0 {
            break;
        }
        output
            .write_all(&buffer[..count])
            .map_err(|e| StoreError::io(Op::Write, copy, e))?;
    }
    drop(output);
    let attrs = Attrs {
        mode: Some(original.mode & 0o777),
        uid: Some(original.uid),
        gid: Some(original.gid),
        sync: store.durability().syncs(),
    };
    set_attrs_as_allowed(store, copy, attrs)
}

/// Sets what the agent may set: all of it, else without the owner, else the mode alone.
pub(super) fn set_attrs_as_allowed(
    store: &Store,
    path: &str,
    attrs: Attrs,
) -> Result<(), StoreError> {
    let without_owner = Attrs { uid: None, ..attrs };
    let mode_alone = Attrs {
        gid: None,
        ..without_owner
    };
    for attempt in [attrs, without_owner] {
        match store.set_attrs(path, attempt) {
            Err(error) if error.errno() == Some(libc::EPERM) => {}
            done => return done,
        }
    }
    store.counters().owner_refused(path);
    store.set_attrs(path, mode_alone)
}

/// One read, repeated when a signal interrupts it.
pub(super) fn read_some(input: &mut dyn io::Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
