//! How a machine is described to QEMU, beside what every machine has.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tempfile::NamedTempFile;

use super::{heterogeneous, late_pmu};
use crate::backend::PluginFile;
use crate::machine_spec::MachineSpec;

/// The description of a machine in QEMU's words and the kernel's. Its device tree, if it has one
/// of its own, is there as long as this value: QEMU reads it when it starts.
#[derive(Debug)]
pub struct Described {
    /// Arguments for QEMU, but for the device tree.
    words: Vec<String>,
    /// More words for the kernel's command line.
    pub kernel_words: Vec<String>,
    device_tree: Option<DeviceTree>,
}

/// The file of a device tree that is not QEMU's own.
#[derive(Debug)]
enum DeviceTree {
    /// The file goes with the description.
    Temporary(NamedTempFile),
    /// The file stays.
    Kept(PathBuf),
}

impl Described {
    /// Describes a machine whose CPUs have what `plugin` gives them.
    ///
    /// # Errors
    ///
    /// When the machine's device tree cannot be made of QEMU's own.
    pub fn of(machine: &MachineSpec, plugin: Option<&PluginFile>) -> Result<Self> {
        let of_tree = of_tree(machine);
        let mut kernel_words = Vec::new();
        let tree = match (&machine.brbe_cpus, machine.late_pmu) {
            (Some(cpus), _) => Some(heterogeneous::device_tree(machine, &of_tree, cpus)?),
            (None, true) => {
                kernel_words.push(late_pmu::WAIT.to_owned());
                Some(late_pmu::device_tree(machine, &of_tree)?)
            }
            (None, false) => None,
        };
        Ok(Self {
            words: [of_tree, of_plugin(machine, plugin)].concat(),
            kernel_words,
            device_tree: tree.map(DeviceTree::Temporary),
        })
    }

    /// Arguments for QEMU.
    pub fn arguments(&self) -> Vec<String> {
        let tree = self.device_tree.as_ref().map(|tree| match tree {
            DeviceTree::Temporary(file) => file.path(),
            DeviceTree::Kept(path) => path,
        });
        let tree = tree.map(|path| ["-dtb".to_owned(), path.display().to_string()]);
        let words = self.words.iter().cloned();
        words.chain(tree.into_iter().flatten()).collect()
    }

    /// Keeps the device tree, if the machine has one of its own, in the file `into`, from where
    /// QEMU reads it then.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn keep_device_tree(&mut self, into: &Path) -> Result<()> {
        if let Some(DeviceTree::Temporary(file)) = &self.device_tree {
            fs::copy(file.path(), into).context("keeping the device tree")?;
            self.device_tree = Some(DeviceTree::Kept(into.to_owned()));
        }
        Ok(())
    }
}

/// Those arguments that change QEMU's device tree.
fn of_tree(machine: &MachineSpec) -> Vec<String> {
    let arguments = ["-machine", "virtualization=on"].map(str::to_owned);
    arguments.into_iter().filter(|_| machine.vhe).collect()
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
        assert_eq!(of_tree(&machine), ["-machine", "virtualization=on"]);
        let plugin = PluginFile {
            path: "/p.so".into(),
            options: vec!["records=8".to_owned()],
        };
        let arguments = of_plugin(&machine, Some(&plugin));
        assert_eq!(arguments, ["-plugin", "/p.so,records=8,cpus=0:1"]);
        let ordinary = Described::of(&MachineSpec::default(), None).unwrap();
        assert_eq!(ordinary.arguments(), [""; 0]);
        assert!(ordinary.device_tree.is_none());
    }
}
