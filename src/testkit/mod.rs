//! Fakes for the tests of controllers, and of agents.
//!
//! | fake | stands for | talks |
//! |---|---|---|
//! | [`FakeAgent`] | an agent and the HAProxy behind it | the wire contract over loopback |
//! | [`FakeHaproxy`] | an HAProxy, master and worker | its two unix sockets |
//! | [`FakeConsul`] | a Consul with a key-value store | its HTTP API over loopback |
//!
//! A test of a controller starts a [`FakeAgent`], points its client at [`FakeAgent::url`],
//! and looks at [`FakeAgent::applies`]. A test of an agent starts the agent on the sockets
//! of a [`FakeHaproxy`]. Both misbehave on demand. Neither needs the feature `agent`.
//!
//! That they behave like what they stand for is not a promise but a test: the same
//! sequences run against the fake agent and the real one, the same commands against the
//! fake HAProxy and three real ones, and every difference fails.

pub mod fake_agent;
pub mod fake_consul;
pub mod fake_haproxy;

pub use fake_agent::FakeAgent;
pub use fake_consul::FakeConsul;
pub use fake_haproxy::FakeHaproxy;
