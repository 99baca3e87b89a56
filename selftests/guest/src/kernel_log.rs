//! What the kernel prints.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;

use anyhow::{Context as _, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// The file of what the kernel prints. Each read has one message.
const MESSAGES: &str = "/dev/kmsg";
/// The most bytes of a message that a read returns (`PRINTK_MESSAGE_MAX`), with room to spare.
const LONGEST: usize = 8192;

/// The kernel's messages.
#[derive(Debug)]
pub(crate) struct KernelLog(File);

impl KernelLog {
    /// All that the kernel still has.
    ///
    /// # Errors
    ///
    /// When this process may not read them.
    pub(crate) fn open() -> Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true);
        let options = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = options
            .open(MESSAGES)
            .with_context(|| format!("cannot open {MESSAGES}: run as root"))?;
        Ok(Self(file))
    }

    /// Those of the messages since the last call that have one of `words` in them.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub(crate) fn take(&mut self, words: &[&str]) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut message = [0; LONGEST];
        loop {
            let count = match self.0.read(&mut message) {
                Ok(count) => count,
                Err(error) if is(&error, Errno::AGAIN) => return Ok(found),
                // The kernel has overwritten the next one. The read after this has the oldest left.
                Err(error) if is(&error, Errno::PIPE) => continue,
                Err(error) => return Err(error).with_context(|| format!("reading {MESSAGES}")),
            };
            let text = String::from_utf8_lossy(&message[..count]);
            if words.iter().any(|words| text.contains(words)) {
                found.push(text.trim_end().to_owned());
            }
        }
    }
}

fn is(error: &std::io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
