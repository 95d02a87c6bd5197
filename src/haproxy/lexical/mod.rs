//! A look at the main configuration file before a reload, for faults that a master does
//! not survive.
//!
//! From 3.4 on the master itself reads the file when it is told to reload, and a fault
//! in its quotes, escapes, line ends, conditionals or scopes, a `no` before a keyword
//! that does not take it, or a wrong argument of one of the master's own keywords ends it
//! with a signal, and the workers with it. Those faults, and only those, are found here.
//! An empty file is found on every version: HAProxy accepts it and serves nothing.
//!
//! This is no parser of the configuration. It knows no section and no keyword besides
//! the few that the master reads, and its first rule is never to refuse what HAProxy
//! accepts: what depends on an environment variable, on a condition's outcome or on
//! words a later release may add is left to HAProxy. What only 3.4 is known to refuse is
//! looked for on 3.4 only. Checked line by line and file by file against `haproxy -c` of
//! 3.0, 3.2 and 3.4.
//!
//! So these still end a 3.4 master or leave it without an answer, and are not found:
//!
//! - a fault within `.if`, in an `.elif`, behind a variable or below a scope line;
//! - a predicate that 3.4 does not know, or that its SSL library does not have;
//! - `pidfile` in a directory that is missing or may not be written: the master exits;
//! - `resetenv`, and `unsetenv` of HAProxy's own `HAPROXY_MWORKER_REEXEC`: HAProxy takes
//!   them, but the reload and those after it get no answer.
//!
//! Whether the file exists and is a regular file is the caller's to see.

mod condition;
mod early;
mod words;

use crate::format::HaproxyVersion;
use std::error::Error;
use std::fmt;
use words::Word;

/// HAProxy's line buffer; it doubles when a line does not fit.
const LINE_BUFFER: usize = 2048;
/// Open `.if` from which on HAProxy refuses the next.
const MAX_NESTED: usize = 99;

/// What is looked for besides the form of lines and conditionals.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// What every HAProxy that was measured refuses.
    #[default]
    Common,
    /// That, and what 3.4 refuses and an earlier one takes.
    Only3_4,
    /// What every one refuses and a later release is not likely to take.
    Later,
}

/// A fault of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LexicalFault {
    /// The line, counted from 1; 0 when it is about the file.
    pub line: usize,
    /// What is wrong with it, for people.
    pub what: String,
}

impl fmt::Display for LexicalFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "the main configuration file {}", self.what),
            line => write!(
                f,
                "line {line} of the main configuration file {}",
                self.what
            ),
        }
    }
}

impl Error for LexicalFault {}

/// Whether this version's master dies of what [`precheck`] looks for.
#[must_use]
pub fn applies_to(version: &HaproxyVersion) -> bool {
    version.at_least(3, 4)
}

/// What must hold before a reload of this version is sent: the file has content, and
/// where the master depends on it, it passes [`precheck`].
///
/// # Errors
///
/// The first [`LexicalFault`]; the reload must not be sent.
pub fn before_reload(bytes: &[u8], version: &HaproxyVersion) -> Result<(), LexicalFault> {
    not_empty(bytes)?;
    match applies_to(version) {
        true if version.at_least(3, 5) => scan(bytes, Rules::Later),
        true => scan(bytes, Rules::Only3_4),
        false => Ok(()),
    }
}

/// Scans the file of a HAProxy whose version is not known.
///
/// # Errors
///
/// The first [`LexicalFault`], one that every HAProxy measured refuses too.
pub fn precheck(bytes: &[u8]) -> Result<(), LexicalFault> {
    scan(bytes, Rules::Common)
}

fn scan(bytes: &[u8], rules: Rules) -> Result<(), LexicalFault> {
    not_empty(bytes)?;
    if !check_nul(bytes)? {
        return Ok(());
    }
    let mut buffer = LINE_BUFFER;
    let mut file = File {
        rules,
        ..File::default()
    };
    for (index, raw) in bytes.split_inclusive(|&b| b == b'\n').enumerate() {
        let number = index + 1;
        let fault = |what: String| LexicalFault { line: number, what };
        while raw.len() > buffer - 1 {
            buffer *= 2;
        }
        match raw.strip_suffix(b"\n") {
            Some(line) => file.line(number, line).map_err(fault)?,
            // HAProxy drops a last line without an end if it just fills its buffer.
            None if raw.len() == buffer - 1 => {}
            None => return Err(fault("has no line end; the file may be cut off".to_owned())),
        }
    }
    file.end()
}

fn not_empty(bytes: &[u8]) -> Result<(), LexicalFault> {
    match bytes.is_empty() {
        true => Err(LexicalFault {
            line: 0,
            what: "is empty; HAProxy would accept it and serve nothing".to_owned(),
        }),
        false => Ok(()),
    }
}

