//! Two snapshots, one right after the other: the first one leaves nothing of what it has read.
//! Callers can live with the other policy, if they know it.

use std::mem::MaybeUninit;

use anyhow::Result;
use branch_records::record::RawRecord;

use crate::contract::{Helper, MAX_RECORDS, WHOLE};
use crate::cpus;
use crate::verdict::{self, Verdict, check};

/// The number of branches from the end of one snapshot to the beginning of the next, with
/// something to spare: the driver's way out, and the program's way in.
const BETWEEN: usize = 12;

/// How often two snapshots are taken at the most. An interrupt may come between the two, or wait for
/// the end of the first. On a slow machine ticks come often.
const ATTEMPTS: usize = 10;

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let events = verdict::record_everywhere()?;
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        // A snapshot with room for one record takes away all records that there are.
        for size in [WHOLE, RawRecord::SIZE] {
            let mut fewest = MAX_RECORDS;
            for _ in 0..ATTEMPTS {
                let [_, second] = helper.call_twice([size, WHOLE])?;
                fewest = fewest.min(second.records().len());
                if fewest <= BETWEEN {
                    break;
                }
            }
            check!(
                fewest <= BETWEEN,
                "CPU {cpu}: {fewest} records from a snapshot of at most {} to the next one: some \
                 are of before the first one",
                size / RawRecord::SIZE
            );
        }
    }
    Ok(Verdict::Pass)
}
