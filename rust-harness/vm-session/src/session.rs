//! The session: runs the command, and passes on what is typed and what it prints.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::thread;

use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use vm_session::PROGRAM;
use vm_session::config::{SessionConfig, Streams};
use vm_session::frame::{Frame, Stream};

use crate::command::{self, Started};
use crate::port;

/// How many bytes are read at once.
const PART: usize = 1 << 14;
/// The machine's own console.
const CONSOLE: &str = "/dev/console";
/// The file that names the devices behind [`CONSOLE`], the last one first in use.
const ACTIVE: &str = "/sys/class/tty/console/active";

/// Runs the session to its end.
///
/// # Errors
///
/// When the machine lacks the port or the console, or the host is gone.
pub(crate) fn main(config: &SessionConfig) -> Result<()> {
    let started = match config.streams {
        Streams::Console(size) => {
            let mut child = command::on_device(config, &console(), size)?;
            child.wait().context("waiting for the command")?;
            return Ok(());
        }
        Streams::Pipes => command::with_pipes(config),
        Streams::Terminal(size) => command::on_terminal(config, size),
    };
    let mut port = port::open()?;
    Frame::Begun.write(&mut port)?;
    let status = match started {
        Ok(started) => relay(started, &mut port)?,
        Err(error) => {
            let name = config.command.first().map_or("a shell", String::as_str);
            let said = format!("{PROGRAM}: {name}: {error}\n");
            Frame::Printed(Stream::Error, said.into()).write(&mut port)?;
            command::status_of(&error)
        }
    };
    Ok(Frame::Ended(status).write(&mut port)?)
}

/// The device of the console, which can be the terminal of a session, as `/dev/console` cannot.
fn console() -> std::path::PathBuf {
    let active = std::fs::read_to_string(ACTIVE).unwrap_or_default();
    let last = active.split_whitespace().last();
    last.map_or_else(|| CONSOLE.into(), |name| Path::new("/dev").join(name))
}

/// Passes on what the host sends to the command, and what the command prints to the host, until
/// it has ended. What a process that was left running prints later does not count.
fn relay(started: Started, port: &mut File) -> Result<u8> {
    let Started {
        mut child,
        input,
        printed,
        errors,
    } = started;
    let is_terminal = errors.is_none();
    let from_host = port.try_clone().context("the port")?;
    // It ends with the process: it may wait for the host.
    thread::spawn(move || {
        if let Err(error) = pass_input(from_host, input, is_terminal) {
            eprintln!("{PROGRAM}: input: {error:#}");
        }
    });
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
        let mut open = Vec::new();
        for (source, stream) in sources {
            if drain(&source, stream, port)? == Drained::ForNow {
                open.push((source, stream));
            }
        }
        sources = open;
        if has_ended {
            return Ok(exit_status(wait(&mut child)?));
        }
    }
}

fn wait(child: &mut Child) -> Result<ExitStatus> {
    child.wait().context("waiting for the command")
}

fn exit_status(status: ExitStatus) -> u8 {
    let by_signal = || status.signal().map_or(i32::from(u8::MAX), |it| 128 + it);
    u8::try_from(status.code().unwrap_or_else(by_signal)).unwrap_or(u8::MAX)
}

/// Whether more may come from what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drained {
    ForNow,
    ToTheEnd,
}

/// Sends to the host what is there to read.
fn drain(source: &OwnedFd, stream: Stream, port: &mut File) -> Result<Drained> {
    loop {
        let mut part = vec![0; PART];
        match rustix::io::read(source, &mut part[..]) {
            // A terminal that nobody has open any more.
            Ok(0) | Err(rustix::io::Errno::IO) => return Ok(Drained::ToTheEnd),
            Ok(count) => {
                part.truncate(count);
                Frame::Printed(stream, part).write(port)?;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(Drained::ForNow),
            Err(error) => return Err(error).context("reading what is printed"),
        }
    }
}

/// Passes on what the host sends. There is no more input when the host has said so, or is gone.
fn pass_input(mut port: File, input: OwnedFd, is_terminal: bool) -> Result<()> {
    let mut input = Some(File::from(input));
    while let Some(frame) = Frame::read(&mut port)? {
        match frame {
            Frame::Input(bytes) => {
                let Some(to) = &mut input else { continue };
                if write(to, &bytes).is_err() {
                    // The command does not read any more.
                    input = None;
                }
            }
            Frame::InputEnds => input = None,
            Frame::Resized(size) if is_terminal => {
                if let Some(terminal) = &input {
                    command::resize(terminal, size)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Writes all bytes, also to what does not wait by itself.
fn write(to: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                poll(
                    &mut [PollFd::from_borrowed_fd(to.as_fd(), PollFlags::OUT)],
                    None,
                )?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
