//! The load: what goes on while snapshots are taken.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::io::Errno;

use crate::cpus;
use crate::perf::{self, FOR_SNAPSHOTS, OF_USER, Recording};

/// How many times fewer samples there are, where a machine has no time for anything else.
const LESS: u64 = 4;

/// Where the hierarchy of control groups of version 2 is, whose groups perf can count.
const CGROUPS: &str = "/sys/fs/cgroup";

/// What is shared with the threads that make the load.
#[derive(Debug)]
pub(super) struct Shared {
    stop: AtomicBool,
    /// The number of cycles from one sample of an event to the next.
    period: AtomicU64,
    /// The number of events that were opened and closed.
    pub(super) events: AtomicU64,
    /// The number of processes that were started.
    pub(super) processes: AtomicU64,
}

impl Shared {
    pub(super) fn new(period: u64) -> Self {
        Self {
            stop: AtomicBool::default(),
            period: period.into(),
            events: AtomicU64::default(),
            processes: AtomicU64::default(),
        }
    }

    fn period(&self) -> u64 {
        self.period.load(Ordering::Relaxed)
    }

    /// From now on, there are fewer samples. Returns the period.
    pub(super) fn sample_less(&self) -> u64 {
        let period = self.period().saturating_mul(LESS);
        self.period.store(period, Ordering::Relaxed);
        period
    }

