//! From a command line to clients: agents from flags and a file, credentials from the
//! environment or a file.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::cli::ctl::{CredentialSource, Ctl, agent};
use crate::client::config::RETRIES;
use crate::client::{
    Client, ClientConfig, Credentials, FileSetError, Fleet, Origin, OriginError, Timeouts,
};

/// A file of agents or credentials.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// Agents of one call.
const MAX_AGENTS: usize = 1024;

/// A file that was named and cannot be used. Nobody was asked anything.
#[derive(Debug)]
pub(super) enum SetupError {
    /// Not to be opened or read.
    Read { path: PathBuf, error: io::Error },
    /// Longer than such a file is.
    TooLong { path: PathBuf },
    /// A line that is no agent's URL.
    Line {
        path: PathBuf,
        line: usize,
        error: OriginError,
    },
    /// An agent twice.
    Twice(Origin),
    /// No agent at all.
    NoAgents(PathBuf),
    /// More than [`MAX_AGENTS`].
    TooManyAgents(usize),
    /// A credentials file whose first line is none.
    Credentials(PathBuf),
    /// A directory that is no file set.
    Directory { path: PathBuf, error: FileSetError },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, error } => {
                write!(
                    f,
                    "cannot read {}: {error}; name another file",
                    path.display()
                )
            }
            Self::TooLong { path } => write!(
                f,
                "{} is longer than {MAX_FILE_BYTES} bytes; is it the right file?",
                path.display()
            ),
            Self::Line { path, line, error } => {
                write!(f, "{}, line {line}: {error}", path.display())
            }
            Self::Twice(origin) => write!(
                f,
                "{origin} is named twice; name each agent once, or two pushes would race"
            ),
            Self::NoAgents(path) => write!(
                f,
                "{} names no agent; put a URL like http://10.0.0.7:5555 on a line of its own",
                path.display()
            ),
            Self::TooManyAgents(count) => write!(
                f,
                "{count} agents are too many for one call, {MAX_AGENTS} are the most; split the list"
            ),
            Self::Credentials(path) => write!(
                f,
                "the first line of {} has to be user:password, neither of them empty",
                path.display()
            ),
            Self::Directory { error, path } => match error {
                // They begin with a name below it, or with its own.
                FileSetError::Unreadable { .. }
                | FileSetError::NoDirectory { .. }
                | FileSetError::LinkOut { .. }
                | FileSetError::LinkBroken { .. }
                | FileSetError::LinkLoop { .. }
                | FileSetError::Special { .. }
                | FileSetError::NotUtf8 { .. }
                | FileSetError::TooManyDirectories { .. } => write!(f, "{error}"),
                FileSetError::Path { .. }
                | FileSetError::Twice { .. }
                | FileSetError::FileAndDirectory { .. }
                | FileSetError::NoConfig { .. }
                | FileSetError::NoSuchFile { .. }
                | FileSetError::TooManyFiles { .. }
                | FileSetError::TooManyBytes { .. }
                | FileSetError::Backends(_) => write!(f, "{}: {error}", path.display()),
            },
        }
    }
}

/// Clients for all agents, in the order they were named.
pub(super) fn fleet(ctl: &Ctl) -> Result<Fleet, SetupError> {
    let credentials = match &ctl.credentials {
        CredentialSource::Given(credentials) => credentials.clone(),
        CredentialSource::File(path) => credentials(path)?,
    };
    let mut origins = ctl.agents.clone();
    if let Some(path) = &ctl.agents_file {
        origins.extend(listed(path)?);
    }
    if origins.len() > MAX_AGENTS {
        return Err(SetupError::TooManyAgents(origins.len()));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = origins.iter().find(|origin| !seen.insert(*origin)) {
        return Err(SetupError::Twice(twice.clone()));
    }
    let client = |origin| {
        Client::new(ClientConfig {
            origin,
            credentials: credentials.clone(),
            timeouts: Timeouts::default(),
            retries: RETRIES,
        })
    };
    Ok(Fleet::new(origins.into_iter().map(client).collect()))
}

fn listed(path: &Path) -> Result<Vec<Origin>, SetupError> {
    let text = read(path)?;
    let lines = (1..).zip(text.lines()).map(|(at, line)| (at, line.trim()));
    let mut origins = Vec::new();
    for (line, url) in lines.filter(|(_, url)| !url.is_empty() && !url.starts_with('#')) {
        origins.push(agent(url).map_err(|error| SetupError::Line {
            path: path.to_owned(),
            line,
            error,
        })?);
    }
    match origins.is_empty() {
        true => Err(SetupError::NoAgents(path.to_owned())),
        false => Ok(origins),
    }
}

fn credentials(path: &Path) -> Result<Credentials, SetupError> {
    let text = read(path)?;
    let pair = text.lines().next().and_then(|line| line.split_once(':'));
    pair.and_then(|(user, password)| Credentials::new(user, password).ok())
        .ok_or_else(|| SetupError::Credentials(path.to_owned()))
}

fn read(path: &Path) -> Result<String, SetupError> {
    let failed = |error| SetupError::Read {
        path: path.to_owned(),
        error,
    };
    let mut text = String::new();
    File::open(path)
        .map_err(failed)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    match text.len() as u64 > MAX_FILE_BYTES {
        true => Err(SetupError::TooLong {
            path: path.to_owned(),
        }),
        false => Ok(text),
    }
}
