//! The fakes of the test kit against what they stand for.

mod kit;
mod parity;
mod sides;
