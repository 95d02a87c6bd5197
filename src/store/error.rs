//! What can go wrong on a disk, in an operator's words.
//!
//! `Display` names what was being done, the path below the base directory, and the
//! way out where there is one; the system's own words are in `source()`. No text
//! here names a path outside the base directory.

use std::fmt;
use std::io;

/// What was being done when a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Looking at a name.
    Stat,
    /// Opening for reading, or reading.
    Read,
    /// Creating a file.
    Create,
    /// Writing to a file.
    Write,
    /// Setting owner, group or mode.
    Attrs,
    /// Syncing a file or directory.
    Sync,
    /// Making a hard link.
    Link,
    /// Renaming.
    Rename,
    /// Removing a file.
    Unlink,
    /// Making a directory.
    Mkdir,
    /// Removing a directory.
    Rmdir,
    /// Listing a directory.
    List,
    /// Locking the base directory.
    Lock,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stat => "look at",
            Self::Read => "read",
            Self::Create => "create",
            Self::Write => "write",
            Self::Attrs => "set owner or mode of",
            Self::Sync => "sync",
            Self::Link => "make the hard link",
            Self::Rename => "rename a file onto",
            Self::Unlink => "remove",
            Self::Mkdir => "make the directory",
            Self::Rmdir => "remove the directory",
            Self::List => "list",
            Self::Lock => "lock",
        })
    }
}

/// A failure of the store.
#[derive(Debug)]
pub enum StoreError {
    /// The system refused a call.
    Io {
        /// The path, relative to the base directory; `""` is the base.
        path: String,
        /// What was being done.
        op: Op,
        /// The system's error.
        source: io::Error,
    },
    /// The journal names backups that are not there, and the targets do not hold
    /// those bytes either. Everything else was restored.
    BackupLost {
        /// The paths that could not be put back, sorted; never empty.
        paths: Vec<String>,
    },
    /// An intent names staged files that are gone or damaged while their targets do not hold the bytes
    /// either. Nothing was touched.
    StagedLost {
        /// The target paths concerned, sorted; never empty.
        paths: Vec<String>,
    },
    /// A file is larger than the agent reads.
    TooLarge {
        /// The path.
        path: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// A name that the caller made up does not fit on disk.
    BadName {
        /// The name.
        name: String,
    },
    /// The base directory's name leads to another directory than the one that is worked in.
    Covered,
}

impl StoreError {
    /// Wraps a system error.
    #[must_use]
    pub fn io(op: Op, path: &str, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            op,
            source,
        }
    }

    /// The system's error number, if there is one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            Self::BackupLost { .. }
            | Self::StagedLost { .. }
            | Self::TooLarge { .. }
            | Self::BadName { .. }
            | Self::Covered => None,
        }
    }
}

/// How a path is called in a text: the base directory has no name of its own.
fn shown(path: &str) -> &str {
    if path.is_empty() {
        "the base directory"
    } else {
        path
    }
}

fn hint(op: Op, source: &io::Error) -> Option<&'static str> {
    let errno = source.raw_os_error()?;
    Some(match errno {
        libc::ENOSPC => "the file system is full; free space (or inodes) or enlarge the volume",
        libc::EDQUOT => "the quota is used up; raise it or free space",
        libc::EROFS => "the file system is mounted read-only; mount it writable for the agent",
        libc::EACCES | libc::EPERM => match op {
            Op::Stat | Op::Read | Op::List => "the agent may not; give its user read access",
            Op::Create
            | Op::Write
            | Op::Attrs
            | Op::Sync
            | Op::Link
            | Op::Rename
            | Op::Unlink
            | Op::Mkdir
            | Op::Rmdir
            | Op::Lock => "the agent may not; give its user write access to the directory",
        },
        libc::EXDEV => {
            "it crosses a mount that the agent did not know at start; restart the agent after changing mounts"
        }
        libc::EBUSY => "it is a mount point; mount its directory instead",
        libc::ELOOP => "there is a symbolic link in the path; the agent follows none",
        libc::ENOTDIR => "something in the path is not a directory",
        libc::EMFILE | libc::ENFILE => "too many open files; raise the limit (ulimit -n)",
        libc::EIO => "the disk reports an I/O error; look at the kernel's log",
        _ => return None,
    })
}

fn first_and_count(paths: &[String]) -> String {
    match paths {
        [] => "no path".to_owned(),
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, op, source } => {
                write!(f, "cannot {op} {}", shown(path))?;
                match hint(*op, source) {
                    Some(hint) => write!(f, ": {hint}"),
                    None => Ok(()),
                }
            }
            Self::BackupLost { paths } => write!(
                f,
                "the last known good version of {} is gone from .haptic-lkg; send the full set with mode reload",
                first_and_count(paths)
            ),
            Self::StagedLost { paths } => write!(
                f,
                "the staged content of {} is gone from .haptic-tmp; the apply cannot be finished and is undone",
                first_and_count(paths)
            ),
            Self::TooLarge { path, limit } => {
                write!(
                    f,
                    "{} is larger than the {limit} bytes the agent reads",
                    shown(path)
                )
            }
            Self::BadName { name } => write!(f, "{name:?} cannot be a file name of the agent"),
            Self::Covered => f.write_str(
                "the base directory is not the one that the agent was started on: something was mounted over it or took its name; restart the agent to work in the one that is there now",
            ),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::BackupLost { .. }
            | Self::StagedLost { .. }
            | Self::TooLarge { .. }
            | Self::BadName { .. }
            | Self::Covered => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn a_text_names_the_path_and_the_way_out_but_not_the_source() {
        for errno in [libc::ENOSPC, libc::EROFS, libc::EACCES, libc::EXDEV] {
            let source = io::Error::from_raw_os_error(errno);
            let words = source.to_string();
            let error = StoreError::io(Op::Write, "maps/host.map", source);
            let text = error.to_string();
            assert!(text.starts_with("cannot write maps/host.map: "), "{text}");
            assert!(!text.contains(&words), "{text}");
            assert_eq!(error.source().unwrap().to_string(), words);
            assert_eq!(error.errno(), Some(errno));
        }
        let bare = StoreError::io(Op::List, "", io::Error::other("x"));
        assert_eq!(bare.to_string(), "cannot list the base directory");
    }
}
