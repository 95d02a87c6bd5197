//! What was typed, checked word by word.
//!
//! lexopt splits the words; which flags exist, which take a value and what a value
//! may be comes from the table and from [`super::value`]. Nothing here looks at the
//! world: a directory that does not exist is a fine value of `--base-dir`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::table::{Command, DAEMON, DaemonFlag, Flag};
use super::value::{self, Durability, Expected, FileMode, LogFormat};
use crate::wire::path::ManifestPath;

/// The daemon's command line with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonArgs {
    /// `--base-dir`
    pub base_dir: PathBuf,
    /// `--config`
    pub config: ManifestPath,
    /// `--master-socket`, as typed
    pub master_socket: PathBuf,
    /// `--worker-socket`, as typed
    pub worker_socket: PathBuf,
    /// `--listen`
    pub listen: String,
    /// `--metrics-listen`
    pub metrics_listen: String,
    /// `--state-file`
    pub state_file: String,
    /// `--reload-interval-min`
    pub reload_interval_min: Duration,
    /// `--reload-timeout`
    pub reload_timeout: Duration,
    /// `--delete-grace`
    pub delete_grace: Duration,
    /// `--delete-cut`
    pub delete_cut: bool,
    /// `--durability`
    pub durability: Durability,
    /// `--file-mode`
    pub file_mode: FileMode,
    /// `--secret-mode`
    pub secret_mode: FileMode,
    /// `--log-format`
    pub log_format: LogFormat,
}

/// Why a command line or its environment cannot be used. `Display` says what was
/// given, what was expected and, where one is near, which flag was meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsageError {
    /// No flag has this name.
    UnknownFlag {
        /// The word as typed.
        given: String,
        /// The flag that is spelled most like it.
        nearest: Option<&'static str>,
    },
    /// A word that is neither a flag nor a flag's value.
    UnexpectedWord {
        /// The word as typed.
        given: String,
    },
    /// A flag at the end, or followed by another flag.
    MissingValue {
        /// The flag's name.
        flag: &'static str,
        /// What its value is called.
        value: &'static str,
    },
    /// A switch that was given a value.
    UnexpectedValue {
        /// The switch as typed.
        flag: String,
        /// What stood behind the equals sign.
        given: String,
    },
    /// A value that breaks the flag's rule.
    BadValue {
        /// The flag's name.
        flag: &'static str,
        /// The value as typed.
        given: String,
        /// What it should have been.
        expected: String,
    },
    /// An environment variable that is missing or breaks its rule.
    Environment {
        /// The variable's name.
        name: &'static str,
        /// What is wrong and what to do.
        problem: String,
    },
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownFlag { given, nearest } => {
                write!(f, "there is no flag {given:?}")?;
                match nearest {
                    Some(name) => write!(f, "; did you mean --{name}?"),
                    None => write!(f, "; --help lists the flags"),
                }
            }
            Self::UnexpectedWord { given } => {
                write!(f, "expected a flag, not {given:?}; --help lists the flags")
            }
            Self::MissingValue { flag, value } => {
                write!(f, "--{flag} needs a value: --{flag} {value}")
            }
            Self::UnexpectedValue { flag, given } => {
                write!(f, "{flag} takes no value, but was given {given:?}")
            }
            Self::BadValue {
                flag,
                given,
                expected,
            } => write!(f, "--{flag} was given {given:?}; expected {expected}"),
            Self::Environment { name, problem } => write!(f, "{name} {problem}"),
        }
    }
}

impl std::error::Error for UsageError {}

/// What the words ask for, before any value is looked at.
#[derive(Debug)]
pub(super) enum Asked<K> {
    /// To run with these values.
    Run(Vec<(K, OsString)>),
    /// The long help, or the short one.
    Help {
        /// Whether `-h` was typed.
        short: bool,
    },
    /// The version.
    Version,
}

