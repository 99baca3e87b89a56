//! The functions of a snapshot, in C and in Rust.

use std::path::Path;

use anyhow::Result;
use branch_records::vmlinux::Vmlinux;

use super::window::{Function, Functions, Place};

/// What BPF calls, in both languages.
pub const ENTRY: &str = "arm_brbe_snapshot_branch_stack";

/// C: what that calls while BRBE is paused.
const PAUSED: &str = "brbe_snapshot_paused";
/// C: what reads records, for samples as well.
const READ: &str = "brbe_read_entries";

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
        let read = function(vmlinux.function(READ)?, Place::Read, true);
        return Ok(Functions(vec![entry, paused, read]));
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
