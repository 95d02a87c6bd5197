//! The agent-check responder: the desired admin state of every server, from memory.

pub mod answer;
pub mod confirm;
pub mod copy;
pub mod coverage;
pub mod key;
pub mod kv;
pub mod limits;
pub mod line;
pub mod metrics;
pub mod serve;
pub mod until;
pub mod value;
