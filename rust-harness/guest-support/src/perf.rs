//! Events that record branches on one CPU, whatever runs there.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use perf_event_open_sys::{bindings as sys, ioctls, perf_event_open};
use rustix::io::Errno;

/// What an event records: which branches, and how often a sample is made of them.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    filter: sys::perf_branch_sample_type,
    period: u64,
    counted: Counted,
}

/// Where and when the event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Everywhere,
    User,
    /// The event counts in the kernel, from [`enable`] on.
    KernelLater,
}

impl Recording {
    /// A recording of the branches that `filter` selects (`PERF_SAMPLE_BRANCH_*`), for a
    /// BPF program to take.
    pub const fn of_branches(filter: sys::perf_branch_sample_type) -> Self {
        Self {
            filter,
            ..FOR_SNAPSHOTS
        }
    }

    /// This recording with more bits of `PERF_SAMPLE_BRANCH_*`.
    pub const fn and(self, filter: sys::perf_branch_sample_type) -> Self {
        Self {
            filter: self.filter | filter,
            ..self
        }
    }
}

/// The bit that says that it need not be recorded whether branches were predicted.
pub const NO_FLAGS: sys::perf_branch_sample_type = sys::PERF_SAMPLE_BRANCH_NO_FLAGS;

/// The bit that says that the cycles between branches need not be recorded.
pub const NO_CYCLES: sys::perf_branch_sample_type = sys::PERF_SAMPLE_BRANCH_NO_CYCLES;

/// A period that no counter reaches, so that no sample is made.
pub const NEVER: u64 = 1 << 60;

/// Branches of user space. The event counts there only.
pub const OF_USER: Recording = Recording {
    filter: sys::PERF_SAMPLE_BRANCH_USER | sys::PERF_SAMPLE_BRANCH_ANY,
    period: NEVER,
    counted: Counted::User,
};

/// Branches of the kernel, for a BPF program to take.
///
/// Branches of user space are not recorded: the question is how a kernel function came to
/// its result, and records of the program that called it would only push that out. The
/// period is so long that no sample is ever made: each one would empty the buffer, and
/// the program wants what is in it.
pub const FOR_SNAPSHOTS: Recording = Recording {
    filter: sys::PERF_SAMPLE_BRANCH_KERNEL
        | sys::PERF_SAMPLE_BRANCH_ANY
        | sys::PERF_SAMPLE_BRANCH_TYPE_SAVE
        | sys::PERF_SAMPLE_BRANCH_PRIV_SAVE,
    period: NEVER,
    counted: Counted::Everywhere,
};

/// Branches as in [`FOR_SNAPSHOTS`], and samples of them as often as [`set_period`] says.
/// The event counts in the kernel only, from [`enable`] on.
pub const FOR_OVERFLOWS: Recording = Recording {
    counted: Counted::KernelLater,
    ..FOR_SNAPSHOTS
};

/// Conditional branches of the kernel and no others.
pub const CONDITIONAL: Recording = Recording {
    filter: sys::PERF_SAMPLE_BRANCH_KERNEL
        | sys::PERF_SAMPLE_BRANCH_COND
        | sys::PERF_SAMPLE_BRANCH_TYPE_SAVE,
    ..FOR_SNAPSHOTS
};

/// Indirect jumps of the kernel: branches by a register that are neither calls nor
/// returns. There are next to none.
pub const OF_INDIRECT_JUMPS: Recording = Recording {
    filter: sys::PERF_SAMPLE_BRANCH_KERNEL | sys::PERF_SAMPLE_BRANCH_IND_JUMP,
    ..FOR_SNAPSHOTS
};

/// No branches: the event only counts.
pub const COUNTING: Recording = Recording {
    filter: 0,
    ..FOR_SNAPSHOTS
};

/// No branches: the event counts, and makes samples that hold nothing as often as
/// [`set_period`] says.
pub const COUNTING_OVERFLOWS: Recording = Recording {
    filter: 0,
    ..FOR_OVERFLOWS
};

/// All branches of the kernel and user space, sampled so often that a short run has many
/// samples.
pub const FOR_SAMPLES: Recording = all_branches(Some(1_000_000));

/// All branches of the kernel and user space, with a sample every `period` cycles, or
/// none.
pub const fn all_branches(period: Option<u64>) -> Recording {
    Recording {
        filter: FOR_SNAPSHOTS.filter | sys::PERF_SAMPLE_BRANCH_USER,
        period: match period {
            Some(period) => period,
            None => NEVER,
        },
        counted: Counted::Everywhere,
    }
}

