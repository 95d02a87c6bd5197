//! What a controller links: the contract's client end, file sets and decisions.
//!
//! Blocking, over std; nothing of the daemon. Layers, lowest first:
//!
//! | module | job |
//! |---|---|
//! | [`client`] | [`Client`]: one agent's state and applies, retries, limits, cancel |
//! | [`error`] | the classes of failure, and what to do about each |

pub mod client;
pub mod config;
pub mod error;
mod form;
mod pool;
mod state;

pub use crate::http::client::{Cancel, Origin, OriginError};
pub use client::{Client, Part, StateRead};
pub use config::{ClientConfig, Credentials, CredentialsError, Timeouts};
pub use error::{Error, Refused, Transport};
