//! The fakes of the test kit against what they stand for.

mod config;
mod fake_agent;
mod kit;
mod parity;
mod sides;
mod transcripts;
