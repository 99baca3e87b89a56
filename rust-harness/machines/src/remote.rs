//! Runs commands on machines that have been booted already, over ssh.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::backend::Run;
use crate::guest::Task;
use crate::ssh::Ssh;
use host::arch::Arch;
use host::cargo;
use host::logs::Log;
use host::paths::Paths;
use host::progress::Step;

/// How long a machine may take to report its architecture.
const PATIENCE: Duration = Duration::from_secs(60);

/// Does the task on the machine that `ssh` reaches, among the guest's programs for that
/// machine and what is in the shared directory. Files that the command writes come back there.
///
/// # Errors
///
/// When the machine cannot be reached, it is of an architecture that there are no programs
/// for, or the programs cannot be built.
pub fn run(paths: &Paths, ssh: &Ssh, task: &Task<'_>) -> Result<Run> {
    let arch = arch(paths, ssh)?;
    let runner = cargo::guest_runner(paths, arch)?;
    let programs = cargo::guest(paths, arch)?;
    for program in [&programs.tests, &programs.tracer] {
        task.share.put(program)?;
    }
    let step = Step::start(format!("{} on {}", task.name, ssh.to));
    let log = log(paths, task.name)?;
    let run = ssh.run(&runner, task, &log, &mut |line| step.note(line))?;
    std::fs::write(
        paths.log(&format!("remote-{}-output", task.name)),
        &run.output,
    )
    .context("keeping the output")?;
    step.done();
    Ok(run)
}

/// The architecture of the machine, as the machine itself reports it (`uname -m`).
fn arch(paths: &Paths, ssh: &Ssh) -> Result<Arch> {
    let step = Step::start(format!("ask {} what it is", ssh.to));
    let said = ssh.ask("uname -m", PATIENCE, &log(paths, "uname")?)?;
    step.done();
    let said = said.trim();
    let all = [Arch::Arm64, Arch::X86_64];
    match all.into_iter().find(|arch| arch.machine() == said) {
        Some(arch) => Ok(arch),
        None => bail!(
            "{} says that it is {said:?} (uname -m), and the guest's programs can be built for aarch64 \
             and x86_64 alone",
            ssh.to
        ),
    }
}

fn log(paths: &Paths, name: &str) -> Result<Log> {
    Log::fresh(paths.log(&format!("remote-{name}-ssh")))
}
