//! The apply: from a checked manifest to an answer.
//!
//! Three promises stand over this module. Nothing changes before the fence has passed
//! and every part is verified. After a crash at any instruction the tree is wholly one
//! set, the new one or the last known good one. A baseline is never claimed that disk
//! and worker do not both hold, and never forgotten while they do.
//!
//! [`fence`], [`plan`], [`machine`] and [`known_bad`] are pure and decide;
//! [`agent`], [`upload`], `run` and their siblings carry out, persist, and answer with
//! values. Nothing here knows HTTP. `DESIGN.md` beside this file has the phases, the
//! crash table and the lock order.

pub mod agent;
mod ahead;
pub mod fence;
mod follow;
pub mod gate;
pub mod known_bad;
pub mod machine;
pub mod plan;
pub mod port;
pub mod record;
pub mod upload;

mod abort;
mod activate;
mod commit;
mod content;
#[cfg(test)]
mod crash;
mod invariants;
mod outcome;
mod owned;
mod pacing;
mod readback;
mod recover;
mod resume;
mod revert;
mod run;
mod runtime;
mod start;
mod tx;
mod view;
mod watch;
mod write;

pub use agent::{Agent, Early, Settings};
pub use upload::{Answer, PartError, Upload};
pub use view::StateRead;
