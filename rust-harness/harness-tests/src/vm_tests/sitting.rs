//! A program on a terminal, and somebody who sits there.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use host::process::ProcessGroup;
use machines::speed;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::PATIENCE;

/// The most bytes of what the program prints that are kept.
const KEPT: usize = 1 << 16;

/// A program on a terminal.
pub(super) struct Sitting {
    group: ProcessGroup,
    keyboard: File,
    /// The terminal's other end is kept open, so that it can be asked for its settings when the
    /// program has ended.
    terminal: OwnedFd,
    printed: Receiver<Vec<u8>>,
    /// What has been printed since what was expected last.
    screen: String,
}

impl Sitting {
    /// Starts a program on a terminal of this many rows and columns.
    pub(super) fn start(mut command: Command, (rows, columns): (u16, u16)) -> Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).context("a terminal")?;
        grantpt(&master).context("a terminal")?;
        unlockpt(&master).context("a terminal")?;
        tcsetwinsize(&master, size(rows, columns)).context("a terminal")?;
        let terminal = ioctl_tiocgptpeer(&master, flags).context("a terminal")?;
        let stream = || terminal.try_clone().context("the terminal");
        command.stdin(stream()?).stdout(stream()?).stderr(stream()?);
        let group = ProcessGroup::spawn(&mut command)?;
        let mut screen = File::from(master.try_clone().context("the terminal")?);
        let (sender, printed) = mpsc::channel();
        // It ends with the terminal.
        thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut part) {
                if sender.send(part[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            group,
            keyboard: master.into(),
            terminal,
            printed,
            screen: String::new(),
        })
    }

    /// Waits until the program has printed `text` since what was expected last.
    pub(super) fn expect(&mut self, text: &str) -> Result<()> {
        let until = Instant::now() + speed::scaled(PATIENCE);
        loop {
            if let Some(place) = self.screen.find(text) {
                self.screen.drain(..place + text.len());
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            let Ok(part) = self.printed.recv_timeout(left) else {
                bail!("{text:?} is not on the screen: {:?}", self.screen);
            };
            self.screen += &String::from_utf8_lossy(&part);
            let too_much = self.screen.len().saturating_sub(KEPT);
            self.screen
                .drain(..self.screen.ceil_char_boundary(too_much));
        }
    }

    /// Types a text.
    pub(super) fn type_text(&mut self, text: &str) -> Result<()> {
        self.keyboard.write_all(text.as_bytes()).context("typing")
    }

    /// Gives the terminal another size.
    pub(super) fn resize(&mut self, (rows, columns): (u16, u16)) -> Result<()> {
        tcsetwinsize(&self.keyboard, size(rows, columns)).context("resizing the terminal")
    }

    /// Waits until the program ends.
    pub(super) fn wait(&mut self) -> Result<ExitStatus> {
        let status = self.group.wait_within(speed::scaled(PATIENCE))?;
        status.with_context(|| format!("the program has not ended: {:?}", self.screen))
    }

    /// Whether the terminal takes lines, and Ctrl-C for an interruption.
    pub(super) fn is_cooked(&self) -> Result<bool> {
        let settings = tcgetattr(&self.terminal).context("the terminal's settings")?;
        let wanted = LocalModes::ICANON | LocalModes::ISIG | LocalModes::ECHO;
        Ok(settings.local_modes.contains(wanted))
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
