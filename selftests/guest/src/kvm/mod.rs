//! A host that takes snapshots while KVM runs a guest on it has its own branches in them and in
//! its samples, and none of the guest's.

mod machine;

use std::mem::MaybeUninit;
use std::result;

use anyhow::{Context as _, Result};
use branch_records::record::RawRecord;
use libbpf_rs::Link;

use crate::contract::Answer;
use crate::crossing::passed_over;
use crate::entry::{self, Entry};
use crate::kcore::Kcore;
use crate::path::{self, Gaps, Paths, Steady};
use crate::ring::Ring;
use crate::skeleton::{
    self,
    kvm::{KvmSkel, KvmSkelBuilder},
};
use crate::verdict::{self, Verdict};
use crate::{cpus, perf, settings};
use machine::Machine;

/// How often the guest runs on each CPU while snapshots are taken.
const RUNS: usize = 20;
/// Cycles from one sample to the next: less than the guest takes until it asks for its host, and
/// more than a sample takes.
const PERIOD: u64 = 5_000_000;
/// The number of samples with records that are looked at on each CPU.
const ENOUGH: usize = 20;
/// The most runs of the guest in which there have to be [`ENOUGH`] samples.
const MOST_RUNS: usize = 500;

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    if !cfg!(target_arch = "aarch64") {
        return Ok(Verdict::Skip("the guest's program is arm64's".to_owned()));
    }
    let Some(mut machine) = Machine::new()? else {
        return Ok(Verdict::Skip(
            "no KVM: the kernel does not have CONFIG_KVM, or was not started at EL2".to_owned(),
        ));
    };
    let _settings = settings::unlimited_sampling()?;
    let events = verdict::record_everywhere()?;
    let entry = Entry::find()?;
    let (mut both_ways, mut samples) = (0, 0);
    for (cpu, event) in events {
        cpus::pin_to(cpu)?;
        let mut object = MaybeUninit::uninit();
        let taken = Snapshots::begin(&mut object, &entry)?.of_runs(&mut machine)?;
        drop(event);
        let sampled = samples_of_runs(cpu, &mut machine)?;
        match (taken, sampled) {
            (Ok(taken), Ok(sampled)) => {
                both_ways += taken;
                samples += sampled;
            }
            (Err(what), _) | (_, Err(what)) => {
                return Ok(Verdict::Fail(format!("CPU {cpu}: {what}")));
            }
        }
    }
    Ok(Verdict::Seen(format!(
        "{both_ways} snapshots have the way into a guest and back, and {samples} samples were made"
    )))
}

/// How many of what was looked for were seen, or what is wrong.
type Seen = result::Result<usize, String>;

/// Snapshots where KVM is about to run a guest, and where it has run one.
struct Snapshots<'object> {
    skeleton: KvmSkel<'object>,
    paths: Paths,
    entry: &'object Entry,
    kcore: Kcore,
    _attached: [Link; 3],
}

impl<'object> Snapshots<'object> {
    /// Takes such snapshots from now on.
    fn begin(
        object: &'object mut MaybeUninit<libbpf_rs::OpenObject>,
        entry: &'object Entry,
    ) -> Result<Self> {
        let skeleton = skeleton::load(KvmSkelBuilder::default(), object)?;
        let programs = &skeleton.progs;
        let attached = [&programs.on_entry, &programs.on_note, &programs.on_exit]
            .map(|program| program.attach().context("cannot attach to KVM"));
        let [before, note, after] = attached;
        Ok(Self {
            _attached: [before?, note?, after?],
            kcore: Kcore::open()?,
            skeleton,
            paths: Paths::open(),
            entry,
        })
    }

    /// The snapshots of runs of the guest on this CPU that have the way into the guest and back.
    /// There has to be one.
    fn of_runs(mut self, machine: &mut Machine) -> Result<Seen> {
        let mut both_ways = 0;
        for _ in 0..RUNS {
            machine.run()?;
            for (when, answer) in self.answers()? {
                let wrong = not_of_the_host(answer.records());
                let wrong = wrong.or_else(|| entry::wrong(self.entry, &answer));
                if let Some(wrong) = wrong {
                    return Ok(Err(format!("the snapshot {when} the guest ran: {wrong}")));
                }
                self.paths.check(answer.records())?;
                let code = |first, last| self.kcore.read(first, last).map(|range| range.words).ok();
                both_ways += usize::from(goes_both_ways(answer.records(), code));
            }
        }
        if both_ways == 0 {
            let [_, (_, after)] = self.answers()?;
            path::list(after.records())?;
            let none = format!("no snapshot of {RUNS} has the way into the guest and back");
            return Ok(Err(none));
        }
        Ok(Ok(both_ways))
    }

