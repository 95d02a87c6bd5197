//! Whole applies: the agent's binary, a real HAProxy, and what disk, sockets and
//! traffic say afterwards.

mod basics;
