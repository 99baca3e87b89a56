//! How a machine is described to QEMU, beside what every machine has.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tempfile::NamedTempFile;

use super::device_tree::{self, Initramfs};
use super::firmware;
use crate::backend::PluginFile;
use crate::machine_spec::MachineSpec;
use host::arch::Arch;

/// The description of a machine in QEMU's words and the kernel's. Its device tree, if it has one
/// of its own, and its flash are there as long as this value: QEMU reads them when it starts.
#[derive(Debug)]
pub struct Described {
    /// Arguments for QEMU, but for the device tree.
    words: Vec<String>,
    /// What the kernel's command line begins with.
    pub kernel_words: Vec<String>,
    device_tree: Option<MachineFile>,
    /// The flash that the machine starts from, if it has firmware.
    flash: Option<MachineFile>,
}

/// A word for each arm64 kernel. A kernel with KASLR and without `ARM64_E0PD` unmaps its own pages
/// while user space runs, and each system call then empties QEMU's TLB twice: it takes four times as
/// long. CPUs with BRBE have FEAT_E0PD (Arm ARM: mandatory from Armv8.5), for which a kernel that
/// knows it need not do so.
const MAPPED: &str = "kpti=off";

/// The firmware that a machine starts with, and what follows it.
#[derive(Clone, Copy, Debug)]
pub struct StartingFirmware<'a> {
    /// Path of the directory with the firmware: see `machines::qemu::firmware`.
    pub dir: &'a Path,
    /// Path of the kernel's image.
    pub kernel: &'a Path,
    /// Path of the kernel's initramfs, if it has one.
    pub initramfs: Option<&'a Path>,
}

/// A file that a machine starts with.
#[derive(Debug)]
enum MachineFile {
    /// The file goes with the description.
    Temporary(NamedTempFile),
    /// The file stays.
    Kept(PathBuf),
}

impl MachineFile {
    fn path(&self) -> &Path {
        match self {
            Self::Temporary(file) => file.path(),
            Self::Kept(path) => path,
        }
    }

    /// This file, kept as `into`.
    fn kept(&self, into: PathBuf) -> Result<Self> {
        let from = self.path();
        fs::copy(from, &into).with_context(|| format!("keeping {}", into.display()))?;
        Ok(Self::Kept(into))
    }
}

impl Described {
    /// Describes a machine of an architecture whose CPUs have what `plugin` gives them.
    ///
    /// # Errors
    ///
    /// When the machine's device tree cannot be made of QEMU's own, or its flash cannot be made.
    pub fn of(
        arch: Arch,
        machine: &MachineSpec,
        plugin: Option<&PluginFile>,
        firmware: Option<StartingFirmware<'_>>,
    ) -> Result<Self> {
        let of_tree = of_tree(machine, firmware.is_some());
        let initramfs = firmware.and_then(|firmware| firmware.initramfs);
        let initramfs = initramfs.map(Initramfs::of).transpose()?;
        let tree = device_tree::of(machine, &of_tree, initramfs.as_ref())?;
        let flash =
            firmware.map(|StartingFirmware { dir, kernel, .. }| firmware::flash(dir, kernel));
        let loaded = initramfs.map(|initramfs| initramfs.arguments());
        let words = [
            (arch == Arch::Arm64, MAPPED),
            (machine.late_pmu, device_tree::WAIT),
        ];
        let words = words.into_iter().filter(|(is_there, _)| *is_there);
        Ok(Self {
            words: [
                of_tree,
                of_plugin(machine, plugin),
                loaded.unwrap_or_default(),
            ]
            .concat(),
            kernel_words: words.map(|(_, word)| word.to_owned()).collect(),
            device_tree: tree.map(MachineFile::Temporary),
            flash: flash.transpose()?.map(MachineFile::Temporary),
        })
    }

    /// Arguments for QEMU.
    pub fn arguments(&self) -> Vec<String> {
        let files = [("-dtb", &self.device_tree), ("-bios", &self.flash)];
        let files = files.into_iter().flat_map(|(option, file)| {
            let file = file.iter();
            file.flat_map(move |file| [option.to_owned(), file.path().display().to_string()])
        });
        self.words.iter().cloned().chain(files).collect()
    }

    /// Keeps the machine's device tree and its flash, if it has them, in the directory `dir`, from
    /// where QEMU reads them then.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub fn keep(&mut self, dir: &Path) -> Result<()> {
        for (file, name) in [
            (&mut self.device_tree, "machine.dtb"),
            (&mut self.flash, "flash.bin"),
        ] {
            let kept = file.as_ref().map(|file| file.kept(dir.join(name)));
            *file = kept.transpose()?;
        }
        Ok(())
    }
}

/// Those arguments that change QEMU's device tree.
fn of_tree(machine: &MachineSpec, has_firmware: bool) -> Vec<String> {
    let levels = [
        (machine.vhe, "virtualization=on"),
        // Without ACPI the devices are the same ones with firmware as without: those of the tree.
        (has_firmware, "secure=on,acpi=off"),
    ];
    let there = levels.into_iter().filter(|(is_there, _)| *is_there);
    let words = there.flat_map(|(_, level)| ["-machine", level]);
    words.map(str::to_owned).collect()
}

/// Those arguments that load a plugin, which gives branch records to the CPUs that have them.
fn of_plugin(machine: &MachineSpec, plugin: Option<&PluginFile>) -> Vec<String> {
    let Some(plugin) = plugin else {
        return Vec::new();
    };
    let mut words = vec![plugin.path.display().to_string()];
    words.extend(plugin.options.iter().cloned());
    if let Some(cpus) = &machine.brbe_cpus {
        // A comma ends an option.
        let numbers: Vec<_> = cpus.numbers().map(|cpu| cpu.to_string()).collect();
        words.push(format!("cpus={}", numbers.join(":")));
    }
    vec!["-plugin".to_owned(), words.join(",")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_as_asked() {
        let machine = MachineSpec {
            vhe: true,
            ..MachineSpec::heterogeneous()
        };
        let hypervisor = ["-machine", "virtualization=on"];
        assert_eq!(of_tree(&machine, false), hypervisor);
        let secure = ["-machine", "secure=on,acpi=off"];
        assert_eq!(of_tree(&machine, true), [hypervisor, secure].concat());
        let plugin = PluginFile {
            path: "/p.so".into(),
            options: vec!["records=8".to_owned()],
        };
        let arguments = of_plugin(&machine, Some(&plugin));
        assert_eq!(arguments, ["-plugin", "/p.so,records=8,cpus=0:1"]);
        let ordinary = Described::of(Arch::Arm64, &MachineSpec::default(), None, None);
        let ordinary = ordinary.unwrap();
        assert_eq!(ordinary.arguments(), [""; 0]);
        assert_eq!(ordinary.kernel_words, [MAPPED]);
        assert!(ordinary.device_tree.is_none());
    }
}
