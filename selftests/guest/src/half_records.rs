//! Half records that have only a source: the fields that the driver does not know are
//! cleared all the same.

use std::mem::MaybeUninit;

use anyhow::Result;

use crate::contract::Helper;
use crate::verdict::{self, Verdict, check};
use crate::{cpus, pmus, stale_bits};

/// The number of records with which a buffer reaches back to the return to user space
/// before the kernel was entered.
const ENOUGH: u32 = 32;

/// How many snapshots are taken on a CPU: an interrupt between the entry of the kernel
/// and the snapshot spends all records. One of this many has them.
const ATTEMPTS: usize = 10;

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let events = verdict::record_everywhere()?;
    let pmus = pmus::all()?;
    let records_of = |cpu| {
        let pmu = pmus.iter().find(|pmu| pmu.cpus.contains(&cpu));
        pmu.map_or(0, |pmu| pmu.branches)
    };
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    let mut too_few = None;
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        let mut has_half = false;
        // Until one of the snapshots was not interrupted.
        for _ in 0..ATTEMPTS {
            // The helper is called soon after the kernel was entered. The return from the
            // kernel before that is among the last branches, and its target is in this
            // program.
            let answer = helper.call_at_system_call()?;
            if let Some(problem) = stale_bits::problem(&answer) {
                return Ok(Verdict::Fail(problem));
            }
            has_half = answer.records().iter().any(|record| record.to == 0);
            if has_half {
                break;
            }
        }
        let records = records_of(*cpu);
        if !has_half && records < ENOUGH {
            too_few = Some(records);
            continue;
        }
        check!(
            has_half || !cfg!(target_arch = "aarch64"),
            "CPU {cpu}: in none of {ATTEMPTS} snapshots has a record a source alone"
        );
    }
    Ok(match too_few {
        Some(records) => Verdict::Skip(format!(
            "{records} records do not reach back to the return before the system call"
        )),
        None => Verdict::Pass,
    })
}
