//! The session: runs the command, and passes on what is typed and what it prints.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use vm_session::config::{SessionConfig, Streams};
use vm_session::frame::{Frame, Stream};
use vm_session::{ERRORS_PORT, OUTPUT_PORT, PROGRAM, STATUS_PORT};

use crate::command::{self, Started};
use crate::port;

/// How many bytes are read at once.
const PART: usize = 1 << 14;
/// How often it is looked whether a command that does not read has ended.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// How many parts are read of each stream when the command has ended: more than a pipe holds.
const LAST: usize = 64;
/// The machine's own console.
const CONSOLE: &str = "/dev/console";
/// The file that names the devices behind [`CONSOLE`], the last one first in use.
const ACTIVE: &str = "/sys/class/tty/console/active";

/// Runs the session that is described on standard input to its end.
///
/// # Errors
///
/// When the machine lacks the port or the console, or the host is gone.
pub(crate) fn main() -> Result<()> {
    let config: SessionConfig =
        serde_json::from_reader(io::stdin().lock()).context("reading the configuration")?;
    let started = match config.streams {
        Streams::Console(size) => {
            let mut child = command::on_device(&config, &console(), size)?;
            child.wait().context("waiting for the command")?;
            return Ok(());
        }
        Streams::Ports => return on_ports(&config),
        Streams::Pipes => command::with_pipes(&config),
        Streams::Terminal(size) => command::on_terminal(&config, size),
    };
    let mut port = port::open()?;
    Frame::Begun.write(&mut port)?;
    match started {
        Ok(Started {
            child,
            input,
            printed,
            errors,
        }) => {
            let input = Input::of(input, errors.is_none())?;
            let has_ended = input.has_ended.clone();
            let from_host = port.try_clone().context("the port")?;
            let passing = thread::spawn(move || input.pass(from_host));
            let last = match relay(child, printed, errors, &mut port) {
                Ok(status) => Frame::Ended(status),
                Err(error) => Frame::Failed(format!("{error:#}")),
            };
            has_ended.store(true, Ordering::SeqCst);
            last.write(&mut port)?;
            let passed = passing.join();
            passed.map_err(|_| anyhow!("passing on the input panicked"))?
        }
        Err(error) => {
            let name = config.command.first().map_or("a shell", String::as_str);
            let said = format!("{PROGRAM}: {name}: {error}\n");
            Frame::Printed(Stream::Error, said.into()).write(&mut port)?;
            Frame::Ended(command::status_of(&error)).write(&mut port)?;
            port::wait_for_host(&mut port)
        }
    }
}

/// Runs a command whose streams have ports of their own.
fn on_ports(config: &SessionConfig) -> Result<()> {
    let output = port::named(OUTPUT_PORT)?;
    let mut errors = port::named(ERRORS_PORT)?;
    let mut port = port::named(STATUS_PORT)?;
    let started = command::on_files(config, output, errors.try_clone().context("the port")?);
    let status = match started {
        Ok(mut child) => exit_status(child.wait().context("waiting for the command")?),
        Err(error) => {
            let name = config.command.first().map_or("a shell", String::as_str);
            writeln!(errors, "{PROGRAM}: {name}: {error}").context("the port")?;
            command::status_of(&error)
        }
    };
    write!(port, "{status}").context("the port")
}

/// The device of the console, which can be the terminal of a session, as `/dev/console` cannot.
fn console() -> std::path::PathBuf {
    let active = std::fs::read_to_string(ACTIVE).unwrap_or_default();
    let last = active.split_whitespace().last();
    last.map_or_else(|| CONSOLE.into(), |name| Path::new("/dev").join(name))
}

