//! The one truth about flags and environment variables.
//!
//! The parser, both help texts and the manual pages' blocks are made from these
//! tables; tests walk them. A flag that is not here does not exist, and a default is
//! written down once: as the text that a user could have typed. The tables hold no
//! logic and no parsed value.

mod ctl;
mod daemon;
mod overrides;
mod respond;

pub use ctl::{
    COMPLETION, CTL, CTL_COMMANDS, CTL_ENV, CTL_FLAGS, CTL_PASSWORD, CTL_USERNAME, CtlFlag, DOCTOR,
    PLAN, PUSH, REVERT, STATE, VERIFY, WAIT,
};
pub use daemon::{DAEMON, DaemonFlag, PASSWORD, USERNAME};
pub use overrides::{DRAIN, MAINT, OVERRIDE_ENV, OVERRIDES, READY, WEIGHT};
pub use respond::{RESPOND, RespondFlag};

/// A binary that is told by its first word what to do.
#[derive(Debug)]
pub struct Program {
    /// What is typed to run it.
    pub name: &'static str,
    /// One sentence for the head of the help.
    pub about: &'static str,
    /// Every verb, in the order in which the help lists them.
    pub verbs: &'static [Verb],
    /// The manual page that says more, like `hapticctl(1)`.
    pub manual: &'static str,
}

/// One verb of a [`Program`]; what it takes is a [`Command`] of its own.
#[derive(Debug)]
pub struct Verb {
    /// The word.
    pub name: &'static str,
    /// A few words of help.
    pub help: &'static str,
}

/// A command line: the flags it knows and the environment that it reads. `K` names
/// the flags of this one command, so another command brings its own set.
#[derive(Debug)]
pub struct Command<K: 'static> {
    /// What is typed to run it, the verb included.
    pub name: &'static str,
    /// One sentence for the head of the help.
    pub about: &'static str,
    /// What is typed beside flags, in order; none for most commands.
    pub operands: &'static [Operand],
    /// Every flag, in the order in which help and manual list them.
    pub flags: &'static [Flag<K>],
    /// Environment variables that no flag stands for.
    pub env: &'static [EnvVar],
    /// With it each flag that takes a value has a variable too: this prefix and the
    /// flag's name in capitals, dashes as underscores. The flag wins.
    pub env_prefix: Option<&'static str>,
    /// Whether one dash before a long name is as good as two.
    pub one_dash: bool,
    /// The manual page that says more.
    pub manual: &'static str,
}

impl<K> Command<K> {
    /// The environment variable that stands for a flag, if it has one.
    #[must_use]
    pub fn variable(&self, flag: &Flag<K>) -> Option<String> {
        let prefix = self.env_prefix?;
        flag.value?;
        let name = flag.long.replace('-', "_").to_ascii_uppercase();
        Some(format!("{prefix}{name}"))
    }
}

/// A word that is no flag.
#[derive(Debug)]
pub struct Operand {
    /// What stands for it in help.
    pub name: &'static str,
    /// How often it may or must be there.
    pub count: Count,
}

/// How many words an [`Operand`] takes. Only the last operand may take several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Exactly one.
    One,
    /// One or none.
    Optional,
    /// At least one.
    Many,
}

/// What a flag does to the reading of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It sets something; of several the last one counts.
    Setting,
    /// It sets something that may be there several times.
    Repeated,
    /// It asks for the help.
    Help,
    /// It asks for the version.
    Version,
}

/// One flag.
#[derive(Debug, Clone, Copy)]
pub struct Flag<K> {
    /// Which one it is.
    pub key: K,
    /// What it does.
    pub role: Role,
    /// The name behind two dashes.
    pub long: &'static str,
    /// A one-letter form, where there is one.
    pub short: Option<char>,
    /// What stands for the value in help; `None` for a switch.
    pub value: Option<&'static str>,
    /// What holds when the flag is not given, as text; `None` for a switch, and for a
    /// value that has none.
    pub default: Option<&'static str>,
    /// Listed by `-h` too.
    pub common: bool,
    /// A few words of help: with the default they fit in a line.
    pub help: &'static str,
    /// The manual's paragraph, in mdoc.
    pub man: &'static str,
}

impl<K: Copy> Flag<K> {
    /// A flag with a value and what holds without it.
    #[must_use]
    pub const fn option(
        key: K,
        long: &'static str,
        value: &'static str,
        default: &'static str,
        help: &'static str,
        man: &'static str,
    ) -> Self {
        Self {
            default: Some(default),
            ..Self::optional(key, long, value, help, man)
        }
    }

