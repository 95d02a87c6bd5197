//! Whole applies: the agent's binary, a real HAProxy, and what disk, sockets and
//! traffic say afterwards.

mod basics;
mod down;
mod foreign;
mod hostile;
pub(crate) mod kit;
mod many;
mod pacing;
mod refused;
mod revert;
mod runtime;
mod state_file;
mod targets;
mod ways;
mod worker;
