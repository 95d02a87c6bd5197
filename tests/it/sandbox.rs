//! Where the agent really runs: several mounts, no privileges, nothing writable but the
//! base directory, little room.
//!
//! Mounts are made in a private mount namespace that agent and HAProxy share and that
//! ends with the test, which takes root. Where that is not to be had, these tests fail
//! and say so; `HAPTIC_ALLOW_SKIP=1` lets them pass instead.

mod alone;
mod confined;
mod covered;
mod durability;
mod full;
mod memory;
mod mounts;
mod owners;
mod rootless;
mod scene;
