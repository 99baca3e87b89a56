//! Backends: what a kind of machine has to do, which is to boot a kernel and run one command
//! in it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::machine_spec::{Capabilities, MachineSpec};
use host::arch::Arch;

/// A TCG plugin for QEMU, with its options.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PluginFile {
    /// Path of the shared object.
    pub path: PathBuf,
    /// The plugin's options, each `key=value`.
    pub options: Vec<String>,
}

/// What a machine is to boot, and the command to run there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Boot {
    /// The architecture of the machine and of the kernel.
    pub arch: Arch,
    /// Path of the kernel image.
    pub kernel: PathBuf,
    /// Path of the machine's device tree, where the machine does not have its own.
    pub device_tree: Option<PathBuf>,
    /// Path of the guest's root file system, a directory. The guest cannot write to it.
    pub root: PathBuf,
    /// The machine.
    #[serde(flatten)]
    pub machine: MachineSpec,
    /// Words for the kernel's command line, those that describe the machine among them.
    pub kernel_args: Vec<String>,
    /// The plugin that QEMU is to load, if any.
    pub plugin: Option<PluginFile>,
    /// Path of the directory with the firmware that QEMU's machine starts with, if any.
    pub firmware: Option<PathBuf>,
    /// Arguments for QEMU, where the machine is QEMU.
    pub qemu_args: Vec<String>,
    /// Path of a directory that the guest sees at [`guest_runner::SHARE`], and may write to.
    /// The directory holds the program [`guest_runner::PROGRAM`], which runs the command.
    pub share: PathBuf,
    /// The command to run: for bash, in the shared directory. The file
    /// [`guest_runner::COMMAND`] of the shared directory holds it, too.
    pub command: String,
    /// How long the whole run may take, from power-on.
    pub timeout: Duration,
    /// Path of the file that the lines of the console are written to.
    pub console: PathBuf,
}

/// How a run came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The command ended with this exit status.
    Exited(i32),
    /// The kernel died. These are the lines of its report.
    Panicked(Vec<String>),
    /// The time was up. These are the last lines of the console, or, of a run over ssh, those
    /// that the command printed last.
    TimedOut(Vec<String>),
    /// The machine did not come up, or broke, for this reason.
    Failed(String),
}

/// The result of a run that has ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// How the run came to its end.
    pub end: End,
    /// What the command printed, on standard output and standard error.
    pub output: String,
    /// Path of the console's log, or, of a run over ssh, of the log of ssh's own messages.
    pub console: PathBuf,
}

/// What happens while a machine runs.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A line of the console or of the command.
    Line(&'a str),
    /// The machine starts now, for the first time or again: it waits for no other any longer.
    /// A machine that never waits need not report it.
    Starts,
    /// The guest is up, and the command begins. A machine need not report it.
    CommandBegins,
}

/// What can be checked of a machine without booting it. Each check returns what it has seen.
pub trait Checks {
    /// Checks that the machine's program starts, and takes the options that it will be given.
    ///
    /// # Errors
    ///
    /// When the program does not start, or would refuse an option.
    fn program(&self) -> Result<String>;

    /// Checks that the firmware, the kernel and the device tree fit into the machine's memory.
    ///
    /// # Errors
    ///
    /// When one of them cannot be read, is not what it should be, or has no place.
    fn memory(&self, image: &Path, device_tree: &Path) -> Result<String>;
}

/// A backend: a kind of machine that boots what it is given.
pub trait Backend: fmt::Debug + Send + Sync {
    /// The name of the backend.
    fn name(&self) -> &str;

    /// A description of the machines, for people who did not see the run.
    fn description(&self) -> String {
        self.name().to_owned()
    }

    /// What the machines can do.
    fn capabilities(&self) -> Capabilities;

    /// The name in the kernel's tree of the device tree that the machines need. `None` if
    /// they have their own.
    fn device_tree(&self) -> Option<&'static str> {
        None
    }

    /// What can be checked of the machine without booting it. `None`: nothing.
    fn checks(&self) -> Option<&dyn Checks> {
        None
    }

    /// Boots the machine, runs the command and powers off. Nothing of the machine is left
    /// when this returns. `progress` is called as it happens.
    ///
    /// # Errors
    ///
    /// When the machine cannot be started, the console's log cannot be written, or the run is
    /// interrupted. What goes wrong in the machine is no error but an [`End`].
    fn run(&self, boot: &Boot, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Run>;
}
