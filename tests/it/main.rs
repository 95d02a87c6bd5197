//! Integration tests: one binary, a module a theme.

mod store;
