//! A machine on which Linux has no PMU until somebody asks for it.
//!
//! The device tree has an addition: the PMU has a clock, and the clock belongs
//! to a device for which Linux has no driver. Linux does not probe the PMU until that device
//! has a driver (`fw_devlink`, drivers/base/core.c), or until it has given up waiting. In the
//! guest the device can be given a driver that takes any device,
//! `drivers/bus/simple-pm-bus.c`, by its `driver_override`.

use dtoolkit::model::{DeviceTreeNode, DeviceTreeProperty};

use super::tree::{Error, free_phandles};

/// Name of the device that the PMU waits for. The guest's test knows this name.
const SUPPLIER: &str = "late-pmu-supplier";
/// The `compatible` of the device [`SUPPLIER`], which no driver knows.
const COMPATIBLE: &str = "brbe,no-driver";

/// A word for the kernel's command line, which has Linux wait for so many seconds until it
/// gives up waiting for a device. No test takes as long.
pub(in crate::qemu) const WAIT: &str = "deferred_probe_timeout=3600";

/// Changes a device tree so that the PMU waits for a device without a driver.
pub(super) fn add_supplier(root: &mut DeviceTreeNode) -> Result<(), Error> {
    let phandle = free_phandles(root)?;
    let supplier = DeviceTreeNode::builder(SUPPLIER)?
        .property(DeviceTreeProperty::new("compatible", COMPATIBLE)?)
        .property(DeviceTreeProperty::new("#clock-cells", 0_u32)?)
        .property(DeviceTreeProperty::new("phandle", phandle)?)
        .build();
    root.add_child(supplier);
    let pmu = root.child_mut("pmu").ok_or(Error::Missing("PMU"))?;
    pmu.add_property(DeviceTreeProperty::new("clocks", phandle)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dtoolkit::model::DeviceTree;
    use dtoolkit::{Node as _, Property as _};

    fn node(name: &str, phandle: u32) -> DeviceTreeNode {
        let mut node = DeviceTreeNode::new(name).unwrap();
        node.add_property(DeviceTreeProperty::new("phandle", phandle).unwrap());
        node
    }

    fn cell(tree: &DeviceTree, path: &str, property: &str) -> u32 {
        let node = tree.find_node(path).unwrap();
        node.property(property).unwrap().value_as().unwrap()
    }

    #[test]
    fn the_pmu_has_a_clock_of_a_device_without_a_driver() {
        let mut tree = DeviceTree::new();
        tree.root.add_child(node("pmu", 3));
        tree.root.add_child(node("other", 7));
        add_supplier(&mut tree.root).unwrap();
        let supplier = format!("/{SUPPLIER}");
        assert_eq!(cell(&tree, &supplier, "phandle"), 8);
        assert_eq!(cell(&tree, &supplier, "#clock-cells"), 0);
        assert_eq!(cell(&tree, "/pmu", "clocks"), 8);
        assert_eq!(cell(&tree, "/pmu", "phandle"), 3);
    }

    #[test]
    fn a_machine_without_a_pmu_is_refused() {
        let mut tree = DeviceTree::new();
        tree.root.add_child(node("other", 7));
        let error = add_supplier(&mut tree.root).unwrap_err();
        assert!(error.to_string().contains("no PMU"), "{error}");
    }
}
