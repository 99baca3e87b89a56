//! The cycle counts of records: what the driver makes of the few bits that BRBE has for them.
//!
//! For a machine on which each instruction takes a cycle, as on the emulated one: from the target of
//! a branch to the source of the next it takes as many cycles as there are instructions.

use std::mem::MaybeUninit;
use std::ops::RangeInclusive;

use anyhow::{Context as _, Result, ensure};
use branch_records::record::{BranchType, Cycles, RawRecord, Record};
use libbpf_rs::ProgramInput;

use crate::cpus;
use crate::skeleton::{
    self,
    cycles::{CyclesSkel, CyclesSkelBuilder},
};
use crate::verdict::{self, Verdict, check};

/// How often the stretches are run: an interrupt may come in between.
const TIMES: usize = 8;
/// The kinds of counts that have to be seen: below 256 exactly, then with 9 significant bits, up to
/// an exponent of 8, and more than there is room for in a record of perf.
const KINDS: [(&str, RangeInclusive<u64>); 4] = [
    ("below 256", 1..=255),
    ("below 512", 256..=511),
    ("below 65,536", 32_768..=65_535),
    ("from 65,536", 65_536..=u64::MAX),
];

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let events = verdict::record_everywhere()?;
    let (cpu, _) = events.first().context("no CPU records branches")?;
    cpus::pin_to(*cpu)?;
    let mut memory = MaybeUninit::uninit();
    let mut skeleton = skeleton::load(CyclesSkelBuilder::default(), &mut memory)?;
    let mut seen = [0; KINDS.len()];
    for late in (0..2).cycle().take(TIMES) {
        let records = take(&mut skeleton, late)?;
        let records: Vec<_> = records.iter().map(RawRecord::decode).collect();
        for pair in records.windows(2) {
            let Some(count) = instructions(&pair[1], &pair[0]) else {
                continue;
            };
            let expected = as_recorded(count);
            check!(
                pair[0].cycles == expected,
                "{count} instructions led to a branch, which took {:?}, and not {expected:?}: {:x?}",
                pair[0].cycles,
                pair[0]
            );
            for (seen, (_, counts)) in seen.iter_mut().zip(&KINDS) {
                *seen += usize::from(counts.contains(&count));
            }
        }
    }
    let missing = KINDS.iter().zip(seen).find(|(_, seen)| *seen == 0);
    if let Some(((name, _), _)) = missing {
        return Ok(Verdict::Fail(format!("no record has a count {name}")));
    }
    let told = KINDS
        .iter()
        .zip(seen)
        .map(|((name, _), seen)| format!("{seen} {name}"));
    Ok(Verdict::Seen(told.collect::<Vec<_>>().join(", ")))
}

/// Runs the stretches, and returns the records of the snapshot after them.
fn take(skeleton: &mut CyclesSkel<'_>, late: u64) -> Result<Vec<RawRecord>> {
    let mut context = [1, late].map(u64::to_ne_bytes).concat();
    let input = ProgramInput {
        context_in: Some(&mut context),
        ..Default::default()
    };
    let program = &skeleton.progs.after_stretches;
    let output = program
        .test_run(input)
        .context("cannot run a BPF program")?;
    ensure!(output.return_value == 0, "the program failed");
    let data = skeleton.maps.bss_data.as_deref();
    let data = data.context("the program has no memory in common with us")?;
    let count = usize::try_from(data.taken).unwrap_or(0) / RawRecord::SIZE;
    ensure!(count > 0, "the helper returned {}", data.taken);
    Ok(data.buffer[..count].iter().map(RawRecord::from).collect())
}

/// The number of instructions from the target of a branch to the next branch, which is one of them.
/// `None` where it cannot be said: half a record, or an exception, which is taken instead of an
/// instruction or after it.
fn instructions(older: &Record, newer: &Record) -> Option<u64> {
    let is_branch = matches!(
        newer.kind,
        BranchType::Conditional
            | BranchType::Unconditional
            | BranchType::Indirect
            | BranchType::Call
            | BranchType::IndirectCall
            | BranchType::Return
    );
    let (start, end) = (older.to?.get(), newer.from?.get());
    let bytes = end.checked_sub(start).filter(|_| is_branch)?;
    Some(bytes / 4 + 1)
}

/// What a record says of so many cycles: BRBE keeps 9 significant bits of them (Arm ARM,
/// D19.1.2), and perf has 16 bits.
fn as_recorded(count: u64) -> Cycles {
    let lost = (u64::BITS - count.leading_zeros()).saturating_sub(9);
    match u16::try_from(count >> lost << lost) {
        Ok(0) => Cycles::Unknown,
        Ok(count) => Cycles::Count(count),
        Err(_) => Cycles::AtLeast(u16::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_bits_are_kept_and_perf_has_room_for_sixteen() {
        for (count, recorded) in [
            (1, Cycles::Count(1)),
            (255, Cycles::Count(255)),
            (511, Cycles::Count(511)),
            (513, Cycles::Count(512)),
            (1023, Cycles::Count(1022)),
            (65_535, Cycles::Count(65_408)),
            (65_536, Cycles::AtLeast(0xffff)),
        ] {
            assert_eq!(as_recorded(count), recorded, "{count}");
        }
    }
}
