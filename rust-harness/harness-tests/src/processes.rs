//! The processes that a program under test has started.

use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
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