/// Opens an event on `cpu`, bound to the CPU and to no task. It counts from now
/// until it is dropped.
pub fn open(cpu: u32, recording: Recording) -> io::Result<OwnedFd> {
    let cpu = cpu.try_into().map_err(|_| Errno::INVAL)?;
    open_for(Of::Cpu, cpu, HARDWARE, recording)
}

/// Opens an event of the PMU with this type: on `cpu`, whatever runs there, or else for
/// this process, on whatever CPU it runs.
pub fn open_with(pmu: u32, cpu: Option<u32>, recording: Recording) -> io::Result<OwnedFd> {
    let (of, cpu) = match cpu {
        Some(cpu) => (Of::Cpu, cpu.try_into().map_err(|_| Errno::INVAL)?),
        None => (Of::ThisProcess, ANY_CPU),
    };
    open_for(of, cpu, (pmu, CPU_CYCLES), recording)
}

/// Opens an event of this process, on whatever CPU it runs.
pub fn open_for_this_process(recording: Recording) -> io::Result<OwnedFd> {
    open_for(Of::ThisProcess, ANY_CPU, HARDWARE, recording)
}

/// Opens an event of this process that the kernel counts by itself, without a PMU of the CPU.
pub fn open_software() -> io::Result<OwnedFd> {
    let clock = (
        sys::PERF_TYPE_SOFTWARE,
        sys::PERF_COUNT_SW_TASK_CLOCK.into(),
    );
    open_for(Of::ThisProcess, ANY_CPU, clock, COUNTING)
}

/// Opens an event of this process and the processes that it starts, on whatever CPUs they
/// run.
pub fn open_inherited(recording: Recording) -> io::Result<OwnedFd> {
    open_for(Of::Family, ANY_CPU, HARDWARE, recording)
}

/// Opens an event on `cpu` of the processes in a control group, whose directory is
/// open as `group`.
pub fn open_for_group(group: &OwnedFd, cpu: u32, recording: Recording) -> io::Result<OwnedFd> {
    let cpu = cpu.try_into().map_err(|_| Errno::INVAL)?;
    open_for(Of::Group(group), cpu, HARDWARE, recording)
}

/// What an event belongs to.
#[derive(Clone, Copy, Debug)]
enum Of<'a> {
    /// A CPU, whatever runs there.
    Cpu,
    ThisProcess,
    /// This process and the processes that it starts.
    Family,
    /// The processes of a control group.
    Group(&'a OwnedFd),
}

/// No CPU in particular, for [`open_for`].
const ANY_CPU: i32 = -1;

/// The type and configuration of an event that counts cycles, on whatever PMU can.
const HARDWARE: (u32, u64) = (
    sys::PERF_TYPE_HARDWARE,
    sys::PERF_COUNT_HW_CPU_CYCLES as u64,
);

/// The configuration of an event that counts cycles on an arm64 PMU (Arm ARM, event
/// CPU_CYCLES).
const CPU_CYCLES: u64 = 0x11;

/// The bit of `config1` that asks an arm64 PMU for a counter of 64 bits (Linux,
/// Documentation/arch/arm64/perf.rst). Any other counter overflows after 2^31 cycles at the latest,
/// which freezes BRBE until its interrupt has been handled: a snapshot in between has no records.
const LONG: u64 = 1;

