//! Heterogeneous CPUs, of which one kind records branches: there are snapshots on those
//! CPUs, none on the others, and no access to registers that the others do not have.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use anyhow::{Result, anyhow};
use rustix::io::Errno;
use rustix::thread::gettid;

use crate::contract::{Helper, WHOLE};
use crate::cpus;
use crate::no_event::{something_in, takes_nothing};
use crate::perf::{self, COUNTING, FOR_SNAPSHOTS};
use crate::pmus::{self, Pmu};
use crate::verdict::{self, Verdict, check};

/// How often a task is moved to another CPU at least.
const MOVES: u32 = 400;
/// How many snapshots are taken on each kind of CPU at least.
const ENOUGH: u32 = 100;

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let (mut recording, mut counting): (Vec<_>, Vec<_>) =
        pmus::all()?.into_iter().partition(|pmu| pmu.branches > 0);
    let (Some(recording), Some(counting)) = (recording.pop(), counting.pop()) else {
        return Ok(Verdict::Skip(
            "the CPUs are not heterogeneous: none of them, or all, record branches".to_owned(),
        ));
    };
    let shared = counting
        .cpus
        .iter()
        .find(|cpu| recording.cpus.contains(cpu));
    check!(
        shared.is_none(),
        "{recording:?} and {counting:?} share CPUs"
    );

    let mut object = MaybeUninit::uninit();
    let mut test = Test {
        helper: Helper::load(&mut object)?,
        recording,
        counting,
    };
    for part in [
        Test::pinned,
        Test::refused,
        Test::migrating_between_events,
        Test::migrating_with_an_event,
        Test::quiet,
    ] {
        let verdict = part(&mut test)?;
        if verdict != Verdict::Pass {
            return Ok(verdict);
        }
    }
    Ok(Verdict::Pass)
}

struct Test<'object> {
    helper: Helper<'object>,
    /// The PMU of the CPUs that record branches.
    recording: Pmu,
    /// The PMU of the others, which count events alone.
    counting: Pmu,
}

