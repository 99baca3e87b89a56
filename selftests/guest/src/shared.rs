//! Who shares the records of a CPU: two programs on one function, and a sampling event beside
//! programs. Each has its own part of them, or the same ones once more where a snapshot keeps
//! what it has read; whatever it has is a path.

use std::mem::MaybeUninit;

use anyhow::{Context as _, Result, ensure};
use branch_records::record::RawRecord;
use libbpf_rs::ProgramInput;

use crate::contract::{Answer, Helper, WHOLE};
use crate::entry::Entry;
use crate::path::{Gaps, Paths, Steady};
use crate::ring::Ring;
use crate::skeleton::{
    self,
    shared::{SharedSkel, SharedSkelBuilder},
};
use crate::verdict::{self, Verdict, check};
use crate::{cpus, overflow, perf, settings};

/// How often the function of two programs is called on a CPU. An interrupt may come between the
/// two.
const CALLS: usize = 5;
/// Cycles from one sample to the next: more than a sample takes.
const PERIOD: u64 = 5_000_000;
/// The number of samples, and of snapshots beside them, that are looked at on each CPU.
const ENOUGH: usize = 30;
/// The most turns in which there have to be so many.
const TURNS: usize = 20_000;

/// Where there may be no gaps, nobody has records that an earlier snapshot has read.
pub(crate) fn run(gaps: Gaps) -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let _settings = settings::unlimited_sampling()?;
    let entry = Entry::find()?;
    let events = verdict::record_everywhere()?;
    let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
    let (mut samples, mut snapshots) = (Vec::new(), Vec::new());
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        for [first, second] in of_two_programs()? {
            for (answer, which) in [(&first, "first"), (&second, "second")] {
                check!(
                    !answer.records().is_empty() && entry.begins(answer),
                    "CPU {cpu}, two programs on one function: the {which} one has {} records, and \
                     the newest is not the branch into {}",
                    answer.records().len(),
                    entry.name()
                );
            }
            // The way of the first program's call is taken once.
            let call = first.records().get(1);
            let has_it = |record: &RawRecord| {
                Some((record.from, record.to)) == call.map(|call| (call.from, call.to))
            };
            check!(
                gaps != Gaps::None || !second.records().iter().any(has_it),
                "CPU {cpu}, two programs on one function: the second one has records that the first \
                 one has read"
            );
            firsts.push(first.records().len());
            seconds.push(second.records().len());
        }
        let (of_event, of_helper) = beside_samples(*cpu)?;
        check!(
            of_event.len() >= ENOUGH && of_helper.len() >= ENOUGH,
            "CPU {cpu}, a sampling event and snapshots: {} samples and {} snapshots have records",
            of_event.len(),
            of_helper.len()
        );
        samples.extend(of_event);
        snapshots.extend(of_helper);
    }
    Ok(Verdict::Seen(format!(
        "records of the first of two programs on one function: {}, of the second: {}; of a sample \
         beside snapshots: {}, of a snapshot beside samples: {}",
        median(firsts),
        median(seconds),
        median(samples),
        median(snapshots)
    )))
}

/// The snapshots of two programs on one function, that of the program that runs first before the
/// other.
fn of_two_programs() -> Result<Vec<[Answer; 2]>> {
    let mut object = MaybeUninit::uninit();
    let mut skeleton = skeleton::load(SharedSkelBuilder::default(), &mut object)?;
    let attached = [&skeleton.progs.one, &skeleton.progs.other]
        .map(|program| program.attach().context("cannot attach a program"));
    let [_one, _other] = attached;
    let (_one, _other) = (_one?, _other?);
    let paths = Paths::open();
    (0..CALLS)
        .map(|_| {
            let answers = call(&mut skeleton)?;
            for answer in &answers {
                paths.check(answer.records())?;
            }
            Ok(answers)
        })
        .collect()
}

/// Calls the function of the two programs.
fn call(skeleton: &mut SharedSkel<'_>) -> Result<[Answer; 2]> {
    let no_memory = "the BPF program has no memory";
    let data = skeleton.maps.bss_data.as_deref_mut().context(no_memory)?;
    data.turns = 0;
    skeleton
        .progs
        .call_function
        .test_run(ProgramInput::default())
        .context("cannot run a BPF program")?;
    let data = skeleton.maps.bss_data.as_deref().context(no_memory)?;
    ensure!(data.turns == 2, "{} of 2 programs ran", data.turns);
    let answer = |program: usize| {
        let records = data.records[program].iter().map(RawRecord::from).collect();
        Answer::new(data.taken[program], records)
    };
    let first = usize::from(data.turn[0] != 1);
    Ok([answer(first), answer(1 - first)])
}

/// How many records each sample of an event on `cpu` has, and each snapshot that is taken beside
/// them. Those without any are left out.
fn beside_samples(cpu: u32) -> Result<(Vec<usize>, Vec<usize>)> {
    let event = perf::open(cpu, perf::FOR_OVERFLOWS).map_err(verdict::cannot_record)?;
    let mut ring = Ring::map(&event)?;
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    // An implementation may keep what a snapshot has read.
    let code = Steady::read(Gaps::BehindSnapshots);
    perf::set_period(&event, PERIOD)?;
    perf::enable(&event)?;
    let (mut samples, mut snapshots) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let answer = helper.call(WHOLE, 0)?;
        snapshots.extend(Some(answer.records().len()).filter(|records| *records > 0));
        overflow::approach();
        for sample in ring.take_samples()? {
            code.check_sample(&sample)?;
            samples.extend(Some(sample.len()).filter(|records| *records > 0));
        }
        if samples.len() >= ENOUGH && snapshots.len() >= ENOUGH {
            break;
        }
    }
    Ok((samples, snapshots))
}

fn median(mut counts: Vec<usize>) -> usize {
    counts.sort_unstable();
    counts.get(counts.len() / 2).copied().unwrap_or_default()
}
