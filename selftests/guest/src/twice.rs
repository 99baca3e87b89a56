//! Two snapshots, one right after the other: each is whole, and begins where it was taken.

use std::mem::MaybeUninit;
use std::ops::Range;

use anyhow::Result;
use branch_records::record::RawRecord;
use rustix::io::Errno;

use crate::contract::{Helper, MAX_RECORDS, WHOLE};
use crate::cpus;
use crate::entry::Entry;
use crate::image::{Image, TELLS};
use crate::kallsyms::Kallsyms;
use crate::verdict::{self, Verdict, check};

/// The number of records that BRBE shows at a time (`BRBFCR_EL1.BANK`).
const BANK: usize = 32;
/// How often the test is tried on a CPU. An interrupt can come between the branch into the snapshot
/// and its masking of interrupts. One that comes a little later waits for the end of the first
/// snapshot, and as it returns, it may tell lockdep. On a slow machine ticks come often.
const ATTEMPTS: usize = 10;
/// How often it is tried whether a snapshot without room takes records away. An interrupt between two
/// snapshots adds records. So a kernel that takes records away may look right once, and one that does
/// not never looks wrong.
const ROOMLESS: usize = 5;

/// The addresses of the function that tells lockdep and tracers that interrupts are no longer masked,
/// where the kernel has it. On arm64 a snapshot calls it while BRBE is still paused; on x86-64
/// interrupts are unmasked after the LBRs record again.
fn tells() -> Result<Option<Range<u64>>> {
    let tells = Image::of_this_kernel()?.tells;
    match tells.filter(|_| cfg!(target_arch = "aarch64")) {
        Some(address) => Ok(Kallsyms::once()?.until_next(address)),
        None => Ok(None),
    }
}

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let events = verdict::record_everywhere()?;
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    let entry = Entry::find()?;
    let tells = tells()?.unwrap_or_default();
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        let mut verdict = Verdict::Pass;
        for _ in 0..ATTEMPTS {
            verdict = in_a_row(&mut helper, &entry, &tells)?;
            if verdict == Verdict::Pass {
                break;
            }
        }
        if verdict == Verdict::Pass {
            verdict = with_little_room(&mut helper)?;
        }
        if verdict != Verdict::Pass {
            return Ok(verdict);
        }
    }
    Ok(Verdict::Pass)
}

/// Two whole snapshots.
fn in_a_row(helper: &mut Helper<'_>, entry: &Entry, tells: &Range<u64>) -> Result<Verdict> {
    let [first, second] = helper.call_twice([WHOLE, WHOLE])?;
    for (answer, which) in [(&first, "first"), (&second, "second")] {
        check!(
            !answer.records().is_empty(),
            "the {which} snapshot: the helper returned {}",
            answer.returned
        );
        check!(
            entry.begins(answer),
            "the newest branch of the {which} snapshot is not the one into {}: branches of the \
             snapshot's own cost records",
            entry.name()
        );
    }
    // The call itself may be too long ago: lockdep takes many branches.
    let is_telling =
        |record: &RawRecord| [record.from, record.to].iter().any(|it| tells.contains(it));
    check!(
        !second.records().iter().any(is_telling),
        "the second snapshot has the end of {TELLS}(), which the first one called"
    );
    if let Some((bank, next)) = first.records().split_at_checked(BANK) {
        check!(
            next != bank,
            "records {BANK} to {} are those before them once more",
            2 * BANK - 1
        );
    }
    Ok(Verdict::Pass)
}

/// A snapshot without room for a record is none, and takes no records away. One with room for one
/// record has one.
fn with_little_room(helper: &mut Helper<'_>) -> Result<Verdict> {
    let (mut left, mut full) = (MAX_RECORDS, MAX_RECORDS);
    for _ in 0..ROOMLESS {
        let [nothing, all] = helper.call_twice([0, WHOLE])?;
        check!(
            nothing.returned == -i64::from(Errno::NOENT.raw_os_error()),
            "without room for a record the helper returned {}",
            nothing.returned
        );
        let [whole, _] = helper.call_twice([WHOLE, WHOLE])?;
        check!(
            !whole.records().is_empty(),
            "the helper returned {}",
            whole.returned
        );
        left = left.min(all.records().len());
        full = full.min(whole.records().len());
    }
    check!(
        left >= full,
        "{left} records after a snapshot without room, {full} without it"
    );
    let one = helper.call(RawRecord::SIZE, 0)?;
    check!(
        one.records().len() == 1,
        "with room for one record the helper returned {}",
        one.returned
    );
    Ok(Verdict::Pass)
}
