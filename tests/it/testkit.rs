//! The fakes of the test kit against what they stand for.

mod advice;
mod config;
mod fake_agent;
mod faults;
mod kit;
mod parity;
mod sides;
mod transcripts;
