//! Command lines: from words and environment to what a binary should do.
//!
//! [`parse`] is pure: it reads the words and variables that it is handed and touches
//! nothing else, so every refusal can be tested without a process. Each flag exists
//! once, in [`table`].

pub mod args;
mod complete;
pub mod config;
pub mod ctl;
pub mod exit;
pub mod help;
pub mod man;
pub mod respond;
pub mod table;
pub mod value;

use std::ffi::OsString;

pub use args::UsageError;
pub(crate) use args::distance;
pub use config::{Config, Credentials, DaemonArgs};
pub use exit::Exit;
pub use respond::Respond;
pub use value::{Durability, FileMode, LogFormat};

use args::{Asked, split};
use table::{DAEMON, RESPOND};

/// What a command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invocation {
    /// Run the daemon.
    Run(Box<Config>),
    /// Run the responder alone.
    Respond(Box<Respond>),
    /// Print this help and exit 0.
    Help(String),
    /// Print this version and exit 0.
    Version(String),
}

/// The verb that runs the responder alone; without a verb the daemon runs.
const RESPOND_VERB: &str = "respond";

/// Reads a daemon's command line, without the program's name. The last of a repeated
/// flag counts; help and version win over everything behind them.
///
/// # Errors
/// The first word, value or variable that cannot be used; the process then exits with
/// [`Exit::Usage`].
pub fn parse(
    args: impl Iterator<Item = OsString>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Invocation, UsageError> {
    let words: Vec<OsString> = args.collect();
    match words.first() {
        Some(word) if word == RESPOND_VERB => respond(words.get(1..).unwrap_or(&[]), env),
        Some(word) => match near_verb(word) {
            Some(error) => Err(error),
            None => daemon(&words, env),
        },
        None => daemon(&words, env),
    }
}

fn daemon(
    words: &[OsString],
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Invocation, UsageError> {
    match split(&DAEMON, words)? {
        Asked::Help { short } => Ok(Invocation::Help(help::help(&DAEMON, short))),
        Asked::Version => Ok(Invocation::Version(help::version(DAEMON.name))),
        Asked::Run(typed) => {
            let args = DaemonArgs::from_words(&typed)?;
            Ok(Invocation::Run(Box::new(Config::new(args, env)?)))
        }
    }
}

fn respond(
    words: &[OsString],
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Invocation, UsageError> {
    match split(&RESPOND, words)? {
        Asked::Help { short } => Ok(Invocation::Help(help::help(&RESPOND, short))),
        Asked::Version => Ok(Invocation::Version(help::version(DAEMON.name))),
        Asked::Run(typed) => Ok(Invocation::Respond(Box::new(Respond::new(&typed, env)?))),
    }
}

/// A first word that is almost the verb.
fn near_verb(word: &OsString) -> Option<UsageError> {
    let given = word.to_str().filter(|w| !w.starts_with('-'))?;
    let nearest = args::nearest(given, &mut std::iter::once(RESPOND_VERB))?;
    Some(UsageError::UnknownVerb {
        given: given.to_owned(),
        nearest: Some(nearest),
    })
}

/// A variable of the process's own environment; bytes that are no UTF-8 become
/// replacement characters, which the credentials refuse.
#[must_use]
pub fn process_env(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Prints what was asked for. A reader that has gone away is nobody's failure.
#[allow(clippy::print_stdout)]
pub fn print(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// Says on standard error why the command line cannot be used.
#[allow(clippy::print_stderr)]
pub fn complain(name: &str, error: &UsageError) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{name}: {error}");
}

#[cfg(test)]
mod tests;
