//! QEMU's guest agent, by which the crate vmtest runs commands in a VM.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use guest_runner::MOUNTED;

use crate::first_process::{self, mount_new, wait_for};

/// The name of the port of the virtio console that the agent listens at.
const PORT: &str = "org.qemu.guest_agent.0";
/// The kernel's list of such ports.
const PORTS: &str = "/sys/class/virtio-ports";
/// How long the port may take to appear: the kernel goes on with its devices meanwhile.
const APPEARS: Duration = Duration::from_secs(10);
/// The time between two looks for the port.
const LOOK: Duration = Duration::from_millis(2);

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
    agent.arg(device()?);
    agent.args(["--statedir", "/run", "--pidfile", "/run/qemu-ga.pid"]);
    agent.args(["--logfile", "/dev/kmsg"]);
    let agent = agent.spawn().context("starting qemu-ga")?;
    let status = wait_for(&agent)?;
    bail!("qemu-ga has ended: {status:?}");
}

/// Path of the port's device.
fn device() -> Result<PathBuf> {
    let until = Instant::now() + APPEARS;
    loop {
        if let Some(device) = find().context("looking for the agent's port")? {
            return Ok(device);
        }
        if Instant::now() > until {
            bail!("the machine has no port {PORT}");
        }
        thread::sleep(LOOK);
    }
}

fn find() -> io::Result<Option<PathBuf>> {
    let ports = match fs::read_dir(PORTS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        ports => ports?,
    };
    for port in ports {
        let port = port?;
        // A port is there before its name is.
        let name = fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if name.trim_end() == PORT {
            return Ok(Some(PathBuf::from("/dev").join(port.file_name())));
        }
    }
    Ok(None)
}
