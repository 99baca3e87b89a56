//! A sample has the branches that its event asks for, and no others that BRBE records for
//! another event on the CPU. The driver knows what all of them are.

use anyhow::Result;
use branch_records::record::{BranchType, RawRecord};

use crate::kernel_log::KernelLog;
use crate::ring::Ring;
use crate::verdict::{self, Verdict, check};
use crate::{cpus, overflow, perf, settings};

/// The number of cycles from one sample to the next, some ms: much longer than the handler of an
/// overflow takes on a slow machine.
const PERIOD: u64 = 5_000_000;
/// The number of samples with records that are looked at on each CPU.
const ENOUGH: usize = 20;
/// What the driver prints when a sample has a branch of a transaction, once after a boot. Linux
/// starts no transactions.
const WARNING: &str = "Unknown transaction states";
/// The most turns of some system calls in which there have to be [`ENOUGH`] samples.
const TURNS: usize = 100_000;

pub(crate) fn run() -> Result<Verdict> {
    // These make BRBE record all branches of the kernel.
    let events = verdict::record_everywhere()?;
    let _settings = settings::unlimited_sampling()?;
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        let conditional = perf::open(*cpu, perf::CONDITIONAL).map_err(verdict::cannot_record)?;
        let mut ring = Ring::map(&conditional)?;
        perf::set_period(&conditional, PERIOD)?;
        let mut seen = 0;
        for _ in 0..TURNS {
            overflow::approach();
            for sample in ring.take_samples()? {
                let other = sample.iter().find(|record| !is_conditional(record));
                check!(
                    other.is_none(),
                    "CPU {cpu}: a sample of conditional branches has another one: {other:x?}"
                );
                seen += usize::from(!sample.is_empty());
            }
            if seen >= ENOUGH {
                break;
            }
        }
        check!(
            seen >= ENOUGH,
            "CPU {cpu}: {seen} samples of conditional branches have records"
        );
    }
    let printed = KernelLog::open()?.take(&[WARNING])?;
    check!(
        printed.is_empty(),
        "since the machine was booted the kernel has printed {printed:?}"
    );
    Ok(Verdict::Pass)
}

fn is_conditional(record: &RawRecord) -> bool {
    record.decode().kind == BranchType::Conditional
}
