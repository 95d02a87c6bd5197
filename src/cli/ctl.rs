//! The command lines of `hapticctl`: from words and environment to what is to be done.
//!
//! As pure as the rest of the parser: files that are named here are read later. A
//! password is taken from the environment or a file and from nowhere else, and an error
//! never repeats a URL that may hold one.

mod overrides;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use super::args::{Asked, Typed, UsageError, Values, split, verb};
use super::help;
use super::table::{
    COMPLETION, CTL, CTL_COMMANDS, CTL_PASSWORD, CTL_USERNAME, Command, CtlFlag, DOCTOR, PASSWORD,
    PLAN, PUSH, REVERT, STATE, USERNAME, VERIFY, WAIT,
};
use super::value::{self, Expected};
use crate::client::{Credentials, FileSetOptions, Origin, OriginError};
use crate::ctl::overrides::Overrides;
use crate::wire::manifest::FileKind;

/// Where an agent listens unless its URL says otherwise.
pub const AGENT_PORT: u16 = 5555;

/// What a command line of `hapticctl` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CtlInvocation {
    /// Do this.
    Run(Box<Ctl>),
    /// Do this with overrides.
    Override(Box<Overrides>),
    /// Print this and exit 0: a help, the version, a completion script.
    Print(String),
}

/// A task, and whom it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ctl {
    /// The agents that were named; the default one if none was.
    pub agents: Vec<Origin>,
    /// A file with more.
    pub agents_file: Option<PathBuf>,
    /// Who asks.
    pub credentials: CredentialSource,
    /// How the outcome is printed.
    pub output: Output,
    /// What to do.
    pub task: Task,
}

/// Where user and password come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialSource {
    /// From the environment.
    Given(Credentials),
    /// From the first line of this file.
    File(PathBuf),
}

/// How the outcome is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// For people.
    Text,
    /// One document for programs.
    Json,
}

/// What to do with the agents.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // One verb each; the table says what it does.
pub enum Task {
    Plan(Directory),
    Push(Directory, PushFlags),
    State,
    Verify(Option<Directory>),
    Revert { epoch: u64, take_over: bool },
    Wait { timeout: Duration, deletes: bool },
    Doctor(Directory),
}

/// A directory that becomes a file set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Where.
    pub path: PathBuf,
    /// How.
    pub options: FileSetOptions,
}

/// How a set is pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // As the flags.
pub struct PushFlags {
    pub reload: bool,
    pub overwrite: bool,
    pub take_over: bool,
    pub epoch: u64,
    /// Zero with `--no-wait`.
    pub wait: Duration,
}

