//! The daemon: parse, run, exit.

use std::process::ExitCode;

use haptic_agent::cli::{self, Exit, Invocation};
use haptic_agent::{daemon, log};

fn main() -> ExitCode {
    match cli::parse(std::env::args_os().skip(1), &cli::process_env) {
        Ok(Invocation::Help(text) | Invocation::Version(text)) => {
            cli::print(&text);
            Exit::Stopped.into()
        }
        Ok(Invocation::Respond(config)) => {
            log::init(config.log_format, config.log_level);
            Exit::CannotStart.into()
        }
        Ok(Invocation::Run(config)) => {
            log::init(config.log_format, config.log_level);
            match daemon::run(*config) {
                Ok(()) => Exit::Stopped.into(),
                Err(report) => {
                    report.log();
                    report.exit().into()
                }
            }
        }
        Err(error) => {
            cli::complain("haptic-agent", &error);
            Exit::Usage.into()
        }
    }
}
