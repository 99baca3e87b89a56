//! Records all branches while a command runs. The records are looked at elsewhere.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::cpus;
use crate::perf::{self, Recording};
use crate::verdict::{self, Verdict};

/// Records on every CPU while `command` runs.
pub(crate) fn run(command: &[OsString], recording: Recording) -> Result<Verdict> {
    let (program, arguments) = command.split_first().context("there is no command")?;
    let events =
        perf::open_everywhere(&cpus::online()?, recording).map_err(verdict::cannot_record)?;
    let status = Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    drop(events);
    ensure!(
        status.success(),
        "{} ended with {status}",
        program.display()
    );
    Ok(Verdict::Pass)
}
