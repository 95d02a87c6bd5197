//! Integration tests: one binary, a module a theme.
// A test that cannot go on says so by ending.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod apply;
mod cli;
mod client;
mod consul;
mod contract;
mod ctl;
mod decide;
mod fixtures;
mod haproxy;
mod http;
mod kv;
mod live;
mod ops;
mod overrides;
mod responder;
mod sandbox;
mod soak;
mod store;
mod support;
#[cfg(feature = "testkit")]
mod testkit;
