//! A machine with heterogeneous CPUs: a device tree with two PMUs.
//!
//! QEMU's CPUs are alike, and the plugin gives BRBE to some of them. For Linux to see two
//! kinds of CPUs, each with a PMU, the device tree has to say so.
//!
//! Both PMUs interrupt by the same PPI, so the tree has to say on which CPUs it is which
//! PMU's. The fourth cell of an interrupt does that: it is a partition of the CPUs, or 0 for
//! none (Documentation/devicetree/bindings/interrupt-controller/arm,gic-v3.yaml).

use dtoolkit::model::{DeviceTreeNode, DeviceTreeProperty};
use dtoolkit::{FdtStringListIterator, Node as _, Property as _};

use super::tree::{Error, bytes, cell, cells, free_phandles, unexpected};
use crate::brbe_cpus::BrbeCpus;

/// The number of cells of an interrupt of the GIC in QEMU's device tree.
const CELLS: usize = 3;
/// The `compatible` of the PMU of the first CPUs. This one and [`COUNTING`] are of two cores
/// that Linux knows. Only their names matter: Linux's driver does the same for both.
const RECORDING: &str = "arm,cortex-a720-pmu";
/// The `compatible` of the PMU of the other CPUs.
const COUNTING: &str = "arm,cortex-a520-pmu";

/// Changes a device tree into one with two PMUs: one of `brbe_cpus`, one of the other CPUs.
pub(super) fn split(root: &mut DeviceTreeNode, brbe_cpus: &BrbeCpus) -> Result<(), Error> {
    let cpus = cpus(root)?;
    let all = cpus.len();
    let has_brbe = |number: usize| u8::try_from(number).is_ok_and(|cpu| brbe_cpus.contains(cpu));
    let numbered = cpus.into_iter().enumerate();
    let (recording, counting): (Vec<_>, Vec<_>) =
        numbered.partition(|(number, _)| has_brbe(*number));
    if recording.len() != brbe_cpus.numbers().count() || counting.is_empty() {
        let brbe_cpus = brbe_cpus.clone();
        return Err(Error::Cpus { brbe_cpus, all });
    }

    let gic = Gic::of(root)?;
    gic.lengthen_all(root, None)?;

    let first = free_phandles(root)?;
    let mut partitions = DeviceTreeNode::new("ppi-partitions")?;
    let pmu = root.remove_child("pmu").ok_or(Error::Missing("PMU"))?;
    let clusters = [(recording, RECORDING), (counting, COUNTING)];
    for ((number, phandle), (cpus, compatible)) in (0..).zip(first..).zip(clusters) {
        let cpus: Vec<_> = cpus.into_iter().map(|(_, phandle)| phandle).collect();
        let partition = DeviceTreeNode::builder(format!("interrupt-partition-{number}"))?
            .property(DeviceTreeProperty::new("affinity", bytes(&cpus))?)
            .property(DeviceTreeProperty::new("phandle", phandle)?)
            .build();
        partitions.add_child(partition);

        let mut interrupt = cells(&pmu, "interrupts")?.ok_or(Error::Missing("PMU's interrupt"))?;
        // The interrupt has its fourth cell already: 0, which is no partition.
        let [_, _, _, affinity] = &mut interrupt[..] else {
            return Err(unexpected(&pmu, "interrupts"));
        };
        *affinity = phandle;
        let node = DeviceTreeNode::builder(format!("pmu-{number}"))?
            .property(DeviceTreeProperty::new("compatible", compatible)?)
            .property(DeviceTreeProperty::new("interrupts", bytes(&interrupt))?)
            .build();
        root.add_child(node);
    }
    let node = root.child_mut(&gic.name).ok_or(Error::Missing("GIC"))?;
    node.add_property(DeviceTreeProperty::new(
        "#interrupt-cells",
        CELLS as u32 + 1,
    )?);
    node.add_child(partitions);
    Ok(())
}