    /// The last snapshots, and when they were taken.
    fn answers(&mut self) -> Result<[(&'static str, Answer); 2]> {
        let data = self.skeleton.maps.bss_data.as_deref();
        let data = data.context("the BPF program has no memory")?;
        let records = |records: &[_]| records.iter().map(RawRecord::from).collect();
        Ok([
            (
                "before",
                Answer::new(data.taken_before, records(&data.before)),
            ),
            ("after", Answer::new(data.taken_after, records(&data.after))),
        ])
    }
}

/// Samples that are made on `cpu`, which is this one, while a guest runs there.
fn samples_of_runs(cpu: u32, machine: &mut Machine) -> Result<Seen> {
    let event = perf::open(cpu, perf::FOR_OVERFLOWS).map_err(verdict::cannot_record)?;
    let mut ring = Ring::map(&event)?;
    let code = Steady::read(Gaps::None);
    perf::set_period(&event, PERIOD)?;
    perf::enable(&event)?;
    let mut seen = 0;
    for _ in 0..MOST_RUNS {
        machine.run()?;
        for sample in ring.take_samples()? {
            if let Some(wrong) = not_of_the_host(&sample) {
                return Ok(Err(format!("a sample while the guest ran: {wrong}")));
            }
            code.check_sample(&sample)?;
            seen += usize::from(!sample.is_empty());
        }
        if seen >= ENOUGH {
            return Ok(Ok(seen));
        }
    }
    let few = format!("{seen} samples have records in {MOST_RUNS} runs of the guest");
    Ok(Err(few))
}

/// What record is not of the host's kernel, if any: of all that runs, its branches alone are
/// recorded.
fn not_of_the_host(records: &[RawRecord]) -> Option<String> {
    let is_of_the_host = |address: u64| address == 0 || address >> 63 == 1;
    let other = |record: &RawRecord| !is_of_the_host(record.from) || !is_of_the_host(record.to);
    let index = records.iter().position(other)?;
    let RawRecord { from, to, .. } = records[index];
    let memory = Machine::memory();
    let whose = if memory.contains(&from) || memory.contains(&to) {
        "the guest's"
    } else {
        "not the host's"
    };
    Some(format!("record {index} is {whose}: {from:#x} to {to:#x}"))
}

/// Whether records, newest first, lead into the guest and back. Where the kernel is at EL2, there
/// is one without a target, and one without a source. At EL1 it calls what is at EL2, which is not
/// recorded: its path goes on behind the call.
fn goes_both_ways(records: &[RawRecord], code: impl Fn(u64, u64) -> Option<Vec<u32>>) -> bool {
    let back = records.iter().position(|record| record.from == 0);
    let leaves = |back: usize| records[back..].iter().any(|record| record.to == 0);
    back.is_some_and(leaves) || passed_over(records, code, is_hvc) > 0
}

/// Whether an instruction is `HVC` (Arm ARM, C6.2).
fn is_hvc(word: u32) -> bool {
    word & 0xffe0_001f == 0xd400_0002
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: u64 = 0xffff_8000_0800_0000;

    fn record(from: u64, to: u64) -> RawRecord {
        RawRecord { from, to, flags: 0 }
    }

    #[test]
    fn branches_of_the_guest_and_of_others_are_told_apart() {
        let host = record(KERNEL, KERNEL);
        let half = record(0, KERNEL);
        assert_eq!(not_of_the_host(&[host, half]), None);
        let guest = Machine::memory().start + 4;
        let said = not_of_the_host(&[host, record(guest, guest)]).unwrap();
        assert!(said.starts_with("record 1 is the guest's"), "{said}");
        let said = not_of_the_host(&[record(KERNEL, 0x40_0000)]).unwrap();
        assert!(said.contains("not the host's"), "{said}");
    }

    #[test]
    fn the_way_back_comes_after_the_way_out() {
        let (out, back) = (record(KERNEL, 0), record(0, KERNEL));
        let none = |_, _| None;
        assert!(goes_both_ways(&[back, out], none));
        assert!(!goes_both_ways(&[out, back], none));
        assert!(!goes_both_ways(&[back], none));
        let (before, after) = (record(KERNEL, 0x1000), record(0x1008, KERNEL));
        let hvc = |_, _| Some(vec![0xd400_0002]);
        assert!(goes_both_ways(&[after, before], hvc));
        assert!(!goes_both_ways(&[after, before], none));
    }
}
