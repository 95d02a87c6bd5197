//! The copy of the store: values, watchers and stores as the responder sees them.

mod dir;
mod figures;
pub(crate) mod kit;
mod place;
