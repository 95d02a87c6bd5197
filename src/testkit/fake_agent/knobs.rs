//! What a test can turn while the fake runs.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// When a reload that is asked for has to wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pacing {
    /// Never: every reload runs at once.
    #[default]
    None,
    /// After each reload that ran, until [`FakeAgent::open_window`](super::FakeAgent::open_window).
    AfterEach,
    /// Always.
    Always,
    /// As the agent does it: for so long after each reload that ran, and a reload that
    /// waits runs by itself when the time is over.
    Window(Duration),
}

/// What HAProxy does with the next reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadFault {
    /// Refuses the files with these words. The set is remembered as bad for a minute.
    Refused(String),
    /// Refuses for a reason that is not in the files; a later try may do.
    Surroundings(String),
    /// Takes the command, and no new worker shows up in time: the files stay, and the
    /// baseline is unknown.
    Unconfirmed(String),
    /// Never gets the command: the last known good set goes back.
    Unreachable(String),
}

impl ReloadFault {
    pub(super) fn words(&self) -> &str {
        match self {
            Self::Refused(words)
            | Self::Surroundings(words)
            | Self::Unconfirmed(words)
            | Self::Unreachable(words) => words,
        }
    }
}

/// What the worker does with ops of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpFault {
    /// Refuses them with these words.
    Refuse(String),
    /// Gives no answer: nobody knows what it holds afterwards.
    NoAnswer,
}

/// Where the connection of the next apply breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// When the request's head has arrived: nothing happened.
    BeforeReading,
    /// When the manifest has been read and parts are coming in: nothing happened.
    MidBody,
    /// When the apply has been carried out: the answer never comes.
    AfterApplying,
    /// After so many bytes of the answer, its head included.
    InAnswer(u64),
}

/// All of them.
#[derive(Debug)]
pub(super) struct Knobs {
    pub(super) ready: bool,
    /// Applies that are still to be turned away as one upload too many.
    pub(super) busy: usize,
    /// Before an apply is carried out, its parts received.
    pub(super) delay: Duration,
    pub(super) api_version: Option<u32>,
    pub(super) known_ops: Option<Vec<String>>,
    pub(super) op_faults: BTreeMap<String, OpFault>,
    pub(super) reload_faults: VecDeque<ReloadFault>,
    pub(super) pacing: Pacing,
    pub(super) hold_deletes: bool,
    pub(super) breaks: VecDeque<Break>,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            ready: true,
            busy: 0,
            delay: Duration::ZERO,
            api_version: None,
            known_ops: None,
            op_faults: BTreeMap::new(),
            reload_faults: VecDeque::new(),
            pacing: Pacing::None,
            hold_deletes: false,
            breaks: VecDeque::new(),
        }
    }
}
