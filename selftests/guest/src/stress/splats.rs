//! The kernel's complaints in its log while a test runs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;

use anyhow::{Context as _, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;

const LOG: &str = "/dev/kmsg";
/// The file with lockdep's own state (kernel/locking/lockdep_proc.c).
const LOCKDEP: &str = "/proc/lockdep_stats";
/// The most bytes of a message in the log (`PRINTKRB_RECORD_MAX`,
/// kernel/printk/internal.h).
const MESSAGE: usize = 2048;

/// The signs of a complaint. One is in the first lines of every report of lockdep, KASAN,
/// RCU, the scheduler and `WARN()`, or in the trace below it.
const SIGNS: [&str; 5] = [
    "BUG:",
    "WARNING:",
    "KASAN:",
    "Call trace:",
    "------------[ cut here ]------------",
];

/// The kernel's log, from when watching it began.
#[derive(Debug)]
pub(super) struct Splats {
    log: File,
}

impl Splats {
    pub(super) fn watch() -> Result<Self> {
        let mut log = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(LOG)
            .with_context(|| format!("cannot open {LOG}"))?;
        log.seek(SeekFrom::End(0))
            .with_context(|| format!("cannot go to the end of {LOG}"))?;
        Ok(Self { log })
    }

    /// The first complaint since the last call.
    pub(super) fn next(&mut self) -> Result<Option<String>> {
        let mut buffer = [0; 2 * MESSAGE];
        loop {
            match self.log.read(&mut buffer) {
                Ok(read) => {
                    let line = String::from_utf8_lossy(&buffer[..read]);
                    if let Some(complaint) = complaint(&line) {
                        return Ok(Some(complaint.to_owned()));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                // A message was overwritten before it was read: the next call goes on
                // after it.
                Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => {}
                Err(error) => return Err(error).with_context(|| format!("cannot read {LOG}")),
            }
        }
    }
}

/// The text of a message, if it is a complaint. A message is
/// `level,sequence,time,flags;text` and lines of details
/// (Documentation/ABI/testing/dev-kmsg).
fn complaint(message: &str) -> Option<&str> {
    let (_, text) = message.split_once(';')?;
    let text = text.lines().next()?;
    SIGNS.iter().any(|sign| text.contains(sign)).then_some(text)
}

/// Whether lockdep looks at the locks: it stops at its first report. `None` where the
/// kernel has no lockdep.
pub(super) fn lockdep_is_on() -> Option<bool> {
    let stats = fs::read_to_string(LOCKDEP).ok()?;
    debug_locks(&stats)
}

fn debug_locks(stats: &str) -> Option<bool> {
    let value = stats
        .lines()
        .find_map(|line| line.trim().strip_prefix("debug_locks:"))?;
    Some(value.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_distinguished_from_news() {
        for (message, expected) in [
            ("6,1,2,-;psci: CPU1 killed (polled 0 ms)\n", None),
            (
                "4,1,2,-;WARNING: possible recursive locking detected\n SUBSYSTEM=x\n",
                Some("WARNING: possible recursive locking detected"),
            ),
            ("3,1,2,c;BUG: KASAN: x", Some("BUG: KASAN: x")),
            ("6,1,2,-;fine\n DEVICE=BUG:\n", None),
            ("BUG: cut off", None),
        ] {
            assert_eq!(complaint(message), expected, "{message}");
        }
    }

    #[test]
    fn lockdep_says_whether_it_is_on() {
        let stats = " lock-classes:  1000 [max: 8192]\n debug_locks:    1\n";
        assert_eq!(debug_locks(stats), Some(true));
        assert_eq!(debug_locks(&stats.replace("    1", "    0")), Some(false));
        assert_eq!(debug_locks(""), None);
    }
}