    /// The recording of samples by now.
    pub(super) fn samples(&self) -> Recording {
        perf::all_branches(Some(self.period()))
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Makes short system calls on one CPU, or elsewhere while that CPU is offline.
pub(super) fn work(shared: &Shared, cpu: u32) -> Result<()> {
    let nothing = File::options()
        .write(true)
        .open("/dev/null")
        .context("cannot open /dev/null")?;
    let mut zeros = File::open("/dev/zero").context("cannot open /dev/zero")?;
    while shared.goes_on() {
        // When a CPU is taken offline, its threads become free to go anywhere.
        let _ = cpus::pin_to(cpu);
        for _ in 0..100 {
            rustix::io::write(&nothing, b"x").context("cannot write")?;
            zeros.read_exact(&mut [0; 64]).context("cannot read")?;
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Opens and closes events of CPUs, of tasks with their children, and of a group,
/// as fast as it goes.
pub(super) fn storm(shared: &Shared, cpus: &[u32], group: &Group) -> Result<()> {
    let recordings = [
        |_: &Shared| FOR_SNAPSHOTS,
        Shared::samples,
        |_: &Shared| OF_USER,
    ];
    let recordings = recordings.iter().cycle();
    for (recording, &cpu) in recordings.zip(cpus.iter().cycle()) {
        let recording = recording(shared);
        if !shared.goes_on() {
            break;
        }
        // A thread that was preempted in a BPF program stays on a CPU that goes offline,
        // and holds that up, for as long as the thread neither sleeps nor yields
        // (migrate_disable(), balance_push()).
        thread::yield_now();
        for (event, whose) in [
            (perf::open(cpu, recording), "a CPU"),
            (perf::open_for_this_process(recording), "a process"),
            (
                perf::open_for_group(&group.dir, cpu, recording),
                "a group of processes",
            ),
        ] {
            match event {
                Ok(_) => shared.events.fetch_add(1, Ordering::Relaxed),
                Err(error) if is_offline(&error) => 0,
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!("cannot open an event of {whose}: {recording:?}")
                    });
                }
            };
        }
    }
    Ok(())
}

/// Starts processes, with an event that they inherit, in the group and outside it.
pub(super) fn start_processes(shared: &Shared, group: &Group) -> Result<()> {
    let root = Path::new(CGROUPS).join("cgroup.procs");
    let inside = group.path.join("cgroup.procs");
    for procs in [&inside, &root].into_iter().cycle() {
        if !shared.goes_on() {
            break;
        }
        let event = perf::open_inherited(shared.samples()).context("cannot open an event")?;
        let mut child = Command::new("/proc/self/exe")
            .arg("--version")
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start a process: is /proc mounted?")?;
        // The process may have ended.
        let _ = fs::write(procs, child.id().to_string());
        let status = child.wait().context("cannot wait for a process")?;
        drop(event);
        ensure!(status.success(), "a process ended with {status}");
        shared.processes.fetch_add(1, Ordering::Relaxed);
    }
    fs::write(&root, "0").with_context(|| format!("cannot write {}", root.display()))
}

/// Whether an event could not be opened because its CPU is offline.
pub(super) fn is_offline(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

/// A control group of processes. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Group {
    path: PathBuf,
    dir: OwnedFd,
}

impl Group {
    pub(super) fn new() -> Result<Self> {
        // Once any controller is enabled, those that are always enabled, as perf's is,
        // come to be for new groups. It is no error if the CPU controller cannot be
        // enabled.
        let _ = fs::write(Path::new(CGROUPS).join("cgroup.subtree_control"), "+cpu");
        let path = Path::new(CGROUPS).join(format!("branch-guest-{}", std::process::id()));
        fs::create_dir(&path)
            .with_context(|| format!("cannot make {}: is it cgroup2?", path.display()))?;
        let dir = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self {
            path,
            dir: dir.into(),
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group is empty: the processes that went in have ended.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Takes CPUs offline and brings them back. All are online when this is dropped.
#[derive(Debug)]
pub(super) struct Hotplug {
    files: Vec<(u32, PathBuf)>,
}

impl Hotplug {
    /// A hotplug of those CPUs that can be taken offline. The first stays online, for
    /// what has to run.
    pub(super) fn of(cpus: &[u32]) -> Self {
        let file = |cpu: &u32| {
            let path = PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/online"));
            path.is_file().then_some((*cpu, path))
        };
        Self {
            files: cpus.iter().skip(1).filter_map(file).collect(),
        }
    }

    /// Takes one CPU after the other offline and back, and sends a sign of life for each.
    /// Sends the CPU's number to `back`, and waits for `go_on` until there are events on
    /// it again. Ends when the other end of these channels is gone.
    pub(super) fn cycle(
        &mut self,
        back: &Sender<u32>,
        go_on: &Receiver<()>,
        signs: &Sender<()>,
    ) -> Result<()> {
        for (cpu, file) in self.files.iter().cycle() {
            for state in ["0", "1"] {
                fs::write(file, state)
                    .with_context(|| format!("cannot write {state} to {}", file.display()))?;
            }
            // This fails if a CPU took too long once, which is reported when all is over.
            let _ = signs.send(());
            if back.send(*cpu).is_err() || go_on.recv().is_err() {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for Hotplug {
    fn drop(&mut self) {
        for (_, file) in &self.files {
            // This fails if the CPU is online already.
            let _ = fs::write(file, "1");
        }
    }
}

/// A `perf record -b` of everything that runs. It is ended when this is dropped.
#[derive(Debug)]
pub(super) struct PerfRecord(Child);

impl PerfRecord {
    /// Starts `perf record`, with a sample every `period` cycles, and returns when it
    /// records. `None` if there is no perf.
    pub(super) fn start(period: u64) -> Result<Option<Self>> {
        let child = Command::new("perf")
            .args(["record", "--quiet", "-b", "--all-cpus"])
            .args(["--event", "cycles", "--count", &period.to_string()])
            .args(["--no-buildid", "--no-buildid-cache", "--output", "-"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                eprintln!("without perf record -b: there is no perf");
                return Ok(None);
            }
            Err(error) => return Err(error).context("cannot start perf"),
        };
        let mut output = child.stdout.take().context("perf has an output")?;
        // perf's header comes when the events are open.
        output
            .read_exact(&mut [0])
            .context("perf record -b -a wrote nothing")?;
        thread::spawn(move || io::copy(&mut output, &mut io::sink()));
        Ok(Some(Self(child)))
    }

    /// Whether `perf record` still records.
    pub(super) fn is_running(&mut self) -> Result<bool> {
        let status = self.0.try_wait().context("cannot ask for perf's state")?;
        Ok(status.is_none())
    }
}

impl Drop for PerfRecord {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
