//! The phases of one apply, and which may follow which.
//!
//! The phase is persisted before the step it names, so a restart knows whether the
//! tree can be a mix of two sets. One total function decides both what a running
//! apply may do next and what a restart makes of the phase it finds; anything else is
//! an error that names both, never a guess.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::wire::result::Stage;

/// How far an apply has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Parts lie in the staging directories; nothing else happened.
    Staged,
    /// Every part matches its digest; nothing else happened.
    Verified,
    /// The journal holds what stood there; the intent is recorded. Renames may be under way.
    BackedUp,
    /// The tree is the new set. Commands or the reload may be under way.
    Written,
    /// The ops, if any, succeeded.
    Applied,
    /// A new worker serves the set.
    Reloaded,
    /// The reload waits for the pacing window.
    Scheduled,
    /// The journal is being restored.
    Aborting,
}

/// What happened to an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Every part is in the staging directories.
    PartsStaged,
    /// Every digest was right.
    PartsVerified,
    /// Backups are made and the intent is recorded.
    JournalTaken,
    /// Renames and unlinks are done.
    TreeWritten,
    /// Ops succeeded, or none were needed.
    OpsDone,
    /// A reload succeeded.
    ReloadDone,
    /// The reload was put off.
    ReloadScheduled,
    /// Something failed.
    Failed(Stage),
    /// Everything is recorded.
    Committed,
    /// The journal is restored and that is recorded.
    Restored,
}

/// A step that the machine does not have: a defect of ours, never of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IllegalStep {
    /// Where the apply was.
    pub phase: Option<Phase>,
    /// What was claimed to have happened.
    pub event: Event,
}

impl fmt::Display for IllegalStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} cannot follow phase {:?}", self.event, self.phase)
    }
}

impl std::error::Error for IllegalStep {}

/// The phase after `event`; `None` means no apply is under way.
///
/// # Errors
/// [`IllegalStep`] when the machine has no such step.
pub fn next(phase: Option<Phase>, event: Event) -> Result<Option<Phase>, IllegalStep> {
    use Event as E;
    use Phase as P;
    let to = match (phase, event) {
        (None, E::PartsStaged) => P::Staged,
        (Some(P::Staged), E::PartsVerified) => P::Verified,
        (Some(P::Verified), E::JournalTaken) => P::BackedUp,
        (Some(P::BackedUp), E::TreeWritten) => P::Written,
        (Some(P::Written), E::OpsDone) => P::Applied,
        (Some(P::Written), E::ReloadDone) => P::Reloaded,
        (Some(P::Written), E::ReloadScheduled) => P::Scheduled,
        (Some(P::Applied | P::Reloaded | P::Scheduled), E::Committed) => return Ok(None),
        // Before the intent is recorded there is nothing to restore.
        (Some(P::Staged | P::Verified), E::Failed(_)) => return Ok(None),
        (Some(P::BackedUp | P::Written), E::Failed(_)) => P::Aborting,
        // A scheduled reload that fails, and a revert, start from rest.
        (None, E::Failed(Stage::ScheduledReload | Stage::Revert)) => P::Aborting,
        // A restore that was cut is begun again.
        (Some(P::Aborting), E::Failed(_)) => P::Aborting,
        (Some(P::Aborting), E::Restored) => return Ok(None),
        (
            None
            | Some(
                P::Staged
                | P::Verified
                | P::BackedUp
                | P::Written
                | P::Applied
                | P::Reloaded
                | P::Scheduled
                | P::Aborting,
            ),
            E::PartsStaged
            | E::PartsVerified
            | E::JournalTaken
            | E::TreeWritten
            | E::OpsDone
            | E::ReloadDone
            | E::ReloadScheduled
            | E::Failed(_)
            | E::Committed
            | E::Restored,
        ) => return Err(IllegalStep { phase, event }),
    };
    Ok(Some(to))
}

/// What a restart does about the phase it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// No apply was under way, or nothing had changed yet: the baseline stands.
    KeepBaseline,
    /// Finish the renames from the intent, then go on as [`Recovery::Activate`].
    RollForward,
    /// The tree is the new set; what the worker holds is unknown: reload it.
    Activate,
    /// Done but for the commit, if the recorded worker still runs; else as [`Recovery::Activate`].
    CommitIfSameWorker,
    /// Commit, with the reload still pending.
    CommitScheduled,
    /// Finish the restore.
    Restore,
}

/// The recovery table, phase by phase.
#[must_use]
pub fn recovery(phase: Option<Phase>) -> Recovery {
    match phase {
        None | Some(Phase::Staged | Phase::Verified) => Recovery::KeepBaseline,
        Some(Phase::BackedUp) => Recovery::RollForward,
        Some(Phase::Written) => Recovery::Activate,
        Some(Phase::Applied | Phase::Reloaded) => Recovery::CommitIfSameWorker,
        Some(Phase::Scheduled) => Recovery::CommitScheduled,
        Some(Phase::Aborting) => Recovery::Restore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(events: &[Event]) -> Result<Option<Phase>, IllegalStep> {
        events
            .iter()
            .try_fold(None, |phase, event| next(phase, *event))
    }

    #[test]
    fn the_three_good_ways_end_at_rest() {
        for activation in [Event::OpsDone, Event::ReloadDone, Event::ReloadScheduled] {
            let way = [
                Event::PartsStaged,
                Event::PartsVerified,
                Event::JournalTaken,
                Event::TreeWritten,
                activation,
                Event::Committed,
            ];
            assert_eq!(run(&way), Ok(None));
        }
    }

    #[test]
    fn a_failure_restores_only_what_can_have_changed() {
        let early = [
            Event::PartsStaged,
            Event::PartsVerified,
            Event::Failed(Stage::Backup),
        ];
        assert_eq!(run(&early), Ok(None));
        let late = [
            Event::PartsStaged,
            Event::PartsVerified,
            Event::JournalTaken,
            Event::Failed(Stage::Write),
        ];
        assert_eq!(run(&late), Ok(Some(Phase::Aborting)));
        assert_eq!(next(Some(Phase::Aborting), Event::Restored), Ok(None));
    }

    #[test]
    fn no_step_skips_the_journal() {
        for phase in [None, Some(Phase::Staged), Some(Phase::Verified)] {
            assert!(next(phase, Event::TreeWritten).is_err());
            assert!(next(phase, Event::ReloadDone).is_err());
        }
        let error = next(Some(Phase::Staged), Event::Committed).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Committed cannot follow phase Some(Staged)"
        );
    }
}
