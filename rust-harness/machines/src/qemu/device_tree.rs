//! The device trees of machines that QEMU itself does not have: QEMU's own, changed.

mod heterogeneous;
mod idle_states;
mod initramfs;
mod late_pmu;
mod tree;

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use tempfile::NamedTempFile;

use crate::machine_spec::MachineSpec;
pub(super) use initramfs::Initramfs;
pub(super) use late_pmu::WAIT;

/// A file with the device tree for `machine`. `None` if QEMU's own does. `arguments` are those of
/// QEMU's that change its device tree.
pub(super) fn of(
    machine: &MachineSpec,
    arguments: &[String],
    initramfs: Option<&Initramfs>,
) -> Result<Option<NamedTempFile>> {
    let is_changed = machine.brbe_cpus.is_some() || machine.late_pmu || machine.idle_states;
    if !is_changed && initramfs.is_none() {
        return Ok(None);
    }
    let file = NamedTempFile::new().context("creating a file for the device tree")?;
    let dumped = dump(machine, arguments, &file).context("asking QEMU for its device tree")?;
    std::fs::write(file.path(), changed(&dumped, machine, initramfs)?)
        .context("writing the device tree")?;
    Ok(Some(file))
}

/// The device tree `dumped` with what `machine` needs. Both are DTBs.
fn changed(
    dumped: &[u8],
    machine: &MachineSpec,
    initramfs: Option<&Initramfs>,
) -> Result<Vec<u8>, tree::Error> {
    let mut tree = tree::parse(dumped)?;
    if let Some(brbe_cpus) = &machine.brbe_cpus {
        heterogeneous::split(&mut tree.root, brbe_cpus)?;
    }
    if machine.late_pmu {
        late_pmu::add_supplier(&mut tree.root)?;
    }
    if machine.idle_states {
        idle_states::add(&mut tree.root)?;
    }
    if let Some(initramfs) = initramfs {
        initramfs.add(&mut tree.root)?;
    }
    Ok(tree.to_dtb())
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

#[cfg(test)]
mod tests;
