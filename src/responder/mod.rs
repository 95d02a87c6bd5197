//! The agent-check responder: the desired admin state of every server, from memory.
