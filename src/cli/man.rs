//! The generated blocks of the manual pages.
//!
//! `man/*.in` is prose by hand with a slot line for each block; a slot without a block,
//! or a block without a slot, is an error. The finished pages are committed, and a test
//! compares them with what this module makes of the tables.

use std::fmt::{self, Write};

use super::exit::Exit;
use super::help::counted;
use super::table::{
    CTL_COMMANDS, CTL_ENV, CTL_FLAGS, Command, DAEMON, EnvVar, Flag, OVERRIDE_ENV, RESPOND,
};
use crate::metrics;
use crate::responder;

/// A slot line is this, the block's name, and an at sign.
const SLOT: &str = ".\\\" @";

/// A block's name and its text.
pub type Block = (&'static str, String);

/// A page whose slots and blocks do not match.
#[derive(Debug, PartialEq, Eq)]
pub enum PageError {
    /// The page has a slot that no block fills.
    UnknownSlot(String),
    /// The page lacks this block's slot.
    MissingSlot(&'static str),
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownSlot(name) => write!(f, "no block fills the slot {name:?}"),
            Self::MissingSlot(name) => write!(f, "the page has no slot {name:?}"),
        }
    }
}

impl std::error::Error for PageError {}

/// The blocks of `haptic-agent.8`.
#[must_use]
pub fn daemon_blocks() -> Vec<Block> {
    vec![
        ("SYNOPSIS", synopsis(&DAEMON)),
        ("OPTIONS", options(&DAEMON)),
        ("ENVIRONMENT", environment(&DAEMON)),
        ("METRICS", metrics_list(metrics::FAMILIES)),
        ("EXIT", exit_codes()),
    ]
}

/// The blocks of `haptic-responder.7`.
#[must_use]
pub fn responder_blocks() -> Vec<Block> {
    vec![
        ("SYNOPSIS", synopsis(&RESPOND)),
        ("OPTIONS", options(&RESPOND)),
        ("ENVIRONMENT", environment(&RESPOND)),
        ("METRICS", metrics_list(responder::metrics::FAMILIES)),
        ("EXIT", exit_codes()),
    ]
}

/// The blocks of `hapticctl.1`.
#[must_use]
pub fn ctl_blocks() -> Vec<Block> {
    let mut synopses = String::new();
    for command in CTL_COMMANDS {
        let (program, verb) = command.name.split_once(' ').unwrap_or((command.name, ""));
        let _ = writeln!(synopses, ".Nm {program}\n.Cm {verb}");
        synopses.push_str(&synopsis(command));
    }
    let codes = crate::ctl::Exit::ALL.map(|exit| (exit.code(), exit.meaning()));
    vec![
        ("SYNOPSIS", synopses),
        ("OPTIONS", flag_list(CTL_FLAGS)),
        ("ENVIRONMENT", variables(CTL_ENV)),
        ("CONSUL", variables(OVERRIDE_ENV)),
        ("EXIT", code_list(codes)),
    ]
}

