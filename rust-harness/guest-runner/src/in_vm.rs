//! Runs the command in a VM, whose directory is shared with the host.

use std::io;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use guest_runner::event::RunEvent;
use guest_runner::{LAST_LINE, PATH, SHARE};
use rustix::mount::{MountFlags, mount};

use crate::command::{Running, log};

/// The environment of a command in a VM, whatever the host's is.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("PATH", PATH),
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
    ("TMPDIR", "/tmp"),
];

/// Runs the command, and reports what happens on standard output.
pub(crate) fn main() -> Result<()> {
    mount("tmpfs", "/tmp", "tmpfs", MountFlags::empty(), None).context("mounting /tmp")?;
    let mut events = io::stdout().lock();
    RunEvent::CommandBegins.write(&mut events)?;
    let mut bash = Command::new("/usr/bin/bash");
    bash.env_clear().envs(ENVIRONMENT);
    let running = Running::start(bash, "", Path::new(SHARE))?;
    let status = running.wait(|event| event.write(&mut events))?;
    // The host does without this line where the kernel's log cannot be written to.
    let _ = log(LAST_LINE);
    RunEvent::Exited(status).write(&mut events)?;
    Ok(())
}
