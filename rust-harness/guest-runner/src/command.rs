//! Runs the command, and passes on what it prints.

use std::fs::File;
use std::io::{self, PipeReader, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use guest_runner::COMMAND;
use guest_runner::event::RunEvent;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How many bytes of a line are passed on as one. A longer line is passed on in parts. JSON
/// makes of a byte six at the most.
const LINE: usize = 1 << 16;
/// How many bytes are read at once.
const PART: usize = 1 << 14;

/// The command, which runs in a process group of its own.
pub(crate) struct Running {
    child: Child,
    output: PipeReader,
}

impl Running {
    /// Starts the text of the file [`COMMAND`] in the directory `dir`. `shell` is the shell to
    /// run it, with its environment; the shell runs the line `first` before it.
    ///
    /// # Errors
    ///
    /// When there is no such file, or the shell cannot be started.
    pub(crate) fn start(mut shell: Command, first: &str, dir: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(dir.join(COMMAND)).context("reading the command")?;
        let (output, printed) = io::pipe().context("a pipe for the command")?;
        let too = printed.try_clone().context("a pipe for the command")?;
        shell.arg("-c").arg(format!("{first}\n{text}"));
        shell.current_dir(dir).process_group(0);
        shell.stdin(Stdio::null()).stdout(printed).stderr(too);
        let child = shell.spawn().context("starting the shell")?;
        Ok(Self { child, output })
    }

    /// The process group of the command.
    pub(crate) fn group(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for the command's end, and reports each line that is printed until then, by the
    /// command itself or by what it has left running. Returns the exit status.
    ///
    /// # Errors
    ///
    /// When `report` fails, or the kernel has no `pidfd_open`.
    pub(crate) fn wait(
        mut self,
        mut report: impl FnMut(RunEvent) -> io::Result<()>,
    ) -> Result<i64> {
        let process = pidfd_open(self.group(), PidfdFlags::empty()).context("pidfd_open")?;
        let mut lines = Lines::default();
        let mut is_open = true;
        loop {
            let mut awaited = vec![PollFd::new(&process, PollFlags::IN)];
            if is_open {
                awaited.push(PollFd::new(&self.output, PollFlags::IN));
            }
            match poll(&mut awaited, None) {
                Err(rustix::io::Errno::INTR) => continue,
                result => result.context("waiting for the command")?,
            };
            let has_ended = !awaited[0].revents().is_empty();
            if has_ended {
                break;
            }
            let part = read(&mut self.output, PART).context("reading what is printed")?;
            is_open = !part.is_empty();
            lines.push(&part, &mut report).context("reporting")?;
        }
        // What a process that was left running prints from now on does not count: it might
        // never end.
        let mut left = usize::try_from(ioctl_fionread(self.output.as_fd())?)?;
        while left > 0 {
            let part = read(&mut self.output, left.min(PART)).context("reading what is printed")?;
            left = left.saturating_sub(part.len().max(1));
            lines.push(&part, &mut report).context("reporting")?;
        }
        lines.finish(&mut report).context("reporting")?;
        let status = self.child.wait().context("waiting for the command")?;
        let by_signal = || status.signal().map_or(-1, |signal| 128 + signal);
        Ok(status.code().unwrap_or_else(by_signal).into())
    }
}

fn read(from: &mut PipeReader, most: usize) -> io::Result<Vec<u8>> {
    let mut part = vec![0; most];
    let count = from.read(&mut part)?;
    part.truncate(count);
    Ok(part)
}

/// Cuts what is printed into lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn push(
        &mut self,
        printed: &[u8],
        report: &mut impl FnMut(RunEvent) -> io::Result<()>,
    ) -> io::Result<()> {
        for part in printed.split_inclusive(|byte| *byte == b'\n') {
            self.0.extend_from_slice(part);
            if part.ends_with(b"\n") || self.0.len() >= LINE {
                self.finish(report)?;
            }
        }
        Ok(())
    }

    /// Reports what is left as a line, if anything is.
    fn finish(&mut self, report: &mut impl FnMut(RunEvent) -> io::Result<()>) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let line = String::from_utf8_lossy(&self.0);
        let line = line.strip_suffix('\n').unwrap_or(&line).to_owned();
        self.0.clear();
        report(RunEvent::Output(line))
    }
}

/// Writes a line to the kernel's log.
pub(crate) fn log(line: &str) -> io::Result<()> {
    use io::Write as _;
    File::options()
        .write(true)
        .open("/dev/kmsg")?
        .write_all(format!("<6>{line}\n").as_bytes())
}
