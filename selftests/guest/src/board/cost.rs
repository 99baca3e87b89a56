//! How long a snapshot takes here.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use branch_records::record::RawRecord;
use guest_reports::board::{SnapshotCost, SnapshotTook, Spread, Took};
use libbpf_rs::{MapCore as _, MapFlags, ProgramInput};

use crate::contract::MAX_RECORDS;
use crate::skeleton::{
    self,
    board::{BoardSkel, BoardSkelBuilder},
};
use crate::{cpus, verdict};

/// How often each snapshot is taken.
const TIMES: usize = 1000;
/// How long snapshots are taken before they count: until then the CPU may run at its lowest
/// frequency.
const WARM: Duration = Duration::from_millis(200);

/// Takes snapshots with room for 1, 2, 4, … records, up to as many as the buffer has, on the first
/// CPU that records branches. The buffer is full each time: reading the clocks has more branches
/// than it holds. They are taken in turn, so that a frequency that changes changes all alike.
pub(super) fn measure() -> Result<SnapshotCost> {
    let mut memory = MaybeUninit::uninit();
    let skeleton = skeleton::load(BoardSkelBuilder::default(), &mut memory)?;
    let events = verdict::record_everywhere()?;
    let (cpu, event) = events.first().context("no CPU records branches")?;
    cpus::pin_to(*cpu)?;
    let counter = event.as_raw_fd().to_ne_bytes();
    let counters = &skeleton.maps.counters;
    counters
        .update(&cpu.to_ne_bytes(), &counter, MapFlags::ANY)
        .context("cannot give a BPF program the counter of cycles")?;
    let begun = Instant::now();
    while begun.elapsed() < WARM {
        once(&skeleton, MAX_RECORDS)?;
    }
    // Without room for a record, no snapshot is taken.
    let mut rooms = vec![0];
    rooms.extend(
        (0..)
            .map(|bit| 1 << bit)
            .take_while(|room| *room <= MAX_RECORDS),
    );
    let mut timed = vec![Vec::new(); rooms.len()];
    for _ in 0..TIMES {
        for (room, timed) in rooms.iter().zip(&mut timed) {
            timed.push(once(&skeleton, *room)?);
        }
    }
    let mut snapshots = Vec::<SnapshotTook>::new();
    for timed in &timed[1..] {
        let (records, took) = spread(timed)?;
        ensure!(records > 0, "no snapshot had a record");
        // There are no more records than the buffer has.
        if snapshots.last().is_none_or(|last| last.records < records) {
            snapshots.push(SnapshotTook { records, took });
        }
    }
    let (_, nothing) = spread(&timed[0])?;
    let nanoseconds = timed.iter().flatten().map(|timed| timed.nanoseconds);
    Ok(SnapshotCost {
        cpu: *cpu,
        clock_step: least_step(nanoseconds),
        nothing,
        snapshots,
    })
}

/// A snapshot that was timed.
#[derive(Clone, Copy, Debug)]
struct Timed {
    records: u32,
    nanoseconds: u64,
    cycles: u64,
}

/// The number of records that most of the snapshots had, and how long these took.
fn spread(timed: &[Timed]) -> Result<(u32, Took)> {
    let common = most_common(timed.iter().map(|timed| timed.records));
    let common = common.context("nothing was timed")?;
    let kept = || timed.iter().filter(|timed| timed.records == common);
    let spread = |figures: Vec<u64>| Spread::of(figures).context("nothing was timed");
    let took = Took {
        times: u32::try_from(kept().count())?,
        nanoseconds: spread(kept().map(|timed| timed.nanoseconds).collect())?,
        cycles: spread(kept().map(|timed| timed.cycles).collect())?,
    };
    Ok((common, took))
}

/// The smallest difference between two of the numbers, 0 where all are the same.
fn least_step(numbers: impl Iterator<Item = u64>) -> u64 {
    let sorted: Vec<_> = numbers.collect::<BTreeSet<_>>().into_iter().collect();
    let steps = sorted.windows(2).map(|two| two[1] - two[0]);
    steps.min().unwrap_or(0)
}

/// Takes a snapshot with room for so many records.
fn once(skeleton: &BoardSkel<'_>, room: usize) -> Result<Timed> {
    let arguments = [(room * RawRecord::SIZE) as u64, u64::from(room > 0)];
    let mut context = arguments.map(u64::to_ne_bytes).concat();
    let input = ProgramInput {
        context_in: Some(&mut context),
        ..Default::default()
    };
    let output = skeleton
        .progs
        .time_snapshot
        .test_run(input)
        .context("cannot run a BPF program")?;
    ensure!(
        output.return_value == 0,
        "a BPF program cannot read the counter of cycles"
    );
    let data = skeleton.maps.bss_data.as_deref();
    let data = black_box(data.context("the program has no memory in common with us")?);
    ensure!(data.taken >= 0, "the helper returned {}", data.taken);
    let records = usize::try_from(data.taken)? / RawRecord::SIZE;
    Ok(Timed {
        records: u32::try_from(records)?,
        nanoseconds: data.nanoseconds,
        cycles: data.cycles,
    })
}

/// The number that there is most often, the largest of several.
fn most_common(numbers: impl Iterator<Item = u32>) -> Option<u32> {
    let mut times = BTreeMap::<u32, usize>::new();
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
    fn the_step_of_a_clock_is_seen_in_its_figures() {
        assert_eq!(least_step([80, 0, 40, 120, 40].into_iter()), 40);
        assert_eq!(least_step([5, 5].into_iter()), 0);
    }

    #[test]
    fn the_most_common_number_counts() {
        assert_eq!(most_common([3, 1, 3, 2].into_iter()), Some(3));
        assert_eq!(most_common([1, 2].into_iter()), Some(2));
        assert_eq!(most_common([].into_iter()), None);
    }
}
