//! The controller's end: the HTTP client against scripted peers, and the library
//! against the agent.

mod http;
mod script;
