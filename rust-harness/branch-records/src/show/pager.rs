//! A pager for output that is longer than a terminal, as git has it.

use std::env;
use std::io::{self, IsTerminal as _, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

/// The pager where the environment has no `PAGER`.
const DEFAULT: &str = "less";
/// What `less` is told: to end at once if all fits on the screen, to show colours, and to leave the
/// screen as it is.
const LESS: &str = "FRX";

/// The exit status of a shell whose command cannot be run.
const NOT_EXECUTABLE: i32 = 126;
/// The exit status of a shell whose command is not there.
const NOT_FOUND: i32 = 127;

/// A pager that is being run.
#[derive(Debug)]
pub(super) struct Pager {
    child: Child,
    input: ChildStdin,
}

impl Pager {
    /// The pager of the environment, if the standard output is a terminal and there is a pager.
    /// `PAGER=cat` and an empty `PAGER` ask for none.
    pub(super) fn on_terminal() -> Option<Self> {
        let command = env::var("PAGER").ok();
        let is_wanted =
            io::stdout().is_terminal() && !matches!(command.as_deref(), Some("" | "cat"));
        is_wanted
            .then(|| Self::start(command.as_deref()).ok())
            .flatten()
    }

    fn start(command: Option<&str>) -> io::Result<Self> {
        let mut pager = match command {
            None => Command::new(DEFAULT),
            Some(command) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", command]);
                shell
            }
        };
        if env::var_os("LESS").is_none() {
            pager.env("LESS", LESS);
        }
        let mut child = pager.stdin(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { child, input })
    }

    /// Waits until the user has seen enough. Returns whether the pager was there.
    pub(super) fn wait(self) -> io::Result<bool> {
        let Self { mut child, input } = self;
        drop(input);
        let status = child.wait()?.code();
        Ok(!matches!(status, Some(NOT_EXECUTABLE | NOT_FOUND)))
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.input.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.input.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pager_gets_what_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("seen");
        let command = format!("cat >{}", file.display());
        let mut pager = Pager::start(Some(&command)).unwrap();
        pager.write_all(b"text\n").unwrap();
        assert!(pager.wait().unwrap());
        assert_eq!(std::fs::read_to_string(file).unwrap(), "text\n");
        let none = Pager::start(Some("no-such-pager 2>/dev/null")).unwrap();
        assert!(!none.wait().unwrap());
    }

    #[test]
    fn a_reader_that_has_seen_enough_breaks_the_pipe() {
        let mut pager = Pager::start(Some("true")).unwrap();
        let text = vec![b'x'; 1 << 20];
        let error = pager.write_all(&text).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert!(pager.wait().unwrap());
    }
}
