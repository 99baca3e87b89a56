//! An initramfs that is in the machine's memory before its firmware starts. Without firmware, QEMU
//! itself tells the kernel where it is.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use dtoolkit::model::{DeviceTreeNode, DeviceTreeProperty};

use super::tree::Error;

/// Where it is in memory. Memory begins 128 MiB before, with the device tree, and the kernel is
/// 384 MiB behind (TF-A, plat/qemu/qemu/include/platform_def.h).
const ADDRESS: u64 = 0x4800_0000;

/// An initramfs in memory.
#[derive(Debug)]
pub(in crate::qemu) struct Initramfs {
    file: PathBuf,
    size: u64,
}

impl Initramfs {
    /// That of a file.
    pub(in crate::qemu) fn of(file: &Path) -> Result<Self> {
        let data = fs::metadata(file).with_context(|| format!("reading {}", file.display()))?;
        Ok(Self {
            file: file.to_owned(),
            size: data.len(),
        })
    }

    /// Arguments for QEMU that put it there.
    pub(in crate::qemu) fn arguments(&self) -> Vec<String> {
        let file = self.file.display().to_string().replace(',', ",,");
        let device = format!("loader,addr={ADDRESS:#x},force-raw=on,file={file}");
        vec!["-device".to_owned(), device]
    }

    /// Changes a device tree so that it says where the initramfs is.
    pub(super) fn add(&self, root: &mut DeviceTreeNode) -> Result<(), Error> {
        let chosen = root.child_mut("chosen").ok_or(Error::Missing("/chosen"))?;
        let end = ADDRESS + self.size;
        chosen.add_property(DeviceTreeProperty::new("linux,initrd-start", ADDRESS)?);
        chosen.add_property(DeviceTreeProperty::new("linux,initrd-end", end)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dtoolkit::model::DeviceTree;
    use dtoolkit::{Node as _, Property as _};

    #[test]
    fn the_kernel_is_told_where_it_is() {
        let initramfs = Initramfs {
            file: "/a,b".into(),
            size: 0x1234,
        };
        let mut tree = DeviceTree::new();
        assert!(initramfs.add(&mut tree.root).is_err());
        tree.root.add_child(DeviceTreeNode::new("chosen").unwrap());
        initramfs.add(&mut tree.root).unwrap();
        let chosen = tree.find_node("/chosen").unwrap();
        let at = |name| -> u64 { chosen.property(name).unwrap().value_as().unwrap() };
        assert_eq!(at("linux,initrd-start"), 0x4800_0000);
        assert_eq!(at("linux,initrd-end"), 0x4800_1234);
        let arguments = initramfs.arguments();
        assert_eq!(
            arguments[1],
            "loader,addr=0x48000000,force-raw=on,file=/a,,b"
        );
    }
}