/// The phandles of the CPUs, in the order of their numbers.
fn cpus(root: &DeviceTreeNode) -> Result<Vec<u32>, Error> {
    let cpus = root.child("cpus").ok_or(Error::Missing("CPUs"))?;
    let mut found = Vec::new();
    for cpu in cpus.children() {
        if cpu.name_without_address() != "cpu" {
            continue;
        }
        let number = cell(cpu, "reg")?.ok_or(Error::Missing("number of a CPU"))?;
        let phandle = cell(cpu, "phandle")?.ok_or(Error::Missing("phandle of a CPU"))?;
        found.push((number, phandle));
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, phandle)| phandle).collect())
}

/// The node of the interrupt controller, the GIC.
struct Gic {
    name: String,
    phandle: u32,
    /// The number of cells of an address in the GIC's node, which entries of `interrupt-map`
    /// have too.
    address_cells: usize,
}

impl Gic {
    fn of(root: &DeviceTreeNode) -> Result<Self, Error> {
        let is_gic = |node: &&DeviceTreeNode| {
            let compatible = node.property("compatible");
            compatible
                .and_then(|property| property.value_as::<FdtStringListIterator<'_>>().ok())
                .is_some_and(|mut names| names.any(|name| name == "arm,gic-v3"))
        };
        let node = root.children().find(is_gic).ok_or(Error::Missing("GIC"))?;
        if cell(node, "#interrupt-cells")? != Some(CELLS as u32) {
            return Err(unexpected(node, "#interrupt-cells"));
        }
        Ok(Self {
            name: node.name().to_owned(),
            phandle: cell(node, "phandle")?.ok_or(Error::Missing("phandle of the GIC"))?,
            address_cells: cell(node, "#address-cells")?.unwrap_or(0) as usize,
        })
    }

    /// Adds a fourth cell to each interrupt of this node, and of those below it, that goes to
    /// the GIC. `parent` is the phandle of the interrupt controller that the node inherits.
    fn lengthen_all(&self, node: &mut DeviceTreeNode, parent: Option<u32>) -> Result<(), Error> {
        let parent = cell(node, "interrupt-parent")?.or(parent);
        if node.property("interrupts-extended").is_some() {
            return Err(unexpected(node, "interrupts-extended"));
        }
        if let Some(interrupts) = cells(node, "interrupts")? {
            if parent != Some(self.phandle) {
                return Err(unexpected(node, "interrupt-parent"));
            }
            let longer = lengthen(&interrupts, CELLS);
            let longer = longer.ok_or_else(|| unexpected(node, "interrupts"))?;
            node.add_property(DeviceTreeProperty::new("interrupts", longer)?);
        }
        if let Some(map) = cells(node, "interrupt-map")? {
            let longer = self.lengthen_map(node, &map)?;
            let longer = longer.ok_or_else(|| unexpected(node, "interrupt-map"))?;
            node.add_property(DeviceTreeProperty::new("interrupt-map", longer)?);
        }
        node.children_mut()
            .try_for_each(|child| self.lengthen_all(child, parent))
    }

    /// Adds a cell to each entry of an `interrupt-map`. Entries are a device's address and
    /// interrupt, the controller's phandle, and an address and interrupt there. `None` if one
    /// of them does not go to the GIC, or is not whole.
    fn lengthen_map(&self, node: &DeviceTreeNode, map: &[u32]) -> Result<Option<Vec<u8>>, Error> {
        let cells_of = |name| Ok::<_, Error>(cell(node, name)?.unwrap_or(0) as usize);
        let device = cells_of("#address-cells")?.saturating_add(cells_of("#interrupt-cells")?);
        let length = device
            .saturating_add(1 + CELLS)
            .saturating_add(self.address_cells);
        let ours = map
            .chunks(length)
            .all(|entry| entry.get(device) == Some(&self.phandle));
        Ok(if ours { lengthen(map, length) } else { None })
    }
}

/// Adds a cell, 0, to each entry of `length` cells, and returns the bytes of all cells.
/// `None` if the last entry is not whole.
fn lengthen(cells: &[u32], length: usize) -> Option<Vec<u8>> {
    let entries = cells.chunks_exact(length);
    if !entries.remainder().is_empty() {
        return None;
    }
    Some(
        entries
            .flat_map(|entry| bytes(&[entry, &[0]].concat()))
            .collect(),
    )
}

#[cfg(test)]
pub(super) mod tests;
