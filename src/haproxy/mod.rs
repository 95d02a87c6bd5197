//! What the agent says to HAProxy and what it believes of the answers.
//!
//! Two unix sockets: the worker's stats socket (runtime commands, listings) and the
//! master socket (reload, process list). Blocking, one connection or session per
//! caller, every wait bounded by a [`Deadline`]. An answer counts only when it is
//! complete and has the exact form it must have; silence, a cut reply and an end of
//! stream are never read as success or as an empty list.
//!
//! Nothing here opens a file of the managed tree or knows of HTTP: content is handed
//! in as bytes. Nothing here parses an HAProxy configuration; [`lexical`] looks at
//! quotes and line ends only, because some masters die of those.

pub mod alerts;
pub mod batch;
pub mod command;
pub mod deletes;
pub mod identity;
pub mod inventory;
pub mod lexical;
pub(crate) mod map_compare;
pub mod master;
pub mod ops;
pub mod readback;
pub mod reload;
pub mod reply;
pub mod rows;
pub(crate) mod server_stats;
pub(crate) mod servers_state;
pub mod session;
pub mod socket;
pub mod wait;
pub mod worker;

pub use crate::format::HaproxyVersion;
pub use command::Command;
pub use identity::{Identity, WorkerInfo};
pub use inventory::RuntimeInventory;
pub use master::MasterSocket;
pub use reload::{ReloadOutcome, reload};
pub use reply::Reply;
pub use session::Session;
pub use wait::Deadline;
pub use worker::WorkerSocket;
