//! Two snapshots, one right after the other: what the first one leaves behind.

use std::mem::MaybeUninit;

use anyhow::Result;
use branch_records::record::RawRecord;
use rustix::io::Errno;

use crate::contract::{Answer, Helper, MAX_RECORDS};
use crate::kallsyms::Kallsyms;
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf};

/// The size of memory with room for all records, in bytes.
const WHOLE: usize = RawRecord::SIZE * MAX_RECORDS;
/// The number of branches from the end of one snapshot to the beginning of the next, with
/// something to spare: the driver's way out, and the program's way in.
const BETWEEN: usize = 12;
/// The number of records that BRBE shows at a time (`BRBFCR_EL1.BANK`).
const BANK: usize = 32;
/// How often the test is tried on a CPU: a task switch before the call leaves few
/// records.
const ATTEMPTS: usize = 3;

pub(crate) fn run() -> Result<Verdict> {
    let symbols = Kallsyms::read()?;
    verdict::needs_snapshots(&symbols)?;
    let events = perf::open_everywhere(&cpus::online()?, perf::FOR_SNAPSHOTS)
        .map_err(verdict::cannot_record)?;
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        let mut verdict = Verdict::Pass;
        for _ in 0..ATTEMPTS {
            verdict = on_this_cpu(&mut helper, &symbols)?;
            if verdict == Verdict::Pass {
                break;
            }
        }
        if verdict != Verdict::Pass {
            return Ok(verdict);
        }
    }
    Ok(Verdict::Pass)
}

fn on_this_cpu(helper: &mut Helper<'_>, symbols: &Kallsyms) -> Result<Verdict> {
    let [first, second] = helper.call_twice([WHOLE, WHOLE])?;
    for (answer, which) in [(&first, "first"), (&second, "second")] {
        check!(
            !answer.records().is_empty(),
            "the {which} snapshot: the helper returned {}",
            answer.returned
        );
        check!(
            begins_at_entry(answer, symbols),
            "the newest branch of the {which} snapshot is not the one into {}: branches of the \
             snapshot's own cost records",
            Kallsyms::SNAPSHOT_FUNCTION
        );
    }
    check!(
        second.records().len() <= BETWEEN,
        "{} records from one snapshot to the next: some are of before the first one, and the \
         branches in between are missing",
        second.records().len()
    );
    let full = first.records().len();
    if let Some((bank, next)) = first.records().split_at_checked(BANK) {
        check!(
            next != bank,
            "records {BANK} to {} are those before them once more",
            2 * BANK - 1
        );
    }

    // A snapshot without room for a record is none, and takes no records away.
    let [nothing, all] = helper.call_twice([0, WHOLE])?;
    check!(
        nothing.returned == -i64::from(Errno::NOENT.raw_os_error()),
        "without room for a record the helper returned {}",
        nothing.returned
    );
    check!(
        all.records().len() >= full,
        "{} records after a snapshot without room, {full} without it",
        all.records().len()
    );

    // A snapshot with room for one record takes away all records that there are.
    let [one, rest] = helper.call_twice([RawRecord::SIZE, WHOLE])?;
    check!(
        one.records().len() == 1,
        "with room for one record the helper returned {}",
        one.returned
    );
    check!(
        rest.records().len() <= BETWEEN,
        "{} records after a snapshot of one: not what came after it",
        rest.records().len()
    );
    Ok(Verdict::Pass)
}

/// Whether the newest branch of a snapshot is the one into the function that takes it.
/// Elsewhere than on arm64 this always holds: there, recording is stopped by a function
/// that is called.
pub(crate) fn begins_at_entry(answer: &Answer, symbols: &Kallsyms) -> bool {
    let newest = answer.records().first();
    !cfg!(target_arch = "aarch64")
        || newest.is_some_and(|newest| symbols.is_at(Kallsyms::SNAPSHOT_FUNCTION, newest.to))
}
