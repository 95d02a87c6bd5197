//! `hapticctl` as a person uses it, against real agents beside real HAProxys.

mod aftermath;
mod disk;
mod doctor;
mod fleet;
mod kit;
mod lost;
mod next;
mod push;
mod rivals;
mod secrets;
mod usage;
