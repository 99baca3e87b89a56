//! Events that record branches on one CPU, whatever runs there.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

use anyhow::{Result, anyhow};
use perf_event_open_sys::{bindings as sys, perf_event_open};
use rustix::io::Errno;

use crate::verdict::Verdict;

/// Which branches, and how often a sample is made of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recording {
    filter: sys::perf_branch_sample_type,
    period: u64,
}

/// Branches of the kernel, for a BPF program to take.
///
/// Not those of user space: what is asked is how a kernel function came to its
/// result, and records of the program that called it would only push that out.
/// The period is so long that no sample is ever made: each one would empty the
/// buffer, and the program wants what is in it.
pub(crate) const FOR_SNAPSHOTS: Recording = Recording {
    filter: sys::PERF_SAMPLE_BRANCH_KERNEL
        | sys::PERF_SAMPLE_BRANCH_ANY
        | sys::PERF_SAMPLE_BRANCH_TYPE_SAVE
        | sys::PERF_SAMPLE_BRANCH_PRIV_SAVE,
    period: 1 << 60,
};

/// All branches, sampled so often that a short run has many samples.
pub(crate) const FOR_SAMPLES: Recording = all_branches(Some(1_000_000));

/// All branches, with a sample every `period` cycles, or none.
pub(crate) const fn all_branches(period: Option<u64>) -> Recording {
    Recording {
        filter: FOR_SNAPSHOTS.filter | sys::PERF_SAMPLE_BRANCH_USER,
        period: match period {
            Some(period) => period,
            None => FOR_SNAPSHOTS.period,
        },
    }
}

/// Opens an event on `cpu`, bound to the CPU and to no task. It counts from now
/// until it is dropped.
pub(crate) fn open(cpu: u32, recording: Recording) -> io::Result<OwnedFd> {
    let mut attr = sys::perf_event_attr {
        type_: sys::PERF_TYPE_HARDWARE,
        size: size_of::<sys::perf_event_attr>() as u32,
        config: sys::PERF_COUNT_HW_CPU_CYCLES.into(),
        sample_type: sys::PERF_SAMPLE_BRANCH_STACK.into(),
        branch_sample_type: recording.filter.into(),
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = recording.period;
    let cpu = cpu.try_into().map_err(|_| Errno::INVAL)?;
    // SAFETY: `attr` is initialised and says its size; counting cycles on a CPU
    // touches no memory of this process.
    let fd =
        unsafe { perf_event_open(&raw mut attr, -1, cpu, -1, sys::PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Why branches cannot be recorded here, as the end of a test: not supported, or
/// an error with what to do about it.
pub(crate) fn explain(error: &io::Error) -> Result<Verdict> {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::OPNOTSUPP) => Ok(Verdict::Skip(
            "the CPU does not record branches (no BRBE or LBR), or the kernel does not drive it"
                .to_owned(),
        )),
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => Ok(Verdict::Skip(
            "no PMU counts cycles here, so nothing records branches".to_owned(),
        )),
        Some(Errno::NOSYS) => Ok(Verdict::Skip(
            "the kernel is built without CONFIG_PERF_EVENTS".to_owned(),
        )),
        Some(Errno::ACCESS | Errno::PERM) => Err(anyhow!(
            "no permission to record branches of the kernel: run as root, or with CAP_PERFMON and CAP_BPF"
        )),
        _ => Err(anyhow!("perf_event_open failed: {error}")),
    }
}

/// Opens an event on every CPU that can record branches.
///
/// # Errors
///
/// That of the first CPU when none of them can; on a machine with two sorts of
/// CPU it is enough that some do.
pub(crate) fn open_everywhere(
    cpus: &[u32],
    recording: Recording,
) -> io::Result<Vec<(u32, OwnedFd)>> {
    let mut events = Vec::new();
    let mut first_error = None;
    for &cpu in cpus {
        match open(cpu, recording) {
            Ok(event) => events.push((cpu, event)),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        Some(error) if events.is_empty() => Err(error),
        _ => Ok(events),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_from_what_is_forbidden() {
        let explain = |errno: Errno| explain(&io::Error::from(errno));
        assert!(
            matches!(explain(Errno::OPNOTSUPP), Ok(Verdict::Skip(why)) if why.contains("BRBE"))
        );
        assert!(matches!(explain(Errno::NOENT), Ok(Verdict::Skip(why)) if why.contains("PMU")));
        let error = explain(Errno::ACCESS).unwrap_err();
        assert!(error.to_string().contains("root"), "{error}");
        assert!(explain(Errno::MFILE).is_err());
    }
}
