//! The events of the guest, which its first process has written to a file of the shared
//! directory.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Take};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};
use guest_runner::event::RunEvent;

use crate::program::{MAX_OUTPUT, report_event};
use crate::share::open_from_guest;

/// The time between two looks at the file.
const LOOK: Duration = Duration::from_millis(50);

/// Events that are reported as the guest writes them, by a thread.
pub(super) struct Events {
    following: JoinHandle<Result<Option<RunEvent>>>,
    machine: Sender<()>,
}

impl Events {
    /// Follows the file `path`, which the guest makes.
    pub(super) fn follow(path: &Path) -> Self {
        let (machine, ended) = mpsc::channel();
        let mut file = Follower::new(path);
        let following = thread::spawn(move || {
            let mut end = None;
            loop {
                // What has been written before the machine's end is read after it.
                let is_last = ended.recv_timeout(LOOK) != Err(mpsc::RecvTimeoutError::Timeout);
                for event in file.read() {
                    if event.is_last() {
                        end = Some(event);
                    } else {
                        report_event(&event)?;
                    }
                }
                if is_last {
                    return Ok(end);
                }
            }
        });
        Self { following, machine }
    }

    /// The last event, once the machine has ended: how the command ended. It has not been
    /// reported. `None` if the command did not end.
    ///
    /// # Errors
    ///
    /// When events cannot be reported, because nobody reads them any more.
    pub(super) fn end(self) -> Result<Option<RunEvent>> {
        drop(self.machine);
        let ended = self.following.join();
        ended.map_err(|_| anyhow!("following the guest's events failed"))?
    }
}

/// Reads a file that grows.
struct Follower {
    path: PathBuf,
    file: Option<BufReader<Take<File>>>,
    /// The beginning of a line that has not been written to its end.
    line: Vec<u8>,
}

impl Follower {
    fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            line: Vec::new(),
        }
    }

    /// The events that are new. None if there is no such file, or it cannot be read.
    fn read(&mut self) -> Vec<RunEvent> {
        if self.file.is_none() {
            let file = open_from_guest(&self.path, u64::MAX).ok();
            self.file = file.map(|file| BufReader::new(file.into_inner().take(MAX_OUTPUT)));
        }
        let mut events = Vec::new();
        let Some(file) = &mut self.file else {
            return events;
        };
        while let Ok(1..) = file.read_until(b'\n', &mut self.line) {
            if self.line.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&self.line);
                events.push(RunEvent::parse(line.trim_end()));
                self.line.clear();
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;

    #[test]
    fn events_are_read_as_they_come_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        let mut follower = Follower::new(&path);
        assert_eq!(follower.read(), []);
        let mut file = File::create(&path).unwrap();
        file.write_all(b"\"CommandBegins\"\n{\"Out").unwrap();
        assert_eq!(follower.read(), [RunEvent::CommandBegins]);
        assert_eq!(follower.read(), []);
        file.write_all(b"put\":\"one\"}\n{\"Exited\":7}\n").unwrap();
        let last = [RunEvent::Output("one".to_owned()), RunEvent::Exited(7)];
        assert_eq!(follower.read(), last);
        assert_eq!(follower.read(), []);
    }

    #[test]
    fn a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("other"), "{\"Exited\":0}\n").unwrap();
        let link = dir.path().join("events");
        std::os::unix::fs::symlink("other", &link).unwrap();
        assert_eq!(Follower::new(&link).read(), []);
    }

    #[test]
    fn the_end_is_what_was_written_when_the_machine_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        let events = Events::follow(&path);
        fs::write(&path, "{\"Exited\":7}\n").unwrap();
        assert_eq!(events.end().unwrap(), Some(RunEvent::Exited(7)));
        let none = Events::follow(&dir.path().join("none"));
        assert_eq!(none.end().unwrap(), None);
    }
}
