//! Backends that are programs of their own: such a program reads what to boot, and reports
//! what happens.
//!
//! The protocol is JSON: a [`Boot`] on the program's standard input, a [`RunEvent`] a line on
//! its standard output. The last event says how the run ended. The program is ended with all
//! that it started, at any time. QEMU and Arm's model are run like this, and so is whatever
//! program a user names (`Documentation/lanes.md`).

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use guest_runner::PATH;
use guest_runner::event::RunEvent;

use crate::backend::{Backend, Boot, End, Progress, Run};
use crate::console;
use crate::machine_spec::Capabilities;
use host::process::{self, Interrupted, ProcessGroup};

/// How long a run goes on after a panic, for the rest of the kernel's report. Also how long a
/// program that has closed its standard output may take to close its standard error, or to end.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(2);
/// How many lines of the console are reported of a guest that hangs.
const TAIL: usize = 20;
/// How many bytes of an event are read: the guest is not trusted to end its lines.
const LINE: u64 = 1 << 24;
/// How many bytes are read of all that a machine prints, the console and the command
/// together: the guest is not trusted to come to an end either. No run of this repository's
/// tests prints a MiB.
pub(super) const MAX_OUTPUT: u64 = 64 << 20;
/// How many bytes are kept of what a program writes to its standard error, the last ones.
const REASON: usize = 1 << 14;
/// How long a program may take to report its capabilities.
const PATIENCE: Duration = Duration::from_secs(30);

/// Prints an event on standard output, as JSON on a line.
///
/// # Errors
///
/// When standard output cannot be written to, because nobody reads it any more.
pub(super) fn report_event(event: &RunEvent) -> Result<()> {
    event.write(&mut std::io::stdout()).context("reporting")
}

/// A backend that is a program of the user's.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    name: String,
    capabilities: Capabilities,
}

impl Program {
    /// The backend that is the program at `path`. The program is run with the argument
    /// `capabilities`, to report what its machines can do.
    pub fn open(path: &Path) -> Result<Self> {
        let path = path
            .canonicalize()
            .with_context(|| format!("looking for the program {}", path.display()))?;
        let name = path.file_stem().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let said = capabilities(&path)
            .with_context(|| format!("asking {} what it can do", path.display()))?;
        Ok(Self {
            capabilities: said,
            path,
            name,
        })
    }
}

fn capabilities(path: &Path) -> Result<Capabilities> {
    let mut command = Command::new(path);
    command.arg("capabilities").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut program = ProcessGroup::spawn(&mut command)?;
    let stdout = program.child().stdout.take().context("it has no output")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut said = String::new();
        let read = stdout.take(LINE).read_to_string(&mut said);
        // The receiver is gone if the program took too long.
        let _ = sender.send(read.map(|_| said));
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(said) => {
            let said = said.context("reading its answer")?;
            serde_json::from_str(&said).or_else(|error| {
                let status = program.wait_within(LAST_WORDS)?;
                let status =
                    status.map_or("still runs".to_owned(), |it| format!("has ended ({it})"));
                let said = said.trim();
                Err(error).with_context(|| {
                    format!("it {status}, and {said:?} is no answer: see Documentation/lanes.md")
                })
            })
        }
        Err(_) => bail!("it has not answered within {PATIENCE:?}"),
    }
}

impl Backend for Program {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn run(&self, boot: &Boot, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Run> {
        let program = self.path.clone().into();
        run(program, &["run".into()], boot, progress)
    }
}

/// Runs `boot` on a backend that is a part of this very program, with a hidden subcommand for
/// it. `arguments` are the subcommand and its arguments.
///
/// # Errors
///
/// When the process cannot be started, the console's log cannot be written, or the run is
/// interrupted. What goes wrong in the machine is no error but an [`End`].
pub(super) fn run_self(
    arguments: &[OsString],
    boot: &Boot,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Run> {
    run(process::this_program().into(), arguments, boot, progress)
}

/// Why a machine has failed whose process has said neither an end nor a reason, in words.
fn without_an_end(machine: &mut ProcessGroup) -> Result<String> {
    Ok(match machine.wait_within(LAST_WORDS)? {
        Some(status) => format!(
            "its process ended ({status}) and gave no reason. If it was signal 9, there was most likely \
             no memory left: dmesg tells, and `./brbe test --jobs N` runs fewer machines at once"
        ),
        None => "its process has closed its output, and still runs".to_owned(),
    })
}

fn run(
    program: OsString,
    arguments: &[OsString],
    boot: &Boot,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Run> {
    let mut console = File::create(&boot.console)
        .with_context(|| format!("creating {}", boot.console.display()))?;
    let mut machine = spawn(program, arguments, boot)?;
    let stdout = machine.child().stdout.take();
    let stdout = stdout.context("the machine has no output")?;
    let stderr = machine.child().stderr.take();
    let stderr = stderr.context("the machine has no error output")?;
    let events = events(stdout, Reason::of(stderr), MAX_OUTPUT);
    let mut watch = Watch::new(boot.timeout);
    let end = loop {
        let event = match events.recv_timeout(watch.left()) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => break watch.out_of_time(),
            Err(RecvTimeoutError::Disconnected) => {
                break watch.end(End::Failed(without_an_end(&mut machine)?));
            }
        };
        if let RunEvent::Console(line) = &event {
            writeln!(console, "{}", line.trim_end()).context("writing the console's log")?;
        }
        if let RunEvent::Console(line) | RunEvent::Output(line) = &event {
            progress(Progress::Line(line));
        }
        if event == RunEvent::CommandBegins {
            progress(Progress::CommandBegins);
        }
        if let Some(end) = watch.see(event) {
            break end;
        }
    };
    if process::interrupted() {
        return Err(Interrupted.into());
    }
    Ok(Run {
        end,
        output: watch.output,
        console: boot.console.clone(),
    })
}

/// Starts the machine's process, and has a thread write `boot` to its standard input. The
/// process gets none of this program's environment, because the guest would get it too.
fn spawn(program: OsString, arguments: &[OsString], boot: &Boot) -> Result<ProcessGroup> {
    let text = serde_json::to_vec(boot).context("describing what to boot")?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    command
        .env("PATH", PATH)
        .env("HOME", "/root")
        .env("TMPDIR", "/tmp");
    command.env("LANG", "C.UTF-8");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut machine = ProcessGroup::spawn(&mut command)?;
    let stdin = machine.child().stdin.take();
    let mut stdin = stdin.context("the machine has no input")?;
    // A thread writes, because a program may print before it has read all of it, or end
    // without reading it. In that case the program has reported why, and an error here is no
    // news.
    thread::spawn(move || stdin.write_all(&text));
    Ok(machine)
}

/// The events that a machine prints on `stdout`, read by a thread that ends with the machine.
/// If it prints more than `most` bytes, or ends after it has written to its standard error
/// (`reason`), the last event is [`RunEvent::Failed`].
fn events(stdout: impl Read + Send + 'static, reason: Reason, most: u64) -> Receiver<RunEvent> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout).take(most);
        let mut line = Vec::new();
        while let Ok(1..) = reader.by_ref().take(LINE).read_until(b'\n', &mut line) {
            let event = if line.len() as u64 == LINE {
                RunEvent::Console("brbe: a line too long is lost".to_owned())
            } else {
                RunEvent::parse(String::from_utf8_lossy(&line).trim_end())
            };
            if sender.send(event).is_err() {
                return;
            }
            line.clear();
        }
        let failed = match reader.limit() {
            0 => Some(printed_too_much(most)),
            _ => reason.text(),
        };
        if let Some(why) = failed {
            // The receiver may be gone.
            let _ = sender.send(RunEvent::Failed(why));
        }
    });
    receiver
}

