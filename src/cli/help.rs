//! The help texts, made from the table.
//!
//! `--help` lists every flag and fits a terminal of 80 columns and 24 lines; `-h`
//! lists what most people need. More than that belongs into the manual.

use std::fmt::Write;

use super::table::{Command, Flag};

/// What `--version` prints.
#[must_use]
pub fn version<K>(command: &Command<K>) -> String {
    format!("{} {}\n", command.name, env!("CARGO_PKG_VERSION"))
}

/// What `--help` prints, or `-h` when `short`.
#[must_use]
pub fn help<K>(command: &Command<K>, short: bool) -> String {
    let shown = || command.flags.iter().filter(|f| !short || f.common);
    let width = shown()
        .map(|f| spelled(f).len())
        .chain(command.env.iter().map(|v| v.name.len()))
        .max()
        .unwrap_or(0);
    // Writing to a string cannot fail, here and below.
    let mut text = format!(
        "{}\nusage: {} [FLAG VALUE]...\n",
        command.about, command.name
    );
    for flag in shown() {
        let left = spelled(flag);
        let _ = write!(text, "  {left:width$}  {}", flag.help);
        if let Some(default) = flag.default {
            let _ = write!(text, " [{default}]");
        }
        text.push('\n');
    }
    text.push_str("Environment:\n");
    for var in command.env {
        let _ = writeln!(text, "  {:width$}  {}", var.name, var.help);
    }
    if short {
        text.push_str("--help lists every flag; the manual page haptic-agent(8) says more.\n");
    }
    text
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
    use super::super::table::DAEMON;
    use super::*;

    #[test]
    fn the_long_help_fits_a_screen_and_names_everything() {
        let text = help(&DAEMON, false);
        assert!(text.lines().count() <= 24, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
        for flag in DAEMON.flags {
            assert!(text.contains(&format!("--{}", flag.long)), "{}", flag.long);
            if let Some(default) = flag.default {
                assert!(text.contains(&format!("[{default}]")), "{}", flag.long);
            }
        }
        for var in DAEMON.env {
            assert!(text.contains(var.name));
        }
    }

    #[test]
    fn the_short_help_is_at_most_half_of_it() {
        let (long, short) = (help(&DAEMON, false), help(&DAEMON, true));
        assert!(short.lines().count() <= 12, "{short}");
        assert!(short.lines().count() < long.lines().count());
        assert!(short.contains("--base-dir"));
    }
}
