//! Records around the calls of firmware at EL3. Where EL3 is not recorded there is none of the call
//! and none of the return, and the kernel's path goes on behind the call as if there were none
//! (Arm ARM, D19, FEAT_BRBEv1p1). Where it is recorded, that of the call has no target for the
//! kernel, and that of the return no source.
//!
//! The kernel asks its firmware whether a CPU is off when it takes one off line (PSCI,
//! `AFFINITY_INFO`).

use std::fs;
use std::mem::MaybeUninit;

use anyhow::{Context as _, Result};
use branch_records::record::RawRecord;

use crate::contract::Answer;
use crate::entry::Entry;
use crate::kcore::Kcore;
use crate::path::{self, Paths};
use crate::skeleton::{self, crossing::CrossingSkelBuilder};
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf};

/// How the kernel asks its firmware, by the device tree: `hvc` or `smc`.
const METHOD: &str = "/proc/device-tree/psci/method";
/// How many snapshots are taken: an interrupt between the call of the firmware and the snapshot
/// spends all records. One of this many has the call.
const ATTEMPTS: usize = 10;

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let method = fs::read_to_string(METHOD).unwrap_or_default();
    if method.trim_end_matches('\0') != "smc" {
        return Ok(Verdict::Skip(
            "the kernel does not ask firmware at EL3: no PSCI by SMC in the device tree".to_owned(),
        ));
    }
    let cpus = cpus::online()?;
    let (Some(first), Some(last)) = (cpus.first(), cpus.last()) else {
        return Ok(Verdict::Skip("no CPU is on line".to_owned()));
    };
    if first == last {
        return Ok(Verdict::Skip(
            "one CPU cannot take another off line".to_owned(),
        ));
    }
    let _events =
        perf::open_everywhere(&cpus, perf::FOR_SNAPSHOTS).map_err(verdict::cannot_record)?;
    let mut object = MaybeUninit::uninit();
    let skeleton = skeleton::load(CrossingSkelBuilder::default(), &mut object)?;
    let attached = skeleton.progs.has_asked.attach();
    let _attached = attached.context("cannot attach to psci_affinity_info()")?;
    cpus::pin_to(*first)?;
    let online = format!("/sys/devices/system/cpu/cpu{last}/online");
    let (entry, paths) = (Entry::find()?, Paths::open());
    let kcore = Kcore::open()?;
    let code = |first, last| kcore.read(first, last).map(|range| range.words).ok();
    let mut uncrossed = Vec::new();
    // Until one of the snapshots was not interrupted.
    for _ in 0..ATTEMPTS {
        for state in ["0", "1"] {
            fs::write(&online, state).with_context(|| format!("writing {state} to {online}"))?;
        }
        let data = skeleton.maps.bss_data.as_deref();
        let data = data.context("the BPF program has no memory")?;
        let records = data.records.iter().map(RawRecord::from).collect();
        let answer = Answer::new(data.taken, records);
        check!(
            !answer.records().is_empty() && entry.begins(&answer),
            "the helper returned {}, and the newest branch is not the one into the snapshot",
            answer.returned
        );
        paths.check(answer.records())?;
        let [recorded, passed_over] = crossings(answer.records(), code);
        check!(
            recorded == 0 || passed_over == 0,
            "of {} calls of the firmware {recorded} are recorded, and the others are not",
            recorded + passed_over
        );
        match (recorded, passed_over) {
            (0, 0) => uncrossed = answer.records().to_vec(),
            (0, _) => {
                return Ok(Verdict::Seen(format!(
                    "{passed_over} calls of the firmware, and no record is spent on them"
                )));
            }
            _ => {
                return Ok(Verdict::Seen(format!(
                    "{recorded} calls of the firmware, each with its records"
                )));
            }
        }
    }
    path::list(&uncrossed)?;
    Ok(Verdict::Fail(format!(
        "there is no call of the firmware in any of {ATTEMPTS} paths, the last one of {} records",
        uncrossed.len()
    )))
}

/// Whether an instruction is `SMC` (Arm ARM, C6.2).
fn is_smc(word: u32) -> bool {
    word & 0xffe0_001f == 0xd400_0003
}

/// How many calls of the firmware are in a path of records, newest first: those that are recorded,
/// and those that no record is of. `code` are the instructions from one address to another.
fn crossings(records: &[RawRecord], code: impl Fn(u64, u64) -> Option<Vec<u32>>) -> [usize; 2] {
    let is_call = |address| code(address, address).is_some_and(|words| is_smc(words[0]));
    let is_recorded = |pair: &&[RawRecord]| {
        let [newer, older] = pair else { return false };
        let returns = newer.from == 0 && newer.to == older.from + 4;
        older.to == 0 && returns && is_call(older.from)
    };
    let recorded = records.windows(2).filter(is_recorded).count();
    [recorded, passed_over(records, &code, is_smc)]
}

/// The most bytes of code between two records.
const MOST: u64 = 4096;

/// How many instructions of a sort are between the records of a path, newest first: from where one
/// led to the source of the next. `code` are the instructions from one address to another.
pub(crate) fn passed_over(
    records: &[RawRecord],
    code: impl Fn(u64, u64) -> Option<Vec<u32>>,
    is_wanted: impl Fn(u32) -> bool,
) -> usize {
    let between = |pair: &[RawRecord]| {
        let [newer, older] = pair else { return 0 };
        let straight = older.to..newer.from;
        if older.to == 0 || straight.is_empty() || newer.from - older.to >= MOST {
            return 0;
        }
        let words = code(straight.start, straight.end - 4).unwrap_or_default();
        words.into_iter().filter(|word| is_wanted(*word)).count()
    };
    records.windows(2).map(between).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(from: u64, to: u64) -> RawRecord {
        RawRecord { from, to, flags: 0 }
    }

    const SMC: u32 = 0xd400_0003;
    const NOP: u32 = 0xd503_201f;

    /// Code with one call, at 0x1004.
    fn code(first: u64, last: u64) -> Option<Vec<u32>> {
        let words = (first..=last).step_by(4);
        Some(
            words
                .map(|address| if address == 0x1004 { SMC } else { NOP })
                .collect(),
        )
    }

    #[test]
    fn a_call_that_is_recorded_has_a_return() {
        let (there, back) = (record(0x1004, 0), record(0, 0x1008));
        assert_eq!(crossings(&[back, there], code), [1, 0]);
        assert_eq!(crossings(&[there, back], code), [0, 0]);
        assert_eq!(crossings(&[record(0, 0x100c), there], code), [0, 0]);
    }

    #[test]
    fn a_call_that_is_not_recorded_is_on_the_way() {
        let (before, after) = (record(0x400, 0x1000), record(0x1008, 0x2000));
        assert_eq!(crossings(&[after, before], code), [0, 1]);
        assert_eq!(crossings(&[before, after], code), [0, 0]);
        let other = record(0x1014, 0x2000);
        assert_eq!(crossings(&[other, record(0x400, 0x1008)], code), [0, 0]);
        assert_eq!(crossings(&[after, before], |_, _| None), [0, 0]);
    }

    #[test]
    fn the_instruction_is_told_from_its_neighbours() {
        assert!(is_smc(0xd400_0003) && is_smc(0xd400_0023));
        // SVC and HVC.
        assert!(!is_smc(0xd400_0001) && !is_smc(0xd400_0002));
    }
}