/// Fills every slot of a page.
///
/// # Errors
/// [`PageError`] when slots and blocks do not match one to one.
pub fn page(template: &str, blocks: &[Block]) -> Result<String, PageError> {
    let mut filled: Vec<&str> = Vec::new();
    let mut text = String::new();
    for line in template.lines() {
        match line.strip_prefix(SLOT).and_then(|l| l.strip_suffix('@')) {
            Some(name) => {
                let (name, block) = blocks
                    .iter()
                    .find(|(known, _)| *known == name)
                    .ok_or_else(|| PageError::UnknownSlot(name.to_owned()))?;
                filled.push(name);
                text.push_str(block);
            }
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    for (name, _) in blocks {
        if !filled.contains(name) {
            return Err(PageError::MissingSlot(name));
        }
    }
    Ok(text)
}

/// What stands behind the name in a synopsis.
#[must_use]
pub fn synopsis<K>(command: &Command<K>) -> String {
    let mut text = String::new();
    for operand in command.operands {
        let _ = writeln!(text, ".Ar {}", counted(operand));
    }
    for flag in command.flags {
        let _ = writeln!(text, ".Op {}", spelled(flag));
    }
    text
}

/// The list of a command's flags.
#[must_use]
pub fn options<K>(command: &Command<K>) -> String {
    flag_list(command.flags)
}

fn flag_list<K>(flags: &[Flag<K>]) -> String {
    let mut text = String::from(".Bl -tag -width Ds\n");
    for flag in flags {
        let _ = writeln!(text, ".It {}", spelled(flag));
        let _ = writeln!(text, "{}", flag.man);
        if let Some(default) = flag.default {
            let _ = writeln!(text, "The default is\n.Ql {} .", escaped(default));
        }
    }
    text.push_str(".El\n");
    text
}

/// The list of a command's variables, those that no flag stands for.
#[must_use]
pub fn environment<K>(command: &Command<K>) -> String {
    variables(command.env)
}

fn variables(variables: &[EnvVar]) -> String {
    let mut text = String::from(".Bl -tag -width Ds\n");
    for EnvVar { name, man, .. } in variables {
        let _ = writeln!(text, ".It Ev {name}\n{man}");
    }
    text.push_str(".El\n");
    text
}

/// The list of metrics families.
#[must_use]
pub fn metrics_list(families: &[&metrics::Family]) -> String {
    let mut text = String::from(".Bl -tag -width Ds\n");
    for family in families {
        let _ = write!(text, ".It Li {}", family.name);
        if !family.labels.is_empty() {
            let _ = write!(text, " Brq Li {}", family.labels.join(" , "));
        }
        let _ = writeln!(text, "\n{}", escaped(family.help));
    }
    text.push_str(".El\n");
    text
}

/// The list of exit codes.
#[must_use]
pub fn exit_codes() -> String {
    code_list(Exit::ALL.map(|exit| (exit.code(), exit.meaning())))
}

fn code_list(codes: impl IntoIterator<Item = (u8, &'static str)>) -> String {
    let mut text = String::from(".Bl -tag -width Ds\n");
    for (code, meaning) in codes {
        let _ = writeln!(text, ".It {code}");
        for sentence in meaning.split_inclusive(". ") {
            let _ = writeln!(text, "{}", sentence.trim_end());
        }
    }
    text.push_str(".El\n");
    text
}

/// A flag in mdoc: `Fl -base-dir Ar DIR`.
fn spelled<K>(flag: &Flag<K>) -> String {
    let letter = flag.short.map(|c| format!("Fl {c} | ")).unwrap_or_default();
    let value = flag.value.map(|v| format!(" Ar {v}")).unwrap_or_default();
    format!("{letter}Fl -{}{value}", flag.long)
}

/// A leading dot would be a macro; the zero-width escape takes that meaning away.
/// Behind a macro name a lone colon counts as punctuation, which `:5555` is not.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e");
    if text.starts_with(['.', '\'']) {
        format!("\\&{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_blocks_match_one_to_one() {
        let page = |template: &str| page(template, &daemon_blocks());
        assert_eq!(page(""), Err(PageError::MissingSlot("SYNOPSIS")));
        assert_eq!(
            page(".\\\" @NOTHING@\n"),
            Err(PageError::UnknownSlot("NOTHING".into()))
        );
        let all = "a\n.\\\" @SYNOPSIS@\n.\\\" @OPTIONS@\n.\\\" @ENVIRONMENT@\n.\\\" @METRICS@\n.\\\" @EXIT@\nz\n";
        let text = page(all).unwrap();
        assert!(text.starts_with("a\n.Op Fl -base-dir Ar DIR\n"), "{text}");
        assert!(text.ends_with(".El\nz\n"));
        assert!(text.contains("The default is\n.Ql \\&.haptic-agent.json .\n"));
    }
}
