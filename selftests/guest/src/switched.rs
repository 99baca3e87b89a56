//! Tasks that take turns on a CPU: a snapshot has no branches of the task that ran before.
//!
//! `perf` tells the PMU of a CPU-bound event about each switch of tasks (`sched_task()`). On which
//! PMUs the two tasks have events of their own decides who does so: Linux 7.0 tells nobody about a
//! switch between tasks that have events on other PMUs alone.

use std::fmt;
use std::hint::black_box;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, anyhow};
use branch_records::record::RawRecord;

use crate::contract::{Answer, Helper};
use crate::cpus;
use crate::perf;
use crate::pmus;
use crate::verdict::{self, Verdict, check};

/// How often two tasks take turns: others may run in between.
const TURNS: usize = 10;
/// How many branches a task takes, more than there are records.
const BRANCHES: u32 = 200;

/// The events that a task has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    None,
    OtherPmu,
    Branches,
}

impl Own {
    const EACH: [Self; 3] = [Self::None, Self::OtherPmu, Self::Branches];

    /// Each with each.
    fn pairs() -> impl Iterator<Item = (Self, Self)> {
        let with_each = |before| Self::EACH.map(|after| (before, after));
        Self::EACH.into_iter().flat_map(with_each)
    }

    /// Opens them for the thread that calls this, which runs on `cpu`.
    fn open(self, cpu: u32) -> Result<Option<OwnedFd>> {
        let opened = match self {
            Self::None => return Ok(None),
            Self::OtherPmu => perf::open_software(),
            Self::Branches => {
                let pmu = pmus::first(|pmu| pmu.cpus.contains(&cpu));
                pmus::open_for_this_process(pmu, perf::OF_USER)
            }
        };
        opened
            .with_context(|| format!("cannot open {self}"))
            .map(Some)
    }
}

impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no events",
            Self::OtherPmu => "events on another PMU",
            Self::Branches => "branch events",
        })
    }
}

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    // Branches of user space alone: those of the kernel between two tasks would take all records.
    let events =
        perf::open_everywhere(&cpus::online()?, perf::OF_USER).map_err(verdict::cannot_record)?;
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    let mut most = 0;
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        let without = helper.call_after(TURNS, || {
            branch();
            Ok(())
        })?;
        let snapshots = without.iter().map(Answer::records);
        let full = snapshots.max_by_key(|it| it.len()).unwrap_or_default();
        let Some((of_branch, seen)) = most_frequent(full) else {
            return Ok(Verdict::Fail(format!(
                "CPU {cpu}: without a switch of tasks there is no snapshot"
            )));
        };
        check!(
            2 * seen > full.len(),
            "CPU {cpu}: without a switch of tasks a snapshot has {seen} of {BRANCHES} branches"
        );
        for (before, after) in Own::pairs() {
            let switch =
                format!("CPU {cpu}: after a switch from a task with {before} to one with {after}");
            let answers = after_switches(&mut helper, *cpu, before, after)?;
            for answer in &answers {
                let records = answer.records().iter();
                let of_other = records.filter(|record| ends(record) == of_branch).count();
                check!(
                    of_other == 0,
                    "{switch} a snapshot has {of_other} branches of the task that ran before"
                );
                helper.check(answer)?;
            }
            // A task that is preempted just before its snapshot has none.
            let counts = answers.iter().map(|answer| answer.records().len());
            let Some(fewest) = counts.filter(|count| *count > 0).min() else {
                return Ok(Verdict::Fail(format!("{switch} there is no snapshot")));
            };
            // Where the way of the two tasks takes all records, nothing would be seen.
            if fewest >= full.len() {
                return Ok(Verdict::Skip(format!(
                    "{switch} a snapshot has {fewest} records of what ran since: too few are left"
                )));
            }
            most = most.max(fewest);
        }
    }
    Ok(Verdict::Seen(format!(
        "{} switches on each CPU, {most} records of what ran since",
        TURNS * Own::pairs().count()
    )))
}

/// The snapshots of a task with the events `after`, each taken when a task with the events `before`
/// has run on the CPU.
fn after_switches(
    helper: &mut Helper<'_>,
    cpu: u32,
    before: Own,
    after: Own,
) -> Result<Vec<Answer>> {
    let _events = after.open(cpu)?;
    let other = Other::start(cpu, before)?;
    let answers = helper.call_after(TURNS, || {
        other.take_turn()?;
        arrive();
        Ok(())
    });
    other.end()?;
    answers
}

/// Another task on the same CPU, which branches whenever it is its turn.
struct Other {
    turn: OwnedFd,
    done: OwnedFd,
    thread: JoinHandle<Result<()>>,
}

impl Other {
    fn start(cpu: u32, own: Own) -> Result<Self> {
        let (turn, to_turn) = io::pipe().context("a pipe")?;
        let (from_done, done) = io::pipe().context("a pipe")?;
        let thread = thread::spawn(move || {
            cpus::pin_to(cpu)?;
            let _events = own.open(cpu)?;
            // System calls alone: what else is called would branch.
            while rustix::io::read(&turn, &mut [0; 1])? > 0 {
                branch();
                rustix::io::write(&done, &[0])?;
            }
            Ok(())
        });
        Ok(Self {
            turn: to_turn.into(),
            done: from_done.into(),
            thread,
        })
    }

    /// Lets it run until it has branched, or has ended.
    fn take_turn(&self) -> Result<()> {
        rustix::io::write(&self.turn, &[0])?;
        rustix::io::read(&self.done, &mut [0; 1])?;
        Ok(())
    }

    /// Ends it. An error is the one that it ended with.
    fn end(self) -> Result<()> {
        drop(self.turn);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("the other task panicked"))?
    }
}

/// Takes one branch [`BRANCHES`] times.
#[inline(never)]
fn branch() {
    for turn in 0..BRANCHES {
        black_box(turn);
    }
}

/// Takes some branches that are no other's: a task that takes none has no records.
#[inline(never)]
fn arrive() {
    for turn in 0..4 {
        black_box(turn);
    }
}

fn ends(record: &RawRecord) -> (u64, u64) {
    (record.from, record.to)
}

/// The branch that most of the records are of, and how many.
fn most_frequent(records: &[RawRecord]) -> Option<((u64, u64), usize)> {
    let count = |of| records.iter().filter(|record| ends(record) == of).count();
    let counted = records
        .iter()
        .map(|record| (ends(record), count(ends(record))));
    counted.max_by_key(|(_, count)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_branch_of_a_loop_is_found() {
        let record = |from, to| RawRecord { from, to, flags: 0 };
        assert_eq!(most_frequent(&[]), None);
        let records = [record(1, 2), record(8, 4), record(8, 4), record(3, 8)];
        assert_eq!(most_frequent(&records), Some(((8, 4), 2)));
    }
}
