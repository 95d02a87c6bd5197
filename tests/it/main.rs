//! Integration tests: one binary, a module a theme.
// A test that cannot go on says so by ending.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod apply;
mod cli;
mod contract;
mod fixtures;
mod haproxy;
mod http;
mod live;
mod ops;
mod sandbox;
mod soak;
mod store;
mod support;
