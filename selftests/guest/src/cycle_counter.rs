//! An overflow of the cycle counter does not freeze BRBE (Arm ARM rule NXCWF), and so a
//! snapshot must not take it for a freeze.
//!
//! An event of cycles without a branch stack has that counter. Events with a branch stack
//! never have it (drivers/perf/arm_pmuv3.c, `armv8pmu_can_use_pmccntr()`).

use std::mem::MaybeUninit;

use anyhow::Result;

use crate::pending::{self, Pending};
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf};

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    if let Some(reason) = pending::cannot_wait()? {
        return Ok(Verdict::Skip(reason));
    }
    let events = verdict::record_everywhere()?;
    let mut object = MaybeUninit::uninit();
    let mut pending = Pending::load(&mut object)?;
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        let cycles = perf::open(*cpu, perf::COUNTING_OVERFLOWS)?;
        let [first, second] = pending.take(*cpu, &cycles, || Ok(()))?;
        for (returned, which) in [(first, "first"), (second, "second")] {
            check!(
                returned > 0,
                "CPU {cpu}, the cycle counter has overflowed, which does not freeze BRBE: the \
                 {which} snapshot returned {returned}"
            );
        }
    }
    Ok(Verdict::Pass)
}