/// Reads a command line of `hapticctl`, without the program's name.
///
/// # Errors
/// The first word, value or variable that cannot be used.
pub fn parse(
    args: impl Iterator<Item = OsString>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<CtlInvocation, UsageError> {
    let words: Vec<OsString> = args.collect();
    match words.first().and_then(|word| word.to_str()) {
        Some("help") if words.len() > 1 => {
            let verb = verb(&CTL, words.get(1..).unwrap_or(&[]))?;
            let place = CTL.verbs.iter().position(|known| known.name == verb);
            if let Some(command) = place.and_then(|place| CTL_COMMANDS.get(place)) {
                return Ok(CtlInvocation::Print(help::help(command, false)));
            }
        }
        Some("--help" | "-h" | "help") => return Ok(CtlInvocation::Print(help::program(&CTL))),
        Some("--version" | "-V") => return Ok(CtlInvocation::Print(help::version(CTL.name))),
        Some(_) | None => {}
    }
    let verb = verb(&CTL, &words)?;
    let rest = words.get(1..).unwrap_or(&[]);
    let place = CTL.verbs.iter().position(|known| known.name == verb);
    let Some(command) = place.and_then(|place| CTL_COMMANDS.get(place)) else {
        return Err(UsageError::UnknownVerb {
            given: verb.to_owned(),
            nearest: None,
        });
    };
    match split(command, rest)? {
        Asked::Help { short } => Ok(CtlInvocation::Print(help::help(command, short))),
        Asked::Version => Ok(CtlInvocation::Print(help::version(CTL.name))),
        Asked::Run(typed) => run(command, &typed, env),
    }
}

fn run(
    command: &'static Command<CtlFlag>,
    typed: &Typed<CtlFlag>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<CtlInvocation, UsageError> {
    let values = Values {
        command,
        typed: &typed.flags,
        env,
    };
    if let Some(task) = overrides::parse(command, typed, &values)? {
        return Ok(CtlInvocation::Override(Box::new(task)));
    }
    let operand = typed.operands.first();
    let directory = || match operand {
        Some(path) => Directory::new(path, &values),
        None => Err(UsageError::MissingWord { name: "DIR" }),
    };
    let task = match command.name {
        name if name == COMPLETION.name => {
            let script = super::complete::script(operand.map_or(OsStr::new(""), |word| word))?;
            return Ok(CtlInvocation::Print(script));
        }
        name if name == PLAN.name => Task::Plan(directory()?),
        name if name == PUSH.name => Task::Push(directory()?, PushFlags::new(&values)?),
        name if name == STATE.name => Task::State,
        name if name == VERIFY.name => Task::Verify(match operand {
            Some(_) => Some(directory()?),
            None => None,
        }),
        name if name == REVERT.name => Task::Revert {
            epoch: values.one(CtlFlag::Epoch, epoch)?,
            take_over: values.given(CtlFlag::TakeOver),
        },
        name if name == WAIT.name => Task::Wait {
            timeout: values.one(CtlFlag::Timeout, value::patience)?,
            deletes: values.given(CtlFlag::Deletes),
        },
        name if name == DOCTOR.name => Task::Doctor(directory()?),
        other => {
            return Err(UsageError::UnknownVerb {
                given: other.to_owned(),
                nearest: None,
            });
        }
    };
    let agents_file = values.maybe(CtlFlag::Agents, value::path)?;
    Ok(CtlInvocation::Run(Box::new(Ctl {
        agents: agents(&values, agents_file.is_some())?,
        agents_file,
        credentials: credentials(&values)?,
        output: values.one(CtlFlag::Output, output)?,
        task,
    })))
}

/// The agents named one by one; the default one where nobody names any.
fn agents(values: &Values<'_, CtlFlag>, in_a_file: bool) -> Result<Vec<Origin>, UsageError> {
    // A file on the command line wins over agents in the environment.
    let texts = match values.given(CtlFlag::Agents) && !values.given(CtlFlag::Agent) {
        true => Vec::new(),
        false => values.all(CtlFlag::Agent, |text| Ok(text.to_owned()))?,
    };
    let mut agents = Vec::new();
    for text in &texts {
        let origin = agent(&text.to_string_lossy()).map_err(|error| UsageError::BadValue {
            flag: "agent",
            given: shown(&text.to_string_lossy(), error),
            expected: format!("an agent's URL: {error}"),
        })?;
        agents.push(origin);
    }
    if agents.is_empty() && !in_a_file {
        agents.push(Origin::Tcp {
            host: "127.0.0.1".into(),
            port: AGENT_PORT,
        });
    }
    Ok(agents)
}

/// What an error may repeat of a URL.
fn shown(text: &str, error: OriginError) -> String {
    match error {
        OriginError::UserInfo => match text.rsplit_once('@') {
            Some((_, host)) => format!("***@{host}"),
            None => "***".into(),
        },
        OriginError::Tls
        | OriginError::Scheme
        | OriginError::Host
        | OriginError::Port
        | OriginError::Path
        | OriginError::Socket => text.to_owned(),
    }
}

/// An agent's URL; without a port it is [`AGENT_PORT`].
///
/// # Errors
/// See [`OriginError`].
pub fn agent(url: &str) -> Result<Origin, OriginError> {
    let origin = Origin::parse(url)?;
    let bare = url.trim_end_matches('/');
    let says_port = bare
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    Ok(match origin {
        Origin::Tcp { host, .. } if !says_port => Origin::Tcp {
            host,
            port: AGENT_PORT,
        },
        origin => origin,
    })
}

fn credentials(values: &Values<'_, CtlFlag>) -> Result<CredentialSource, UsageError> {
    if let Some(path) = values.maybe(CtlFlag::CredentialsFile, value::path)? {
        return Ok(CredentialSource::File(path));
    }
    let get = |name: &str| (values.env)(name).filter(|text| !text.is_empty());
    for (user, password) in [(CTL_USERNAME, CTL_PASSWORD), (USERNAME, PASSWORD)] {
        let missing = |name: &str, other: &str| UsageError::Environment {
            name: name.to_owned(),
            problem: format!("is not set, but {other} is; set both"),
        };
        match (get(user), get(password)) {
            (Some(user), Some(password)) => {
                if let Ok(credentials) = Credentials::new(&user, &password) {
                    return Ok(CredentialSource::Given(credentials));
                }
            }
            (Some(_), None) => return Err(missing(password, user)),
            (None, Some(_)) => return Err(missing(user, password)),
            (None, None) => {}
        }
    }
    Err(UsageError::Environment {
        name: CTL_USERNAME.to_owned(),
        problem: format!(
            "is not set; set it and {CTL_PASSWORD} to the agents' credentials, or give --credentials-file FILE"
        ),
    })
}

fn output(text: &OsStr) -> Result<Output, Expected> {
    match value::utf8(text)? {
        "text" => Ok(Output::Text),
        "json" => Ok(Output::Json),
        _ => Err("text or json".into()),
    }
}

fn epoch(text: &OsStr) -> Result<u64, Expected> {
    let text = value::utf8(text)?;
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|_| digits)
        .ok_or_else(|| "a number, as 1".into())
}

impl Directory {
    fn new(path: &OsStr, values: &Values<'_, CtlFlag>) -> Result<Self, UsageError> {
        let mut options = FileSetOptions::default();
        let takes = |key| values.command.flags.iter().any(|flag| flag.key == key);
        if takes(CtlFlag::Config) {
            options.config = values
                .one(CtlFlag::Config, value::manifest_path)?
                .as_str()
                .to_owned();
        }
        if takes(CtlFlag::Kind) {
            let kinds: Vec<(String, FileKind)> = values.all(CtlFlag::Kind, kind)?;
            options.kinds = BTreeMap::from_iter(kinds);
        }
        if takes(CtlFlag::UnorderedMap) {
            let maps = values.all(CtlFlag::UnorderedMap, value::manifest_path)?;
            options.unordered_maps =
                BTreeSet::from_iter(maps.iter().map(|path| path.as_str().to_owned()));
        }
        let path = value::path(path).map_err(|_| UsageError::MissingWord { name: "DIR" })?;
        Ok(Self { path, options })
    }
}

fn kind(text: &OsStr) -> Result<(String, FileKind), Expected> {
    let expected = || -> Expected {
        "a path below DIR, an equals sign and map, cert, ca, crtlist or general".into()
    };
    let (path, kind) = value::utf8(text)?.rsplit_once('=').ok_or_else(expected)?;
    let kind = match kind {
        "map" => FileKind::Map,
        "cert" => FileKind::Cert,
        "ca" => FileKind::Ca,
        "crtlist" => FileKind::Crtlist,
        "general" => FileKind::General,
        _ => return Err(expected()),
    };
    let path = value::manifest_path(OsStr::new(path))?;
    Ok((path.as_str().to_owned(), kind))
}

impl PushFlags {
    fn new(values: &Values<'_, CtlFlag>) -> Result<Self, UsageError> {
        let patience = values.one(CtlFlag::Timeout, value::patience)?;
        Ok(Self {
            reload: values.given(CtlFlag::Reload),
            overwrite: values.given(CtlFlag::Overwrite),
            take_over: values.given(CtlFlag::TakeOver),
            epoch: values.one(CtlFlag::Epoch, epoch)?,
            wait: match values.given(CtlFlag::NoWait) {
                true => Duration::ZERO,
                false => patience,
            },
        })
    }
}

#[cfg(test)]
mod tests;
