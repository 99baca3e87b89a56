//! A snapshot that is tried in the middle of another one: the records of the outer snapshot stay
//! where they are, and there is no inner one.

use std::mem::MaybeUninit;

use anyhow::{Context as _, Result, ensure};
use branch_records::record::RawRecord;
use guest_support::first_read::{self, FirstRead};
use libbpf_rs::ProgramInput;
use rustix::io::Errno;

use crate::image::Image;
use crate::kallsyms::Kallsyms;
use crate::path::Paths;
use crate::skeleton::{
    self,
    nested::{NestedSkel, NestedSkelBuilder},
};
use crate::verdict::{self, Verdict, check};
use crate::{cpus, pmus, probe};

/// The number of records that BRBE shows at a time (`BRBFCR_EL1.BANK`).
const BANK: usize = 32;
/// How often a snapshot is taken on a CPU: a task switch before the outer one leaves few
/// records.
const ATTEMPTS: usize = 10;

/// What snapshots in the middle of others have come to.
struct Tried {
    place: FirstRead,
    cpus: Vec<TriedCpu>,
}

/// What came of one CPU's.
struct TriedCpu {
    cpu: u32,
    /// How many records it has.
    branches: u32,
    /// For each snapshot: what the helper returned for those in the middle of it, and its own
    /// records, newest first.
    snapshots: Vec<(Vec<i64>, Vec<RawRecord>)>,
}

/// Checks that snapshots have all of their records, each once, whatever others do in their middle.
pub(crate) fn run() -> Result<Verdict> {
    let paths = Paths::open();
    let is_path = |outer: &[RawRecord]| paths.check(outer).map(|_| ());
    let Some(tried) = tried(is_path)? else {
        return Ok(nowhere());
    };
    for TriedCpu {
        cpu,
        branches,
        snapshots,
    } in &tried.cpus
    {
        for (_, outer) in snapshots {
            if let Some((bank, next)) = outer.split_at_checked(BANK) {
                check!(
                    next.is_empty() || !bank.starts_with(next),
                    "records from {BANK} on of the snapshot that was interrupted are those before \
                     them once more"
                );
            }
        }
        let most = snapshots.iter().map(|(_, outer)| outer.len()).max();
        let most = most.unwrap_or_default();
        check!(
            most == *branches as usize,
            "CPU {cpu}: {most} records at the most of the snapshot that was interrupted, not \
             {branches}"
        );
    }
    Ok(seen(&tried))
}

/// Checks that there is no snapshot in the middle of another one.
pub(crate) fn run_left_alone() -> Result<Verdict> {
    let Some(tried) = tried(|_| Ok(()))? else {
        return Ok(nowhere());
    };
    let nothing = -i64::from(Errno::NOENT.raw_os_error());
    let other = tried.inner().find(|returned| *returned != nothing);
    check!(
        other.is_none(),
        "the inner snapshot: the helper returned {}, not {nothing}, and took the records of the \
         snapshot that was interrupted",
        other.unwrap_or_default()
    );
    Ok(seen(&tried))
}

impl Tried {
    /// What the helper returned for all that were in the middle of another one.
    fn inner(&self) -> impl Iterator<Item = i64> {
        let snapshots = self.cpus.iter().flat_map(|cpu| &cpu.snapshots);
        snapshots.flat_map(|(inner, _)| inner.iter().copied())
    }
}

/// The verdict where the kernel does not show where a snapshot is in its middle.
fn nowhere() -> Verdict {
    Verdict::Skip(
        "nothing of this kernel's snapshot reads a record, as far as its code shows: it is not \
         BRBE that records branches here, or a pointer leads to what reads them"
            .to_owned(),
    )
}

fn seen(tried: &Tried) -> Verdict {
    Verdict::Seen(format!(
        "{} inner snapshots on {} CPUs, at {}",
        tried.inner().count(),
        tried.cpus.len(),
        tried.place
    ))
}

/// Takes snapshots on each CPU with BRBE, until one has as many records as the CPU, and others in
/// the middle of them. `check` sees the records of each while the code is there that made them.
/// `None` if nothing shows where the middle is.
fn tried(check: impl Fn(&[RawRecord]) -> Result<()>) -> Result<Option<Tried>> {
    verdict::needs_snapshots()?;
    let Some(place) = first_read()? else {
        return Ok(None);
    };
    let events = verdict::record_everywhere()?;
    let pmus = pmus::all()?;
    let mut object = MaybeUninit::uninit();
    let mut skeleton = skeleton::load(NestedSkelBuilder::default(), &mut object)?;
    let _attached = probe::attach(&skeleton.progs.take_inner, &place)?;
    let mut all = Vec::new();
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        let pmu = pmus.iter().find(|pmu| pmu.cpus.contains(cpu));
        let pmu = pmu.with_context(|| format!("no PMU of CPU {cpu}"))?;
        let mut snapshots = Vec::new();
        for _ in 0..ATTEMPTS {
            let (inner, outer) = take(&mut skeleton)?;
            ensure!(
                !inner.is_empty(),
                "a snapshot did not come to {place}, which reads its first record"
            );
            check(&outer)?;
            let is_full = outer.len() == pmu.branches as usize;
            snapshots.push((inner, outer));
            if is_full {
                break;
            }
        }
        all.push(TriedCpu {
            cpu: *cpu,
            branches: pmu.branches,
            snapshots,
        });
    }
    Ok(Some(Tried { place, cpus: all }))
}

/// Where a snapshot reads its first record, if the kernel's code shows it.
pub(crate) fn first_read() -> Result<Option<FirstRead>> {
    if !cfg!(target_arch = "aarch64") {
        return Ok(None);
    }
    match Image::of_this_kernel()?.snapshot_function()? {
        Some(entry) => first_read::find(Kallsyms::once()?, entry),
        None => Ok(None),
    }
}

/// Takes a snapshot on this CPU. Returns what the helper returned for each snapshot
/// inside it, and the records of the outer one.
fn take(skeleton: &mut NestedSkel<'_>) -> Result<(Vec<i64>, Vec<RawRecord>)> {
    let no_memory = "the BPF program has no memory";
    skeleton
        .maps
        .bss_data
        .as_deref_mut()
        .context(no_memory)?
        .calls = 0;
    skeleton
        .progs
        .take_outer
        .test_run(ProgramInput::default())
        .context("cannot run a BPF program")?;
    let data = skeleton.maps.bss_data.as_deref().context(no_memory)?;
    let inner = data.taken_inner.iter().take(data.calls as usize);
    let bytes = usize::try_from(data.taken_outer).unwrap_or(0);
    let outer = data.outer.iter().take(bytes / RawRecord::SIZE);
    Ok((
        inner.copied().collect(),
        outer.map(RawRecord::from).collect(),
    ))
}
