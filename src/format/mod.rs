//! What HAProxy reads: lines of its files, words of its commands, its version.
//!
//! Pure text in, values out. The agent compiles ops with these readers and the client
//! decides with the same ones, so that what one composes the other accepts, and both
//! see a file as HAProxy's own loader does. No sockets, no files, no clock, and no
//! configuration language.

pub mod base64;
pub mod calendar;
pub mod crt_list;
pub mod field;
pub mod map_file;
pub mod payload;
pub mod pem;
pub mod version;

pub use version::HaproxyVersion;

use std::error::Error;
use std::fmt;

/// Which kind of rule was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// A form that HAProxy would refuse or read as something else.
    Invalid,
    /// This version of HAProxy cannot do it.
    Unsupported,
    /// It does not fit into one command.
    TooBig,
}

/// Why a text is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind of rule.
    pub kind: FaultKind,
    /// The field or line and its rule, in an operator's words.
    pub words: String,
}

impl Fault {
    pub(crate) fn invalid(words: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Invalid,
            words: words.into(),
        }
    }

    pub(crate) fn unsupported(words: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Unsupported,
            words: words.into(),
        }
    }

    pub(crate) fn too_big(words: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::TooBig,
            words: words.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl Error for Fault {}
