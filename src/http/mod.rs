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
//! | [`auth`] | Basic credentials |
//! | [`multipart`] | form data as a stream |
//! | [`limits`] | all bounds, with reasons |
//!
//! Locks: one, in `admission`; nothing is read, written or logged under it.

mod accept;
pub mod addr;
mod admission;
pub mod auth;
pub mod body;
mod conn;
mod disposition;
pub mod head;
pub mod limits;
mod link;
pub mod multipart;
pub mod request;
pub mod response;
pub mod server;
mod stop;

pub use addr::ListenAddr;
pub use auth::BasicAuth;
pub use body::{Body, BodyError};
pub use head::Method;
pub use limits::Deadlines;
pub use multipart::{Multipart, MultipartError, PartHead};
pub use request::{Request, Waited};
pub use response::{Response, Status};
pub use server::{BindError, ServeError, Server, ServerConfig, ServerStats, Service};
pub use stop::Stopper;
