//! The function that `bpf_get_branch_snapshot()` calls.
//!
//! The helper makes the static call `perf_snapshot_branch_stack` (kernel/events/core.c). A driver
//! that takes snapshots puts its function there once it has found the hardware. Until then the
//! call returns 0.

use anyhow::{Context as _, Result};

use crate::kcore::Kcore;

/// The key of the static call. The address of the function is its first word
/// (include/linux/static_call_types.h).
const KEY: &str = "__SCK__perf_snapshot_branch_stack";
/// What the static call does without a driver.
const NOTHING: &str = "__static_call_return0";

/// Where the kernel image has the static call.
#[derive(Clone, Copy, Debug)]
pub struct StaticCall {
    /// Its key.
    key: Option<u64>,
    /// The function that it calls without a driver.
    nothing: Option<u64>,
}

impl StaticCall {
    /// The static call of the kernel whose symbols `address_of` knows.
    ///
    /// # Errors
    ///
    /// Those of `address_of`.
    pub fn by(mut address_of: impl FnMut(&str) -> Result<Option<u64>>) -> Result<Self> {
        Ok(Self {
            key: address_of(KEY)?,
            nothing: address_of(NOTHING)?,
        })
    }
}

/// The address of the function, if a driver has put one there.
///
/// # Errors
///
/// When the kernel's memory cannot be read, or the kernel does not say where the static call is.
pub fn installed(call: &StaticCall) -> Result<Option<u64>> {
    let key = call.key;
    let key =
        key.with_context(|| format!("/proc/kallsyms has no {KEY}: it needs CONFIG_KALLSYMS_ALL"))?;
    let words = Kcore::open()?.read(key, key + 4)?.words;
    let address = words
        .iter()
        .rev()
        .fold(0, |high, word| high << 32 | u64::from(*word));
    Ok((call.nothing != Some(address)).then_some(address))
}
