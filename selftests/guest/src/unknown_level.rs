//! Records of a level that the driver does not know: a snapshot prints nothing of them, and a
//! sample a warning.
//!
//! Who takes a snapshot may hold the locks that printing takes, so that a warning would never
//! return. Here a module fills BRBE with records of EL3. A CPU makes such records only where
//! firmware at EL3 asks for it (`MDCR_EL3.E3BREC`).

use std::mem::MaybeUninit;

use anyhow::{Context as _, Result};
use branch_records::record::{Privilege, RawRecord};

use crate::kernel_log::KernelLog;
use crate::module::{Loaded, Module};
use crate::skeleton::unknown_level::{UnknownLevelSkel, UnknownLevelSkelBuilder};
use crate::skeleton::{self, of_this_process};
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf, pmus, settings};

/// The module, and its parameter that takes a record.
const MODULE: Module = Module {
    name: c"brbe_injection",
    parameter: "inject",
};
/// `BRBINF<n>_EL1` of the record: `VALID` says that it has both addresses, and `EL` that the branch
/// went to EL3.
const BRBINF: u64 = 0b11 | 0b11 << 6;
/// Where the branch is from, and where it led.
const ENDS: (u64, u64) = (0x1230, 0x4560);
/// Parts of what the driver prints of records that it does not know: the first of such a record.
const WARNINGS: [&str; 2] = ["unknown branch privilege", "Unknown transaction states"];
/// The fewest records that BRBE has to have: the way from the module to a snapshot takes some.
const ENOUGH: u32 = 32;
/// How many snapshots are taken on a CPU: an interrupt just before one spends the records.
const ATTEMPTS: usize = 10;
/// The number of cycles from one sample to the next. Some overflows are soon after the module has
/// filled BRBE.
const PERIOD: u64 = 200_000;
/// The most turns in which there has to be a sample with the record.
const TURNS: usize = 10_000;

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let Some(module) = MODULE.load()? else {
        return Ok(Verdict::Skip(MODULE.is_not_here()));
    };
    let events = verdict::record_everywhere()?;
    if let Some(pmu) = pmus::first(|pmu| pmu.branches > 0 && pmu.branches < ENOUGH) {
        let records = pmu.branches;
        return Ok(Verdict::Skip(format!(
            "of {records} records none is left on the way from the module to a snapshot"
        )));
    }
    let mut log = KernelLog::open()?;
    if !log.take(&WARNINGS)?.is_empty() {
        return Ok(Verdict::Skip(
            "this kernel has warned of such records, which it does once: boot it again".to_owned(),
        ));
    }
    let mut object = MaybeUninit::uninit();
    let mut open = skeleton::open(UnknownLevelSkelBuilder::default(), &mut object)?;
    of_this_process!(open);
    let mut skeleton = skeleton::loaded(open)?;
    let link = skeleton.progs.take.attach()?;
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        let mut found = None;
        for _ in 0..ATTEMPTS {
            found = injected(&mut skeleton, &module)?;
            if found.is_some() {
                break;
            }
        }
        let Some(record) = found else {
            return Ok(Verdict::Fail(format!(
                "CPU {cpu}: none of {ATTEMPTS} snapshots has the record that was injected"
            )));
        };
        let privilege = record.decode().privilege;
        check!(
            privilege == Privilege::Unknown,
            "CPU {cpu}: a snapshot's record of EL3 has the privilege level {privilege:?}"
        );
    }
    let printed = log.take(&WARNINGS)?;
    check!(
        printed.is_empty(),
        "while snapshots were taken the kernel printed {printed:?}"
    );
    drop(link);
    in_samples(&module, &mut log, events.iter().map(|(cpu, _)| *cpu))
}

/// The injected record in a snapshot, if the snapshot has it.
fn injected(skeleton: &mut UnknownLevelSkel<'_>, module: &Loaded) -> Result<Option<RawRecord>> {
    let memory = "the BPF program has no memory";
    skeleton.maps.bss_data.as_deref_mut().context(memory)?.taken = 0;
    inject(module)?;
    let data = skeleton.maps.bss_data.as_deref().context(memory)?;
    let bytes = usize::try_from(data.taken).unwrap_or(0);
    let records = data.records.iter().take(bytes / RawRecord::SIZE);
    Ok(records
        .map(RawRecord::from)
        .find(|record| (record.from, record.to) == ENDS))
}

/// Checks that the driver warns of such a record in a sample. It does so once after a boot.
fn in_samples(
    module: &Loaded,
    log: &mut KernelLog,
    cpus: impl Iterator<Item = u32>,
) -> Result<Verdict> {
    let _settings = settings::unlimited_sampling()?;
    for cpu in cpus {
        cpus::pin_to(cpu)?;
        let event = perf::open(cpu, perf::FOR_OVERFLOWS)?;
        perf::set_period(&event, PERIOD)?;
        perf::enable(&event)?;
        for _ in 0..TURNS {
            inject(module)?;
            if !log.take(&WARNINGS[..1])?.is_empty() {
                return Ok(Verdict::Pass);
            }
        }
    }
    Ok(Verdict::Fail(format!(
        "the kernel did not warn of a record of EL3 in {TURNS} turns with samples"
    )))
}

fn inject(module: &Loaded) -> Result<()> {
    let (from, to) = ENDS;
    module.tell(&format!("{BRBINF:x} {from:x} {to:x}"))
}