    /// A flag with a value, without which something is not done or has to be found
    /// out in another way.
    #[must_use]
    pub const fn optional(
        key: K,
        long: &'static str,
        value: &'static str,
        help: &'static str,
        man: &'static str,
    ) -> Self {
        Self {
            value: Some(value),
            ..Self::switch(key, long, help, man)
        }
    }

    /// A flag without a value.
    #[must_use]
    pub const fn switch(key: K, long: &'static str, help: &'static str, man: &'static str) -> Self {
        Self {
            key,
            role: Role::Setting,
            long,
            short: None,
            value: None,
            default: None,
            common: false,
            help,
            man,
        }
    }

    /// `--help` and `-h`.
    #[must_use]
    pub const fn help(key: K) -> Self {
        Self {
            role: Role::Help,
            short: Some('h'),
            common: true,
            ..Self::switch(
                key,
                "help",
                "this text; -h for the short one",
                "Print every flag with its default and exit.\n\
                 .Fl h\n\
                 prints the flags that most people need.",
            )
        }
    }

    /// `--version` and `-V`.
    #[must_use]
    pub const fn version(key: K) -> Self {
        Self {
            role: Role::Version,
            short: Some('V'),
            ..Self::switch(
                key,
                "version",
                "print the version",
                "Print the version and exit.",
            )
        }
    }

    /// The same flag, listed by `-h` too.
    #[must_use]
    pub const fn common(self) -> Self {
        Self {
            common: true,
            ..self
        }
    }

    /// The same flag, which may be given several times.
    #[must_use]
    pub const fn repeated(self) -> Self {
        Self {
            role: Role::Repeated,
            ..self
        }
    }

    /// The same flag with a one-letter form.
    #[must_use]
    pub const fn letter(self, letter: char) -> Self {
        Self {
            short: Some(letter),
            ..self
        }
    }
}

/// One environment variable.
#[derive(Debug)]
pub struct EnvVar {
    /// Its name.
    pub name: &'static str,
    /// A few words of help: with the default they fit in a line.
    pub help: &'static str,
    /// The manual's paragraph, in mdoc.
    pub man: &'static str,
}

/// The environment variable with the log level.
pub const LOG_LEVEL: &str = "LOG_LEVEL";

/// The log level, which every long-running command reads.
const LOG_LEVEL_VAR: EnvVar = EnvVar {
    name: LOG_LEVEL,
    help: "error, warn, info, debug, trace (default info)",
    man: "The least severe record that is written:\n\
          .Ql error ,\n\
          .Ql warn ,\n\
          .Ql info ,\n\
          .Ql debug\n\
          or\n\
          .Ql trace .\n\
          Unset or empty means\n\
          .Ql info .",
};

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn sound<K: Copy + PartialEq + Debug>(command: &Command<K>) {
        for (i, flag) in command.flags.iter().enumerate() {
            for other in command.flags.iter().skip(i + 1) {
                assert_ne!(flag.long, other.long);
                assert_ne!(flag.key, other.key);
                assert!(flag.short.is_none() || flag.short != other.short);
            }
            assert!(!flag.man.is_empty(), "{}", flag.long);
            assert!(
                flag.value.is_some() || flag.default.is_none(),
                "{}",
                flag.long
            );
        }
        for role in [Role::Help, Role::Version] {
            let count = command.flags.iter().filter(|f| f.role == role).count();
            assert_eq!(count, 1, "{role:?} of {}", command.name);
        }
        let several = command.operands.iter().rev().skip(1);
        assert!(several.clone().all(|o| o.count == Count::One));
        let paragraphs = command.flags.iter().map(|f| f.man);
        for man in paragraphs.chain(command.env.iter().map(|v| v.man)) {
            for line in man.lines() {
                assert!(!line.is_empty(), "an empty line in {man:?}");
                assert_eq!(line, line.trim(), "blanks around {line:?}");
            }
        }
    }

    #[test]
    fn names_are_unique_and_manual_paragraphs_are_mdoc() {
        sound(&DAEMON);
        sound(&RESPOND);
    }

    #[test]
    fn every_value_of_the_daemon_has_a_default() {
        for flag in DAEMON.flags {
            assert_eq!(flag.value.is_some(), flag.default.is_some());
        }
    }
}
