//! The watcher of a prefix in Consul: against a fake that misbehaves on demand, behind a
//! proxy that spoils bytes, and against the real one.

#[cfg(feature = "testkit")]
mod fake;
#[cfg(feature = "testkit")]
mod pace;
#[cfg(feature = "testkit")]
mod parity;
mod real;
#[cfg(feature = "testkit")]
mod shrink;
#[cfg(feature = "testkit")]
mod wire;
