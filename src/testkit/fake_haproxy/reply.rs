//! An answer before it is framed.

use super::model::Version;

/// Severity that a message is tagged with.
pub(super) const ERR: u8 = 3;
pub(super) const WARNING: u8 = 4;
pub(super) const NOTICE: u8 = 5;
pub(super) const INFO: u8 = 6;

/// What `set severity-output` has chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Severity {
    #[default]
    None,
    Number,
    String,
}

/// One command's answer, without the line end behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Silent,
    /// A message with a tag.
    Tagged(u8, String),
    /// The output of a handler, never tagged.
    Plain(String),
}

impl Reply {
    pub(super) fn err(text: impl Into<String>) -> Self {
        Self::Tagged(ERR, text.into())
    }

    pub(super) fn info(text: impl Into<String>) -> Self {
        Self::Tagged(INFO, text.into())
    }

    pub(super) fn notice(text: impl Into<String>) -> Self {
        Self::Tagged(NOTICE, text.into())
    }

    /// The bytes on the wire, each non-empty answer ended by a line end.
    pub(super) fn text(&self, severity: Severity) -> String {
        let (tag, text) = match self {
            Self::Silent => return String::new(),
            Self::Tagged(tag, text) => (Some(*tag), text),
            Self::Plain(text) => (None, text),
        };
        let names = [
            "emerg", "alert", "crit", "err", "warning", "notice", "info", "debug",
        ];
        let tag = match (tag, severity) {
            (None, _) | (_, Severity::None) => String::new(),
            (Some(tag), Severity::Number) => format!("[{tag}]: "),
            (Some(tag), Severity::String) => {
                let name = names.get(usize::from(tag)).copied().unwrap_or_default();
                format!("[{name}]: ")
            }
        };
        match text.as_str() {
            "" => tag,
            text => format!("{tag}{}\n", text.strip_suffix('\n').unwrap_or(text)),
        }
    }
}

/// The answer to a command that the branch does not have.
pub(super) fn unknown(word: &str, version: Version) -> Reply {
    let prompt = match version {
        Version::V3_0 => "  prompt [timed]                          ",
        Version::V3_2 | Version::V3_4 => "  prompt [help | n | i | p | timed ]*     ",
    };
    Reply::info(format!(
        "Unknown command: '{word}', but maybe one of the following ones is a better match:\n  help [<command>]                        : list matching or all commands\n{prompt}: toggle interactive mode with prompt\n  quit                                    : disconnect"
    ))
}
