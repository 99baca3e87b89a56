//! What a machine is made of.

use std::path::{Path, PathBuf};

use anyhow::Result;
use host::arch::Arch;
use machines::backend::PluginFile;
use machines::machine_spec::MachineSpec;
use machines::qemu::arguments::{Described, StartingFirmware};
use vm_session::config::{SessionConfig, SharedDirectory};

/// What a machine is made of.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The architecture of its CPUs.
    pub arch: Arch,
    /// Path of the kernel image.
    pub kernel: PathBuf,
    /// Path of the directory that is the guest's root. The guest does not write to it.
    pub root: PathBuf,
    /// Path of the program `vm-session`, for this architecture.
    pub program: PathBuf,
    /// Its CPUs and memory, and the words and arguments that the user adds.
    pub spec: MachineSpec,
    /// Path of the directory with the firmware that starts the kernel, if any.
    pub firmware: Option<PathBuf>,
    /// The plugin that gives branch records to its CPUs, if any.
    pub plugin: Option<PluginFile>,
    /// The directories of the host that the guest sees.
    pub directories: Vec<HostDirectory>,
}

/// A directory of the host that the guest sees.
#[derive(Clone, Debug)]
pub struct HostDirectory {
    /// Path on the host.
    pub path: PathBuf,
    /// What the guest sees of it.
    pub seen_as: SharedDirectory,
}

impl Machine {
    /// The machine in QEMU's words, with the kernel's initramfs in a file.
    ///
    /// # Errors
    ///
    /// When its device tree or its flash cannot be made.
    pub(crate) fn described(&self, initramfs: &Path) -> Result<Described> {
        let firmware = self.firmware.as_deref().map(|dir| StartingFirmware {
            dir,
            kernel: &self.kernel,
            initramfs: Some(initramfs),
        });
        Described::of(self.arch, &self.spec, self.plugin.as_ref(), firmware)
    }

    /// The session as the guest is told of it: with the directories that it mounts.
    pub(crate) fn session(&self, session: &SessionConfig) -> SessionConfig {
        let directories = self.directories.iter();
        SessionConfig {
            shares: directories.map(|one| one.seen_as.clone()).collect(),
            ..session.clone()
        }
    }
}
