//! `log=FILE`: every record, and every access to BRBE, as a line of text.
//!
//! ```text
//! 0 write BRBCR_EL1 0x400102 at 0xffff800080012340
//! 0 record DIRECT EL1 0xffff800080012350 -> 0xffff800080012380 cc=?
//! 0 read BRBINF0_EL1 0x4000000000c3 at 0xffff800080012400
//! 0 execute BRB IALL at 0xffff800080012410
//! 0 undefined 0xd5319200 at 0x400610
//! 0 freeze
//! 0 reset
//! ```
//!
//! The first word is the vCPU. A vCPU's lines are in the order of what it did;
//! those of different vCPUs are not in any order.

use std::fmt::Display;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use brbe_model::BrbeRecord;

/// The number of bytes that are kept before they are written.
const CHUNK: usize = 1 << 16;

/// The file that all vCPUs write to.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    /// Creates the file `path`, which the plugin's option `option` names.
    pub(crate) fn create(option: &str, path: &Path) -> Result<Arc<Self>, String> {
        // Appending keeps the lines of different vCPUs whole.
        let made = File::create(path)
            .and_then(|_| File::options().append(true).open(path))
            .map_err(|error| format!("option '{option}={}': {error}", path.display()))?;
        Ok(Arc::new(Self {
            path: path.to_owned(),
            file: made,
        }))
    }
}

/// A vCPU's part of the log: whole lines, written a chunk at a time.
#[derive(Debug)]
pub(crate) struct Log {
    vcpu: u32,
    file: Arc<LogFile>,
    /// The lines that are not written yet. `None` after an error: nothing is logged any
    /// more then. The vCPU takes the lock, and the thread that ends QEMU.
    lines: Mutex<Option<Vec<u8>>>,
}

impl Log {
    pub(crate) fn new(vcpu: u32, file: Arc<LogFile>) -> Self {
        Self {
            vcpu,
            file,
            lines: Mutex::new(Some(Vec::with_capacity(2 * CHUNK))),
        }
    }

    pub(crate) fn record(&self, record: BrbeRecord) {
        self.line(format_args!("record {record}"));
    }

    pub(crate) fn undefined(&self, word: u32, pc: u64) {
        self.line(format_args!("undefined {word:#010x} at {pc:#x}"));
    }

    pub(crate) fn freeze(&self) {
        self.line(format_args!("freeze"));
    }

    pub(crate) fn reset(&self) {
        self.line(format_args!("reset"));
    }

    /// Logs a line: the vCPU's number, and `what`.
    pub(crate) fn line(&self, what: impl Display) {
        self.with_lines(|vcpu, lines| writeln!(lines, "{vcpu} {what}"), CHUNK);
    }

    /// Writes the lines that are still kept.
    pub(crate) fn flush(&self) {
        self.with_lines(|_, _| Ok(()), 0);
    }

    /// Adds to the lines that are kept, and writes them if they have more than `keep`
    /// bytes.
    fn with_lines(&self, add: impl FnOnce(u32, &mut Vec<u8>) -> std::io::Result<()>, keep: usize) {
        let mut guard = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(lines) = guard.as_mut() else { return };
        let mut done = add(self.vcpu, lines);
        if done.is_ok() && lines.len() > keep {
            done = (&self.file.file).write_all(lines);
            lines.clear();
        }
        if let Err(error) = done {
            eprintln!(
                "qemu-brbe: cannot write {}: {error}: vCPU {} logs no more",
                self.file.path.display(),
                self.vcpu
            );
            *guard = None;
        }
    }
}
