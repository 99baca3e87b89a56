//! The register BRBIDR0_EL1, by what the driver has kept of it.

use std::mem::MaybeUninit;

use anyhow::{Context as _, Result, ensure};
use guest_reports::board::Brbidr;
use libbpf_rs::skel::{OpenSkel as _, Skel as _};

use crate::skeleton::identify::IdentifySkelBuilder;
use crate::skeleton::{self, of_this_process};
use crate::{cpus, perf};

/// Looks at each CPU that records branches.
pub(super) fn look() -> Result<Vec<Brbidr>> {
    let mut memory = MaybeUninit::uninit();
    let mut open = skeleton::open(IdentifySkelBuilder::default(), &mut memory)?;
    of_this_process!(open);
    let mut skeleton = open.load().context(
        "cannot load a BPF program: it needs root's rights, the kernel's types (BTF) and a driver of BRBE",
    )?;
    skeleton
        .attach()
        .context("cannot attach to armpmu_event_init")?;
    let mut seen = Vec::new();
    for cpu in cpus::online()? {
        let Ok(_event) = perf::open(cpu, perf::FOR_SNAPSHOTS) else {
            continue;
        };
        let data = skeleton.maps.bss_data.as_deref_mut();
        let data = data.context("the program has no memory in common with us")?;
        ensure!(data.times > 0, "no PMU was asked for an event of CPU {cpu}");
        data.times = 0;
        let value = data.brbidr;
        seen.push(Brbidr { cpu, value });
    }
    ensure!(!seen.is_empty(), "no CPU records branches");
    Ok(seen)
}
