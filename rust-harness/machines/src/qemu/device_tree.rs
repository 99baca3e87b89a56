//! A machine with heterogeneous CPUs.
//!
//! QEMU's CPUs are alike, and the plugin gives BRBE to some of them. For Linux to see two
//! kinds of CPUs, each with a PMU, the device tree has to say so: it is QEMU's own, changed.

pub(super) mod tree;

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use tempfile::NamedTempFile;

use crate::brbe_cpus::BrbeCpus;
use crate::machine_spec::MachineSpec;

/// A file with the device tree for `machine`, of which `brbe_cpus` have BRBE and a PMU of their
/// own. `arguments` are those of QEMU's that change its device tree.
pub(super) fn device_tree(
    machine: &MachineSpec,
    arguments: &[String],
    brbe_cpus: &BrbeCpus,
) -> Result<NamedTempFile> {
    changed(machine, arguments, |dumped| tree::split(dumped, brbe_cpus))
}

/// A file with a device tree for `machine`: what `change` makes of QEMU's own, as a DTB.
pub(super) fn changed(
    machine: &MachineSpec,
    arguments: &[String],
    change: impl FnOnce(&[u8]) -> Result<Vec<u8>, tree::Error>,
) -> Result<NamedTempFile> {
    let file = NamedTempFile::new().context("creating a file for the device tree")?;
    let dumped = dump(machine, arguments, &file).context("asking QEMU for its device tree")?;
    std::fs::write(file.path(), change(&dumped)?).context("writing the device tree")?;
    Ok(file)
}

/// QEMU's own device tree, as a DTB, of a machine with these arguments.
fn dump(machine: &MachineSpec, arguments: &[String], into: &NamedTempFile) -> Result<Vec<u8>> {
    let output = Command::new("qemu-system-aarch64")
        .args(["-nodefaults", "-display", "none", "-cpu", "max"])
        .args(["-machine", "virt,gic-version=3"])
        .args(["-smp", &machine.cpus.to_string()])
        .args(["-m", &format!("{}M", machine.memory_mib)])
        .args(arguments)
        .arg("-machine")
        .arg(format!("dumpdtb={}", into.path().display()))
        .stdin(Stdio::null())
        .output()
        .context("starting QEMU")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{}: {}", output.status, said.trim());
    }
    // The file is opened by its name, because QEMU may have replaced it.
    let file = File::open(into.path()).context("opening the device tree")?;
    let mut dumped = Vec::new();
    file.take(tree::MAX_SIZE + 1)
        .read_to_end(&mut dumped)
        .context("reading the device tree")?;
    Ok(dumped)
}
