//! Deletes that run beside the applies.
//!
//! A server with connections cannot be deleted, and an apply must not wait for them.
//! The apply stops the traffic; what is left to remove waits here, bound to the worker
//! that it was composed for. Nothing survives a change of worker: the new one was built
//! from files that lack the object.
//!
//! The queue is a value. Whoever owns it keeps applies and passes apart, since a pass
//! deletes what a batch could be adding again.

mod machine;
mod pass;
mod probe;
mod queue;

pub use machine::Policy;
pub use pass::{PASS_PATIENCE, Pass, pass};
pub(crate) use probe::Probe;
pub use queue::{DeleteEvent, DeleteOutcome, DeleteRequest, Key, ObjectKind, Queue};