fn open_for(
    of: Of<'_>,
    cpu: i32,
    (type_, config): (u32, u64),
    recording: Recording,
) -> io::Result<OwnedFd> {
    let sample_type = match recording.filter {
        0 => 0,
        _ => sys::PERF_SAMPLE_BRANCH_STACK,
    };
    let mut attr = sys::perf_event_attr {
        type_,
        size: size_of::<sys::perf_event_attr>() as u32,
        config,
        sample_type: sample_type.into(),
        branch_sample_type: recording.filter.into(),
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = recording.period;
    if cfg!(target_arch = "aarch64") {
        attr.__bindgen_anon_3.config1 = LONG;
    }
    attr.set_inherit(matches!(of, Of::Family).into());
    let (pid, flags) = match of {
        Of::Cpu => (-1, 0),
        Of::ThisProcess | Of::Family => (0, 0),
        Of::Group(dir) => (dir.as_raw_fd(), sys::PERF_FLAG_PID_CGROUP),
    };
    let later = recording.counted == Counted::KernelLater;
    attr.set_disabled(later.into());
    attr.set_exclude_user(later.into());
    attr.set_exclude_kernel((recording.counted == Counted::User).into());
    open_attr(attr, pid, cpu, flags)
}

/// Opens an event on `cpu` that counts nothing, and records which code is mapped: each mapping, the
/// begin of each program (`PERF_RECORD_COMM`) and each process. The last 8 bytes of each record are
/// its time.
///
/// # Errors
///
/// When the kernel has no such event, or this process may not have it.
pub fn open_mappings(cpu: u32) -> io::Result<OwnedFd> {
    let cpu = cpu.try_into().map_err(|_| Errno::INVAL)?;
    let mut attr = sys::perf_event_attr {
        type_: sys::PERF_TYPE_SOFTWARE,
        size: size_of::<sys::perf_event_attr>() as u32,
        config: sys::PERF_COUNT_SW_DUMMY.into(),
        sample_type: sys::PERF_SAMPLE_TIME.into(),
        ..Default::default()
    };
    attr.set_sample_id_all(1);
    // The clock of BPF programs' `bpf_ktime_get_ns()`.
    attr.set_use_clockid(1);
    attr.clockid = rustix::time::ClockId::Monotonic as i32;
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    open_attr(attr, -1, cpu, 0)
}

fn open_attr(
    mut attr: sys::perf_event_attr,
    pid: i32,
    cpu: i32,
    flags: u32,
) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is initialised and says its size; the event touches no memory of this process
    // until it is mapped.
    let fd = unsafe {
        perf_event_open(
            &raw mut attr,
            pid,
            cpu,
            -1,
            (sys::PERF_FLAG_FD_CLOEXEC | flags).into(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system call returned a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes the event overflow after `period` cycles, from when it is next enabled.
pub fn set_period(event: &OwnedFd, period: u64) -> io::Result<()> {
    // The kernel takes its address, whatever the type of the argument.
    let address = (&raw const period).expose_provenance() as u64;
    // SAFETY: the descriptor is open, and the kernel reads the period, which
    // outlives the call.
    let done = unsafe { ioctls::PERIOD(event.as_raw_fd(), address) };
    succeeded(done)
}

/// Makes the event count from 0.
pub fn reset(event: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    let done = unsafe { ioctls::RESET(event.as_raw_fd(), 0) };
    succeeded(done)
}

/// Starts the event's counter.
pub fn enable(event: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    let done = unsafe { ioctls::ENABLE(event.as_raw_fd(), 0) };
    succeeded(done)
}

/// Starts the event's counter for this many overflows more.
pub fn refresh(event: &OwnedFd, overflows: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    let done = unsafe { ioctls::REFRESH(event.as_raw_fd(), overflows) };
    succeeded(done)
}

/// Stops the event's counter.
pub fn disable(event: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    let done = unsafe { ioctls::DISABLE(event.as_raw_fd(), 0) };
    succeeded(done)
}

fn succeeded(done: i32) -> io::Result<()> {
    match done {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Why branches cannot be recorded here.
#[derive(Debug, thiserror::Error)]
pub enum CannotRecord {
    /// The CPU does not record branches, or the kernel does not drive its records.
    #[error("the CPU does not record branches (no BRBE or LBR), or the kernel does not drive it")]
    NoRecords,
    /// There is no PMU at all.
    #[error("no PMU counts cycles here, so nothing records branches")]
    NoPmu,
    /// The kernel has no perf events at all.
    #[error("the kernel is built without CONFIG_PERF_EVENTS")]
    NoPerf,
    /// Branches can be recorded, but this user may not do so.
    #[error(
        "no permission to record branches of the kernel: run as root, or with CAP_PERFMON and CAP_BPF"
    )]
    Forbidden,
    /// The system call failed for some other reason.
    #[error("perf_event_open failed: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for CannotRecord {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::OPNOTSUPP) => Self::NoRecords,
            Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => Self::NoPmu,
            Some(Errno::NOSYS) => Self::NoPerf,
            Some(Errno::ACCESS | Errno::PERM) => Self::Forbidden,
            _ => Self::Failed(error),
        }
    }
}

impl CannotRecord {
    /// Whether the machine or its kernel lacks what is needed, for any user.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::NoRecords | Self::NoPmu | Self::NoPerf)
    }
}

/// Opens an event on every CPU that can record branches.
///
/// # Errors
///
/// The error of the first CPU, when no CPU can record branches. With heterogeneous CPUs
/// it is enough that some can.
pub fn open_everywhere(cpus: &[u32], recording: Recording) -> io::Result<Vec<(u32, OwnedFd)>> {
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
    fn what_is_missing_is_distinguished_from_what_is_forbidden() {
        let why = |errno: Errno| CannotRecord::from(io::Error::from(errno));
        assert!(why(Errno::OPNOTSUPP).to_string().contains("BRBE"));
        assert!(why(Errno::NOENT).to_string().contains("PMU"));
        assert!(why(Errno::NOENT).is_unsupported());
        assert!(why(Errno::ACCESS).to_string().contains("root"));
        assert!(!why(Errno::ACCESS).is_unsupported());
        assert!(!why(Errno::MFILE).is_unsupported());
    }
}
