//! The processes that a program under test has started.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use host::process::ProcessGroup;
use machines::speed;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

/// How long processes may take to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process, by its number.
pub(crate) struct Process(u32);

impl Process {
    /// The one that was started as `child`.
    pub(crate) fn of(child: &Child) -> Self {
        Self(child.id())
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.0
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let id = i32::try_from(self.0).context("the number of a process")?;
        signal::kill(Pid::from_raw(id), signal).with_context(|| format!("{signal} for {id}"))
    }

    fn is_there(&self) -> bool {
        // One that has ended and that nobody has waited for has no command line.
        let line = Path::new("/proc").join(self.0.to_string()).join("cmdline");
        std::fs::read(line).is_ok_and(|line| !line.is_empty())
    }
}

/// The words behind those that start a machine, for [`ensure_whole_though_late`].
pub(crate) const WORDY: [&str; 4] = ["--", "sh", "-c", "head -c 1000000 /dev/zero; exit 6"];

/// Checks that what a machine with the command [`WORDY`] prints comes whole, also to who begins to
/// read when the command has long ended.
pub(crate) fn ensure_whole_though_late(machine: &mut Command) -> Result<()> {
    let mut group = ProcessGroup::spawn(machine.stdout(Stdio::piped()))?;
    let mut out = group.child().stdout.take().context("a pipe")?;
    out.read_exact(&mut [0])
        .context("waiting for the machine")?;
    thread::sleep(Duration::from_secs(2));
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).context("reading")?;
    let status = group.wait()?;
    ensure!(
        rest.len() == 999_999 && status.code() == Some(6),
        "read late: {} bytes after the first, {status}",
        rest.len()
    );
    Ok(())
}

/// The processes that the process `parent` has started.
pub(crate) fn children_of(parent: u32) -> Result<Vec<Process>> {
    let is_child = |number: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // After the name, which is in parentheses: the state and the parent.
        let (_, rest) = stat.rsplit_once(')')?;
        let of: u32 = rest.split_whitespace().nth(1)?.parse().ok()?;
        Some(of == parent)
    };
    let all = std::fs::read_dir("/proc").context("reading /proc")?;
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let children = numbers.filter(|number| is_child(*number) == Some(true));
    Ok(children.map(Process).collect())
}

/// Waits until none of these processes is there any more.
pub(crate) fn wait_for_the_end(processes: &[Process]) -> Result<()> {
    let until = Instant::now() + speed::scaled(PATIENCE);
    while let Some(process) = processes.iter().find(|process| process.is_there()) {
        ensure!(
            Instant::now() < until,
            "process {} is still there",
            process.0
        );
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
