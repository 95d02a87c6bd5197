//! Changes without a reload, through whole applies: a model of what should be, composed
//! into files and ops, and a look at worker, disk and traffic after each apply.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::cast_precision_loss
)]

mod deletes;
mod differences;
mod early;
mod faults;
mod in_place;
mod invalid;
mod kept;
mod kinds;
mod look;
mod modelled;
mod random;
mod refusals;
mod rig;
mod traffic;
mod workers;
mod world;
