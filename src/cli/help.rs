//! The help texts, made from the tables.
//!
//! `--help` lists every flag and fits a terminal of 80 columns and 24 lines; `-h`
//! lists what most people need. More than that belongs into the manual.

use std::fmt::Write;

use super::table::{Command, Count, Flag, Operand, Program};

/// What `--version` prints.
#[must_use]
pub fn version(name: &str) -> String {
    format!("{name} {}\n", env!("CARGO_PKG_VERSION"))
}

/// What `--help` prints for a program with verbs.
#[must_use]
pub fn program(program: &Program) -> String {
    let verbs = program.verbs.iter();
    let width = verbs.clone().map(|v| v.name.len()).max().unwrap_or(0);
    // Writing to a string cannot fail, here and below.
    let mut text = format!("{}\nusage: {} VERB ...\n", program.about, program.name);
    for verb in verbs {
        let _ = writeln!(text, "  {:width$}  {}", verb.name, verb.help);
    }
    let _ = writeln!(
        text,
        "VERB --help lists its flags; the manual page {} says more.",
        program.manual
    );
    text
}

/// What `--help` prints, or `-h` when `short`.
#[must_use]
pub fn help<K>(command: &Command<K>, short: bool) -> String {
    let shown = || command.flags.iter().filter(|f| !short || f.common);
    let variables = command.env_prefix.map(|prefix| format!("{prefix}..."));
    let width = shown()
        .map(|f| spelled(f).len())
        .chain(command.env.iter().map(|v| v.name.len()))
        .chain(variables.as_ref().map(String::len))
        .max()
        .unwrap_or(0);
    let mut text = format!("{}\nusage: {}", command.about, command.name);
    for operand in command.operands {
        let _ = write!(text, " {}", counted(operand));
    }
    text.push_str(" [FLAG VALUE]...\n");
    for flag in shown() {
        let left = spelled(flag);
        let _ = write!(text, "  {left:width$}  {}", flag.help);
        if let Some(default) = flag.default {
            let _ = write!(text, " [{default}]");
        }
        text.push('\n');
    }
    if variables.is_some() || !command.env.is_empty() {
        text.push_str("Environment:\n");
    }
    if let Some(left) = variables {
        let example = shown().find_map(|f| command.variable(f));
        let example = example.unwrap_or_default();
        let _ = writeln!(text, "  {left:width$}  each flag, like {example}");
    }
    for var in command.env {
        let _ = writeln!(text, "  {:width$}  {}", var.name, var.help);
    }
    if short {
        let _ = writeln!(
            text,
            "--help lists every flag; the manual page {} says more.",
            command.manual
        );
    }
    text
}

/// `NAME`, `[NAME]` or `NAME...`
pub(super) fn counted(operand: &Operand) -> String {
    match operand.count {
        Count::One => operand.name.to_owned(),
        Count::Optional => format!("[{}]", operand.name),
        Count::Many => format!("{}...", operand.name),
    }
}

/// `--flag VALUE`
fn spelled<K>(flag: &Flag<K>) -> String {
    match flag.value {
        Some(value) => format!("--{} {value}", flag.long),
        None => format!("--{}", flag.long),
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::{DAEMON, RESPOND};
    use super::*;

    fn fits_a_screen<K>(command: &Command<K>) {
        let text = help(command, false);
        assert!(text.lines().count() <= 24, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
        for flag in command.flags {
            assert!(text.contains(&format!("--{}", flag.long)), "{}", flag.long);
            if let Some(default) = flag.default {
                assert!(text.contains(&format!("[{default}]")), "{}", flag.long);
            }
        }
        for var in command.env {
            assert!(text.contains(var.name));
        }
    }

    #[test]
    fn the_long_help_fits_a_screen_and_names_everything() {
        fits_a_screen(&DAEMON);
        fits_a_screen(&RESPOND);
    }

    fn is_at_most_half<K>(command: &Command<K>, needed: &str) {
        let (long, short) = (help(command, false), help(command, true));
        assert!(short.lines().count() <= 16, "{short}");
        assert!(short.lines().count() < long.lines().count());
        assert!(short.contains(needed));
    }

    #[test]
    fn the_short_help_is_shorter() {
        is_at_most_half(&DAEMON, "--base-dir");
        is_at_most_half(&RESPOND, "--listen-addr");
    }
}
