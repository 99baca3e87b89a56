//! A counter that overflows at every instruction of a snapshot, one after the
//! other.
//!
//! With deterministic time (QEMU's `-icount`), a sampling period that is longer by an
//! instruction's cycles lets the counter overflow one instruction later. Each round
//! starts the counter, takes a snapshot, and goes on until there are samples. The host
//! judges the rounds: it knows what each overflow hit.

use std::fs::File;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use branch_records::record::RawRecord;
use branch_records::sweep::{MAX_SAMPLES, Round, Sweep, SweepSample};
use clap::ValueEnum;
use libbpf_rs::{MapCore as _, MapFlags, OpenObject, ProgramInput, ProgramMut};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::kallsyms::Kallsyms;
use crate::kcore::Kcore;
use crate::ring::Ring;
use crate::skeleton::{
    self,
    overflow::{OverflowSkel, OverflowSkelBuilder},
};
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf, settings};

/// `BEFORE` cycles before the measured snapshot, and `AFTER` cycles after it, are swept
/// too. Without the code that measures it, the snapshot comes earlier; and it may be
/// longer.
const BEFORE: u64 = 1200;
const AFTER: u64 = 200;
/// The number of rounds that overflow before the snapshot, where only some periods are swept.
const UNDISTURBED: u64 = 8;
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

/// The most rounds with one period, if ticks come.
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

/// Reads `FIRST..END`, a range of periods.
pub(crate) fn parse_periods(text: &str) -> Result<Range<u64>> {
    let (first, end) = text.split_once("..").context("no FIRST..END")?;
    Ok(first.parse()?..end.parse()?)
}

/// Lets the counter overflow at one instruction after the other, and writes the rounds to
/// the file `output`. With `periods`, only these are swept, after a few that overflow before
/// the snapshot: the host learns from those how long a snapshot is that nothing disturbs.
pub(crate) fn run(
    step: u64,
    taken: Taken,
    periods: Option<Range<u64>>,
    output: &Path,
) -> Result<Verdict> {
    verdict::needs_snapshots(Kallsyms::once()?)?;
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
    let mut rounds = Vec::new();
    let first = snapshot.start.saturating_sub(BEFORE);
    let swept = match periods {
        None => [first..first, first..snapshot.end + AFTER],
        Some(periods) => [first..first + UNDISTURBED * step, periods],
    };
    let periods = swept.into_iter().flat_map(|Range { start, end }| {
        let first = start.div_ceil(step);
        (first..end.div_ceil(step)).map(|steps| steps * step)
    });
    for period in periods {
        // A tick in a round delays the snapshot: the round is repeated. The round with
        // the tick is as good a test as any, but hits another instruction.
        for _ in 0..ATTEMPTS {
            let tick = last_tick();
            let mut round = program.round(&event, &mut ring, period)?;
            round.ticked = last_tick() != tick;
            let done = !round.ticked;
            rounds.push(round);
            if done {
                break;
            }
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
        perf::set_period(event, perf::NEVER)?;
        perf::reset(event)?;
        perf::enable(event)?;
        approach();
        run_program(&self.skeleton.progs.measure)?;
        perf::disable(event)?;
        let data = self.skeleton.maps.bss_data.as_deref();
        let data = data.context("the BPF program has no memory")?;
        Ok(data.before..data.after)
    }

    /// Takes a snapshot, and returns its records.
    pub(crate) fn take(&mut self) -> Result<Vec<RawRecord>> {
        run_program(&self.skeleton.progs.take)?;
        self.taken()
    }

    fn round(&mut self, event: &OwnedFd, ring: &mut Ring, period: u64) -> Result<Round> {
        perf::set_period(event, period)?;
        let programs = &self.skeleton.progs;
        let program = match self.taken {
            Taken::Plainly => &programs.take,
            Taken::InterruptsOff => &programs.take_without_interrupts,
        };
        perf::enable(event)?;
        approach();
        run_program(program)?;
        call(CALLS_AFTER);
        perf::disable(event)?;
        let samples = ring.take_samples()?;
        Ok(Round {
            period,
            ticked: false,
            snapshot: self.taken()?,
            samples: samples
                .into_iter()
                .take(MAX_SAMPLES)
                .map(SweepSample)
                .collect(),
        })
    }

    /// The records of the last snapshot.
    fn taken(&self) -> Result<Vec<RawRecord>> {
        let data = self.skeleton.maps.bss_data.as_deref();
        let data = data.context("the BPF program has no memory")?;
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

fn run_program(program: &ProgramMut<'_>) -> Result<()> {
    program
        .test_run(ProgramInput::default())
        .context("cannot run a BPF program")?;
    Ok(())
}
