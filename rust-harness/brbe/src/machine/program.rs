//! Machines that are programs of their own: told what to boot, they say what happens.
//!
//! The protocol is JSON: a [`Boot`] on the program's standard input, an [`Event`] a line
//! on its standard output, the last of which is how it ended. The program is ended with
//! all that it started, at any time. QEMU is run like this, and so is whatever a user
//! names (`Documentation/lanes.md`).

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::{Backend, Boot, Capabilities, End, Run, console};
use crate::exec::{self, Group, Interrupted};
use crate::image;

/// How long a kernel that has panicked may go on talking.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Lines of the console that are shown of a guest that hangs.
const TAIL: usize = 20;
/// Bytes of an event that are read: the guest is not trusted to end its lines.
const LINE: u64 = 1 << 24;
/// How long a program may take to say what it can do.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the program says, one JSON document a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Event {
    /// A line of the kernel's console.
    Console(String),
    /// A line that the command printed.
    Output(String),
    /// The command's exit status. The last event.
    Exited(i64),
    /// The machine broke. The last event.
    Failed(String),
}

/// Says one.
///
/// # Errors
///
/// When nobody listens any more.
pub(super) fn tell(event: &Event) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, event).context("reporting")?;
    writeln!(out).context("reporting")?;
    out.flush().context("reporting")
}

/// A program that a user has named.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    name: String,
    capabilities: Capabilities,
}

impl Program {
    /// Asks it, by the argument `capabilities`, what it can do.
    pub fn open(path: &Path) -> Result<Self> {
        let path = path
            .canonicalize()
            .with_context(|| format!("there is no lane {}", path.display()))?;
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
    let mut program = Group::spawn(&mut command)?;
    let stdout = program.child().stdout.take().context("it has no output")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut said = String::new();
        let read = stdout.take(LINE).read_to_string(&mut said);
        // Nobody listens any more if it took too long.
        let _ = sender.send(read.map(|_| said));
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(said) => {
            let said = said.context("reading its answer")?;
            serde_json::from_str(&said).with_context(|| format!("it says {:?}", said.trim()))
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

    fn run(&self, boot: &Boot, progress: &mut dyn FnMut(&str)) -> Result<Run> {
        let program = self.path.clone().into();
        run(program, &["run".into()], image::PATH, boot, progress)
    }
}

/// Runs a part of this very program, which has a hidden subcommand for it, with this PATH.
///
/// # Errors
///
/// As [`Backend::run`].
pub(super) fn run_self(
    arguments: &[OsString],
    path: &str,
    boot: &Boot,
    progress: &mut dyn FnMut(&str),
) -> Result<Run> {
    // By this name it is there even when another build has replaced the file.
    run("/proc/self/exe".into(), arguments, path, boot, progress)
}

fn run(
    program: OsString,
    arguments: &[OsString],
    path: &str,
    boot: &Boot,
    progress: &mut dyn FnMut(&str),
) -> Result<Run> {
    let mut console = File::create(&boot.console)
        .with_context(|| format!("creating {}", boot.console.display()))?;
    let mut machine = spawn(program, arguments, path, boot)?;
    let stdout = machine.child().stdout.take();
    let stdout = stdout.context("the machine has no output")?;
    let stderr = machine.child().stderr.take();
    let stderr = stderr.context("the machine has no error output")?;
    let events = events(stdout, stderr);
    let mut watch = Watch::new(boot.timeout);
    let end = loop {
        let event = match events.recv_timeout(watch.left()) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => break watch.out_of_time(),
            Err(RecvTimeoutError::Disconnected) => {
                break watch.end(End::Failed("it ended without saying why".to_owned()));
            }
        };
        if let Event::Console(line) = &event {
            writeln!(console, "{}", line.trim_end()).context("writing the console's log")?;
        }
        if let Event::Console(line) | Event::Output(line) = &event {
            progress(line);
        }
        if let Some(end) = watch.see(event) {
            break end;
        }
    };
    if exec::interrupted() {
        return Err(Interrupted.into());
    }
    Ok(Run {
        end,
        output: watch.output,
        console: boot.console.clone(),
    })
}

/// Starts the machine's process. The environment would be the guest's, so it
/// gets none of ours; `path` is its PATH.
fn spawn(program: OsString, arguments: &[OsString], path: &str, boot: &Boot) -> Result<Group> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    command
        .env("PATH", path)
        .env("HOME", "/root")
        .env("TMPDIR", "/tmp");
    command.env("LANG", "C.UTF-8");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut machine = Group::spawn(&mut command)?;
    let stdin = machine.child().stdin.take();
    let mut stdin = stdin.context("the machine has no input")?;
    serde_json::to_writer(&mut stdin, boot).context("telling the machine what to boot")?;
    Ok(machine)
}

/// The events of a machine, from a thread that ends with it.
fn events(stdout: ChildStdout, mut stderr: ChildStderr) -> Receiver<Event> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while let Ok(1..) = reader.by_ref().take(LINE).read_until(b'\n', &mut line) {
            let event = serde_json::from_slice(&line)
                .unwrap_or_else(|_| Event::Console("brbe: a line too long is lost".to_owned()));
            if sender.send(event).is_err() {
                return;
            }
            line.clear();
        }
        let mut said = String::new();
        if stderr.read_to_string(&mut said).is_ok() && !said.trim().is_empty() {
            // Nobody may be listening any more.
            let _ = sender.send(Event::Failed(said.trim().to_owned()));
        }
    });
    receiver
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

    fn see(&mut self, event: Event) -> Option<End> {
        match event {
            Event::Console(line) => {
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
            Event::Output(line) => {
                self.output += &line;
                self.output.push('\n');
                None
            }
            Event::Exited(status) => {
                Some(self.end(End::Exited(i32::try_from(status).unwrap_or(-1))))
            }
            Event::Failed(why) => Some(self.end(End::Failed(why))),
        }
    }

    fn out_of_time(&self) -> End {
        self.end(End::TimedOut(self.tail.iter().cloned().collect()))
    }

    /// A kernel that died is the reason for whatever else happened.
    fn end(&self, end: End) -> End {
        console::death(self.console.iter().map(String::as_str)).map_or(end, End::Panicked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(line: &str) -> Event {
        Event::Console(line.to_owned())
    }

    #[test]
    fn a_command_that_ends_gives_its_status_and_output() {
        let mut watch = Watch::new(Duration::from_secs(60));
        assert_eq!(watch.see(Event::Output("one".into())), None);
        assert_eq!(watch.see(Event::Exited(7)), Some(End::Exited(7)));
        assert_eq!(watch.output, "one\n");
    }

    #[test]
    fn a_panic_shortens_the_wait_and_explains_what_follows() {
        let mut watch = Watch::new(Duration::from_secs(600));
        watch.see(console(
            "[ 1.0] Kernel panic - not syncing: Attempted to kill init!",
        ));
        assert!(watch.left() <= LAST_WORDS);
        let end = watch.see(Event::Failed("no agent".into()));
        let said = "Kernel panic - not syncing: Attempted to kill init!".to_owned();
        assert_eq!(end, Some(End::Panicked(vec![said])));
    }

    #[test]
    fn a_guest_that_hangs_shows_the_end_of_its_console() {
        let mut watch = Watch::new(Duration::ZERO);
        for line in 0..100 {
            watch.see(console(&format!("line {line}")));
        }
        let End::TimedOut(last) = watch.out_of_time() else {
            panic!("not a time-out")
        };
        assert_eq!(last.len(), TAIL);
        assert_eq!(last[TAIL - 1], "line 99");
    }
}
