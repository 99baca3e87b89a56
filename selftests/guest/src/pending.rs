//! A counter overflows while interrupts are disabled, and two snapshots are taken before
//! its handler has run.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use anyhow::{Context as _, Result, bail, ensure};
use libbpf_rs::{MapCore as _, MapFlags, OpenObject, ProgramInput};
use rustix::io::Errno;

use crate::perf;
use crate::skeleton::{
    self,
    pending::{PendingSkel, PendingSkelBuilder},
};

/// The first period that is tried, in cycles: more than it takes from the system call
/// that enables an event to the BPF program.
const SHORTEST: u64 = 1_000_000;
/// The longest period that is tried, in cycles. Interrupts are disabled for that long.
const LONGEST: u64 = 512 * SHORTEST;

/// The kernel's parameter by which it takes the PMU's interrupt as a pseudo-NMI.
const PSEUDO_NMI: &str = "irqchip.gicv3_pseudo_nmi=1";
const COMMAND_LINE: &str = "/proc/cmdline";

/// Why no overflow waits for its handler on this machine, if none does.
pub(crate) fn cannot_wait() -> Result<Option<String>> {
    if !cfg!(target_arch = "aarch64") {
        let reason = "which overflows stop the recording, and until when, is a matter of BRBE";
        return Ok(Some(reason.to_owned()));
    }
    let line = std::fs::read_to_string(COMMAND_LINE)
        .with_context(|| format!("cannot read {COMMAND_LINE}"))?;
    let has = line.split_ascii_whitespace().any(|word| word == PSEUDO_NMI);
    Ok(has.then(|| {
        "an overflow is a pseudo-NMI here, which disabling interrupts does not hold up".to_owned()
    }))
}

/// The loaded BPF program that takes the snapshots.
pub(crate) struct Pending<'object> {
    skeleton: PendingSkel<'object>,
}

/// What the helper returned for both snapshots while an overflow was pending: bytes, or a
/// negative error.
pub(crate) type Returned = [i64; 2];

/// What the helper returns where there are no records.
pub(crate) const NOTHING: i64 = -(Errno::NOENT.raw_os_error() as i64);

impl<'object> Pending<'object> {
    pub(crate) fn load(object: &'object mut MaybeUninit<OpenObject>) -> Result<Self> {
        let skeleton = skeleton::load(PendingSkelBuilder::default(), object)?;
        Ok(Self { skeleton })
    }

    /// Takes two snapshots while an overflow of `event` waits for its handler. The caller
    /// runs on `cpu`. The event has to be disabled, and is disabled again after that one
    /// overflow. An overflow that comes before interrupts are disabled does not wait:
    /// then `forget` is called, and a longer period is tried.
    pub(crate) fn take(
        &mut self,
        cpu: u32,
        event: &OwnedFd,
        mut forget: impl FnMut() -> Result<()>,
    ) -> Result<Returned> {
        let fd = event.as_fd().as_raw_fd().to_ne_bytes();
        self.skeleton
            .maps
            .events
            .update(&cpu.to_ne_bytes(), &fd, MapFlags::ANY)
            .context("cannot show the event to the BPF program")?;
        let mut period = SHORTEST;
        while period <= LONGEST {
            if let Some(returned) = self.try_period(event, period)? {
                return Ok(returned);
            }
            forget()?;
            period *= 2;
        }
        bail!(
            "no overflow was held up: with each period from {SHORTEST} to {LONGEST} cycles it came before \
             the BPF program had interrupts disabled"
        )
    }

    /// Makes one attempt. `None` if the overflow came before interrupts were disabled.
    fn try_period(&mut self, event: &OwnedFd, period: u64) -> Result<Option<Returned>> {
        let data = self.skeleton.maps.bss_data.as_deref_mut();
        let data = data.context("the BPF program has no memory")?;
        data.period = period;
        perf::set_period(event, period)?;
        perf::reset(event)?;
        perf::refresh(event, 1)?;
        self.skeleton
            .progs
            .take_with_overflow_pending
            .test_run(ProgramInput::default())
            .context("cannot run a BPF program")?;
        let data = self.skeleton.maps.bss_data.as_deref();
        let data = data.context("the BPF program has no memory")?;
        let (Ok(began), Ok(ended)) = (u64::try_from(data.began), u64::try_from(data.ended)) else {
            bail!(
                "a BPF program cannot read the event: {}, {}",
                data.began,
                data.ended
            );
        };
        if began >= period {
            return Ok(None);
        }
        ensure!(
            ended >= period,
            "the event has counted {ended} of {period} cycles in the time that a BPF program waits"
        );
        Ok(Some([data.taken_first, data.taken_second]))
    }
}
