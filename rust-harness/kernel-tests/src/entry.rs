//! Where a snapshot begins: the function that `bpf_get_branch_snapshot()` calls.

use std::sync::PoisonError;

use anyhow::{Result, bail};
use branch_records::vmlinux::Vmlinux;

use crate::branch_guest;
use crate::context::Context;
use machines::guest;
use machines::machine_spec::MachineSpec;
use report::Verdict;

/// The name of that function in this project's series, in C and in Rust.
pub const ENTRY: &str = "arm_brbe_snapshot_branch_stack";

/// The address of that function in a kernel that runs where it was linked (`nokaslr`), or the
/// verdict on a test of a kernel that has none. Of an implementation that is not this project's, or
/// that is a module, the kernel itself tells, on `machine`.
///
/// # Errors
///
/// When the kernel cannot be built, or has a snapshot of this project's without [`ENTRY`]; when
/// the machine fails, or the guest's program does.
pub fn entry(context: &Context<'_>, machine: &MachineSpec) -> Result<Result<u64, Verdict>> {
    let kernel = context.kernel()?;
    // A module has no address before it is loaded.
    if context.is_ours() && kernel.drivers.is_none() {
        let vmlinux = Vmlinux::open(kernel.vmlinux()?)?;
        return Ok(Ok(vmlinux.function(ENTRY)?.start));
    }
    // One test asks, and the others wait for it.
    let told = context.told_entry.lock();
    let mut told = told.unwrap_or_else(PoisonError::into_inner);
    if let Some(address) = *told {
        return Ok(Ok(address));
    }
    let share = context.share()?;
    let run = context.run(
        machine,
        "entry of a snapshot",
        "./branch-guest entry",
        &share,
    )?;
    let status = guest::status(&run)?;
    if status != 0 {
        return Ok(Err(branch_guest::verdict(status, &run.output)));
    }
    let mut lines = run.output.lines();
    let address = lines.find_map(|line| u64::from_str_radix(line.strip_prefix("0x")?, 16).ok());
    let Some(address) = address else {
        bail!("the guest did not print an address:\n{}", run.output);
    };
    *told = Some(address);
    Ok(Ok(address))
}
