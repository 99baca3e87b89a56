//! A snapshot reports to lockdep and the tracers of interrupts that interrupts are
//! disabled, and takes that back. It reports nothing where interrupts were disabled
//! before, whether lockdep and the tracers know of it or not.
//!
//! A module calls a function with interrupts enabled, disabled, and disabled by
//! `raw_local_irq_save()`, which is not reported. A BPF program takes a snapshot there,
//! and others count how often the tracepoints `irq_disable` and `irq_enable` are reached
//! until it is taken. For a kernel that has these reports (`CONFIG_TRACE_IRQFLAGS`).

use std::mem::MaybeUninit;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::cpus;
use crate::module::{Loaded, Module};
use crate::skeleton::raw_section::{RawSectionSkel, RawSectionSkelBuilder};
use crate::skeleton::{self, of_this_process};
use crate::traced::TRACEFS;
use crate::verdict::{self, Verdict, check};

/// The module, and its parameter that makes it call the function.
const MODULE: Module = Module {
    name: c"brbe_sections",
    parameter: "enter",
};
/// The tracepoints of interest, in a directory of [`TRACEFS`].
const TRACEPOINTS: &str = "events/preemptirq";
/// How many snapshots are taken in a section: where interrupts are enabled, one may come.
/// One of this many snapshots has none.
const ATTEMPTS: usize = 10;

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let are_there = |tracefs: &str| Path::new(tracefs).join(TRACEPOINTS).is_dir();
    if !TRACEFS.into_iter().any(are_there) {
        return Ok(Verdict::Skip(
            "this kernel does not report when interrupts are disabled: it needs CONFIG_PREEMPTIRQ_TRACEPOINTS"
                .to_owned(),
        ));
    }
    let Some(module) = MODULE.load()? else {
        return Ok(Verdict::Skip(MODULE.is_not_here()));
    };
    let events = verdict::record_everywhere()?;
    let mut object = MaybeUninit::uninit();
    let mut open = skeleton::open(RawSectionSkelBuilder::default(), &mut object)?;
    of_this_process!(open);
    let mut skeleton = skeleton::loaded(open)?;
    let _links = [
        skeleton.progs.count_off.attach()?,
        skeleton.progs.count_on.attach()?,
        skeleton.progs.take.attach()?,
    ];
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        for (section, told) in [("enabled", 1), ("masked", 0), ("raw", 0)] {
            let verdict = snapshots_in(&mut skeleton, &module, *cpu, section, told)?;
            if verdict != Verdict::Pass {
                return Ok(verdict);
            }
        }
    }
    Ok(Verdict::Pass)
}

/// Checks what is reported in the section of this name. Each time, interrupts are
/// reported as disabled as often as enabled. At least one time of [`ATTEMPTS`], they are
/// reported as disabled `told` times.
fn snapshots_in(
    skeleton: &mut RawSectionSkel<'_>,
    module: &Loaded,
    cpu: u32,
    section: &str,
    told: u32,
) -> Result<Verdict> {
    let mut last = 0;
    for _ in 0..ATTEMPTS {
        let (off, on) = snapshot_in(skeleton, module, section)?;
        check!(
            off == on,
            "CPU {cpu}, interrupts {section}: while a snapshot was taken it was told {off} times \
             that they are disabled and {on} times that they are enabled"
        );
        if off == told {
            return Ok(Verdict::Pass);
        }
        last = off;
    }
    Ok(Verdict::Fail(format!(
        "CPU {cpu}, interrupts {section}: while a snapshot was taken it was told {last} times that \
         they are disabled, not {told}, each time of {ATTEMPTS}"
    )))
}

/// Takes a snapshot in the section of this name. Returns how often it was reported that
/// interrupts are disabled, and that they are enabled.
fn snapshot_in(
    skeleton: &mut RawSectionSkel<'_>,
    module: &Loaded,
    section: &str,
) -> Result<(u32, u32)> {
    let memory = "the BPF program has no memory";
    let data = skeleton.maps.bss_data.as_deref_mut().context(memory)?;
    (data.off, data.on, data.taken) = (0, 0, 0);
    module.tell(section)?;
    let data = skeleton.maps.bss_data.as_deref().context(memory)?;
    ensure!(
        data.taken > 0,
        "interrupts {section}: the helper returned {}",
        data.taken
    );
    Ok((data.off, data.on))
}