/// Passes on what the host sends to the command, and what the command prints to the host, until
/// it has ended. What a process that was left running prints later does not count.
fn relay(
    mut child: Child,
    printed: OwnedFd,
    errors: Option<OwnedFd>,
    port: &mut File,
) -> Result<u8> {
    let mut sources = vec![(printed, Stream::Output)];
    sources.extend(errors.map(|errors| (errors, Stream::Error)));
    for (source, _) in &sources {
        let flags = fcntl_getfl(source)? | OFlags::NONBLOCK;
        fcntl_setfl(source, flags)?;
    }
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).context("pidfd_open")?;
    loop {
        let mut awaited = vec![PollFd::new(&process, PollFlags::IN)];
        let polled = sources.iter();
        awaited.extend(polled.map(|(source, _)| PollFd::new(source, PollFlags::IN)));
        match poll(&mut awaited, None) {
            Err(rustix::io::Errno::INTR) => continue,
            result => result.context("waiting for the command")?,
        };
        let has_ended = !awaited[0].revents().is_empty();
        let parts = if has_ended { LAST } else { 1 };
        let mut open = Vec::new();
        for (source, stream) in sources {
            if pass_on(&source, stream, parts, port)? == Passed::ForNow {
                open.push((source, stream));
            }
        }
        sources = open;
        if has_ended {
            return Ok(exit_status(
                child.wait().context("waiting for the command")?,
            ));
        }
    }
}

fn exit_status(status: ExitStatus) -> u8 {
    let by_signal = || status.signal().map_or(i32::from(u8::MAX), |it| 128 + it);
    u8::try_from(status.code().unwrap_or_else(by_signal)).unwrap_or(u8::MAX)
}

/// Whether more may come from what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    ForNow,
    ToTheEnd,
}

/// Sends to the host what is there to read, this many parts of it at the most: somebody may print
/// faster than the host reads.
fn pass_on(source: &OwnedFd, stream: Stream, parts: usize, port: &mut File) -> Result<Passed> {
    for _ in 0..parts {
        let mut part = vec![0; PART];
        match rustix::io::read(source, &mut part[..]) {
            // A terminal that nobody has open any more.
            Ok(0) | Err(rustix::io::Errno::IO) => return Ok(Passed::ToTheEnd),
            Ok(count) => {
                part.truncate(count);
                Frame::Printed(stream, part).write(port)?;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => break,
            Err(error) => return Err(error).context("reading what is printed"),
        }
    }
    Ok(Passed::ForNow)
}

/// Where what the host sends goes.
struct Input {
    /// The command's standard input, or its terminal. `None`: it takes no more.
    to: Option<File>,
    is_terminal: bool,
    /// The command has ended.
    has_ended: Arc<AtomicBool>,
}

impl Input {
    fn of(to: OwnedFd, is_terminal: bool) -> Result<Self> {
        let to = File::from(to);
        // A command need not read what it is sent, and may end meanwhile.
        fcntl_setfl(&to, fcntl_getfl(&to)? | OFlags::NONBLOCK).context("the input")?;
        Ok(Self {
            to: Some(to),
            is_terminal,
            has_ended: Arc::default(),
        })
    }

    /// Passes on what the host sends, until the host has seen the session's end or is gone.
    fn pass(mut self, mut port: File) -> Result<()> {
        while let Some(frame) = Frame::read(&mut port)? {
            match frame {
                Frame::Input(bytes) => self.write(&bytes),
                Frame::InputEnds => self.to = None,
                Frame::Resized(size) => {
                    if let (true, Some(terminal)) = (self.is_terminal, &self.to) {
                        command::resize(terminal, size)?;
                    }
                }
                Frame::Done => break,
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes all bytes, unless nobody reads them any more.
    fn write(&mut self, mut bytes: &[u8]) {
        while let (Some(to), false) = (&mut self.to, bytes.is_empty()) {
            match to.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.has_ended.load(Ordering::SeqCst) {
                        return;
                    }
                    // Where it fails, so does the next attempt to write.
                    let _ = poll(&mut [PollFd::new(to, PollFlags::OUT)], Some(&LOOK));
                }
                Err(_) => self.to = None,
            }
        }
    }
}
