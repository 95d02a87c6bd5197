//! Why a session is over, in an operator's words.

use crate::haproxy::identity::InfoError;
use crate::haproxy::reply::OutOfStep;
use crate::haproxy::socket::SocketError;
use std::error::Error;
use std::fmt;

/// Why a session is over or was not had.
#[derive(Debug)]
pub enum SessionError {
    /// The connection.
    Socket(SocketError),
    /// HAProxy closed it with commands open.
    Ended {
        /// What it said last without a prompt, shortened; usually the reason.
        words: String,
    },
    /// Answers and commands do not fit together.
    OutOfStep(OutOfStep),
    /// The socket does not do sessions as HAProxy does.
    NoSession {
        /// What it answered, shortened.
        words: String,
    },
    /// The worker did not say who it is.
    Info(InfoError),
    /// It was over before.
    Over,
}

impl SessionError {
    pub(super) fn with_words(self, partial: &[u8]) -> Self {
        match self {
            Self::Ended { .. } => Self::Ended {
                words: String::from_utf8_lossy(partial.get(..400).unwrap_or(partial))
                    .trim()
                    .to_owned(),
            },
            Self::Socket(_)
            | Self::OutOfStep(_)
            | Self::NoSession { .. }
            | Self::Info(_)
            | Self::Over => self,
        }
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(_) => f.write_str("the session with the worker failed"),
            Self::Ended { words } if words.is_empty() => {
                f.write_str("HAProxy closed the session before all commands were answered")
            }
            Self::Ended { words } => write!(
                f,
                "HAProxy closed the session before all commands were answered, and said: {words}"
            ),
            Self::OutOfStep(_) => f.write_str("the session with the worker is out of step"),
            Self::NoSession { words } => write!(
                f,
                "the worker's stats socket does not open a session as HAProxy does, it says {words:?}"
            ),
            Self::Info(_) => f.write_str("the worker did not say who it is"),
            Self::Over => f.write_str("the session is over"),
        }
    }
}

impl Error for SessionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Socket(source) => Some(source),
            Self::OutOfStep(source) => Some(source),
            Self::Info(source) => Some(source),
            Self::Ended { .. } | Self::NoSession { .. } | Self::Over => None,
        }
    }
}
