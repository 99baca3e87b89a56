//! The function that `bpf_get_branch_snapshot()` calls.
//!
//! The helper makes the static call `perf_snapshot_branch_stack` (kernel/events/core.c). A driver
//! that takes snapshots puts its function there once it has found the hardware. Until then the
//! call returns 0.

use anyhow::{Context as _, Result};

use crate::kallsyms::Kallsyms;
use crate::kcore::Kcore;

/// The key of the static call. The address of the function is its first word
/// (include/linux/static_call_types.h).
const KEY: &str = "__SCK__perf_snapshot_branch_stack";
/// What the static call does without a driver.
const NOTHING: &str = "__static_call_return0";

/// The address of the function, if a driver has put one there.
///
/// # Errors
///
/// When the kernel's memory cannot be read, or the kernel does not say where the static call is.
pub fn installed(symbols: &Kallsyms) -> Result<Option<u64>> {
    let key = symbols.address_of(KEY);
    let key =
        key.with_context(|| format!("/proc/kallsyms has no {KEY}: it needs CONFIG_KALLSYMS_ALL"))?;
    let words = Kcore::open()?.read(key, key + 4)?.words;
    let address = words
        .iter()
        .rev()
        .fold(0, |high, word| high << 32 | u64::from(*word));
    Ok((!symbols.is_at(NOTHING, address)).then_some(address))
}
