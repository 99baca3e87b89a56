//! Who may record branches, by `kernel.perf_event_paranoid`: what an unprivileged
//! user is refused, and how.

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use rustix::io::Errno;

use crate::contract::Helper;
use crate::perf;
use crate::pmus::{self, Pmu};
use crate::verdict::{self, Verdict, check};

/// The user `nobody`, who has no privileges.
const USER: u32 = 65534;
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// What may be allowed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attempt {
    /// Record branches of this process in user space.
    OwnUser,
    /// Record branches of this process, those in the kernel too.
    OwnKernel,
    /// Record branches of the kernel on a CPU, as snapshots need.
    Cpu,
    /// Load the BPF program.
    Program,
}

/// What an attempt without privileges is expected to give, at this level of
/// `kernel.perf_event_paranoid`.
///
/// kernel/events/core.c: `perf_allow_kernel()`, asked where kernel branches or a
/// kernel event are wanted, refuses above 1; `perf_allow_cpu()`, where the event
/// is of a CPU, above 0. kernel/bpf/syscall.c, `bpf_prog_load()`: tracing needs
/// CAP_PERFMON whatever the level.
fn expected(attempt: Attempt, paranoid: i32) -> Result<(), Errno> {
    match attempt {
        Attempt::OwnUser => Ok(()),
        Attempt::OwnKernel if paranoid <= 1 => Ok(()),
        Attempt::Cpu if paranoid <= 0 => Ok(()),
        Attempt::OwnKernel | Attempt::Cpu => Err(Errno::ACCESS),
        Attempt::Program => Err(Errno::PERM),
    }
}

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    // Where nobody can record branches, nobody is refused it.
    drop(verdict::record_everywhere()?);
    let before =
        std::fs::read_to_string(PARANOID).with_context(|| format!("cannot read {PARANOID}"))?;
    let verdict = try_all();
    std::fs::write(PARANOID, before).with_context(|| format!("cannot set {PARANOID} back"))?;
    verdict
}

fn try_all() -> Result<Verdict> {
    for paranoid in -1..=2 {
        std::fs::write(PARANOID, paranoid.to_string())
            .with_context(|| format!("cannot write {PARANOID}"))?;
        for &what in Attempt::value_variants() {
            let found = attempt(what);
            check!(
                found == Ok(()),
                "root, {PARANOID} at {paranoid}: {what:?}: {found:?}"
            );
            let (found, expected) = (as_user(what)?, expected(what, paranoid));
            check!(
                found == expected,
                "a user, {PARANOID} at {paranoid}: {what:?}: {found:?}, not {expected:?}"
            );
        }
    }
    Ok(Verdict::Pass)
}

/// Makes an attempt in a process of [`USER`], whose exit status is the errno, or 0.
fn as_user(what: Attempt) -> Result<Result<(), Errno>> {
    let value = what.to_possible_value().context("a value has a name")?;
    let status = Command::new("/proc/self/exe")
        .args(["attempt", value.get_name()])
        .uid(USER)
        .gid(USER)
        .status()
        .context("cannot start a process of another user: is /proc mounted?")?;
    let code = status.code().context("a process was killed")?;
    Ok(match code {
        0 => Ok(()),
        errno => Err(Errno::from_raw_os_error(errno)),
    })
}

/// The first PMU that records branches and says which CPUs it is of.
fn recording() -> Option<Pmu> {
    pmus::first(|pmu| pmu.branches > 0 && !pmu.cpus.is_empty())
}

/// Makes an attempt, as the user that this process runs as.
pub(crate) fn attempt(what: Attempt) -> Result<(), Errno> {
    let opened = match what {
        Attempt::OwnUser => pmus::open_for_this_process(recording(), perf::OF_USER),
        Attempt::OwnKernel => pmus::open_for_this_process(recording(), perf::FOR_SAMPLES),
        Attempt::Cpu => perf::open(
            recording().map_or(0, |pmu| pmu.cpus[0]),
            perf::FOR_SNAPSHOTS,
        ),
        Attempt::Program => {
            let loaded = Helper::load(&mut MaybeUninit::uninit()).map(drop);
            return loaded.map_err(|error| {
                let source = error.downcast_ref::<libbpf_rs::Error>();
                match source.map(libbpf_rs::Error::kind) {
                    Some(libbpf_rs::ErrorKind::PermissionDenied) => Errno::PERM,
                    _ => Errno::IO,
                }
            });
        }
    };
    opened.map(drop).map_err(|error| {
        error
            .raw_os_error()
            .map_or(Errno::IO, Errno::from_raw_os_error)
    })
}
