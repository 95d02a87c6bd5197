//! The HTTP server from outside: over sockets, against a toy service.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod kit;

mod basics;
mod child;
mod early;
mod oracle;
mod refusals;
mod scarce;
mod slow;
