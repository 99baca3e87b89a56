//! What machine this is, by what any user can read.

use std::fs;
use std::path::Path;

use anyhow::Result;
use guest_reports::board::{BoardCpu, BoardMachine, Part};

use crate::image::Image;
use crate::{cpus, pmus};

/// Files with the name of the machine's model: of a device tree, and of DMI.
const MODELS: [&str; 2] = [
    "/sys/firmware/devicetree/base/model",
    "/sys/class/dmi/id/product_name",
];
/// The kernel's types.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Looks at the machine.
pub(super) fn look() -> Result<BoardMachine> {
    let name = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let pmus = pmus::all().unwrap_or_default();
    let cpus = cpus::online()?.into_iter().map(|number| {
        let pmu = pmus.iter().find(|pmu| pmu.cpus.contains(&number));
        BoardCpu {
            number,
            midr: read(format!(
                "/sys/devices/system/cpu/cpu{number}/regs/identification/midr_el1"
            )),
            pmu: pmu.map(|pmu| pmu.name.clone()),
            records: pmu.map_or(0, |pmu| pmu.branches),
        }
    });
    Ok(BoardMachine {
        model: MODELS.into_iter().find_map(read),
        architecture: text(name.machine()),
        release: text(name.release()),
        kernel_version: text(name.version()),
        is_root: rustix::process::geteuid().is_root(),
        has_btf: Path::new(BTF).exists(),
        has_snapshots: has_snapshots(),
        cpus: cpus.collect(),
    })
}

/// Whether a driver takes snapshots.
fn has_snapshots() -> Part<bool> {
    match Image::of_this_kernel().and_then(Image::snapshot_function) {
        Ok(function) => Part::Seen(function.is_some()),
        Err(error) => Part::missing(format!("{error:#}")),
    }
}

/// The text of a file of sysfs, without the 0 that ends it in a device tree.
fn read(file: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let text = text.trim_end_matches(['\0', '\n']).trim();
    (!text.is_empty()).then(|| text.to_owned())
}
