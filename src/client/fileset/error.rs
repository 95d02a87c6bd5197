//! Why there is no set, and what to do about it.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::client::backends::DeclaredError;
use crate::wire::limits::{MAX_FILES, MAX_FILES_BYTES};
use crate::wire::path::{ManifestPath, PathError};

/// Why files cannot be a set. `Display` names the file, the rule and the way out.
#[derive(Debug)]
pub enum FileSetError {
    /// A file or directory cannot be read.
    Unreadable {
        /// Which.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The directory itself is none.
    NoDirectory {
        /// As it was given.
        path: PathBuf,
    },
    /// A symbolic link that leads out of the directory.
    LinkOut {
        /// The link.
        link: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A symbolic link that leads nowhere.
    LinkBroken {
        /// The link.
        link: PathBuf,
        /// What it says.
        target: PathBuf,
    },
    /// A symbolic link to a directory that it lies in itself.
    LinkLoop {
        /// The link.
        link: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A socket, pipe or device.
    Special {
        /// Which.
        path: PathBuf,
    },
    /// A name that is not UTF-8.
    NotUtf8 {
        /// Which.
        path: PathBuf,
    },
    /// A name that cannot be a manifest path.
    Path {
        /// Which.
        path: String,
        /// The rule that it breaks.
        rule: PathError,
    },
    /// One path for two files.
    Twice {
        /// Which.
        path: ManifestPath,
    },
    /// A file's path that is also the directory of another.
    FileAndDirectory {
        /// Which.
        path: ManifestPath,
    },
    /// The main configuration is not there.
    NoConfig {
        /// Where it was looked for.
        config: ManifestPath,
        /// What could have been meant.
        found: Option<ManifestPath>,
    },
    /// The options speak of a file that is not there.
    NoSuchFile {
        /// Which.
        path: String,
    },
    /// More than [`MAX_FILES`].
    TooManyFiles {
        /// How many were seen.
        count: usize,
    },
    /// More than [`MAX_FILES_BYTES`] together.
    TooManyBytes {
        /// How many were seen.
        bytes: u64,
    },
    /// More directories than anybody has; a link may lead in circles.
    TooManyDirectories {
        /// Where it was given up.
        path: PathBuf,
    },
    /// The declared backends.
    Backends(DeclaredError),
}

impl fmt::Display for FileSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, source } if source.kind() == io::ErrorKind::NotFound => {
                write!(
                    f,
                    "{} is not there; name the directory that holds haproxy.cfg and the files it refers to",
                    path.display()
                )
            }
            Self::Unreadable { path, source } => write!(
                f,
                "{} cannot be read ({source}); make it readable for this user, or move it out of the directory",
                path.display()
            ),
            Self::NoDirectory { path } => write!(
                f,
                "{} is no directory; name the directory that holds haproxy.cfg and the files it refers to",
                path.display()
            ),
            Self::LinkOut { link, target } => write!(
                f,
                "{} is a link to {}, outside of the directory; put a copy of the file in its place, because only what lies in the directory is pushed",
                link.display(),
                target.display()
            ),
            Self::LinkBroken { link, target } => write!(
                f,
                "{} is a link to {}, which is not there; remove the link or put the file there",
                link.display(),
                target.display()
            ),
            Self::LinkLoop { link, target } => write!(
                f,
                "{} is a link to {}, a directory that it lies in itself; remove the link",
                link.display(),
                target.display()
            ),
            Self::Special { path } => write!(
                f,
                "{} is a socket, pipe or device and cannot be pushed; move it out of the directory (sockets of a running HAProxy do not belong among its source files)",
                path.display()
            ),
            Self::NotUtf8 { path } => write!(
                f,
                "{} has a name that is not UTF-8; rename it",
                path.display()
            ),
            Self::Path { path, rule } => write!(f, "{path:?} cannot be pushed: {rule}; rename it"),
            Self::Twice { path } => {
                write!(f, "{path} is there twice; give one of them another name")
            }
            Self::FileAndDirectory { path } => write!(
                f,
                "{path} is a file and also the directory of another file; rename one of them"
            ),
            Self::NoConfig { config, found } => {
                write!(
                    f,
                    "there is no {config}, and a set needs its configuration; "
                )?;
                match found {
                    Some(found) => write!(f, "if {found} is it, say so (--config {found})"),
                    None => write!(f, "is this the right directory?"),
                }
            }
            Self::NoSuchFile { path } => write!(
                f,
                "the options speak of {path}, which is not in the set; correct its spelling or leave it out"
            ),
            Self::TooManyFiles { count } => write!(
                f,
                "{count} files or more, and a set has at most {MAX_FILES}; move what HAProxy does not read out of the directory"
            ),
            Self::TooManyBytes { bytes } => write!(
                f,
                "{bytes} bytes or more, and a set has at most {MAX_FILES_BYTES}; move what HAProxy does not read out of the directory"
            ),
            Self::TooManyDirectories { path } => write!(
                f,
                "too many directories, given up at {}; look for a link that leads in circles",
                path.display()
            ),
            Self::Backends(source) => write!(f, "{source}"),
        }
    }
}

impl Error for FileSetError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unreadable { source, .. } => Some(source),
            Self::Path { rule, .. } => Some(rule),
            Self::Backends(source) => source.source(),
            Self::NoDirectory { .. }
            | Self::LinkOut { .. }
            | Self::LinkBroken { .. }
            | Self::LinkLoop { .. }
            | Self::Special { .. }
            | Self::NotUtf8 { .. }
            | Self::Twice { .. }
            | Self::FileAndDirectory { .. }
            | Self::NoConfig { .. }
            | Self::NoSuchFile { .. }
            | Self::TooManyFiles { .. }
            | Self::TooManyBytes { .. }
            | Self::TooManyDirectories { .. } => None,
        }
    }
}
