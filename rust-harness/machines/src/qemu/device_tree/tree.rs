//! Device trees: reading one, and what the modules that change one have in common.

use dtoolkit::Node as _;
use dtoolkit::Property as _;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::model::{DeviceTree, DeviceTreeNode};

use crate::brbe_cpus::BrbeCpus;

/// How many bytes a device tree may have, which is QEMU's own limit (FDT_MAX_SIZE).
pub(super) const MAX_SIZE: u64 = 1 << 20;
/// How many levels a device tree may have. QEMU's has 6.
pub(super) const MAX_DEPTH: usize = 16;
/// Why a device tree cannot be changed.
#[derive(Debug, thiserror::Error)]
pub(in crate::qemu) enum Error {
    /// The device tree is larger or deeper than any of QEMU's.
    #[error("the device tree is too large")]
    TooLarge,
    /// The input is not a device tree.
    #[error("not a device tree")]
    Malformed(#[from] dtoolkit::error::FdtParseError),
    /// A node or property cannot be made.
    #[error("the device tree cannot be added to")]
    Model(#[from] dtoolkit::error::ModelError),
    /// The device tree lacks something that it has to have.
    #[error("the device tree has no {0}")]
    Missing(&'static str),
    /// A property has a form that this module does not know how to change.
    #[error("the device tree's {node}: cannot make sense of {property}")]
    Unexpected {
        /// The node's name.
        node: String,
        /// The property's name.
        property: &'static str,
    },
    /// One of the two kinds of CPUs would have no CPU.
    #[error(
        "--brbe-cpus {brbe_cpus}: the machine's {all} CPUs have the numbers from 0 on, and at least one \
         of them has to be in the list, and one not"
    )]
    Cpus {
        /// The CPUs that were asked for as the first kind.
        brbe_cpus: BrbeCpus,
        /// How many CPUs the machine has.
        all: usize,
    },
}

/// Reads a device tree, a DTB. One that is too large or too deep for the functions here that
/// recurse is refused.
pub(super) fn parse(dumped: &[u8]) -> Result<DeviceTree, Error> {
    if dumped.len() as u64 > MAX_SIZE {
        return Err(Error::TooLarge);
    }
    let fdt = Fdt::new(dumped)?;
    if !within(&fdt.root(), MAX_DEPTH) {
        return Err(Error::TooLarge);
    }
    Ok(DeviceTree::from_fdt(&fdt))
}

/// Whether the tree from `node` on ends within `depth` levels.
fn within(node: &FdtNode<'_>, depth: usize) -> bool {
    depth > 0 && node.children().all(|child| within(&child, depth - 1))
}

/// The first of two phandles that no node has.
pub(super) fn free_phandles(root: &DeviceTreeNode) -> Result<u32, Error> {
    let highest = highest_phandle(root)?;
    // The two highest values are no phandles.
    if highest >= u32::MAX - 3 {
        return Err(Error::Missing("phandle that is free"));
    }
    Ok(highest + 1)
}

fn highest_phandle(node: &DeviceTreeNode) -> Result<u32, Error> {
    let mut highest = cell(node, "phandle")?.unwrap_or(0);
    for child in node.children() {
        highest = highest.max(highest_phandle(child)?);
    }
    Ok(highest)
}

/// The bytes of cells, as a property holds them.
pub(super) fn bytes(cells: &[u32]) -> Vec<u8> {
    cells.iter().flat_map(|cell| cell.to_be_bytes()).collect()
}

/// The cells of a property, if the node has it.
pub(super) fn cells(
    node: &DeviceTreeNode,
    property: &'static str,
) -> Result<Option<Vec<u32>>, Error> {
    let Some(found) = node.property(property) else {
        return Ok(None);
    };
    let (cells, rest) = found.value().as_chunks();
    if !rest.is_empty() {
        return Err(unexpected(node, property));
    }
    Ok(Some(
        cells.iter().map(|cell| u32::from_be_bytes(*cell)).collect(),
    ))
}

/// The cell of a property, if the node has it.
pub(super) fn cell(node: &DeviceTreeNode, property: &'static str) -> Result<Option<u32>, Error> {
    let cells = cells(node, property)?;
    match cells.as_deref() {
        None => Ok(None),
        Some([cell]) => Ok(Some(*cell)),
        Some(_) => Err(unexpected(node, property)),
    }
}

/// The error for a property that has another form than it has in QEMU's own device tree.
pub(super) fn unexpected(node: &DeviceTreeNode, property: &'static str) -> Error {
    Error::Unexpected {
        node: node.name().to_owned(),
        property,
    }
}