/// Splits a command line by the daemon's table.
pub(super) fn daemon_words(words: &[OsString]) -> Result<Asked<DaemonFlag>, UsageError> {
    let mut parser = lexopt::Parser::from_args(words.iter().cloned());
    let mut values = Vec::new();
    loop {
        let arg = match parser.next() {
            Ok(Some(arg)) => arg,
            Ok(None) => return Ok(Asked::Run(values)),
            Err(error) => return Err(split_error(error)),
        };
        let (flag, short) = match arg {
            lexopt::Arg::Long(name) => match DAEMON.flags.iter().find(|f| f.long == name) {
                Some(flag) => (flag, false),
                None => {
                    return Err(UsageError::UnknownFlag {
                        nearest: nearest(name, &DAEMON),
                        given: format!("--{name}"),
                    });
                }
            },
            lexopt::Arg::Short(letter) => {
                match DAEMON.flags.iter().find(|f| f.short == Some(letter)) {
                    Some(flag) => (flag, true),
                    None => return Err(unknown_letter(letter, words)),
                }
            }
            lexopt::Arg::Value(word) => {
                return Err(UsageError::UnexpectedWord {
                    given: word.to_string_lossy().into_owned(),
                });
            }
        };
        match flag.key {
            DaemonFlag::Help => {
                refuse_value(&mut parser, flag)?;
                return Ok(Asked::Help { short });
            }
            DaemonFlag::Version => {
                refuse_value(&mut parser, flag)?;
                return Ok(Asked::Version);
            }
            key @ (DaemonFlag::BaseDir
            | DaemonFlag::Config
            | DaemonFlag::MasterSocket
            | DaemonFlag::WorkerSocket
            | DaemonFlag::Listen
            | DaemonFlag::MetricsListen
            | DaemonFlag::StateFile
            | DaemonFlag::ReloadIntervalMin
            | DaemonFlag::ReloadTimeout
            | DaemonFlag::DeleteGrace
            | DaemonFlag::DeleteCut
            | DaemonFlag::Durability
            | DaemonFlag::FileMode
            | DaemonFlag::SecretMode
            | DaemonFlag::LogFormat) => values.push((key, take_value(&mut parser, flag)?)),
        }
    }
}

/// The value behind a flag. A next word that starts with two dashes is far more
/// likely a forgotten value than a strange one; `--flag=--x` says the latter.
fn take_value<K>(parser: &mut lexopt::Parser, flag: &Flag<K>) -> Result<OsString, UsageError> {
    let missing = || UsageError::MissingValue {
        flag: flag.long,
        value: flag.value.unwrap_or("VALUE"),
    };
    if let Some(glued) = parser.optional_value() {
        return Ok(glued);
    }
    let next = parser.value().map_err(|_| missing())?;
    if next.as_encoded_bytes().starts_with(b"--") {
        return Err(missing());
    }
    Ok(next)
}

/// A switch with something glued to it.
fn refuse_value<K>(parser: &mut lexopt::Parser, flag: &Flag<K>) -> Result<(), UsageError> {
    match parser.optional_value() {
        None => Ok(()),
        Some(value) => Err(UsageError::UnexpectedValue {
            flag: format!("--{}", flag.long),
            given: value.to_string_lossy().into_owned(),
        }),
    }
}

fn split_error(error: lexopt::Error) -> UsageError {
    match error {
        lexopt::Error::UnexpectedValue { option, value } => UsageError::UnexpectedValue {
            flag: option,
            given: value.to_string_lossy().into_owned(),
        },
        other => UsageError::UnexpectedWord {
            given: other.to_string(),
        },
    }
}

/// A single dash before a long name is the usual slip behind an unknown letter.
fn unknown_letter(letter: char, words: &[OsString]) -> UsageError {
    let dashed = format!("-{letter}");
    let word = words
        .iter()
        .filter_map(|w| w.to_str())
        .find(|w| w.starts_with(&dashed));
    let name = word.map_or("", |w| w.trim_start_matches('-'));
    let name = name.split('=').next().unwrap_or(name);
    UsageError::UnknownFlag {
        given: word.unwrap_or(&dashed).to_owned(),
        nearest: nearest(name, &DAEMON),
    }
}

/// The flag whose name is within a third of its length of `given`, or starts with it.
fn nearest<K>(given: &str, command: &Command<K>) -> Option<&'static str> {
    let by_distance = command
        .flags
        .iter()
        .map(|f| (distance(given, f.long), f.long))
        .filter(|(edits, long)| *edits <= (long.len() / 3).max(1))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, long)| long);
    by_distance.or_else(|| {
        let mut starting = command.flags.iter().map(|f| f.long).filter(|long| {
            given.len() >= 3 && (long.starts_with(given) || given.starts_with(long))
        });
        starting.next()
    })
}

