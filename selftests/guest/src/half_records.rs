//! Records that have only a source: what the driver does not know of them is
//! cleared all the same.

use std::mem::MaybeUninit;

use anyhow::Result;

use crate::contract::Helper;
use crate::kallsyms::Kallsyms;
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf, stale_bits};

/// An interrupt between entry and snapshot spends all records: one of so many has
/// them.
const ATTEMPTS: usize = 10;

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
        let mut has_half = false;
        // Until one of them was not interrupted.
        for _ in 0..ATTEMPTS {
            // Soon after the kernel was entered: the return from it before, whose
            // target is the program's, is among the last branches.
            let answer = helper.call_at_system_call()?;
            if let Some(problem) = stale_bits::problem(&answer) {
                return Ok(Verdict::Fail(problem));
            }
            has_half = answer.records().iter().any(|record| record.to == 0);
            if has_half {
                break;
            }
        }
        check!(
            has_half || !cfg!(target_arch = "aarch64"),
            "CPU {cpu}: in none of {ATTEMPTS} snapshots has a record a source alone"
        );
    }
    Ok(Verdict::Pass)
}
