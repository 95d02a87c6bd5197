//! `make demo`: the agent's story on a terminal, told with a real HAProxy.
//!
//! It starts HAProxy, the agent and an origin on free loopback ports below a temporary
//! directory, and then types what a person would: `hapticctl` and an editor's changes.
//! Everything that is printed has just happened. It knows the programs from outside only:
//! command lines, log, HTTP, traffic. A step that fails is named and ends the demo with a failure; in
//! either case nothing is left behind.

#![allow(clippy::print_stdout, clippy::print_stderr)]
// The ban on direct file writes guards HAProxy's tree in the agent; here they set the scene.
#![allow(clippy::disallowed_methods)]

mod http;
mod origin;
mod processes;
mod site;
mod story;
mod traffic;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn main() -> ExitCode {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [2, 15] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&interrupted)) {
            eprintln!("demo: signal {signal}: {error}");
            return ExitCode::FAILURE;
        }
    }
    match story::tell(&interrupted) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\ndemo failed at \"{}\": {}", failure.step, failure.why);
            ExitCode::FAILURE
        }
    }
}
