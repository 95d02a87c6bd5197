//! Decisions on real HAProxy: what was decided is what happened, worker and files agree
//! afterwards, and a reload of the same set changes nothing that anybody can see.

mod companions;
mod crt_lists;
mod files;
mod kit;
mod random;
mod reloads;
mod servers;
mod uses;
