//! What a controller links: the contract's client end, file sets and decisions.
//!
//! Blocking, over std; nothing of the daemon. Lowest first:
//!
//! | module | job |
//! |---|---|
//! | [`client`] | [`Client`]: one agent's state and applies, retries, limits, cancel |
//! | [`fileset`], [`backends`] | [`FileSet`]: a directory as the complete desired set |
//! | [`decide`] | [`decide()`]: what a change needs, and why; pure |
//! | [`push`] | [`push()`]: read, decide, apply, react; at most three rounds |
//! | [`fleet`] | [`Fleet`]: the same to many agents, an outcome for each |
//! | [`doctor`] | [`doctor()`]: what can never be changed at runtime, and why |

pub mod backends;
#[allow(clippy::module_inception)] // What matters of it is named below.
pub mod client;
pub mod config;
pub mod decide;
pub mod doctor;
pub mod error;
pub mod fileset;
pub mod fleet;
mod form;
mod pool;
pub mod push;
mod state;

pub use crate::http::client::{Cancel, Origin, OriginError};
pub use client::{Client, Part, StateRead};
pub use config::{ClientConfig, Credentials, CredentialsError, Timeouts};
pub use decide::{Decision, decide};
pub use doctor::doctor;
pub use error::{Error, Refused, Transport};
pub use fileset::{FileSet, FileSetError, FileSetOptions};
pub use fleet::Fleet;
pub use push::{Outcome, PushError, PushOptions, Pushed, Step, push, push_watched};
