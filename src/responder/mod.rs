//! The agent-check responder: the desired admin state of every server, from memory.

pub mod answer;
pub mod metrics;
