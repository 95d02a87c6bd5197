//! What the integration tests share: bounded waits, real servers in a directory of
//! their own, ports nobody else gets, and a little traffic.
//!
//! A missing server fails the test and says how to bring it; nothing is skipped
//! silently. Everything that is started here ends with the value that owns it.

// Each theme uses a part of this, and a helper may panic like the test it serves.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::cast_possible_truncation
)]

pub(crate) mod agent;
pub(crate) mod agent_check;
pub(crate) mod certs;
pub(crate) mod consul;
pub(crate) mod dice;
pub(crate) mod fake;
pub(crate) mod haproxy;
pub(crate) mod ports;
pub(crate) mod proxy;
pub(crate) mod servers;
pub(crate) mod slow;
pub(crate) mod tap;
pub(crate) mod traffic;
pub(crate) mod wait;
