//! Integration tests: one binary, a module a theme.

mod cli;
mod fixtures;
