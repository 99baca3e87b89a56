//! `branch-trace` shows the branches that led to a place, recorded on the machine that it
//! runs on.

mod arguments;
mod attach;
mod branches;
mod build_id;
mod dry_run;
mod event;
mod examples;
mod features;
mod functions;
mod generate;
mod interrupt;
mod jobs;
mod machine;
mod mapped;
mod names;
mod output;
mod parameters;
mod processes;
mod programs;
mod recorded;
mod returns;
mod run;
mod screen;
mod skeleton;
mod target;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words = branch_records::show::spelled_out(std::env::args_os());
    match run::run(&arguments::Arguments::of(words)) {
        Ok(status) => status,
        // The reader of a pipe has seen enough, as `head` does.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("branch-trace: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
