//! The operator's tool: parse, run, exit.

use std::process::ExitCode;

use haptic_agent::cli::ctl::{CtlInvocation, parse};
use haptic_agent::{cli, ctl};

fn main() -> ExitCode {
    match parse(std::env::args_os().skip(1), &cli::process_env) {
        Ok(CtlInvocation::Print(text)) => {
            cli::print(&text);
            ctl::Exit::Converged.into()
        }
        Ok(CtlInvocation::Run(task)) => ctl::run(&task).into(),
        Ok(CtlInvocation::Override(task)) => ctl::run_overrides(&task).into(),
        Err(error) => {
            cli::complain("hapticctl", &error);
            ctl::Exit::Usage.into()
        }
    }
}
