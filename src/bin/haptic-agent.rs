//! The daemon, or the responder alone: parse, run, exit.

use std::process::ExitCode;

use haptic_agent::cli::{self, Exit, Invocation};
use haptic_agent::error::Report;
use haptic_agent::{daemon, log, respond};

fn main() -> ExitCode {
    match cli::parse(std::env::args_os().skip(1), &cli::process_env) {
        Ok(Invocation::Help(text) | Invocation::Version(text)) => {
            cli::print(&text);
            Exit::Stopped.into()
        }
        Ok(Invocation::Respond(config)) => {
            log::init(config.log_format, config.log_level);
            ended(respond::run(&config))
        }
        Ok(Invocation::Run(config)) => {
            log::init(config.log_format, config.log_level);
            ended(daemon::run(*config))
        }
        Err(error) => {
            cli::complain("haptic-agent", &error);
            Exit::Usage.into()
        }
    }
}

fn ended(outcome: Result<(), Report>) -> ExitCode {
    match outcome {
        Ok(()) => Exit::Stopped.into(),
        Err(report) => {
            report.log();
            report.exit().into()
        }
    }
}
