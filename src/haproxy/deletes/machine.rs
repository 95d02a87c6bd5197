//! One entry's way to its end.

#![allow(dead_code)]

use std::time::Instant;

/// Where an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// Not tried yet.
    #[default]
    Waiting,
    /// Tried; its sessions may end by themselves.
    Draining { since: Instant },
}
