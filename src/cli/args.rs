//! What was typed, checked word by word.
//!
//! lexopt splits the words; which flags exist and which take a value comes from the
//! table. [`Values`] then reads each of them, or the variable that stands for it, or its
//! default. Nothing here looks at the world: a directory that does not exist is a fine
//! value of `--base-dir`.

use std::ffi::{OsStr, OsString};
use std::fmt;

use super::table::{Command, Count, Flag, Program, Role};
use super::value::Expected;

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
    /// The first word is no verb, or there is none where one is needed.
    UnknownVerb {
        /// The word as typed; empty if there was none.
        given: String,
        /// The verb that is spelled most like it.
        nearest: Option<&'static str>,
    },
    /// A word that is neither a flag nor a flag's value.
    UnexpectedWord {
        /// The word as typed.
        given: String,
    },
    /// A word that is none of those that can stand there.
    UnexpectedOperand {
        /// What stands for it in help.
        name: &'static str,
        /// The word as typed.
        given: String,
        /// What it should have been.
        expected: String,
    },
    /// A word that has to be there.
    MissingWord {
        /// What stands for it in help.
        name: &'static str,
    },
    /// A flag at the end, or followed by another flag.
    MissingValue {
        /// The flag's name.
        flag: &'static str,
        /// What its value is called.
        value: &'static str,
    },
    /// A flag that has to be there.
    MissingFlag {
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
    /// A value or a variable that cannot be used, in words that name it.
    Unusable {
        /// What is wrong and what to do.
        problem: String,
    },
    /// An environment variable that is missing or breaks its rule.
    Environment {
        /// The variable's name.
        name: String,
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
            Self::UnknownVerb { given, nearest } => {
                match given.as_str() {
                    "" => write!(f, "a verb is needed")?,
                    given => write!(f, "there is no verb {given:?}")?,
                }
                match nearest {
                    Some(name) => write!(f, "; did you mean {name}?"),
                    None => write!(f, "; --help lists the verbs"),
                }
            }
            Self::UnexpectedWord { given } => {
                write!(f, "expected a flag, not {given:?}; --help lists the flags")
            }
            Self::UnexpectedOperand {
                name,
                given,
                expected,
            } => write!(f, "{name} is {given:?}; expected {expected}"),
            Self::MissingWord { name } => {
                write!(f, "{name} is missing; --help shows what is expected")
            }
            Self::MissingValue { flag, value } => {
                write!(f, "--{flag} needs a value: --{flag} {value}")
            }
            Self::MissingFlag { flag, value } => {
                write!(f, "--{flag} is needed: --{flag} {value}")
            }
            Self::UnexpectedValue { flag, given } => {
                write!(f, "{flag} takes no value, but was given {given:?}")
            }
            Self::BadValue {
                flag,
                given,
                expected,
            } => write!(f, "--{flag} was given {given:?}; expected {expected}"),
            Self::Unusable { problem } => f.write_str(problem),
            Self::Environment { name, problem } => write!(f, "{name} {problem}"),
        }
    }
}

impl std::error::Error for UsageError {}

/// What the words ask for, before any value is looked at.
#[derive(Debug)]
pub enum Asked<K> {
    /// To run with these words.
    Run(Typed<K>),
    /// The long help, or the short one.
    Help {
        /// Whether `-h` was typed.
        short: bool,
    },
    /// The version.
    Version,
}

/// The words of one command line, sorted.
#[derive(Debug)]
pub struct Typed<K> {
    /// Each flag with its value in the order typed; a switch has an empty one.
    pub flags: Vec<(K, OsString)>,
    /// The words that are no flags; as many as the command's operands allow.
    pub operands: Vec<OsString>,
}

/// The verb that the first word names.
///
/// # Errors
/// [`UsageError::UnknownVerb`], with the verb that was probably meant.
pub fn verb(program: &Program, words: &[OsString]) -> Result<&'static str, UsageError> {
    let given = words.first().map_or("", |w| w.to_str().unwrap_or("?"));
    let mut verbs = program.verbs.iter().map(|v| v.name);
    match verbs.clone().find(|name| *name == given) {
        Some(name) => Ok(name),
        None => Err(UsageError::UnknownVerb {
            nearest: nearest(given, &mut verbs),
            given: given.to_owned(),
        }),
    }
}

