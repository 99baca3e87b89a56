//! QEMU with a plugin that records branches, through the `vmtest` crate.

pub mod arguments;
mod cpu_state;
mod device_tree;
mod firmware;
pub mod vmtest_child;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::backend::{Backend, Boot, Progress, Run};
use crate::machine_spec::Capabilities;
use crate::program;
use host::toolchain;
use kernels::guest_root;

/// The backend QEMU: an unmodified QEMU, whose CPUs have the branch records that the plugin
/// gives them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Qemu;

impl Backend for Qemu {
    fn name(&self) -> &str {
        "qemu"
    }

    fn description(&self) -> String {
        let version = toolchain::version("qemu-system-aarch64").unwrap_or_default();
        let number = version.split("version ").nth(1);
        let number = number.and_then(|rest| rest.split(char::is_whitespace).next());
        let number = number.unwrap_or("of an unknown version");
        format!("QEMU {number} with an emulation of FEAT_BRBE (a TCG plugin), not on hardware")
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            plugin: true,
            cpus: 16,
            records: 64,
            vhe: true,
            pseudo_nmi: true,
            heterogeneous: true,
        }
    }

    fn run(&self, boot: &Boot, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Run> {
        // vmtest gives its init the PATH of the process that it runs in.
        program::run_self(&["__vm".into()], guest_root::INIT_PATH, boot, progress)
    }
}

/// The backend QEMU, whose machines all start with the firmware in a directory.
#[derive(Clone, Debug)]
pub struct QemuWithFirmware {
    dir: PathBuf,
}

impl QemuWithFirmware {
    /// With the firmware in `dir`, a build of Trusted Firmware-A for QEMU.
    ///
    /// # Errors
    ///
    /// When there is no such directory.
    pub fn new(dir: &Path) -> Result<Self> {
        let dir = firmware_in(dir)?;
        Ok(Self { dir })
    }
}

/// The whole path of a directory with firmware.
///
/// # Errors
///
/// When there is no such directory.
pub fn firmware_in(dir: &Path) -> Result<PathBuf> {
    let found = dir.canonicalize();
    found.with_context(|| format!("looking for the firmware in {}", dir.display()))
}

impl Backend for QemuWithFirmware {
    fn name(&self) -> &str {
        Qemu.name()
    }

    fn description(&self) -> String {
        format!(
            "{}, started by firmware in {}",
            Qemu.description(),
            self.dir.display()
        )
    }

    fn capabilities(&self) -> Capabilities {
        Qemu.capabilities()
    }

    fn run(&self, boot: &Boot, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Run> {
        let boot = Boot {
            firmware: Some(self.dir.clone()),
            ..boot.clone()
        };
        Qemu.run(&boot, progress)
    }
}
