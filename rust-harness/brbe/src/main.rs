//! `brbe`: see the library for how it works, `brbe --help` for what it does.

use std::process::ExitCode;

use brbe::commands::cli::Cli;
use brbe::exec::{self, Interrupted};
use clap::Parser as _;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) if error.is::<Interrupted>() || exec::interrupted() => {
            eprintln!("brbe: interrupted");
            ExitCode::from(130)
        }
        // Whoever read our output has had enough of it.
        Err(error) if error.chain().any(is_broken_pipe) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("brbe: {error:#}");
            ExitCode::from(3)
        }
    }
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    let kind = match cause.downcast_ref::<serde_json::Error>() {
        Some(error) => error.io_error_kind(),
        None => cause.downcast_ref().map(std::io::Error::kind),
    };
    kind == Some(std::io::ErrorKind::BrokenPipe)
}
