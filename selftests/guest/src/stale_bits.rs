//! Checks every bit of every record, and every byte around the records.

use std::mem::MaybeUninit;

use anyhow::Result;
use branch_records::record::{BranchType, Privilege, RawRecord, Record, Speculation};
use rustix::io::Errno;

use crate::contract::{Answer, Helper, MAX_RECORDS, WHOLE};
use crate::cpus;
use crate::verdict::{self, Verdict, check};

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let events = verdict::record_everywhere()?;
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        let verdict = check_on_this_cpu(&mut helper)?;
        if verdict != Verdict::Pass {
            return Ok(verdict);
        }
    }
    Ok(Verdict::Pass)
}

fn check_on_this_cpu(helper: &mut Helper<'_>) -> Result<Verdict> {
    // First there is room for everything, and then for less than there is: each call is
    // preceded by a system call's worth of branches.
    let all = helper.call(WHOLE, 0)?;
    check!(
        !all.records().is_empty(),
        "the helper returned {} with room for {MAX_RECORDS} records",
        all.returned
    );
    check!(
        all.returned % RawRecord::SIZE as i64 == 0 && all.returned <= WHOLE as i64,
        "the helper returned {} bytes: not whole records, or more than there was room for",
        all.returned
    );
    if let Some(problem) = problem(&all) {
        return Ok(Verdict::Fail(problem));
    }

    // With room for each number of records, and for a part of one more.
    for records in 0..all.records().len().min(MAX_RECORDS) {
        let expected = match records {
            0 => -i64::from(Errno::NOENT.raw_os_error()),
            records => (records * RawRecord::SIZE) as i64,
        };
        for part in [0, RawRecord::SIZE - 1] {
            let size = records * RawRecord::SIZE + part;
            let answer = helper.call(size, 0)?;
            check!(
                answer.returned == expected,
                "with room for {size} bytes the helper returned {}, not {expected}",
                answer.returned
            );
            if let Some(problem) = problem(&answer) {
                return Ok(Verdict::Fail(format!(
                    "with room for {size} bytes: {problem}"
                )));
            }
        }
    }

    for flags in [1, 1 << 31, 1 << 32, 1 << 63] {
        let answer = helper.call(WHOLE, flags)?;
        let expected = -i64::from(Errno::INVAL.raw_os_error());
        check!(
            answer.returned == expected,
            "with flags {flags:#x} the helper returned {}, not {expected}",
            answer.returned
        );
        if let Some(problem) = problem(&answer) {
            return Ok(Verdict::Fail(format!("with flags {flags:#x}: {problem}")));
        }
    }
    Ok(Verdict::Pass)
}

/// What is wrong with the memory after a call of the helper, if anything.
pub(crate) fn problem(answer: &Answer) -> Option<String> {
    if let Some(problem) = answer.written_behind() {
        return Some(problem);
    }
    answer
        .records()
        .iter()
        .enumerate()
        .find_map(|(index, raw)| {
            let record = raw.decode();
            let problem = record
                .illegal_field()
                .or_else(|| impossible_in_kernel(&record))?;
            Some(format!(
                "stale or wrong bits in record {index}: {problem}: {raw:x?}"
            ))
        })
}

/// What is wrong with a record, if anything: what perf's ABI allows, and a recording of
/// the kernel's branches alone cannot hold.
fn impossible_in_kernel(record: &Record) -> Option<String> {
    // The top bit is set in the kernel's half of the address space.
    let in_kernel = |address: std::num::NonZeroU64| address.get() >> 63 == 1;
    if record.from.is_some_and(|from| !in_kernel(from))
        || record.to.is_some_and(|to| !in_kernel(to))
    {
        return Some("an address of user space, which was not asked for".to_owned());
    }
    match record.privilege {
        Privilege::Unknown | Privilege::Kernel => {}
        privilege => return Some(format!("priv is {}", privilege.name())),
    }
    if cfg!(target_arch = "aarch64") {
        return impossible_in_brbe(record);
    }
    None
}

/// What is wrong with a record of BRBE, if anything. BRBE knows the type and target level
/// of every branch, and nothing of speculation. No CPU has both BRBE and transactions.
fn impossible_in_brbe(record: &Record) -> Option<String> {
    if record.kind == BranchType::Unknown {
        Some("type is unknown".to_owned())
    } else if record.to.is_some() && record.privilege != Privilege::Kernel {
        Some(format!("priv is {}", record.privilege.name()))
    } else if record.speculation != Speculation::NotAvailable {
        Some(format!("spec is {:?}", record.speculation))
    } else if record.in_transaction || record.abort {
        Some("in_tx or abort is set".to_owned())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(from: u64, to: u64, flags: u64) -> Record {
        RawRecord { from, to, flags }.decode()
    }

    #[test]
    fn each_stale_field_is_reported() {
        let (from, to) = (0xffff_8000_8001_0000, 0xffff_8000_8001_0040);
        let good = 1 << 20 | 2 << 30;
        assert_eq!(impossible_in_brbe(&record(from, to, good)), None);
        assert_eq!(impossible_in_kernel(&record(from, to, good)), None);
        // A half record without a target has no level.
        assert_eq!(impossible_in_brbe(&record(from, 0, 1 << 20)), None);
        for stale in [
            2 << 30,
            1 << 20,
            good | 1 << 24,
            good | 1 << 2,
            good | 1 << 3,
        ] {
            assert!(
                impossible_in_brbe(&record(from, to, stale)).is_some(),
                "{stale:#x}"
            );
        }
        assert!(impossible_in_kernel(&record(0x1000, to, good)).is_some());
        assert!(impossible_in_kernel(&record(from, 0x1000, good)).is_some());
        assert!(impossible_in_kernel(&record(from, to, 1 << 20 | 1 << 30)).is_some());
    }
}
