//! What a kind of machine has to do: boot a kernel and run one command in it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use host::arch::Arch;

/// Where [`Boot::share`] is in the guest.
pub const SHARE: &str = "/mnt/vmtest";

/// A plugin for QEMU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plugin {
    /// The shared object.
    pub path: PathBuf,
    /// Its options, each `key=value`.
    pub options: Vec<String>,
}

/// What to boot, and what to run there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Boot {
    /// What the machine is.
    pub arch: Arch,
    /// The kernel image.
    pub kernel: PathBuf,
    /// The machine's device tree, where it does not have its own.
    pub device_tree: Option<PathBuf>,
    /// The guest's root file system, a directory. The guest cannot write to it.
    pub root: PathBuf,
    /// Processors.
    pub cpus: u8,
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// Words for the kernel's command line.
    pub kernel_args: Vec<String>,
    /// The kernel starts at EL2, and runs there (VHE).
    pub virtualization: bool,
    /// So many processors, the first, have BRBE, and the others are another sort
    /// with another PMU; `None` is one sort.
    pub brbe_cpus: Option<u8>,
    /// There is no PMU until the guest asks for it. The processors are one sort then.
    #[serde(default)]
    pub late_pmu: bool,
    /// What QEMU is extended with.
    pub plugin: Option<Plugin>,
    /// More arguments for QEMU.
    pub qemu_args: Vec<String>,
    /// A directory that the guest sees at [`SHARE`], and may write to.
    pub share: PathBuf,
    /// A command for bash, run in [`SHARE`].
    pub command: String,
    /// For all of it, from power-on.
    pub timeout: Duration,
    /// Where the console goes.
    pub console: PathBuf,
}

/// How a run came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The command ended with this status.
    Exited(i32),
    /// The kernel died, and this is what it said.
    Panicked(Vec<String>),
    /// The time was up; these are the console's last lines.
    TimedOut(Vec<String>),
    /// The machine did not come up, or broke.
    Failed(String),
}

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// How.
    pub end: End,
    /// What the command printed, on both streams.
    pub output: String,
    /// The log of the console.
    pub console: PathBuf,
}

/// What a test may ask of the machines that it runs on. What is not said is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Capabilities {
    /// They are QEMU with this project's plugin: processors have the records that are
    /// asked for, time can be counted, and the plugin tells what it saw.
    pub plugin: bool,
    /// How many processors there can be.
    pub cpus: u8,
    /// BRBE records of each processor that has BRBE.
    pub records: u8,
    /// Kernels can run at EL2.
    pub vhe: bool,
    /// Interrupts can be pseudo-NMIs.
    pub pseudo_nmi: bool,
    /// Processors can differ.
    pub heterogeneous: bool,
}

/// A kind of machine.
pub trait Backend: fmt::Debug + Send + Sync {
    /// What it is called.
    fn name(&self) -> &str;

    /// What it is, for those who were not there.
    fn told(&self) -> String {
        self.name().to_owned()
    }

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// The name of its device tree in the kernel's tree, where it does not have its own.
    fn device_tree(&self) -> Option<&'static str> {
        None
    }

    /// Boots, runs the command, powers off. Nothing of the machine is left when
    /// this returns. `progress` gets lines of console and command as they come.
    ///
    /// # Errors
    ///
    /// When this side fails. What goes wrong in the machine is an [`End`].
    fn run(&self, boot: &Boot, progress: &mut dyn FnMut(&str)) -> Result<Run>;
}
