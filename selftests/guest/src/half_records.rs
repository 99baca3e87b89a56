//! Records that have only a source: what the driver does not know of them is
//! cleared all the same.

use std::mem::MaybeUninit;

use anyhow::Result;

use crate::contract::Helper;
use crate::kallsyms::Kallsyms;
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf, stale_bits};

pub(crate) fn run() -> Result<Verdict> {
    if !Kallsyms::read()?.has_snapshot_function() {
        return Ok(verdict::unsupported());
    }
    let events = match perf::open_everywhere(&cpus::online()?, perf::FOR_SNAPSHOTS) {
        Ok(events) => events,
        Err(error) => return verdict::cannot_record(error),
    };
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        // Soon after the kernel was entered: the return from it before, whose
        // target is the program's, is among the last branches.
        let answer = helper.call_at_system_call()?;
        if cfg!(target_arch = "aarch64") {
            check!(
                answer.records().iter().any(|record| record.to == 0),
                "none of the {} records has a source alone",
                answer.records().len()
            );
        }
        if let Some(problem) = stale_bits::problem(&answer) {
            return Ok(Verdict::Fail(problem));
        }
    }
    Ok(Verdict::Pass)
}
