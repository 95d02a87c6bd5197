//! The controller's end: the HTTP client against scripted peers, and the library
//! against the agent.

#[cfg(feature = "testkit")]
mod answers;
#[cfg(feature = "testkit")]
mod both;
mod classes;
mod http;
#[cfg(feature = "testkit")]
mod push;
mod real;
mod script;
mod sending;
#[cfg(feature = "testkit")]
mod settle;