/// Splits a command line, without the program's name and verb, by a command's table.
///
/// # Errors
/// The first word that the table does not allow.
pub fn split<K: Copy>(command: &Command<K>, words: &[OsString]) -> Result<Asked<K>, UsageError> {
    let words: Vec<OsString> = words.iter().map(|w| two_dashes(command, w)).collect();
    let mut parser = lexopt::Parser::from_args(words.iter().cloned());
    let mut typed = Typed {
        flags: Vec::new(),
        operands: Vec::new(),
    };
    loop {
        let arg = match parser.next() {
            Ok(Some(arg)) => arg,
            Ok(None) => break,
            Err(error) => return Err(split_error(error)),
        };
        let (flag, short) = match arg {
            lexopt::Arg::Long(name) => match command.flags.iter().find(|f| f.long == name) {
                Some(flag) => (flag, false),
                None => {
                    return Err(UsageError::UnknownFlag {
                        nearest: nearest_flag(name, command),
                        given: format!("--{name}"),
                    });
                }
            },
            lexopt::Arg::Short(letter) => {
                match command.flags.iter().find(|f| f.short == Some(letter)) {
                    Some(flag) => (flag, true),
                    None => return Err(unknown_letter(letter, &words, command)),
                }
            }
            lexopt::Arg::Value(word) => {
                if !room_for_another(command, typed.operands.len()) {
                    return Err(UsageError::UnexpectedWord {
                        given: word.to_string_lossy().into_owned(),
                    });
                }
                typed.operands.push(word);
                continue;
            }
        };
        match (flag.role, flag.value) {
            (Role::Help, _) => {
                refuse_value(&mut parser, flag)?;
                return Ok(Asked::Help { short });
            }
            (Role::Version, _) => {
                refuse_value(&mut parser, flag)?;
                return Ok(Asked::Version);
            }
            (Role::Setting | Role::Repeated, Some(_)) => {
                let value = take_value(&mut parser, flag)?;
                typed.flags.push((flag.key, value));
            }
            (Role::Setting | Role::Repeated, None) => {
                refuse_value(&mut parser, flag)?;
                typed.flags.push((flag.key, OsString::new()));
            }
        }
    }
    let needed = |o: &&super::table::Operand| o.count != Count::Optional;
    let missing = command.operands.iter().skip(typed.operands.len());
    match missing.clone().find(needed) {
        Some(operand) => Err(UsageError::MissingWord { name: operand.name }),
        None => Ok(Asked::Run(typed)),
    }
}

/// A long name behind one dash gets its second one, where the command allows that.
fn two_dashes<K>(command: &Command<K>, word: &OsString) -> OsString {
    let named = || {
        let name = word.to_str()?.strip_prefix('-')?;
        let name = name.split('=').next()?;
        let known = name.len() > 1 && command.flags.iter().any(|f| f.long == name);
        known.then_some(())
    };
    if !command.one_dash || named().is_none() {
        return word.clone();
    }
    let mut longer = OsString::from("-");
    longer.push(word);
    longer
}

fn room_for_another<K>(command: &Command<K>, have: usize) -> bool {
    let many = command
        .operands
        .last()
        .is_some_and(|o| o.count == Count::Many);
    many || have < command.operands.len()
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
fn unknown_letter<K>(letter: char, words: &[OsString], command: &Command<K>) -> UsageError {
    let dashed = format!("-{letter}");
    let word = words
        .iter()
        .filter_map(|w| w.to_str())
        .find(|w| w.starts_with(&dashed));
    let name = word.map_or("", |w| w.trim_start_matches('-'));
    let name = name.split('=').next().unwrap_or(name);
    UsageError::UnknownFlag {
        given: word.unwrap_or(&dashed).to_owned(),
        nearest: nearest_flag(name, command),
    }
}

fn nearest_flag<K>(given: &str, command: &Command<K>) -> Option<&'static str> {
    nearest(given, &mut command.flags.iter().map(|f| f.long))
}

/// The name within a third of its length of `given`, or that starts with it.
pub(super) fn nearest(
    given: &str,
    names: &mut dyn Iterator<Item = &'static str>,
) -> Option<&'static str> {
    let names: Vec<&'static str> = names.collect();
    let by_distance = names
        .iter()
        .map(|name| (distance(given, name), *name))
        .filter(|(edits, name)| *edits <= (name.len() / 3).max(1))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, name)| name);
    by_distance.or_else(|| {
        names
            .into_iter()
            .find(|name| given.len() >= 3 && (name.starts_with(given) || given.starts_with(name)))
    })
}

