//! What the kernel is needed for, each in a process of its own: it can be ended, and what it has
//! opened and attached goes with it.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Subcommand;
use guest_reports::waste;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::{cost, identify, records};
use crate::waste::snapshots_of_way;

/// The most bytes that are read of what a process prints.
const MOST: u64 = 16 << 20;

/// What is found out by a process of its own, which prints it as JSON.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Measured {
    /// The register BRBIDR0_EL1 of each CPU.
    Brbidr,
    /// How long a snapshot takes.
    Cost,
    /// What a way to attach a program wastes of the records.
    Waste {
        /// The name of the way.
        way: String,
    },
    /// What many records look like.
    Records,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Brbidr => f.write_str("BRBIDR0_EL1"),
            Self::Cost => f.write_str("how long a snapshot takes"),
            Self::Waste { way } => write!(f, "records that {way} wastes"),
            Self::Records => f.write_str("what records look like"),
        }
    }
}

impl Measured {
    /// The arguments that it is parsed from.
    pub(super) fn arguments(&self) -> Vec<&str> {
        match self {
            Self::Brbidr => vec!["brbidr"],
            Self::Cost => vec!["cost"],
            Self::Waste { way } => vec!["waste", way],
            Self::Records => vec!["records"],
        }
    }

    /// Finds it out in this process, and prints it.
    pub(crate) fn print(&self) -> Result<()> {
        let json = match self {
            Self::Brbidr => serde_json::to_string(&identify::look()?),
            Self::Cost => serde_json::to_string(&cost::measure()?),
            Self::Waste { way } => {
                serde_json::to_string(&waste::of_way(&snapshots_of_way(way)?)?.kept())
            }
            Self::Records => serde_json::to_string(&records::look()?),
        };
        println!("{}", json.context("writing JSON")?);
        Ok(())
    }
}

/// A command that runs this program.
pub(super) fn this_program() -> Result<Command> {
    // Not its path, which may be one that nothing can be run from any more.
    let mut command = Command::new("/proc/self/exe");
    let name = std::env::args_os().next();
    command.arg0(name.context("a program has a name")?);
    Ok(command)
}

/// How a process ended that had a limit.
pub(super) enum Within {
    /// By itself.
    Ended {
        status: ExitStatus,
        stdout: Vec<u8>,
        stderr: Vec<u8>,
    },
    /// Not within its limit: the process was killed, or could not be, as the text says.
    NotInTime(String),
}

/// The error of a run that was to end before its time.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Whether this process was told to end.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The time between two looks whether it was, or whether a process has ended.
const LOOK: Duration = Duration::from_millis(10);
/// How long a process may take to end that was killed.
const DYING: Duration = Duration::from_secs(5);

/// From here on, Ctrl-C and the like end what [`run`] runs, and nothing else.
pub(super) fn catch_interrupts() -> Result<()> {
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::SeqCst)).context("catching Ctrl-C")
}

/// Runs a command, no longer than `limit`. It is killed when this process ends, however that does.
///
/// # Errors
///
/// [`Interrupted`], when this process was told to end, and another when the command cannot be run.
pub(super) fn run(command: &mut Command, limit: Duration) -> Result<Within> {
    let parent = rustix::process::getpid();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have ended before.
            if getppid() == Some(parent) {
                Ok(())
            } else {
                Err(io::Error::from(rustix::io::Errno::SRCH))
            }
        });
    }
    let mut child = command.spawn().context("cannot run this program again")?;
    let stdout = child.stdout.take().context("a process has an output")?;
    let stderr = child
        .stderr
        .take()
        .context("a process has an error output")?;
    let (stdout, stderr) = (read(stdout), read(stderr));
    let status = ended_within(&mut child, limit, || INTERRUPTED.load(Ordering::SeqCst))?;
    if let Some(status) = status {
        // What it has started may keep its output open.
        let said = |by: Receiver<Vec<u8>>| by.recv_timeout(DYING).unwrap_or_default();
        return Ok(Within::Ended {
            status,
            stdout: said(stdout),
            stderr: said(stderr),
        });
    }
    child.kill().context("cannot end a process")?;
    let has_ended = ended_within(&mut child, DYING, || false)?.is_some();
    if INTERRUPTED.load(Ordering::SeqCst) {
        return Err(Interrupted.into());
    }
    let so_it = if has_ended {
        "was ended"
    } else {
        "cannot be ended: it hangs in the kernel"
    };
    let seconds = limit.as_secs();
    Ok(Within::NotInTime(format!(
        "it took longer than {seconds} s and {so_it}"
    )))
}

/// Has a thread read all that is printed.
fn read(from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, said) = mpsc::channel();
    thread::spawn(move || {
        // Nobody waits for it any more if the process took too long.
        let _ = sender.send(whole(from));
    });
    said
}

/// Waits for a process, no longer than `limit`, and no longer once `stops` returns true. Returns the
/// status of the process, if it has ended.
fn ended_within(
    child: &mut Child,
    limit: Duration,
    stops: impl Fn() -> bool,
) -> Result<Option<ExitStatus>> {
    let until = Instant::now() + limit;
    loop {
        let status = child.try_wait().context("waiting for a process")?;
        if status.is_some() || Instant::now() >= until || stops() {
            return Ok(status);
        }
        thread::sleep(LOOK);
    }
}

/// All that is printed, up to [`MOST`].
fn whole(from: impl Read) -> Vec<u8> {
    let mut text = Vec::new();
    // What was read before an error is all there is.
    let _ = from.take(MOST).read_to_end(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str, limit: Duration) -> Within {
        run(Command::new("sh").args(["-c", line]), limit).unwrap()
    }

    #[test]
    fn a_process_ends_by_itself_or_at_its_limit() {
        let Within::Ended {
            status,
            stdout,
            stderr,
        } = shell("echo a; echo b >&2; exit 3", Duration::from_secs(60))
        else {
            panic!("a minute is enough");
        };
        assert_eq!(
            (status.code(), &*stdout, &*stderr),
            (Some(3), &b"a\n"[..], &b"b\n"[..])
        );
        let begun = Instant::now();
        // It closes what it could print on, too.
        for line in ["exec sleep 600", "exec >&- 2>&-; exec sleep 600"] {
            let Within::NotInTime(said) = shell(line, Duration::from_millis(100)) else {
                panic!("it sleeps");
            };
            assert_eq!(said, "it took longer than 0 s and was ended");
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn what_is_measured_is_parsed_from_its_arguments() {
        #[derive(clap::Parser)]
        struct Words {
            #[command(subcommand)]
            measured: Measured,
        }
        let way = "fexit".to_owned();
        for measured in [
            Measured::Brbidr,
            Measured::Cost,
            Measured::Waste { way },
            Measured::Records,
        ] {
            let words = [vec!["x"], measured.arguments()].concat();
            let parsed = <Words as clap::Parser>::try_parse_from(words).unwrap();
            assert_eq!(parsed.measured.to_string(), measured.to_string());
        }
    }
}
