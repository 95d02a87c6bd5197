//! The file store: everything the agent does to a disk, and nothing else.
//!
//! An apply changes a file tree that another process reads at any moment, and the
//! agent may be killed, or the power cut, between any two system calls. The store
//! makes each step of that change idempotent and each decision recoverable:
//! content is staged beside its target ([`stage`]), the last known good version of
//! every changed path is kept by a hard link ([`journal`]), targets are replaced by
//! rename ([`install`]), what is on disk is hashed rather than remembered
//! ([`tree`]), and the caller's state is written whole ([`state_file`]).
//!
//! It refuses to decide: which files a plan has, which phase comes next and what a
//! restart means is the business of the layer above. It opens no sockets, asks for
//! no time, and knows no HAProxy. All effects go through the small trait
//! [`fs::Fs`], so a test can stop the world after any call, fail any call, and lose
//! what was not synced. `DESIGN.md` beside this file has the layout on disk, the
//! numbered invariants and the analysis of each crash point.
//!
//! Locks: none is held by the store across calls. Staging may run in any number of
//! threads at once; everything else is the caller's to serialise (the apply lock).

pub mod blob;
#[cfg(test)]
mod crash;
pub mod disk;
pub mod error;
pub mod files;
pub mod fs;
pub mod install;
pub mod journal;
pub mod lock;
#[cfg(test)]
pub mod model;
pub mod mounts;
pub mod prepare;
pub mod restore;
pub mod stage;
pub mod stamp;
pub mod state_file;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod transfer;
pub mod tree;
pub mod way;

mod context;
mod phase_file;
mod shares;
mod stat;

pub use context::{Counters, Durability, Store};
pub use error::{Op, StoreError};
