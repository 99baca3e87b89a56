//! Events: what happens while a machine boots and runs a command, each a line of JSON.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// What happens while a machine boots and runs a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunEvent {
    /// A line of the kernel's console. Only the host reports it.
    Console(String),
    /// The program runs, and waits for the archive of files. Only over ssh.
    Ready,
    /// The machine is up, and the command begins.
    CommandBegins,
    /// A line that the command printed, on standard output or standard error.
    Output(String),
    /// The command ended with this exit status; 128 and the signal's number if a signal ended
    /// it. It is the last event.
    Exited(i64),
    /// The machine broke, or the command could not be run, for this reason. It is the last
    /// event.
    Failed(String),
}

impl RunEvent {
    /// Writes the event as JSON on a line.
    ///
    /// # Errors
    ///
    /// When it cannot be written, because nobody reads it any more.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        to.write_all(&line)?;
        to.flush()
    }

    /// Whether a run has come to its end with the event.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Exited(_) | Self::Failed(_))
    }

    /// The event in a line, whatever program wrote it. A line that holds no event is what
    /// something else printed, and so part of the output.
    pub fn parse(line: &str) -> Self {
        serde_json::from_str(line).unwrap_or_else(|_| Self::Output(line.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_and_comes_back() {
        for event in [
            RunEvent::Ready,
            RunEvent::Output("{\"Exited\":0}\u{1b}\"\n".to_owned()),
            RunEvent::Exited(-1),
        ] {
            let mut line = Vec::new();
            event.write(&mut line).unwrap();
            let line = String::from_utf8(line).unwrap();
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert_eq!(RunEvent::parse(line.trim_end()), event);
        }
        let other = "sh: guest-runner: not found";
        assert_eq!(RunEvent::parse(other), RunEvent::Output(other.to_owned()));
    }
}
