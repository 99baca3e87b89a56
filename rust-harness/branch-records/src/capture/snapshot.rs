//! A snapshot in a capture.

use std::io;

use serde::{Deserialize, Serialize};

use super::argument::check_arguments;
use super::{
    Argument, CaptureError, MAX_NAME, MAX_RECORDS, addresses, check, check_printable, hex,
    raw_records,
};
use crate::record::RawRecord;

/// The most characters of a thread's name: `TASK_COMM_LEN` without the terminator.
pub const MAX_COMM: usize = 15;
/// The most addresses of a stack: as many as `kernel.perf_event_max_stack` of Linux has by default,
/// for the kernel and for user space.
pub const MAX_FRAMES: usize = 2 * 127;

/// The records that one call of `bpf_get_branch_snapshot()` returned, and when and where
/// it was called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The name of what was traced: a function or a tracepoint.
    pub function: String,
    /// The moment at which the snapshot was taken.
    pub moment: Moment,
    /// The return value of the function, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<Returned>,
    /// The CPU the snapshot was taken on.
    pub cpu: u32,
    /// The PID of the process that was traced.
    pub pid: u32,
    /// The TID of the thread that was traced.
    pub tid: u32,
    /// The thread's name.
    pub comm: String,
    /// When the snapshot was taken, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// How long the function took, in nanoseconds, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<u64>,
    /// The number of records that the caller of the helper had room for.
    pub asked: u32,
    /// The error that the helper returned instead of records, as a positive
    /// number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<u32>,
    /// The records, newest first, as the helper orders them.
    #[serde(with = "raw_records")]
    pub records: Vec<RawRecord>,
    /// The call stack of the moment, if it was taken: addresses of the kernel, and then those of
    /// user space, the innermost function of each first. All but the first of user space are
    /// addresses that functions return to.
    #[serde(default, with = "addresses", skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<u64>,
    /// The arguments of the function, if they were taken: their values when it was called, with
    /// what pointers pointed to at the moment of the snapshot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Argument>,
}

/// Counts what is written.
struct Count(u64);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The moment at which a snapshot is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// Before the first instruction of a function.
    Entry,
    /// When a function has returned.
    Return,
    /// At a tracepoint.
    Tracepoint,
}

/// What a function returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Returned {
    /// A signed number. By convention, a negative errno means that the function failed.
    Signed(i64),
    /// An unsigned number.
    Unsigned(u64),
    /// A boolean.
    Bool(bool),
    /// An address. Each of the last 4095 addresses stands for an errno
    /// (include/linux/err.h).
    Pointer(#[serde(with = "hex")] u64),
}

impl Returned {
    /// The errno that the value stands for, as a positive number; `None` if the value is
    /// no error.
    pub fn errno(self) -> Option<u16> {
        let value = match self {
            Self::Signed(value) => value,
            Self::Pointer(address) => address.cast_signed(),
            Self::Unsigned(_) | Self::Bool(_) => return None,
        };
        match value {
            -4095..0 => u16::try_from(-value).ok(),
            _ => None,
        }
    }
}

impl Snapshot {
    /// How many bytes the snapshot has in the document.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let mut count = Count(0);
        // Counting does not fail, nor do the names of fields.
        let _ = serde_json::to_writer(&mut count, self);
        count.0
    }

    /// All addresses of code in the snapshot. Those that the hardware kept back are 0.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        let ends = self
            .records
            .iter()
            .flat_map(|record| [record.from, record.to]);
        ends.chain(self.stack.iter().copied())
    }

    pub(super) fn validate(&self, field: &str) -> Result<(), CaptureError> {
        // The name of a user-space function contains the name of its file.
        check_printable(
            &format!("{field}.function"),
            &self.function,
            1..=8 * MAX_NAME,
        )?;
        check_printable(&format!("{field}.comm"), &self.comm, 0..=4 * MAX_COMM)?;
        check(
            &format!("{field}.asked"),
            self.asked as usize <= MAX_RECORDS,
            &format!("more than {MAX_RECORDS}"),
        )?;
        check(
            &format!("{field}.records"),
            self.records.len() <= self.asked as usize,
            "more records than were asked for",
        )?;
        check(
            &format!("{field}.errno"),
            self.errno
                .is_none_or(|errno| (1..4096).contains(&errno) && self.records.is_empty()),
            "not an error number, or records beside it",
        )?;
        check(
            &format!("{field}.stack"),
            self.stack.len() <= MAX_FRAMES,
            &format!("more than {MAX_FRAMES}"),
        )?;
        check_arguments(&self.arguments, &format!("{field}.arguments"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_distinguished_from_other_values() {
        assert_eq!(Returned::Signed(-22).errno(), Some(22));
        assert_eq!(Returned::Signed(-4095).errno(), Some(4095));
        assert_eq!(Returned::Signed(-4096).errno(), None);
        assert_eq!(Returned::Signed(0).errno(), None);
        assert_eq!(
            Returned::Pointer(0xffff_ffff_ffff_fff4).errno(),
            Some(12),
            "-ENOMEM"
        );
        assert_eq!(Returned::Pointer(0xffff_ffff_ffff_f000).errno(), None);
        assert_eq!(Returned::Pointer(0).errno(), None);
        assert_eq!(Returned::Unsigned(u64::MAX).errno(), None);
        assert_eq!(Returned::Bool(false).errno(), None);
    }
}
