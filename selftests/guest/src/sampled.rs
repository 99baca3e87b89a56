//! A sample has the branches that its event asks for, and no others that BRBE records for
//! another event on the CPU.

use anyhow::Result;
use branch_records::record::{BranchType, RawRecord};

use crate::ring::Ring;
use crate::verdict::{self, Verdict, check};
use crate::{cpus, overflow, perf};

/// The number of cycles from one sample to the next.
const PERIOD: u64 = 200_000;
/// The number of samples with records that are looked at on each CPU.
const ENOUGH: usize = 20;
/// The most turns of some system calls in which there have to be [`ENOUGH`] samples.
const TURNS: usize = 100_000;

pub(crate) fn run() -> Result<Verdict> {
    overflow::unlimited_sampling()?;
    for cpu in cpus::online()? {
        cpus::pin_to(cpu)?;
        // The first event makes BRBE record all branches of the kernel.
        let opened = perf::open(cpu, perf::FOR_SNAPSHOTS)
            .and_then(|all| Ok((all, perf::open(cpu, perf::CONDITIONAL)?)));
        let (_all, conditional) = opened.map_err(verdict::cannot_record)?;
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
    Ok(Verdict::Pass)
}

fn is_conditional(record: &RawRecord) -> bool {
    record.decode().kind == BranchType::Conditional
}