/// The longest word that is compared with flag names.
const MAX_COMPARED: usize = 64;

/// Insertions, deletions and replacements that turn `a` into `b`.
pub(crate) fn distance(a: &str, b: &str) -> usize {
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

/// Reads values: from the command line, else from the variable that stands for the flag,
/// else from the default. An empty variable counts as one that is not set.
pub struct Values<'a, K: 'static> {
    /// The table.
    pub command: &'a Command<K>,
    /// What was typed; empty where only variables count.
    pub typed: &'a [(K, OsString)],
    /// The environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

impl<K> fmt::Debug for Values<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values")
            .field("command", &self.command.name)
            .finish_non_exhaustive()
    }
}

impl<K: Copy + PartialEq> Values<'_, K> {
    /// The value of a flag that has a default, or has to be given.
    ///
    /// # Errors
    /// It breaks the flag's rule, or is missing.
    pub fn one<T>(
        &self,
        key: K,
        read: impl Fn(&OsStr) -> Result<T, Expected>,
    ) -> Result<T, UsageError> {
        match self.maybe(key, read)? {
            Some(value) => Ok(value),
            None => Err(UsageError::MissingFlag {
                flag: self.flag(key).map_or("", |f| f.long),
                value: self.flag(key).and_then(|f| f.value).unwrap_or("VALUE"),
            }),
        }
    }

    /// The value of a flag that may be missing.
    ///
    /// # Errors
    /// It breaks the flag's rule.
    pub fn maybe<T>(
        &self,
        key: K,
        read: impl Fn(&OsStr) -> Result<T, Expected>,
    ) -> Result<Option<T>, UsageError> {
        if let Some((_, text)) = self.typed.iter().rev().find(|(k, _)| *k == key) {
            return self.read(key, text, read).map(Some);
        }
        if let Some((name, text)) = self.environment(key) {
            return in_env(name, &text, read).map(Some);
        }
        match self.flag(key).and_then(|f| f.default) {
            Some(default) => self.read(key, OsStr::new(default), read).map(Some),
            None => Ok(None),
        }
    }

    /// Every value of a repeated flag in order. A variable holds several with blanks
    /// between them.
    ///
    /// # Errors
    /// The first that breaks the flag's rule.
    pub fn all<T>(
        &self,
        key: K,
        read: impl Fn(&OsStr) -> Result<T, Expected>,
    ) -> Result<Vec<T>, UsageError> {
        let typed = self.typed.iter().filter(|(k, _)| *k == key);
        let values: Vec<T> = typed
            .map(|(_, text)| self.read(key, text, &read))
            .collect::<Result<_, _>>()?;
        if !values.is_empty() {
            return Ok(values);
        }
        match self.environment(key) {
            Some((name, text)) => text
                .split_ascii_whitespace()
                .map(|word| in_env(name.clone(), word, &read))
                .collect(),
            None => Ok(values),
        }
    }

    /// Whether a switch was typed.
    #[must_use]
    pub fn given(&self, key: K) -> bool {
        self.typed.iter().any(|(k, _)| *k == key)
    }

    fn flag(&self, key: K) -> Option<&Flag<K>> {
        self.command.flags.iter().find(|f| f.key == key)
    }

    fn environment(&self, key: K) -> Option<(String, String)> {
        let name = self.command.variable(self.flag(key)?)?;
        let text = (self.env)(&name).filter(|text| !text.is_empty())?;
        Some((name, text))
    }

    fn read<T>(
        &self,
        key: K,
        text: &OsStr,
        read: impl Fn(&OsStr) -> Result<T, Expected>,
    ) -> Result<T, UsageError> {
        read(text).map_err(|expected| UsageError::BadValue {
            flag: self.flag(key).map_or("", |f| f.long),
            given: text.to_string_lossy().into_owned(),
            expected,
        })
    }
}

fn in_env<T>(
    name: String,
    text: &str,
    read: impl Fn(&OsStr) -> Result<T, Expected>,
) -> Result<T, UsageError> {
    read(OsStr::new(text)).map_err(|expected| UsageError::Environment {
        problem: format!("is {text:?}; expected {expected}"),
        name,
    })
}

#[cfg(test)]
mod tests;
