//! The agent-check responder, as its peers meet it: raw sockets, real HAProxy of three
//! branches, a real process.

mod connection;
mod consul;
mod coverage;
mod daemon;
mod figures;
mod frozen;
mod kit;
mod ops;
mod process;
mod replies;
mod scarce;
mod slowstart;
mod store;
mod trouble;
mod whole;
