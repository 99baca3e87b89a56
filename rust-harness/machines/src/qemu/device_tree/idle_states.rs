//! A machine whose CPUs idle by their firmware (PSCI `CPU_SUSPEND`).
//!
//! QEMU's own device tree has no idle state, and Linux idles by `WFI`. With one, each CPU that
//! idles goes through Linux's preparations for the loss of what it holds (`cpu_pm_enter()`,
//! kernel/cpu_pm.c): the PMU's driver stops its events before, and sets the PMU up anew after. The
//! state is a standby, since firmware for QEMU powers no CPU down: nothing is lost in truth.
//!
//! It takes firmware at EL3. Without it the GIC has no Security states, Linux's driver of the GIC
//! disables the CPU's interface as part of these preparations (`gic_cpu_pm_notifier()`), and no
//! interrupt ends what is QEMU's `CPU_SUSPEND`, a `WFI`.

use dtoolkit::Node as _;
use dtoolkit::model::{DeviceTreeNode, DeviceTreeProperty};

use super::tree::{Error, free_phandles};

/// The state for `CPU_SUSPEND`: a standby of the CPU alone (PSCI, 5.4.2, "power_state").
const STANDBY: u32 = 0;
/// How long the state takes to enter and to leave, and how long it has to last, in microseconds:
/// so short that a CPU idles in no other one.
const LATENCY: u32 = 1;

/// Changes a device tree so that each CPU has one such idle state.
pub(super) fn add(root: &mut DeviceTreeNode) -> Result<(), Error> {
    let phandle = free_phandles(root)?;
    let state = DeviceTreeNode::builder("cpu-sleep")?
        .property(DeviceTreeProperty::new("compatible", "arm,idle-state")?)
        .property(DeviceTreeProperty::new("arm,psci-suspend-param", STANDBY)?)
        .property(DeviceTreeProperty::new("entry-latency-us", LATENCY)?)
        .property(DeviceTreeProperty::new("exit-latency-us", LATENCY)?)
        .property(DeviceTreeProperty::new("min-residency-us", LATENCY)?)
        .property(DeviceTreeProperty::new("phandle", phandle)?)
        .build();
    let mut states = DeviceTreeNode::builder("idle-states")?
        .property(DeviceTreeProperty::new("entry-method", "psci")?)
        .build();
    states.add_child(state);
    let cpus = root.child_mut("cpus").ok_or(Error::Missing("CPUs"))?;
    for cpu in cpus.children_mut() {
        if cpu.name_without_address() == "cpu" {
            cpu.add_property(DeviceTreeProperty::new("cpu-idle-states", phandle)?);
        }
    }
    cpus.add_child(states);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dtoolkit::Property as _;
    use dtoolkit::model::DeviceTree;

    #[test]
    fn each_cpu_has_the_state() {
        let mut tree = DeviceTree::new();
        let mut cpus = DeviceTreeNode::new("cpus").unwrap();
        for name in ["cpu@0", "cpu@1", "cpu-map"] {
            cpus.add_child(DeviceTreeNode::new(name).unwrap());
        }
        tree.root.add_child(cpus);
        add(&mut tree.root).unwrap();
        let cell = |path: &str, name: &str| -> Option<u32> {
            let property = tree.find_node(path).unwrap().property(name)?;
            Some(property.value_as().unwrap())
        };
        let state = cell("/cpus/idle-states/cpu-sleep", "phandle");
        assert!(state.is_some());
        for cpu in ["/cpus/cpu@0", "/cpus/cpu@1"] {
            assert_eq!(cell(cpu, "cpu-idle-states"), state);
        }
        assert_eq!(cell("/cpus/cpu-map", "cpu-idle-states"), None);
    }

    #[test]
    fn a_machine_without_cpus_is_refused() {
        let error = add(&mut DeviceTree::new().root).unwrap_err();
        assert!(error.to_string().contains("no CPUs"), "{error}");
    }
}
