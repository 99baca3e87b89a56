//! The terminal that this process is on.

use std::io::{self, IsTerminal as _};

use anyhow::{Context as _, Result};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use vm_session::config::WindowSize;

/// Whether both standard input and standard output are a terminal.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The size of the terminal on standard output. A usual one, if that is no terminal or does not
/// say its size.
pub(crate) fn size() -> WindowSize {
    match tcgetwinsize(stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => WindowSize {
            rows: size.ws_row,
            columns: size.ws_col,
        },
        _ => WindowSize::default(),
    }
}

/// The terminal passes on each key as it is typed, Ctrl-C too, until this value is dropped.
pub(crate) struct Raw(Termios);

impl Raw {
    /// Has the terminal on standard input do so.
    pub(crate) fn new() -> Result<Self> {
        let before = tcgetattr(stdin()).context("asking the terminal for its settings")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw).context("setting up the terminal")?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that has gone needs no settings.
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
    }
}
