//! The agent-check responder: the desired admin state of every server, from memory.

pub mod answer;
pub mod copy;
pub mod key;
pub mod kv;
pub mod metrics;
pub mod until;
pub mod value;
