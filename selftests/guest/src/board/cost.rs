//! How long a snapshot takes here.

use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;

use anyhow::{Context as _, Result, ensure};
use branch_records::record::RawRecord;
use guest_reports::board::{SnapshotCost, SnapshotTook, Spread, Took};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, ProgramInput};

use crate::contract::MAX_RECORDS;
use crate::skeleton::board::{BoardSkel, BoardSkelBuilder};
use crate::verdict;
use crate::{cpus, perf};

/// How often each snapshot is taken.
const TIMES: u32 = 1000;

/// Takes snapshots with room for 1, 2, 4, … records, up to as many as the buffer has, on the first
/// CPU that records branches. The buffer is full each time: reading the clocks has more branches
/// than it holds.
pub(super) fn measure() -> Result<SnapshotCost> {
    let mut memory = MaybeUninit::uninit();
    let skeleton = BoardSkelBuilder::default()
        .open(&mut memory)
        .context("cannot open a BPF program")?
        .load()
        .context("cannot load a BPF program: run as root, or with CAP_PERFMON and CAP_BPF")?;
    let events = perf::open_everywhere(&cpus::online()?, perf::FOR_SNAPSHOTS)
        .map_err(verdict::cannot_record)?;
    let (cpu, event) = events.first().context("no CPU records branches")?;
    cpus::pin_to(*cpu)?;
    let counter = event.as_raw_fd().to_ne_bytes();
    let counters = &skeleton.maps.counters;
    counters
        .update(&cpu.to_ne_bytes(), &counter, MapFlags::ANY)
        .context("cannot give a BPF program the counter of cycles")?;
    let mut timed = Timed { skeleton };
    let (_, nothing) = timed.times(None)?;
    let mut snapshots = Vec::new();
    let mut size = 1;
    while size <= MAX_RECORDS {
        let (records, took) = timed.times(Some(size))?;
        // There are no more records than the buffer has.
        let records = records.context("no snapshot had a record")?;
        if snapshots
            .last()
            .is_some_and(|last: &SnapshotTook| last.records == records)
        {
            break;
        }
        snapshots.push(SnapshotTook { records, took });
        size *= 2;
    }
    Ok(SnapshotCost {
        cpu: *cpu,
        nothing,
        snapshots,
    })
}

struct Timed<'object> {
    skeleton: BoardSkel<'object>,
}

impl Timed<'_> {
    /// Takes snapshots with room for so many records, or does nothing in their place. Returns the
    /// number of records that most of them had, and how long these took.
    fn times(&mut self, room: Option<usize>) -> Result<(Option<u32>, Took)> {
        let mut seen = Vec::new();
        for _ in 0..TIMES {
            seen.push(self.once(room)?);
        }
        let common = most_common(seen.iter().map(|(records, ..)| *records));
        let kept = seen.iter().filter(|(records, ..)| Some(*records) == common);
        let (nanoseconds, cycles): (Vec<_>, Vec<_>) = kept
            .map(|(_, nanoseconds, cycles)| (*nanoseconds, *cycles))
            .unzip();
        let took = Took {
            times: u32::try_from(nanoseconds.len())?,
            nanoseconds: Spread::of(nanoseconds).context("nothing was timed")?,
            cycles: Spread::of(cycles).context("nothing was timed")?,
        };
        Ok((common.filter(|records| *records > 0), took))
    }

    /// The number of records of a snapshot, and its nanoseconds and cycles.
    fn once(&mut self, room: Option<usize>) -> Result<(u32, u64, u64)> {
        let size = room.unwrap_or(0) * RawRecord::SIZE;
        let arguments = [size as u64, u64::from(room.is_some())];
        let mut context = arguments.map(u64::to_ne_bytes).concat();
        let input = ProgramInput {
            context_in: Some(&mut context),
            ..Default::default()
        };
        let program = &self.skeleton.progs.time_snapshot;
        let output = program
            .test_run(input)
            .context("cannot run a BPF program")?;
        ensure!(
            output.return_value == 0,
            "a BPF program cannot read the cycle counter"
        );
        let data = self.skeleton.maps.bss_data.as_deref();
        let data = data.context("the program has no memory in common with us")?;
        ensure!(data.taken >= 0, "the helper returned {}", data.taken);
        let records = usize::try_from(data.taken)? / RawRecord::SIZE;
        Ok((u32::try_from(records)?, data.nanoseconds, data.cycles))
    }
}

/// The number that there is most often, the largest of several.
fn most_common(numbers: impl Iterator<Item = u32>) -> Option<u32> {
    let mut times = std::collections::BTreeMap::<u32, usize>::new();
    for number in numbers {
        *times.entry(number).or_default() += 1;
    }
    let common = times.into_iter().max_by_key(|(_, times)| *times);
    common.map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_common_number_counts() {
        assert_eq!(most_common([3, 1, 3, 2].into_iter()), Some(3));
        assert_eq!(most_common([1, 2].into_iter()), Some(2));
        assert_eq!(most_common([].into_iter()), None);
    }
}
