//! QEMU's guest agent, by which the crate vmtest runs commands in a VM.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use guest_init::{port, wait_for};
use guest_runner::MOUNTED;

use crate::first_process::{self, mount_new};

/// The name of the port of the virtio console that the agent listens at.
const PORT: &str = "org.qemu.guest_agent.0";

/// Is the first process of a VM whose agent takes commands from the host. The host has it mount the
/// shared directory, below one that can be written to.
pub(crate) fn first_process() -> ! {
    first_process::main((MOUNTED, || mount_new("tmpfs", MOUNTED)), run)
}

/// Runs the agent to its end, which is no good one: the host ends the machine. The programs that the
/// agent is told to run are looked for in the `PATH` of this process.
fn run() -> Result<()> {
    let mut agent = Command::new("/usr/sbin/qemu-ga");
    agent.args(["--method", "virtio-serial", "--path"]);
    agent.arg(port(PORT).context("looking for the agent's port")?);
    agent.args(["--statedir", "/run", "--pidfile", "/run/qemu-ga.pid"]);
    agent.args(["--logfile", "/dev/kmsg"]);
    let agent = agent.spawn().context("starting qemu-ga")?;
    let status = wait_for(&agent).context("waiting for qemu-ga")?;
    bail!("qemu-ga has ended: {status:?}");
}
