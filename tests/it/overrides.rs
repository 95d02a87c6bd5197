//! `hapticctl drain|maint|weight|ready|overrides`: what is written, who sees it, and
//! what is said when it cannot be.

mod answered;
#[cfg(feature = "testkit")]
mod consul;
mod directory;
mod kit;
mod real;
mod rows;
mod silent;
