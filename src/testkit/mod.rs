//! Fakes for the tests of controllers.

pub mod fake_consul;

pub use fake_consul::FakeConsul;
