//! How a machine is described to QEMU, beside what every machine has.

use anyhow::Result;
use tempfile::NamedTempFile;

use super::{heterogeneous, late_pmu};
use crate::backend::PluginFile;
use crate::machine_spec::MachineSpec;

/// The description of a machine in QEMU's words and the kernel's. Its device tree, if it has one
/// of its own, is there as long as this value: QEMU reads it when it starts.
#[derive(Debug)]
pub struct Described {
    /// Arguments for QEMU.
    pub arguments: Vec<String>,
    /// More words for the kernel's command line.
    pub kernel_words: Vec<String>,
    /// The machine's device tree, where it is not QEMU's own.
    pub device_tree: Option<NamedTempFile>,
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
        let device_tree = match (machine.brbe_cpus, machine.late_pmu) {
            (Some(cpus), _) => Some(heterogeneous::device_tree(machine, &of_tree, cpus)?),
            (None, true) => {
                kernel_words.push(late_pmu::WAIT.to_owned());
                Some(late_pmu::device_tree(machine, &of_tree)?)
            }
            (None, false) => None,
        };
        let mut arguments = of_tree;
        arguments.extend(of_plugin(machine, plugin));
        if let Some(tree) = &device_tree {
            arguments.extend(["-dtb".to_owned(), tree.path().display().to_string()]);
        }
        Ok(Self {
            arguments,
            kernel_words,
            device_tree,
        })
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
    if let Some(cpus) = machine.brbe_cpus {
        words.push(format!("cpus=0-{}", cpus.saturating_sub(1)));
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
        assert_eq!(arguments, ["-plugin", "/p.so,records=8,cpus=0-1"]);
        let ordinary = Described::of(&MachineSpec::default(), None).unwrap();
        assert_eq!(ordinary.arguments, [""; 0]);
        assert!(ordinary.device_tree.is_none());
    }
}
