//! `hapticctl`: the smallest useful controller, a person with a directory of files.
//!
//! Every verb asks its agents side by side, has an outcome for each, and prints all of
//! them: text for people or one JSON document. Nothing is decided here that the
//! [`client`](crate::client) does not decide; this module finds the words, and what to
//! do next.
//!
//! Standard output gets the outcome, standard error what happens meanwhile: one line
//! that is drawn again and again on a terminal, plain lines elsewhere.

mod aftermath;
mod agents;
mod doctor;
mod next;
pub mod overrides;
mod plan;
mod progress;
mod push;
mod revert;
mod state;
mod verify;
mod view;
mod wait;
mod when;
mod words;

use std::process::ExitCode;

use crate::cli::ctl::{Ctl, Directory, Output, Task};
use crate::client::{FileSet, Fleet};

use agents::SetupError;
use view::Report;

/// How `hapticctl` ends. The doc lines are the manual's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything that was asked for holds on every agent.
    Converged,
    /// It does not hold on at least one agent.
    NotConverged,
    /// The command line, the environment or a file that it names cannot be used.
    Usage,
}

impl Exit {
    /// All of them, by code.
    pub const ALL: [Self; 3] = [Self::Converged, Self::NotConverged, Self::Usage];

    /// The number that the parent process sees.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Converged => 0,
            Self::NotConverged => 1,
            Self::Usage => 2,
        }
    }

    /// What the manual says about it.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Converged => {
                "Every agent is where it was asked to be; with plan and doctor, every agent could be asked and there is no error."
            }
            Self::NotConverged => {
                "At least one agent is not: it could not be reached, it refused, its HAProxy does not answer, its reload is still pending, its files differ. The output says which, why, and what to do next."
            }
            Self::Usage => {
                "The command line, the environment, or a file or directory named there cannot be used. No agent was asked. Standard error says what was expected."
            }
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Writes or shows overrides, prints the outcome, and says how to end.
#[must_use]
pub fn run_overrides(task: &overrides::Overrides) -> Exit {
    match overrides::run(task) {
        true => Exit::Converged,
        false => Exit::NotConverged,
    }
}

/// Does what was asked for, prints the outcome, and says how to end.
#[must_use]
pub fn run(ctl: &Ctl) -> Exit {
    let report = match report(ctl) {
        Ok(report) => report,
        Err(error) => {
            view::complain(&error.to_string());
            return Exit::Usage;
        }
    };
    let text = match ctl.output {
        Output::Text => report.text(),
        Output::Json => report.json(),
    };
    crate::cli::print(&text);
    match report.is_good() {
        true => Exit::Converged,
        false => Exit::NotConverged,
    }
}

fn report(ctl: &Ctl) -> Result<Report, SetupError> {
    let fleet = agents::fleet(ctl)?;
    Ok(match &ctl.task {
        Task::Plan(directory) => plan::run(&fleet, &set(directory)?),
        Task::Push(directory, flags) => push::run(&fleet, &set(directory)?, *flags),
        Task::State => state::run(&fleet),
        Task::Verify(directory) => match directory {
            Some(directory) => verify::run(&fleet, Some(&set(directory)?)),
            None => verify::run(&fleet, None),
        },
        Task::Revert { epoch, take_over } => revert::run(&fleet, *epoch, *take_over),
        Task::Wait { timeout, deletes } => wait::run(&fleet, *timeout, *deletes),
        Task::Doctor(directory) => doctor::run(&fleet, &set(directory)?),
    })
}

fn set(directory: &Directory) -> Result<FileSet, SetupError> {
    FileSet::from_dir(&directory.path, &directory.options).map_err(|error| SetupError::Directory {
        path: directory.path.clone(),
        error,
    })
}

/// The agents' addresses, as they are printed.
fn labels(fleet: &Fleet) -> Vec<String> {
    let clients = fleet.clients().iter();
    clients.map(|client| client.origin().to_string()).collect()
}
