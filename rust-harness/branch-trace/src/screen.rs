//! The screen of `--top`: what is shown is replaced by what is shown next.

use std::io::{self, IsTerminal as _, Write};

use rustix::termios;

/// Begins what is shown in the place of what was there, as `less` does, without a cursor. Lines that
/// are too long are cut.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
/// Brings back what was on the screen before.
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Moves to the first line.
const HOME: &str = "\x1b[H";
/// Clears the rest of a line, and ends the line.
const END_OF_LINE: &str = "\x1b[K\r\n";
/// Clears the rest of the screen.
const CLEAR_BELOW: &str = "\x1b[J";
/// The number of lines of a terminal that does not tell how many it has.
const LINES: u16 = 24;

/// The terminal of the standard output, if it is one. What was there before is there again when
/// this is dropped.
#[derive(Debug)]
pub(crate) struct Screen {
    is_terminal: bool,
    is_entered: bool,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self {
            is_terminal: io::stdout().is_terminal(),
            is_entered: false,
        }
    }

    /// Shows `text` in the place of what is there: as many lines as the terminal has. Where the
    /// output is no terminal, `text` follows, and an empty line.
    pub(crate) fn show(&mut self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if !self.is_terminal {
            writeln!(out, "{text}")?;
            return out.flush();
        }
        if !self.is_entered {
            write!(out, "{ENTER}")?;
            self.is_entered = true;
        }
        let size = termios::tcgetwinsize(&out).ok();
        let height = size.map(|size| size.ws_row).filter(|height| *height > 0);
        out.write_all(page(text, height.unwrap_or(LINES)).as_bytes())?;
        out.flush()
    }
}

/// The first `height` lines of `text`, each in the place of what a terminal has there.
fn page(text: &str, height: u16) -> String {
    let lines: Vec<_> = text.lines().take(height.into()).collect();
    format!("{HOME}{}{CLEAR_BELOW}", lines.join(END_OF_LINE))
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.is_entered {
            let mut out = io::stdout().lock();
            // There is nobody to tell if the terminal is gone.
            let _ = write!(out, "{LEAVE}").and_then(|()| out.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_no_more_lines_than_the_terminal() {
        assert_eq!(page("a\nb\nc\n", 2), "\x1b[Ha\x1b[K\r\nb\x1b[J");
        assert_eq!(page("", 2), "\x1b[H\x1b[J");
    }
}
