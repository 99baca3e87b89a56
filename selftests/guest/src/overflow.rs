//! A counter that overflows at every instruction of a snapshot, one after the
//! other.
//!
//! With deterministic time (QEMU's `-icount`), a sampling period that is shorter by an
//! instruction's cycles lets the counter overflow one instruction sooner. Each round
//! starts the counter, takes a snapshot, and goes on until there are samples. The host
//! judges the rounds: it knows what each overflow hit.
//!
//! When in a round the snapshot comes depends a little on what was before: on how many free
//! objects the kernel's allocator has at hand, or on an interrupt of a device. The counter is
//! read right before the snapshot. A round whose snapshot came at another cycle than expected
//! is repeated, with its period adapted if that happens twice in a row.

use std::fs::File;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use branch_records::record::RawRecord;
use branch_records::sweep::{MAX_SAMPLES, Round, Sweep, SweepSample};
use clap::ValueEnum;
use libbpf_rs::{MapCore as _, MapFlags, OpenObject, ProgramInput};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::kcore::Kcore;
use crate::ring::Ring;
use crate::skeleton::{
    self,
    overflow::{self, OverflowSkel, OverflowSkelBuilder},
};
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf, settings};

/// `AFTER` cycles after the snapshot are swept too. It may be longer than measured. From the
/// rounds that overflow after it, the host learns how long a snapshot is that nothing disturbs.
const AFTER: i64 = 400;
/// The number of rounds that overflow after the snapshot, where only a part of it is swept.
const UNDISTURBED: i64 = 8;
/// The number of snapshots by which it is measured when in a round a snapshot is taken.
/// The first find pages and caches empty, and a tick may come in any: the shortest
/// counts.
const MEASUREMENTS: u32 = 8;
/// The number of system calls in a round before its snapshot. With them the period is
/// longer than the snapshot, which is hit once. The period is also longer than the return
/// from the overflow's handler; otherwise nothing else would ever execute.
const CALLS_BEFORE: usize = 20;
/// The number of system calls in a round after its snapshot: enough for the next samples.
const CALLS_AFTER: usize = 60;

/// The most rounds with one offset, if ticks come, or snapshots sooner or later than expected.
const ATTEMPTS: u32 = 4;

/// The only CPU of the machine, which all of the test runs on.
const CPU: u32 = 0;

/// How a snapshot is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Taken {
    /// By a program that does nothing else
    Plainly,
    /// With interrupts disabled
    InterruptsOff,
}

/// Reads `FIRST..END`, a range of offsets.
pub(crate) fn parse_offsets(text: &str) -> Result<Range<i64>> {
    let (first, end) = text.split_once("..").context("no FIRST..END")?;
    Ok(first.parse()?..end.parse()?)
}

/// Lets the counter overflow at one instruction after the other, and writes the rounds to
/// the file `output`. The counter overflows at each of the offsets, in cycles from the moment
/// right before the snapshot. With `only`, these offsets are swept, and a few after the
/// snapshot.
pub(crate) fn run(
    step: u64,
    taken: Taken,
    only: Option<Range<i64>>,
    output: &Path,
) -> Result<Verdict> {
    verdict::needs_snapshots()?;
    cpus::pin_to(CPU)?;
    let _settings = settings::unlimited_sampling()?;
    let event = perf::open(CPU, perf::FOR_OVERFLOWS).map_err(verdict::cannot_record)?;
    let mut object = MaybeUninit::uninit();
    let mut program = Program::load(&mut object, &event, taken)?;
    let mut ring = Ring::map(&event)?;

    let snapshot = program.measure(&event)?;
    check!(
        !snapshot.is_empty(),
        "the counter of the event does not count"
    );
    let length = snapshot.end - snapshot.start;
    let (end, step) = (i64::try_from(length)? + AFTER, i64::try_from(step)?);
    let swept = match only {
        None => [end..end, 0..end],
        Some(only) => [end - UNDISTURBED * step..end, only],
    };
    // The last offset comes first: when a snapshot comes is seen where no overflow delays it.
    let offsets = swept.into_iter().flat_map(|Range { start, end }| {
        let steps = start.div_euclid(step)..end.div_euclid(step);
        steps.rev().map(|steps| steps * step)
    });
    let mut rounds = Vec::new();
    // The counter's value when a snapshot comes. An offset from there is a period.
    let mut comes = snapshot.start;
    let mut came_before = comes;
    for offset in offsets {
        // A tick in a round delays the snapshot: the round is repeated. The round with
        // the tick is as good a test as any, but hits another instruction.
        for _ in 0..ATTEMPTS {
            let period = comes.checked_add_signed(offset);
            let period = period.context("the snapshot comes too soon")?;
            let (came, round) = program.round(&event, &mut ring, period)?;
            let is_done = !round.disturbed && came == comes;
            rounds.push(round);
            if is_done {
                break;
            }
            // The handler of an overflow before the snapshot delays the snapshot.
            if came < period && came == came_before {
                comes = came;
            }
            came_before = came;
        }
    }
    let file =
        File::create(output).with_context(|| format!("cannot create {}", output.display()))?;
    let around = Kcore::open()?.around(rounds.iter().flat_map(Round::recorded));
    Sweep::new(MEASUREMENTS, around.code, rounds).to_writer(file)?;
    Ok(Verdict::Pass)
}

