//! `brbe`: see the library for how it works, `brbe --help` for what it does.

use std::io::stdout;
use std::os::fd::AsFd;
use std::process::ExitCode;

use brbe::commands::cli::Cli;
use host::process::{self, Interrupted};
use host::progress;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

fn main() -> ExitCode {
    let cli = Cli::of(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match process::adopt_orphans().and_then(|()| cli.run()) {
        Ok(status) => status,
        Err(error) if error.is::<Interrupted>() || process::interrupted() => {
            progress::say("brbe: interrupted");
            ExitCode::from(130)
        }
        // The reader of our output has closed its end of the pipe, which is no error. Any
        // other broken pipe is one.
        Err(error) if error.chain().any(is_broken_pipe) && nobody_reads(&stdout()) => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            progress::say(&format!("brbe: {error:#}"));
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

/// Whether `output` is a pipe that nobody reads from any more.
fn nobody_reads(output: &impl AsFd) -> bool {
    let mut output = [PollFd::new(output.as_fd(), PollFlags::empty())];
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
    poll(&mut output, PollTimeout::ZERO) == Ok(1)
        && output[0]
            .revents()
            .is_some_and(|seen| seen.intersects(gone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_broken_when_its_reader_has_gone() {
        let (reader, writer) = std::io::pipe().unwrap();
        assert!(!nobody_reads(&writer));
        drop(reader);
        assert!(nobody_reads(&writer));
        assert!(!nobody_reads(&std::fs::File::open("/dev/null").unwrap()));
    }
}
