//! The first process of a VM. It makes of the root what the command expects, has another
//! process run the command or take commands, and powers the machine off when that ends.
//!
//! The root is shown by the host and cannot be written to.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use guest_init::wait_for;
use guest_runner::event::RunEvent;
use guest_runner::{EVENTS, IN_VM, MOUNTED, PROGRAM, SHARE};
use rustix::mount::{MountFlags, mount, mount_bind};
use rustix::system::{RebootCommand, reboot};

/// Where the shared directory is while `/mnt` is made anew.
const ASIDE: &str = "/tmp/shared";

/// A step to a root as commands expect it: what it is about, and what it does.
pub(crate) type Step = (&'static str, fn() -> io::Result<()>);

/// Runs the command. The shared directory is mounted on [`MOUNTED`] in the root.
pub(crate) fn with_command() -> ! {
    main((SHARE, share), run)
}

/// Makes of the root what commands expect, with `last` as the last step to it, and runs `then`.
/// It never returns: without its first process, the kernel panics.
pub(crate) fn main(last: Step, then: fn() -> Result<()>) -> ! {
    set_up(last);
    then().unwrap_or_else(|error| say(&error));
    rustix::fs::sync();
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        say(&anyhow::Error::new(error).context("powering off"));
    }
    loop {
        thread::sleep(Duration::from_secs(60));
    }
}

/// Reports an error on the console.
fn say(error: &anyhow::Error) {
    eprintln!("{PROGRAM}: {error:#}");
}

/// Mounts what a kernel has to show. What a kernel was built without is reported, and the
/// rest goes on: it may not be needed.
fn set_up(last: Step) {
    let steps: [Step; 9] = [
        ("/proc", || mount_new("proc", "/proc")),
        ("/sys", || mount_new("sysfs", "/sys")),
        // Some kernels do it themselves.
        ("/dev", || {
            unless("/dev/null", || mount_new("devtmpfs", "/dev"))
        }),
        ("/dev/shm", || {
            fs::create_dir_all("/dev/shm")?;
            mount_new("tmpfs", "/dev/shm")
        }),
        ("/dev/fd", || {
            unless("/dev/fd", || symlink("/proc/self/fd", "/dev/fd"))
        }),
        ("/run", || mount_new("tmpfs", "/run")),
        ("debugfs", || mount_new("debugfs", "/sys/kernel/debug")),
        ("tracefs", || {
            mount_new("tracefs", "/sys/kernel/debug/tracing")
        }),
        ("cgroup2", || mount_new("cgroup2", "/sys/fs/cgroup")),
    ];
    for (what, step) in steps.into_iter().chain([last]) {
        if let Err(error) = step() {
            say(&anyhow::Error::new(error).context(what));
        }
    }
}

/// Does a step, unless a file is there already.
fn unless(file: &str, step: impl Fn() -> io::Result<()>) -> io::Result<()> {
    if Path::new(file).exists() {
        Ok(())
    } else {
        step()
    }
}

/// Mounts a file system of this kind that is made for it.
pub(crate) fn mount_new(kind: &str, on: &str) -> io::Result<()> {
    Ok(mount(kind, on, kind, MountFlags::empty(), None)?)
}

/// Moves the shared directory to [`SHARE`]. The root has no such directory, and none can be
/// made there.
fn share() -> io::Result<()> {
    mount_new("tmpfs", "/tmp")?;
    fs::create_dir(ASIDE)?;
    mount_bind(MOUNTED, ASIDE)?;
    mount_new("tmpfs", MOUNTED)?;
    fs::create_dir(SHARE)?;
    Ok(mount_bind(ASIDE, SHARE)?)
}

/// Has this program run the command in another process, and takes leave of every process that
/// ends meanwhile: the parents of some have ended before.
fn run() -> Result<()> {
    let share = Path::new(SHARE);
    // Each event is written through the guest's cache, for the host to see it at once.
    let through = rustix::fs::OFlags::DSYNC.bits().cast_signed();
    let mut options = File::options();
    options.write(true).create_new(true).custom_flags(through);
    let mut events = options
        .open(share.join(EVENTS))
        .context("creating the file of events")?;
    let written = events.try_clone().context("the file of events")?;
    let mut runner = Command::new(share.join(PROGRAM));
    let runner = runner.arg(IN_VM).stdout(written).spawn();
    let status =
        wait_for(&runner.context("starting the runner")?).context("waiting for the runner")?;
    if let Some(signal) = status.terminating_signal() {
        let why = format!("{PROGRAM} was ended by signal {signal}");
        RunEvent::Failed(why).write(&mut events)?;
    }
    Ok(())
}
