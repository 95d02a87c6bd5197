//! The operator's tool: parse, run, exit.

fn main() {}
