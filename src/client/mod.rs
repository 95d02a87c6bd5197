//! What a controller links: the contract's client end, file sets and decisions.

pub mod backends;
pub mod decide;
pub mod doctor;
pub mod fileset;

pub use decide::{Decision, decide};
pub use doctor::doctor;
pub use fileset::{FileSet, FileSetError, FileSetOptions};
