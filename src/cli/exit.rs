//! How a process of ours ends: the exit codes, and the one place that ends it.
//!
//! `main` returns an [`Exit`]; only code that cannot return to `main` (a thread that
//! found an invariant broken) calls [`now`].

use std::process::ExitCode;

/// Every exit code. The doc lines are the manual's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// A stop was asked for and has been carried out.
    Stopped,
    /// Something failed for good while running.
    Failed,
    /// The command line or the environment cannot be used.
    Usage,
    /// The agent could not start.
    CannotStart,
    /// An internal invariant is broken.
    Broken,
    /// The responder has not got a first copy of the store in time.
    NotSynced,
}

impl Exit {
    /// All of them, by code.
    pub const ALL: [Self; 6] = [
        Self::Stopped,
        Self::Failed,
        Self::Usage,
        Self::CannotStart,
        Self::Broken,
        Self::NotSynced,
    ];

    /// The number that the parent process sees.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Stopped => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::CannotStart => 3,
            Self::Broken => 4,
            Self::NotSynced => 5,
        }
    }

    /// What the manual says about it, and what to do.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Stopped => {
                "The agent was asked to stop by a signal and did so, or it has printed what it was asked for."
            }
            Self::Failed => {
                "It can no longer do its work, for instance because a listening socket broke. The last record says why; starting it again is safe."
            }
            Self::Usage => {
                "A flag or an environment variable cannot be used. Standard error says which, and what was expected."
            }
            Self::CannotStart => {
                "The base directory cannot be used or an address cannot be bound. The last record says which."
            }
            Self::Broken => {
                "The agent found itself in a state that its logic rules out and stopped rather than guess. Starting it again recovers from disk; please report the last records."
            }
            Self::NotSynced => {
                "The responder could not read its store completely within --sync-deadline. The last record says why; HAProxy has been told nothing, and starting it again is right."
            }
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Ends the process here and now, from any thread. Locks and files are left as they
/// are, which is what a restart has to cope with anyway.
pub fn now(exit: Exit) -> ! {
    #[allow(clippy::exit)]
    std::process::exit(i32::from(exit.code()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_dense_and_in_order() {
        for (code, exit) in Exit::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(exit.code()), code);
            assert!(exit.meaning().ends_with('.'));
        }
    }
}
