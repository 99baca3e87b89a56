//! The functions of a snapshot, in C and in Rust.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use branch_records::vmlinux::Vmlinux;
use object::{Object as _, ObjectSection as _};

use super::window::{Function, Functions, Place};

/// What BPF calls, in both languages.
pub const ENTRY: &str = "arm_brbe_snapshot_branch_stack";

/// C: what that calls while BRBE is paused.
const PAUSED: &str = "brbe_snapshot_paused";
/// C: what decodes a cycle count that is rare, where that is not for every record.
const DECODES: &str = "brbinf_decode_cycles";
/// C: what reads records, for samples as well; those of a bank where that is cheaper.
const READ: [&str; 2] = ["brbe_read_entries", "brbe_read_bank"];

/// Rust: what it calls while BRBE is paused.
const PAUSED_IN_RUST: &str = "arm_brbe_snapshot::read_paused";
/// Rust: what reads records.
const READ_IN_RUST: &str = "<arm_brbe_snapshot::Paused>::read";
/// What that calls of C.
const READ_HELPERS: [&str; 2] = [
    "rust_helper_perf_branch_entry_set_flags",
    "rust_helper_is_kernel_in_hyp_mode",
];
/// What it has no other way to call there than as a function of C.
const HELPERS: [&str; 7] = [
    "rust_helper_system_uses_irq_prio_masking",
    "rust_helper_gic_read_pmr",
    "rust_helper_local_daif_mask",
    "rust_helper_trace_hardirqs_on",
    "rust_helper_gic_write_pmr",
    "rust_helper_pmr_sync",
    "rust_helper_read_pmovsclr",
];
/// What Rust shares with the rest of the driver.
const INVALIDATE: &str = "brbe_invalidate";

/// Where they are in a kernel that is booted where it was linked.
///
/// # Errors
///
/// When `vmlinux` has none of the two.
pub fn functions(vmlinux: &Path) -> Result<Functions> {
    let vmlinux = Vmlinux::open(vmlinux)?;
    let function = |range, place, handlers| Function {
        range,
        place,
        handlers,
    };
    let entry = function(vmlinux.function(ENTRY)?, Place::Entry, false);
    let Ok(paused) = vmlinux.function_in_rust(PAUSED_IN_RUST) else {
        let paused = function(vmlinux.function(PAUSED)?, Place::Paused, false);
        let [all, bank] = READ;
        let read = vmlinux.function(all).or_else(|_| vmlinux.function(bank))?;
        let read = function(read, Place::Read, true);
        let decodes = vmlinux.function(DECODES);
        let decodes = decodes.map(|range| function(range, Place::Paused, true));
        let all = [entry, paused, read].into_iter().chain(decodes.ok());
        return Ok(Functions(all.collect()));
    };
    let mut all = vec![entry, function(paused, Place::Paused, false)];
    for helper in HELPERS {
        all.push(function(vmlinux.function(helper)?, Place::Paused, false));
    }
    let invalidate = vmlinux.function(INVALIDATE)?;
    all.push(function(invalidate, Place::Paused, true));
    let read = vmlinux.function_in_rust(READ_IN_RUST)?;
    all.push(function(read, Place::Read, false));
    for helper in READ_HELPERS {
        all.push(function(vmlinux.function(helper)?, Place::Read, false));
    }
    Ok(Functions(all))
}

/// The instructions of [`ENTRY`].
///
/// # Errors
///
/// When `vmlinux` cannot be read, or has not got them.
pub fn entry_code(vmlinux: &Path) -> Result<Vec<u32>> {
    let range = Vmlinux::open(vmlinux)?.function(ENTRY)?;
    let bytes = fs::read(vmlinux).with_context(|| format!("reading {}", vmlinux.display()))?;
    let file = object::File::parse(&*bytes).context("vmlinux is no ELF file")?;
    let length = range.end - range.start;
    let code = file
        .sections()
        .find_map(|section| section.data_range(range.start, length).ok()?);
    let code = code.with_context(|| format!("vmlinux has not got the code of {ENTRY}()"))?;
    ensure!(
        code.len() as u64 == length,
        "vmlinux has a part of {ENTRY}() only"
    );
    let words = code
        .as_chunks()
        .0
        .iter()
        .copied()
        .map(u32::from_le_bytes)
        .collect();
    Ok(words)
}
