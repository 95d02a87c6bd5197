//! The two stores as a writer of overrides sees them: read one key, list all, replace or
//! delete what was read and nothing else.

use std::error::Error;
use std::fmt;

use super::consul::Consul;
use super::directory::Directory;
use crate::http::client;
use crate::responder::copy::Entry;
use crate::responder::key::Prefix;
use crate::responder::kv::dir::store::{DirError, PutError};
use crate::responder::kv::{ConsulServer, TokenError};
use crate::responder::note::Note;
use crate::responder::stamp::Stamp;
use crate::responder::value::Value;
use std::path::PathBuf;

/// Which store is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreChoice {
    /// A prefix in Consul.
    Consul {
        /// The server and the token.
        server: ConsulServer,
        /// Where the keys are.
        prefix: Prefix,
    },
    /// A directory of this machine.
    Directory(PathBuf),
}

impl fmt::Display for StoreChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consul { server, prefix } => {
                write!(f, "{} {}", server.origin, prefix.with_slash())
            }
            Self::Directory(path) => write!(f, "{}", path.display()),
        }
    }
}

/// An override as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) entry: Entry,
    pub(super) note: Note,
    pub(super) version: Version,
}

/// Everything that is stored.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// By key.
    pub(super) keys: Vec<(String, Stored)>,
    /// Keys whose file cannot be read, and why.
    pub(super) unreadable: Vec<(String, String)>,
    /// Names that are no key's.
    pub(super) ignored: Vec<String>,
}

/// What has to be there still when a change is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Version {
    /// The index of the last write.
    Index(u64),
    /// The whole content.
    Content(Vec<u8>),
}

/// What a key becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) value: Value,
    pub(super) until: Option<Stamp>,
    pub(super) note: Note,
}

/// An open store.
#[derive(Debug)]
pub(super) enum Store {
    Consul(Consul),
    Directory(Directory),
}

impl Store {
    pub(super) fn open(choice: &StoreChoice) -> Result<Self, StoreError> {
        Ok(match choice {
            StoreChoice::Consul { server, prefix } => {
                Self::Consul(Consul::new(server.clone(), prefix.clone())?)
            }
            StoreChoice::Directory(path) => Self::Directory(Directory::open(path)?),
        })
    }

    /// What is under a key.
    pub(super) fn get(&mut self, key: &str) -> Result<Option<Stored>, StoreError> {
        match self {
            Self::Consul(consul) => consul.get(key),
            Self::Directory(directory) => directory.get(key),
        }
    }

    /// Everything, by key.
    pub(super) fn list(&mut self) -> Result<Listed, StoreError> {
        match self {
            Self::Consul(consul) => consul.list().map(|keys| Listed {
                keys,
                ..Listed::default()
            }),
            Self::Directory(directory) => directory.list(),
        }
    }

    /// Replaces what was read; `None` where nothing was there.
    pub(super) fn put(
        &mut self,
        key: &str,
        change: &Change,
        before: Option<&Version>,
    ) -> Result<(), StoreError> {
        match self {
            Self::Consul(consul) => consul.put(key, change, before),
            Self::Directory(directory) => directory.put(key, change, before),
        }
    }

    /// Deletes what was read.
    pub(super) fn delete(&mut self, key: &str, before: &Version) -> Result<(), StoreError> {
        match self {
            Self::Consul(consul) => consul.delete(key, before),
            Self::Directory(directory) => directory.delete(key, before),
        }
    }
}

/// Why the store was not read or not changed. The words say what to do next.
#[derive(Debug)]
pub(super) enum StoreError {
    /// No complete reply.
    Unreachable {
        /// Where it was asked.
        origin: String,
        /// What happened.
        source: client::Error,
    },
    /// A change was sent and no reply came.
    Unknown {
        /// Where it was sent.
        origin: String,
        /// What happened.
        source: client::Error,
    },
    /// The token may not do this.
    Forbidden {
        /// Consul's words.
        words: String,
        /// What it has to be given.
        needed: String,
    },
    /// The token may write overrides and not their notes.
    NoteForbidden {
        /// What it has to be given.
        needed: String,
    },
    /// The cluster has no leader.
    NoLeader,
    /// Another answer than expected.
    Answer(String),
    /// Somebody else changed the key meanwhile.
    Changed,
    /// The token file gives no token.
    Token(TokenError),
    /// The directory is not the store.
    Directory(DirError),
    /// A file cannot be written.
    Put(PutError),
    /// A file cannot be read.
    Read(String),
    /// Another writer holds the directory.
    Busy,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { origin, source } => write!(
                f,
                "Consul at {origin}: {source}; --consul-addr or CONSUL_HTTP_ADDR names another"
            ),
            Self::Unknown { origin, source } => write!(
                f,
                "Consul at {origin}: {source}; whether the change was made is not known, so look with hapticctl overrides"
            ),
            Self::Forbidden { words, needed } => write!(
                f,
                "Consul refuses: {words}; give the token {needed}, or name another token with CONSUL_HTTP_TOKEN_FILE"
            ),
            Self::NoteForbidden { needed } => write!(
                f,
                "the token may write overrides but not their notes: give it {needed}, or leave --why and --by away"
            ),
            Self::NoLeader => write!(
                f,
                "Consul's cluster has no leader, so nothing can be read or changed; try again when it has elected one"
            ),
            Self::Answer(what) => write!(f, "Consul's answer is not understood: {what}"),
            Self::Changed => write!(
                f,
                "somebody else changed it meanwhile; look with hapticctl overrides, and repeat the command if it is still wanted"
            ),
            Self::Token(error) => error.fmt(f),
            Self::Directory(error) => error.fmt(f),
            Self::Put(error) => {
                write!(f, "{error}; the directory has to be writable for this user")
            }
            Self::Read(what) => f.write_str(what),
            Self::Busy => write!(
                f,
                "another hapticctl is writing to the directory; try again"
            ),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unreachable { source, .. } | Self::Unknown { source, .. } => Some(source),
            Self::Token(error) => Some(error),
            Self::Directory(error) => Some(error),
            Self::Put(error) => Some(error),
            Self::Forbidden { .. }
            | Self::NoteForbidden { .. }
            | Self::NoLeader
            | Self::Answer(_)
            | Self::Changed
            | Self::Read(_)
            | Self::Busy => None,
        }
    }
}
