//! Finds the functions of a snapshot in vmlinux, for the snapshot in C and for the one in
//! Rust.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use branch_records::vmlinux::Vmlinux;

use super::window::{Function, Functions, WindowPlace};
use crate::entry_code::{ENTRY, REGISTER, entry_code};

/// The function of the snapshot in C that [`ENTRY`] calls while BRBE is paused.
const PAUSED: &str = "brbe_snapshot_paused";
/// The driver's C functions that read records, for snapshots and for samples: all records,
/// those of a bank, and one. The compiler may have inlined one into another, so a kernel may
/// have only some of them.
const READ: [&str; 3] = [
    "brbe_read_entries",
    "brbe_read_bank",
    "perf_entry_from_brbe_regset",
];
/// The instruction `MRS <Xt>, BRBFCR_EL1` without the bits of [`REGISTER`] (Arm ARM,
/// `BRBFCR_EL1`).
const READ_BRBFCR: u32 = 0xd531_9020;

/// The function of the snapshot in Rust that [`ENTRY`] calls while BRBE is paused.
const PAUSED_IN_RUST: &str = "arm_brbe_snapshot::read_paused";
/// The functions of the snapshot in Rust that read records: one reads those of a bank, the
/// other decodes and writes one.
const READ_IN_RUST: [&str; 2] = [
    "<arm_brbe_snapshot::Paused>::read_bank",
    "<arm_brbe_snapshot::Decoder>::write",
];
/// C functions that the snapshot in Rust calls because Rust cannot call what they wrap in any
/// other way.
const HELPERS: [&str; 3] = [
    "rust_helper_local_daif_trace_off",
    "rust_helper_is_kernel_in_hyp_mode",
    "rust_helper_local_daif_trace_on",
];
/// The C function that discards all records. The snapshot in Rust shares it with the rest of
/// the driver.
const INVALIDATE: &str = "brbe_invalidate";

/// The functions of a snapshot, with their addresses in a kernel that runs where it was
/// linked (`nokaslr`).
///
/// # Errors
///
/// When `vmlinux` cannot be read, when it has neither the snapshot in C nor the one in Rust
/// or lacks one of its functions, or when no instruction of [`ENTRY`] samples `BRBFCR_EL1`.
pub fn functions(vmlinux: &Path) -> Result<Functions> {
    let entry_code = entry_code(vmlinux)?;
    let vmlinux = Vmlinux::open(vmlinux)?;
    let function = |range, place, handlers| Function {
        range,
        place,
        handlers,
    };
    let entry = function(vmlinux.function(ENTRY)?, WindowPlace::Entry, false);
    let samples = sample(&entry_code).with_context(|| format!("the code of {ENTRY}()"))?;
    let samples = entry.range.start + 4 * samples as u64;
    let found = |name: &&str| vmlinux.function(name).ok();
    let read = READ.iter().filter_map(found);
    let read: Vec<_> = read
        .map(|range| function(range, WindowPlace::Read, true))
        .collect();
    ensure!(!read.is_empty(), "vmlinux has none of {READ:?}");
    let Ok(paused) = vmlinux.function_in_rust(PAUSED_IN_RUST) else {
        let paused = function(vmlinux.function(PAUSED)?, WindowPlace::Paused, false);
        let all = [entry, paused].into_iter().chain(read);
        return Ok(Functions {
            all: all.collect(),
            samples,
        });
    };
    let mut all = vec![entry, function(paused, WindowPlace::Paused, false)];
    for helper in HELPERS {
        all.push(function(
            vmlinux.function(helper)?,
            WindowPlace::Paused,
            false,
        ));
    }
    let invalidate = vmlinux.function(INVALIDATE)?;
    all.push(function(invalidate, WindowPlace::Paused, true));
    for name in READ_IN_RUST {
        let read = vmlinux.function_in_rust(name)?;
        all.push(function(read, WindowPlace::Read, false));
    }
    // The handler of an overflow reads by these. Only where the plugin sees the handler does
    // it see that the overflow is over, and the next one is another.
    all.extend(read);
    Ok(Functions { all, samples })
}

/// The index of the instruction in the entry's code that samples `BRBFCR_EL1`. With it a
/// snapshot finds out whether BRBE is paused.
fn sample(entry: &[u32]) -> Result<usize> {
    let is_sample = |word: &u32| word & !REGISTER == READ_BRBFCR;
    let index = entry.iter().position(is_sample);
    index.context("no instruction samples BRBFCR_EL1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_samples_the_register_is_found_whatever_it_is_read_into() {
        const NOP: u32 = 0xd503_201f;
        const WRITE_BRBFCR: u32 = 0xd511_9020;
        let code = [NOP, WRITE_BRBFCR | 1, READ_BRBFCR | 19, READ_BRBFCR];
        assert_eq!(sample(&code).unwrap(), 2);
        assert!(sample(&code[..2]).is_err());
    }
}
