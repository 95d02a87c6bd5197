//! The daemon: parse, run, exit.

fn main() {}
