//! The agent-check responder: the desired admin state of every server, from memory.

pub mod copy;
pub mod key;
pub mod kv;
pub mod note;
pub mod stamp;
pub mod value;
