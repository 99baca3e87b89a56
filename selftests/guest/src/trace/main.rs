//! `branch-trace`: the branches that led to a place, from the machine that this runs
//! on.

mod arguments;
mod attach;
mod branches;
mod event;
mod filter;
mod functions;
mod processes;
mod programs;
mod returns;
mod run;
mod skeleton;
mod target;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match run::run(&arguments::Arguments::parse()) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("branch-trace: {error:#}");
            ExitCode::from(2)
        }
    }
}
