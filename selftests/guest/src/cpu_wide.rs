//! CPU-bound branch events while tasks come and go on the CPU.
//!
//! At each context switch the kernel tells the PMU of a CPU-bound event that a
//! task was scheduled. A driver that then looks for a task's own context finds
//! none: `armv8pmu_sched_task()` of Linux 7.0 dereferenced NULL there.

use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::cpus;
use crate::path::{Gaps, Steady};
use crate::perf;
use crate::ring::Ring;
use crate::verdict::{self, Verdict, check};

pub(crate) fn run(time: Duration) -> Result<Verdict> {
    // It may run a BPF program, which is gone when samples of it would be checked.
    let code = Steady::read(Gaps::BehindSnapshots);
    let events = perf::open_everywhere(&cpus::online()?, perf::FOR_SAMPLES)
        .map_err(verdict::cannot_record)?;
    let rings = events
        .iter()
        .map(|(cpu, event)| Ok((*cpu, Ring::map(event)?)))
        .collect::<Result<Vec<_>>>()?;
    switch_contexts(&events, time)?;
    drop(events);
    let (mut seen, mut possible) = (0, 0);
    for (cpu, mut ring) in rings {
        let samples = ring.take_samples()?;
        let branches: usize = samples.iter().map(Vec::len).sum();
        check!(!samples.is_empty(), "no sample on CPU {cpu} in {time:?}");
        check!(
            branches > 0,
            "{} samples on CPU {cpu}, and no branch in any of them",
            samples.len()
        );
        seen += samples.len();
        for sample in &samples {
            possible += code.check_sample(sample)?.possible;
        }
        for record in samples.iter().flatten() {
            if let Some(problem) = record.decode().illegal_field() {
                return Ok(Verdict::Fail(format!(
                    "in a sample on CPU {cpu}: {problem}: {record:x?}"
                )));
            }
        }
    }
    Ok(Verdict::Seen(format!(
        "{seen} samples, {possible} steps possible"
    )))
}

/// Makes threads and new processes share each CPU until `time` is over.
fn switch_contexts(events: &[(u32, OwnedFd)], time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        let workers: Vec<_> = events
            .iter()
            .flat_map(|(cpu, _)| [*cpu; 2])
            .enumerate()
            .map(|(index, cpu)| {
                // One of the two threads on each CPU starts processes, and both give way
                // to each other.
                scope.spawn(move || work(cpu, end, index % 2 == 0))
            })
            .collect();
        for worker in workers {
            match worker.join() {
                Ok(result) => result?,
                Err(_) => bail!("a worker thread panicked"),
            }
        }
        Ok(())
    })
}

fn work(cpu: u32, end: Instant, starts_processes: bool) -> Result<()> {
    cpus::pin_to(cpu)?;
    while Instant::now() < end {
        for _ in 0..1000 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(1));
        if starts_processes {
            // The shortest program that is there for sure.
            let status = Command::new("/proc/self/exe")
                .arg("--version")
                .stdout(std::process::Stdio::null())
                .status()
                .context("cannot start a process: is /proc mounted?")?;
            ensure!(status.success(), "a process ended with {status}");
        }
    }
    Ok(())
}
