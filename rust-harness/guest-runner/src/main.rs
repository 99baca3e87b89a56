//! `guest-runner`: see the crate's documentation.

mod agent;
mod command;
mod first_process;
mod in_vm;
mod over_ssh;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use guest_runner::event::RunEvent;
use guest_runner::{IN_VM, WITH_AGENT};

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    if std::process::id() == 1 && words != [IN_VM] {
        // Before it the kernel may have put words of its own.
        if words.last() == Some(&WITH_AGENT) {
            agent::first_process();
        }
        first_process::with_command();
    }
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Whoever reads the events may be gone.
            let _ = RunEvent::Failed(format!("{error:#}")).write(&mut std::io::stdout());
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<()> {
    match *words {
        [IN_VM] => in_vm::main(),
        ["over-ssh", dir, bytes] => {
            let bytes = bytes.parse().context("the number of bytes")?;
            over_ssh::main(Path::new(dir), bytes)
        }
        _ => bail!("the harness starts this program: guest-runner in-vm | over-ssh DIR BYTES"),
    }
}