/// The error message for a machine that was ended because it printed more than `most` bytes,
/// with what to do about it.
pub(super) fn printed_too_much(most: u64) -> String {
    format!(
        "it printed more than {} MiB and was stopped: have the command print less, or into a file",
        most >> 20
    )
}

/// What a program writes to its standard error, of which the end is kept. It is read as it
/// comes: a process that writes into a pipe that nobody reads stands still once the pipe is
/// full.
struct Reason {
    kept: Arc<Mutex<VecDeque<u8>>>,
    ended: Receiver<()>,
}

impl Reason {
    fn of(mut stderr: impl Read + Send + 'static) -> Self {
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let keep = Arc::clone(&kept);
        let (end, ended) = mpsc::channel();
        thread::spawn(move || {
            let mut part = [0; 4096];
            loop {
                let count = match stderr.read(&mut part) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Ok(0) | Err(_) => break,
                    Ok(count) => count,
                };
                let mut kept = keep.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(part.iter().take(count));
                let more = kept.len().saturating_sub(REASON);
                kept.drain(..more);
            }
            drop(end);
        });
        Self { kept, ended }
    }

    /// The end of what was written to standard error, if anything was. The program has closed
    /// its standard output and is about to end. But a process that it started may keep
    /// standard error open for good, so this waits no longer than [`LAST_WORDS`].
    fn text(self) -> Option<String> {
        let _ = self.ended.recv_timeout(LAST_WORDS);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let said = String::from_utf8_lossy(kept.make_contiguous());
        let said = said.trim();
        (!said.is_empty()).then(|| said.to_owned())
    }
}

/// What has been seen of a run, and when it has to end.
struct Watch {
    deadline: Instant,
    panicked: bool,
    console: Vec<String>,
    tail: VecDeque<String>,
    output: String,
}

impl Watch {
    fn new(timeout: Duration) -> Self {
        Self {
            deadline: Instant::now() + timeout,
            panicked: false,
            console: Vec::new(),
            tail: VecDeque::new(),
            output: String::new(),
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn see(&mut self, event: RunEvent) -> Option<End> {
        match event {
            RunEvent::Console(line) => {
                let line = line.trim_end().to_owned();
                if console::is_panic(&line) && !self.panicked {
                    self.panicked = true;
                    self.deadline = self.deadline.min(Instant::now() + LAST_WORDS);
                }
                if self.tail.len() == TAIL {
                    self.tail.pop_front();
                }
                self.tail.push_back(line.clone());
                self.console.push(line);
                None
            }
            RunEvent::Output(line) => {
                self.output += &line;
                self.output.push('\n');
                None
            }
            RunEvent::CommandBegins | RunEvent::Ready => None,
            RunEvent::Exited(status) => {
                Some(self.end(End::Exited(i32::try_from(status).unwrap_or(-1))))
            }
            RunEvent::Failed(why) => Some(self.end(End::Failed(why))),
        }
    }

    fn out_of_time(&self) -> End {
        self.end(End::TimedOut(self.tail.iter().cloned().collect()))
    }

    /// How the run came to its end: `end`, unless the console shows that the kernel died.
    /// That is the reason for whatever else happened.
    fn end(&self, end: End) -> End {
        console::death(self.console.iter().map(String::as_str)).map_or(end, End::Panicked)
    }
}

#[cfg(test)]
mod tests;