/// The time of the last tick: the coarse clock goes on with ticks.
fn last_tick() -> Timespec {
    clock_gettime(ClockId::MonotonicCoarse)
}

pub(crate) struct Program<'object> {
    skeleton: OverflowSkel<'object>,
    taken: Taken,
}

impl<'object> Program<'object> {
    pub(crate) fn load(
        object: &'object mut MaybeUninit<OpenObject>,
        event: &OwnedFd,
        taken: Taken,
    ) -> Result<Self> {
        let skeleton = skeleton::load(OverflowSkelBuilder::default(), object)?;
        let event = event.as_fd().as_raw_fd().to_ne_bytes();
        skeleton
            .maps
            .events
            .update(&CPU.to_ne_bytes(), &event, MapFlags::ANY)
            .context("cannot show the event to the BPF program")?;
        Ok(Self { skeleton, taken })
    }

    /// Measures the cycles from the start of the counter until just before a snapshot,
    /// and until just after it, where nothing else came between.
    pub(crate) fn measure(&mut self, event: &OwnedFd) -> Result<Range<u64>> {
        let mut shortest = self.measure_once(event)?;
        for _ in 1..MEASUREMENTS {
            let measured = self.measure_once(event)?;
            if measured.end < shortest.end {
                shortest = measured;
            }
        }
        Ok(shortest)
    }

    fn measure_once(&mut self, event: &OwnedFd) -> Result<Range<u64>> {
        self.start(event, perf::NEVER)?;
        perf::disable(event)?;
        let data = self.data()?;
        Ok(data.before..data.after)
    }

    /// Takes a snapshot, and returns its records.
    pub(crate) fn take(&mut self) -> Result<Vec<RawRecord>> {
        let programs = &self.skeleton.progs;
        let program = match self.taken {
            Taken::Plainly => &programs.take,
            Taken::InterruptsOff => &programs.take_without_interrupts,
        };
        program
            .test_run(ProgramInput::default())
            .context("cannot run a BPF program")?;
        self.taken()
    }

    /// Starts the counter from 0, to overflow after `period` cycles, and takes a snapshot.
    /// Returns its records.
    fn start(&mut self, event: &OwnedFd, period: u64) -> Result<Vec<RawRecord>> {
        perf::set_period(event, period)?;
        perf::reset(event)?;
        perf::enable(event)?;
        approach();
        self.take()
    }

    /// Makes a round. Returns the cycle at which its snapshot came, too.
    fn round(&mut self, event: &OwnedFd, ring: &mut Ring, period: u64) -> Result<(u64, Round)> {
        let tick = last_tick();
        let snapshot = self.start(event, period)?;
        call(CALLS_AFTER);
        perf::disable(event)?;
        let samples = ring.take_samples()?;
        let came = self.data()?.before;
        let offset = period.checked_signed_diff(came);
        let round = Round {
            offset: offset.context("the BPF program cannot read the counter")?,
            // With a second overflow before the snapshot, another task had the CPU.
            disturbed: last_tick() != tick || came >= 2 * period,
            snapshot,
            samples: samples
                .into_iter()
                .take(MAX_SAMPLES)
                .map(SweepSample)
                .collect(),
        };
        Ok((came, round))
    }

    /// The memory that the BPF programs write to.
    fn data(&self) -> Result<&overflow::types::bss> {
        let data = self.skeleton.maps.bss_data.as_deref();
        data.context("the BPF program has no memory")
    }

    /// The records of the last snapshot.
    fn taken(&self) -> Result<Vec<RawRecord>> {
        let data = self.data()?;
        if data.taken == -i64::from(Errno::NOENT.raw_os_error()) {
            return Ok(Vec::new());
        }
        let bytes = usize::try_from(data.taken)
            .with_context(|| format!("bpf_get_branch_snapshot() returned {}", data.taken))?;
        ensure!(
            bytes.is_multiple_of(RawRecord::SIZE) && bytes <= size_of_val(&data.records),
            "bpf_get_branch_snapshot() returned {bytes}: not whole records"
        );
        let records = data.records.iter().take(bytes / RawRecord::SIZE);
        Ok(records.map(RawRecord::from).collect())
    }
}

/// Makes the system calls that come between the start of the counter and a snapshot.
pub(crate) fn approach() {
    call(CALLS_BEFORE);
}

/// Makes short system calls, which the C library does not answer by itself.
fn call(times: usize) {
    for _ in 0..times {
        let _ = rustix::process::getppid();
    }
}
