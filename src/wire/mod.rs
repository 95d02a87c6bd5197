//! The contract as types: what travels between a controller and the agent.
//!
//! No I/O, no clock, nothing of HAProxy. A value of these types has passed the
//! contract's rules; what could not pass never becomes one.

pub mod digest;
pub mod limits;
pub mod manifest;
pub mod op;
pub mod path;
pub mod result;
pub mod state;
mod text;