/// A NUL ends a line for HAProxy, which refuses it unless a line longer than its buffer
/// follows. In a file with such lines nothing is certain any more: false.
fn check_nul(bytes: &[u8]) -> Result<bool, LexicalFault> {
    let Some(at) = bytes.iter().position(|&b| b == 0) else {
        return Ok(true);
    };
    let long = |line: &[u8]| line.len() + 2 > LINE_BUFFER - 1;
    if bytes.split(|&b| b == b'\n').any(long) {
        return Ok(false);
    }
    let before = bytes.get(..at).unwrap_or_default();
    Err(LexicalFault {
        line: before.iter().filter(|&&b| b == b'\n').count() + 1,
        what: "holds a NUL byte".to_owned(),
    })
}

/// What the lines so far have opened.
#[derive(Default)]
struct File {
    /// One for each open `.if`.
    open: Vec<Open>,
    /// A first word came from the environment and may have been a conditional.
    unknown: bool,
    /// A scope line was seen.
    scoped: bool,
    rules: Rules,
    seen: early::Seen,
}

struct Open {
    line: usize,
    else_seen: bool,
}

impl File {
    fn line(&mut self, number: usize, line: &[u8]) -> Result<(), String> {
        let start = line.iter().position(|&b| !words::is_space(b));
        let line = line.get(start.unwrap_or(line.len())..).unwrap_or_default();
        if line.first() == Some(&b'[') {
            self.scoped = true;
            return check_scope(line);
        }
        let plain = words::first_if_plain(line);
        if plain.is_some_and(|first| !first.starts_with(b".") && !early::knows(first)) {
            return Ok(());
        }
        let words = words::split(line)?;
        let Some(first) = words
            .first()
            .filter(|word| !word.text.is_empty() || word.expanded)
        else {
            return Ok(());
        };
        self.unknown = self.unknown || first.expanded;
        if self.unknown {
            return Ok(());
        }
        match first.text.as_slice() {
            b".if" => self.if_(number, &words),
            b".elif" => match self.open.last() {
                None => Err("has .elif without .if".to_owned()),
                Some(open) if open.else_seen => Err("has .elif after .else".to_owned()),
                Some(_) => Ok(()),
            },
            b".else" => match self.open.last_mut() {
                None => Err("has .else without .if".to_owned()),
                Some(open) if open.else_seen => Err("has a second .else".to_owned()),
                Some(open) => {
                    open.else_seen = true;
                    no_argument(&words)
                }
            },
            b".endif" => match self.open.pop() {
                None => Err("has .endif without .if".to_owned()),
                Some(_) => no_argument(&words),
            },
            name if self.open.is_empty() && !self.scoped => {
                self.seen.check(name, &words, self.rules)
            }
            _ => Ok(()),
        }
    }

    fn if_(&mut self, number: usize, words: &[Word]) -> Result<(), String> {
        if self.open.len() >= MAX_NESTED {
            return Err(format!("nests more than {MAX_NESTED} .if"));
        }
        // Within another .if it depends on that one's outcome whether this is looked at.
        let certain = self.open.is_empty() && !words.iter().any(|word| word.expanded);
        self.open.push(Open {
            line: number,
            else_seen: false,
        });
        match certain {
            true => {
                let texts: Vec<&[u8]> = words
                    .iter()
                    .skip(1)
                    .map(|word| word.text.as_slice())
                    .collect();
                condition::check(&texts.join(&b' '), self.rules)
            }
            false => Ok(()),
        }
    }

    fn end(&self) -> Result<(), LexicalFault> {
        match self.open.last() {
            Some(open) if !self.unknown => Err(LexicalFault {
                line: open.line,
                what: "has .if without .endif".to_owned(),
            }),
            Some(_) | None => Ok(()),
        }
    }
}

fn no_argument(words: &[Word]) -> Result<(), String> {
    match words.get(1) {
        Some(word) if !word.text.is_empty() && !word.expanded => {
            Err("has an argument that .else and .endif do not take".to_owned())
        }
        Some(_) | None => Ok(()),
    }
}

/// `[name]`, blanks, a comment.
fn check_scope(line: &[u8]) -> Result<(), String> {
    let in_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
    let inner = line.get(1..).unwrap_or_default();
    let length = inner.iter().take_while(|b| in_name(b)).count();
    let after = match inner.get(length) {
        Some(b']') if length > 0 => inner.get(length + 1..).unwrap_or_default(),
        Some(_) | None => return Err("starts with [ and is no scope".to_owned()),
    };
    match after.iter().find(|&&b| !words::is_space(b)) {
        None | Some(b'#') => Ok(()),
        Some(_) => Err("has something behind the scope".to_owned()),
    }
}

#[cfg(test)]
mod tests;