impl Test<'_> {
    fn all_cpus(&self) -> Vec<u32> {
        [&self.recording.cpus[..], &self.counting.cpus].concat()
    }

    /// With an event on one CPU that records branches, there are records on that CPU, and
    /// none elsewhere.
    fn pinned(&mut self) -> Result<Verdict> {
        let open = |cpu: &u32| perf::open_with(self.counting.number, Some(*cpu), COUNTING);
        // The PMU of the other CPUs is busy too, as it may be.
        let counted = self.counting.cpus.iter();
        let _events: Vec<_> = counted.map(open).collect::<io::Result<_>>()?;
        for cpu in self.recording.cpus.clone() {
            let _event = perf::open_with(self.recording.number, Some(cpu), FOR_SNAPSHOTS)?;
            for other in self.all_cpus() {
                cpus::pin_to(other)?;
                let answer = self.helper.call(WHOLE, 0)?;
                if other == cpu {
                    check!(
                        !answer.records().is_empty(),
                        "CPU {cpu}, with an event: the helper returned {}",
                        answer.returned
                    );
                } else {
                    let problem = something_in(&answer);
                    check!(
                        problem.is_none(),
                        "CPU {other}, an event on CPU {cpu} only: {}",
                        problem.unwrap_or_default()
                    );
                }
            }
        }
        Ok(Verdict::Pass)
    }

    /// Which events can be opened: drivers/perf/arm_pmu.c, `armpmu_event_init()`. An
    /// event that is of no PMU in particular is one of the CPU's own PMU.
    fn refused(&mut self) -> Result<Verdict> {
        let (recording, counting) = (Some(self.recording.number), Some(self.counting.number));
        let mut expected = vec![
            (recording, None, FOR_SNAPSHOTS, Ok(())),
            (counting, None, FOR_SNAPSHOTS, Err(Errno::OPNOTSUPP)),
            (counting, None, COUNTING, Ok(())),
        ];
        for cpu in self.recording.cpus.iter().copied().map(Some) {
            expected.extend([
                (None, cpu, FOR_SNAPSHOTS, Ok(())),
                (recording, cpu, FOR_SNAPSHOTS, Ok(())),
                (counting, cpu, FOR_SNAPSHOTS, Err(Errno::NOENT)),
                (counting, cpu, COUNTING, Err(Errno::NOENT)),
            ]);
        }
        for cpu in self.counting.cpus.iter().copied().map(Some) {
            expected.extend([
                (None, cpu, FOR_SNAPSHOTS, Err(Errno::OPNOTSUPP)),
                (counting, cpu, FOR_SNAPSHOTS, Err(Errno::OPNOTSUPP)),
                (counting, cpu, COUNTING, Ok(())),
                (recording, cpu, FOR_SNAPSHOTS, Err(Errno::NOENT)),
            ]);
        }
        for (pmu, cpu, recording, expected) in expected {
            let opened = match (pmu, cpu) {
                (None, Some(cpu)) => perf::open(cpu, recording),
                (None, None) => perf::open_for_this_process(recording),
                (Some(pmu), cpu) => perf::open_with(pmu, cpu, recording),
            };
            let found = opened.map(drop).map_err(|error| error.raw_os_error());
            let expected = expected.map_err(|errno: Errno| Some(errno.raw_os_error()));
            check!(
                found == expected,
                "PMU {pmu:?} of {} and {}, CPU {cpu:?}, {recording:?}: {found:?}, not {expected:?}",
                self.recording.name,
                self.counting.name
            );
        }
        Ok(Verdict::Pass)
    }

    /// Snapshots of a task that migrates, with an event on each CPU that records
    /// branches, whatever runs there.
    fn migrating_between_events(&mut self) -> Result<Verdict> {
        let open = |cpu: &u32| perf::open_with(self.recording.number, Some(*cpu), FOR_SNAPSHOTS);
        let _events: Vec<_> = self
            .recording
            .cpus
            .iter()
            .map(open)
            .collect::<io::Result<_>>()?;
        self.migrating()
    }

    /// Snapshots of a task that migrates, with an event of this task, which comes and
    /// goes with it.
    fn migrating_with_an_event(&mut self) -> Result<Verdict> {
        let _event = perf::open_with(self.recording.number, None, FOR_SNAPSHOTS)?;
        self.migrating()
    }

    /// Takes snapshots while another thread moves this one from CPU to CPU, at any
    /// moment, from one kind of CPU to the other each time.
    fn migrating(&mut self) -> Result<Verdict> {
        let turns = self.recording.cpus.len().max(self.counting.cpus.len());
        let recording = self.recording.cpus.iter().cycle();
        let counting = self.counting.cpus.iter().cycle();
        let route: Vec<u32> = recording
            .zip(counting)
            .take(turns)
            .flat_map(|(recording, counting)| [*recording, *counting])
            .collect();
        let this = gettid();
        let (moves, stop) = (AtomicU32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let mover = scope.spawn(|| -> Result<()> {
                for &cpu in route.iter().cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    cpus::move_to(Some(this), cpu)?;
                    moves.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
            let verdict = self.while_moved(&moves);
            stop.store(true, Ordering::Relaxed);
            mover
                .join()
                .map_err(|_| anyhow!("the thread that moves another panicked"))??;
            verdict
        })
    }

    fn while_moved(&mut self, moves: &AtomicU32) -> Result<Verdict> {
        let (mut on_recording, mut on_counting) = (0, 0);
        loop {
            let moved = moves.load(Ordering::Relaxed);
            if moved >= MOVES && on_recording >= ENOUGH && on_counting >= ENOUGH {
                eprintln!(
                    "{moved} moves, snapshots: {on_recording} with records, {on_counting} without"
                );
                return Ok(Verdict::Pass);
            }
            let (answer, cpu) = self.helper.call_anywhere(WHOLE)?;
            if self.recording.cpus.contains(&cpu) {
                on_recording += 1;
                check!(
                    !answer.records().is_empty(),
                    "a task that is moved, now on CPU {cpu}: the helper returned {}",
                    answer.returned
                );
            } else {
                on_counting += 1;
                let problem = something_in(&answer);
                check!(
                    problem.is_none(),
                    "a task that is moved, now on CPU {cpu}: {}",
                    problem.unwrap_or_default()
                );
            }
        }
    }

    /// When all events are closed, there is no snapshot on any CPU.
    fn quiet(&mut self) -> Result<Verdict> {
        for cpu in self.all_cpus() {
            cpus::pin_to(cpu)?;
            let problem = takes_nothing(&mut self.helper)?;
            check!(
                problem.is_none(),
                "CPU {cpu}, all events closed: {}",
                problem.unwrap_or_default()
            );
        }
        Ok(Verdict::Pass)
    }
}
