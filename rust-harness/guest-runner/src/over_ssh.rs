//! Runs the command on a machine that is reached by ssh, in a temporary directory. When the
//! connection ends, whichever side ends it, what is left of the command is killed, and the
//! directory is removed.

use std::fs;
use std::io::{self, BufRead as _, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use guest_runner::event::RunEvent;
use guest_runner::files;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, set_child_subreaper, wait,
};

use crate::command::Running;

/// How often it is tried to kill what is left, and to remove the directory: a process that is being
/// killed may still make a file in it, and on a slow machine it takes seconds to die.
const ATTEMPTS: u32 = 1000;
/// The time from one try to the next.
const DYING: Duration = Duration::from_millis(10);
/// Where the kernel lists processes.
const PROCESSES: &str = "/proc";
/// Has the shell live on when Ctrl-C ends what it runs. A program that it starts ignores the
/// signal, too, unless it has a handler.
const IGNORE: &str = "trap '' INT";
/// The exit status of a shell that SIGHUP has ended.
const HUNG_UP: i32 = 129;

/// Takes an archive of so many bytes from standard input, and runs the command that comes
/// with it. Reports what happens on standard output, followed by an archive of the files that
/// are new. Each line that comes after the archive is a Ctrl-C for the command.
pub(crate) fn main(dir: &Path, bytes: u64) -> Result<()> {
    // What the command leaves running becomes a child process of this one, whatever process
    // group it is in: it is found and killed at the end.
    set_child_subreaper(Some(getpid())).context("prctl")?;
    let guest = Arc::new(Mutex::new(Guest {
        dir: dir.to_owned(),
        command: None,
    }));
    let ended = Arc::clone(&guest);
    ctrlc::set_handler(move || hang_up(&ended)).context("a handler of signals")?;
    let result = take_and_run(&guest, dir, bytes);
    lock(&guest).clean();
    result
}

fn take_and_run(guest: &Arc<Mutex<Guest>>, dir: &Path, bytes: u64) -> Result<()> {
    let mut events = io::stdout().lock();
    RunEvent::Ready.write(&mut events)?;
    let mut archive = io::stdin().lock().take(bytes);
    files::unpack(&mut archive, dir)?;
    // An archive ends with zeroes that nobody has read.
    io::copy(&mut archive, &mut io::sink()).context("reading the archive")?;
    ensure!(archive.limit() == 0, "the archive did not arrive whole");
    drop(archive);

    RunEvent::CommandBegins.write(&mut events)?;
    let running = lock(guest).start()?;
    let stopped = Arc::clone(guest);
    thread::spawn(move || follow(&stopped));
    let status = running.wait(|event| event.write(&mut events))?;
    // Nothing may write to a file that is being packed.
    lock(guest).kill();
    RunEvent::Exited(status).write(&mut events)?;
    files::pack(dir, &files::new(dir)?, &mut events)?;
    events.flush().context("sending the files")
}

/// Passes on what comes on standard input, until the connection ends.
fn follow(guest: &Mutex<Guest>) {
    for _line in io::stdin().lock().split(b'\n').map_while(Result::ok) {
        lock(guest).signal(Signal::INT);
    }
    hang_up(guest);
}

/// Cleans up, and ends this process.
fn hang_up(guest: &Mutex<Guest>) {
    // The lock is kept: nobody else is to clean up, too.
    let guest = lock(guest);
    guest.clean();
    std::process::exit(HUNG_UP);
}

fn lock(guest: &Mutex<Guest>) -> MutexGuard<'_, Guest> {
    guest.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What has to be cleaned up.
struct Guest {
    dir: PathBuf,
    /// The command's process group, once it runs.
    command: Option<Pid>,
}

impl Guest {
    fn start(&mut self) -> Result<Running> {
        let running = Running::start(Command::new("sh"), IGNORE, &self.dir)?;
        self.command = Some(running.group());
        Ok(running)
    }

    fn signal(&self, signal: Signal) {
        if let Some(command) = self.command {
            // All of its processes may have ended.
            let _ = kill_process_group(command, signal);
        }
    }

    /// Kills the command, and all that it has left running.
    fn kill(&self) {
        self.signal(Signal::KILL);
        for _ in 0..ATTEMPTS {
            let children = children();
            if children.is_empty() {
                return;
            }
            for child in children {
                // It may have ended.
                let _ = kill_process(child, Signal::KILL);
            }
            thread::sleep(DYING);
            // The child processes of those that have ended are this one's now.
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        }
    }

    fn clean(&self) {
        self.kill();
        for _ in 0..ATTEMPTS {
            match fs::remove_dir_all(&self.dir) {
                Err(error) if error.kind() != ErrorKind::NotFound => {}
                _ => return,
            }
            thread::sleep(DYING);
        }
    }
}

/// The child processes of this one. There are none to be seen where there is no /proc.
fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero().get().to_string();
    let is_child = |stat: &str| {
        // A command's name may have anything in it (proc_pid_stat(5)). Before the parent comes
        // the state.
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split(' ').nth(1)) == Some(own.as_str())
    };
    let entries = fs::read_dir(PROCESSES).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        is_child(&stat).then_some(pid)
    });
    pids.filter_map(Pid::from_raw).collect()
}