/// The longest word that is compared with flag names.
const MAX_COMPARED: usize = 64;

/// Insertions, deletions and replacements that turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > MAX_COMPARED {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (y, cell) in b.iter().zip(row.iter_mut().skip(1)) {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = *cell;
            left = replaced.min(left + 1).min(diagonal + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(usize::MAX)
}

impl DaemonArgs {
    /// Parses each flag's last value, or its default where it was not given.
    pub(super) fn from_words(values: &[(DaemonFlag, OsString)]) -> Result<Self, UsageError> {
        Ok(Self {
            base_dir: parse(values, DaemonFlag::BaseDir, value::path)?,
            config: parse(values, DaemonFlag::Config, value::manifest_path)?,
            master_socket: parse(values, DaemonFlag::MasterSocket, value::path)?,
            worker_socket: parse(values, DaemonFlag::WorkerSocket, value::path)?,
            listen: parse(values, DaemonFlag::Listen, value::listen)?,
            metrics_listen: parse(values, DaemonFlag::MetricsListen, value::listen)?,
            state_file: parse(values, DaemonFlag::StateFile, value::state_file)?,
            reload_interval_min: parse(
                values,
                DaemonFlag::ReloadIntervalMin,
                value::reload_interval,
            )?,
            reload_timeout: parse(values, DaemonFlag::ReloadTimeout, value::reload_timeout)?,
            delete_grace: parse(values, DaemonFlag::DeleteGrace, value::delete_grace)?,
            delete_cut: parse(values, DaemonFlag::DeleteCut, value::yes_or_no)?,
            durability: parse(values, DaemonFlag::Durability, value::durability)?,
            file_mode: parse(values, DaemonFlag::FileMode, value::file_mode)?,
            secret_mode: parse(values, DaemonFlag::SecretMode, value::file_mode)?,
            log_format: parse(values, DaemonFlag::LogFormat, value::log_format)?,
        })
    }
}

fn parse<T>(
    values: &[(DaemonFlag, OsString)],
    key: DaemonFlag,
    read: fn(&OsStr) -> Result<T, Expected>,
) -> Result<T, UsageError> {
    let typed = values.iter().rev().find(|(k, _)| *k == key);
    let flag = DAEMON.flags.iter().find(|f| f.key == key);
    let default = OsStr::new(flag.and_then(|f| f.default).unwrap_or(""));
    let text = typed.map_or(default, |(_, text)| text.as_os_str());
    read(text).map_err(|expected| UsageError::BadValue {
        flag: flag.map_or("", |f| f.long),
        given: text.to_string_lossy().into_owned(),
        expected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let table = [
            ("", "", 0),
            ("a", "", 1),
            ("", "ab", 2),
            ("kitten", "sitting", 3),
            ("listen", "listne", 2),
        ];
        for (a, b, want) in table {
            assert_eq!(distance(a, b), want, "{a} {b}");
        }
        assert_eq!(distance(&"x".repeat(MAX_COMPARED + 1), "x"), usize::MAX);
    }

    #[test]
    fn near_names_are_offered_and_far_ones_are_not() {
        let table = [
            ("basedir", Some("base-dir")),
            ("base", Some("base-dir")),
            ("lisen", Some("listen")),
            ("metrics", Some("metrics-listen")),
            ("reload-interval", Some("reload-interval-min")),
            ("halp", Some("help")),
            ("port", None),
            ("x", None),
            ("", None),
        ];
        for (given, want) in table {
            assert_eq!(nearest(given, &DAEMON), want, "{given}");
        }
    }

    #[test]
    fn every_default_of_the_table_parses() {
        let args = DaemonArgs::from_words(&[]).unwrap();
        assert_eq!(args.base_dir, PathBuf::from("/etc/haproxy"));
        assert_eq!(args.reload_interval_min, Duration::from_secs(5));
        assert_eq!(args.secret_mode.bits(), 0o640);
    }
}
