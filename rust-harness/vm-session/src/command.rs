//! The command of a session: what it is started with, and what it is started as.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use vm_session::config::{SessionConfig, WindowSize};

/// The shells that are tried, the first one first.
const SHELLS: [&str; 2] = ["/bin/bash", "/bin/sh"];

/// A command that has been started.
pub(crate) struct Started {
    pub(crate) child: Child,
    /// Where its input is written to.
    pub(crate) input: OwnedFd,
    /// What it prints: standard output or the terminal, and standard error if that is not the
    /// terminal.
    pub(crate) printed: OwnedFd,
    pub(crate) errors: Option<OwnedFd>,
}

/// Starts the command of a session with three pipes.
pub(crate) fn with_pipes(config: &SessionConfig) -> io::Result<Started> {
    let mut command = command(config);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let missing = || io::Error::other("a pipe is missing");
    Ok(Started {
        input: child.stdin.take().ok_or_else(missing)?.into(),
        printed: child.stdout.take().ok_or_else(missing)?.into(),
        errors: Some(child.stderr.take().ok_or_else(missing)?.into()),
        child,
    })
}

/// Starts the command of a session with files for what it prints, and nothing to read.
pub(crate) fn on_files(config: &SessionConfig, output: File, errors: File) -> io::Result<Child> {
    let mut command = command(config);
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    command.spawn()
}

/// Starts the command of a session on a new terminal.
pub(crate) fn on_terminal(config: &SessionConfig, size: WindowSize) -> io::Result<Started> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    resize(&master, size)?;
    let terminal = ioctl_tiocgptpeer(&master, flags)?;
    let child = on(command(config), terminal)?;
    Ok(Started {
        child,
        input: master.try_clone()?,
        printed: master,
        errors: None,
    })
}

/// Starts the command of a session on a terminal that is there.
pub(crate) fn on_device(config: &SessionConfig, device: &Path, size: WindowSize) -> Result<Child> {
    let terminal = std::fs::File::options().read(true).write(true).open(device);
    let terminal = terminal.with_context(|| format!("opening {}", device.display()))?;
    // A console that has no size is used without.
    let _ = resize(&terminal, size);
    on(command(config), terminal.into()).context("starting the command")
}

/// Gives a terminal another size.
pub(crate) fn resize(terminal: impl AsFd, size: WindowSize) -> io::Result<()> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(terminal, size)?)
}

/// Starts a command whose terminal is `terminal`, in a session of its own.
fn on(mut command: Command, terminal: OwnedFd) -> io::Result<Child> {
    command.stdin(terminal.try_clone()?);
    command.stdout(terminal.try_clone()?).stderr(terminal);
    // SAFETY: between fork and exec only two system calls are made, which allocate nothing and
    // take no lock.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
        });
    }
    command.spawn()
}

fn command(config: &SessionConfig) -> Command {
    let mut command = match config.command.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
        None => {
            let shell = SHELLS.into_iter().find(|shell| Path::new(shell).exists());
            Command::new(shell.unwrap_or(SHELLS[0]))
        }
    };
    command.env_clear();
    command.envs(config.environment.iter().map(|(name, value)| (name, value)));
    command.current_dir(OsStr::new(&config.directory));
    command
}

/// The exit status for a command that cannot be started, as shells have it.
pub(crate) fn status_of(error: &io::Error) -> u8 {
    match error.kind() {
        ErrorKind::NotFound => 127,
        _ => 126,
    }
}
