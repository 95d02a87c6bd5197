//! A synchronous HTTP/1.1 server: bytes to requests, answers to bytes.
//!
//! It knows no endpoint and no credentials but what a [`Service`] asks it to check. One
//! thread a connection, a fixed number of them; every wait on a peer has a deadline, and
//! every buffer a size that no peer can choose. What is refused is refused early: a head
//! that could be read in two ways, a body beyond its limit before it is read.
//!
//! | module | job |
//! |---|---|
//! | [`addr`] | listen addresses, numeric only |
//! | [`server`] | bind, run, stop, counters; `accept` and `admission` below it |
//! | `conn`, `link` | one connection's phases; its bytes, each wait bounded |
//! | [`head`], [`body`] | request heads and bodies |
//! | [`request`], [`response`] | what a service sees and gives back |
//! | [`auth`], [`basic`] | Basic credentials, checked and written |
//! | [`client`] | the other end: one connection, one request at a time |
//! | [`multipart`] | form data as a stream |
//! | [`limits`] | all bounds, with reasons |
//!
//! Locks: one, in `admission`; nothing is read, written or logged under it.

#[cfg(feature = "agent")]
mod accept;
#[cfg(feature = "agent")]
pub mod addr;
#[cfg(feature = "agent")]
mod admission;
#[cfg(feature = "agent")]
pub mod auth;
pub mod basic;
#[cfg(feature = "agent")]
pub mod body;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "agent")]
mod conn;
#[cfg(feature = "agent")]
mod disposition;
#[cfg(feature = "agent")]
pub mod head;
#[cfg(feature = "agent")]
pub mod limits;
#[cfg(feature = "agent")]
mod link;
#[cfg(feature = "agent")]
pub mod multipart;
#[cfg(feature = "agent")]
pub mod request;
#[cfg(feature = "agent")]
pub mod response;
#[cfg(feature = "agent")]
pub mod server;
#[cfg(feature = "agent")]
mod stop;

#[cfg(feature = "agent")]
pub(crate) use accept::is_about_one_connection;
#[cfg(feature = "agent")]
pub use addr::ListenAddr;
#[cfg(feature = "agent")]
pub use auth::BasicAuth;
#[cfg(feature = "agent")]
pub use body::{Body, BodyError};
#[cfg(feature = "agent")]
pub use head::Method;
#[cfg(feature = "agent")]
pub use limits::Deadlines;
#[cfg(feature = "agent")]
pub use multipart::{Multipart, MultipartError, PartHead};
#[cfg(feature = "agent")]
pub use request::{Request, Waited};
#[cfg(feature = "agent")]
pub use response::{Response, Status};
#[cfg(feature = "agent")]
pub use server::{BindError, ServeError, Server, ServerConfig, ServerStats, Service};
#[cfg(feature = "agent")]
pub use stop::Stopper;
