//! QEMU with the BRBE plugin, through the `vmtest` crate.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::child::Event;
use super::{Backend, Boot, Capabilities, End, Run, console};
use crate::exec::{self, Group, Interrupted};

/// How long a kernel that has panicked may go on talking.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Lines of the console that are shown of a guest that hangs.
const TAIL: usize = 20;
/// Bytes of an event that are read: the guest is not trusted to end its lines.
const LINE: u64 = 1 << 24;

/// An unmodified QEMU, whose processors have what the plugin gives them.
#[derive(Clone, Copy, Debug, Default)]
pub struct QemuVmtest;

impl Backend for QemuVmtest {
    fn name(&self) -> &'static str {
        "QEMU with the BRBE plugin"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            records: 64,
            vhe: true,
            pseudo_nmi: true,
            heterogeneous: true,
        }
    }

    fn run(&self, boot: &Boot, progress: &mut dyn FnMut(&str)) -> Result<Run> {
        let mut console = File::create(&boot.console)
            .with_context(|| format!("creating {}", boot.console.display()))?;
        let mut machine = spawn(boot)?;
        let stdout = machine
            .child()
            .stdout
            .take()
            .context("the machine has no output")?;
        let stderr = machine
            .child()
            .stderr
            .take()
            .context("the machine has no error output")?;
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
}

/// Starts the machine's process. The environment would be the guest's, so it
/// gets none of ours.
fn spawn(boot: &Boot) -> Result<Group> {
    // By this name it is there even when another build has replaced the file.
    let mut command = Command::new("/proc/self/exe");
    command.arg("__vm").env_clear();
    command
        .env("PATH", "/usr/sbin:/usr/bin")
        .env("HOME", "/root")
        .env("TMPDIR", "/tmp");
    command.env("LANG", "C.UTF-8");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut machine = Group::spawn(&mut command)?;
    let mut stdin = machine
        .child()
        .stdin
        .take()
        .context("the machine has no input")?;
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
