//! A counter that overflows while interrupts are disabled, and two snapshots before
//! anybody has handled that.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use anyhow::{Context as _, Result, bail, ensure};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, OpenObject, ProgramInput};
use rustix::io::Errno;

use crate::perf;
use crate::skeleton::pending::{PendingSkel, PendingSkelBuilder};

/// The first period that is tried, in cycles: more than it takes from a system call that
/// enables an event to a program.
const SHORTEST: u64 = 1_000_000;
/// The longest one. Interrupts are disabled for that long.
const LONGEST: u64 = 512 * SHORTEST;

/// Has the kernel take the PMU's interrupt as a pseudo-NMI.
const PSEUDO_NMI: &str = "irqchip.gicv3_pseudo_nmi=1";
const COMMAND_LINE: &str = "/proc/cmdline";

/// Why no overflow of a BRBE's machine waits for its handler here, if none does.
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

/// The loaded program.
pub(crate) struct Pending<'object> {
    skeleton: PendingSkel<'object>,
}

/// What the helper returned while an overflow was pending: bytes, or a negative error.
pub(crate) type Returned = [i64; 2];

/// What it returns where there is nothing.
pub(crate) const NOTHING: i64 = -(Errno::NOENT.raw_os_error() as i64);

impl<'object> Pending<'object> {
    pub(crate) fn load(object: &'object mut MaybeUninit<OpenObject>) -> Result<Self> {
        let skeleton = PendingSkelBuilder::default()
            .open(object)
            .and_then(|skeleton| skeleton.load())
            .context("cannot load a BPF program: run as root, or with CAP_PERFMON and CAP_BPF")?;
        Ok(Self { skeleton })
    }

    /// Takes two snapshots on `cpu`, where this runs, after an overflow of `event`, which
    /// is disabled, and will be again after that one overflow. One that comes before
    /// interrupts are disabled is none that waits: then `forget` is called, and it is done
    /// once more with a longer period.
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
        bail!("it takes {LONGEST} cycles from enabling an event to a BPF program")
    }

    /// One attempt: nothing if the overflow was too early.
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
