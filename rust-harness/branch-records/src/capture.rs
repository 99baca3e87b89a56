//! The document that a guest writes and a host reads: what was recorded, and
//! what only the machine that recorded it knows.
//!
//! It is JSON. A reader may not trust it: [`Capture::from_reader`] bounds what
//! it takes in and checks every promise made by the fields below.

use std::io::{Read, Write};
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::record::RawRecord;

mod code;
mod process;
mod snapshot;

pub(crate) use code::check_code;
pub use code::{CodeRange, MAX_CODE, MAX_CODE_BYTES};
pub use process::{MAX_MAPPINGS, Mapping, Process};
pub use snapshot::{MAX_COMM, Moment, Returned, Snapshot};

/// What `format` says in every capture.
pub const FORMAT: &str = "branch-capture";
/// The version written here, and the only one read.
pub const VERSION: u32 = 4;
/// A longer document is not read.
pub const MAX_BYTES: u64 = 512 << 20;
/// More records than any hardware keeps.
pub const MAX_RECORDS: usize = 1024;
/// More snapshots are not read.
pub const MAX_SNAPSHOTS: usize = 100_000;
/// More symbols are not read.
pub const MAX_SYMBOLS: usize = 100_000;
/// More sorts of branches than perf has.
pub const MAX_BRANCHES: usize = 64;
/// More processes are not read.
pub const MAX_PROCESSES: usize = 10_000;
/// The longest name: `KSYM_NAME_LEN`.
pub const MAX_NAME: usize = 512;
/// The longest path: `PATH_MAX`.
pub const MAX_PATH: usize = 4096;

/// Why a capture was not accepted or not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// Not JSON, or not the JSON of a capture.
    #[error("not a branch capture: {0}")]
    Json(#[from] serde_json::Error),
    /// The document could not be read.
    #[error("cannot read the capture: {0}")]
    Read(#[source] std::io::Error),
    /// The document could not be written.
    #[error("cannot write the capture: {0}")]
    Write(#[source] std::io::Error),
    /// Longer than [`MAX_BYTES`].
    #[error("the capture is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// Some other document.
    #[error("not a branch capture: its format is {0:?}, not {FORMAT:?}")]
    Format(String),
    /// Written by another version of this program.
    #[error(
        "the capture has version {0}, this program reads version {VERSION}: use the same build on both sides"
    )]
    Version(u32),
    /// A promise that a field makes is broken.
    #[error("the capture is damaged: {field}: {problem}")]
    Invalid {
        /// The field, as a path into the document.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// Snapshots taken on one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// Always [`FORMAT`].
    pub format: String,
    /// Always [`VERSION`].
    pub version: u32,
    /// What was done to take the snapshots, for people.
    pub scenario: String,
    /// The kernel they were taken in.
    pub kernel: Kernel,
    /// Which branches were recorded, by perf's names: `any`, `cond`, `k`, ….
    pub branches: Vec<String>,
    /// Symbols of addresses that no vmlinux file knows: those of modules, BPF
    /// programs and trampolines, as far as the records below touch them.
    pub symbols: Vec<GuestSymbol>,
    /// The code around the records as it was executed: the kernel changes its own
    /// when it boots and when it runs. By address, and none twice.
    pub code: Vec<CodeRange>,
    /// Why some of the code could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_missing: Option<String>,
    /// The processes that user space's addresses belong to, as far as the records
    /// touch any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
    /// Snapshots that there was no room for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// The snapshots, oldest first.
    pub snapshots: Vec<Snapshot>,
}

/// The kernel that snapshots were taken in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// `uname -m`.
    pub machine: String,
    /// A symbol of the kernel image and where it was: what tells how far the
    /// kernel was moved at boot (KASLR).
    pub anchor: Anchor,
}

/// A symbol of the kernel image and its address in the running kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// Its name, `_stext` by custom.
    pub symbol: String,
    /// Its address.
    #[serde(with = "hex")]
    pub address: u64,
}

/// A symbol that the running kernel alone knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSymbol {
    /// Its first address.
    #[serde(with = "hex")]
    pub address: u64,
    /// The first address after it, where the next symbol begins.
    #[serde(with = "hex")]
    pub end: u64,
    /// Its name.
    pub name: String,
    /// The module it belongs to; `bpf` for programs and trampolines.
    pub module: String,
    /// The lines of source that it was made from, by address: those of a BPF
    /// program, which no file of the host's has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<Line>,
}

/// Where the code of a line of source begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Its first address.
    #[serde(with = "hex")]
    pub address: u64,
    /// The file, as its compiler was told.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
    /// What is there.
    pub text: String,
}

impl GuestSymbol {
    fn check_lines(&self, field: &str) -> Result<(), CaptureError> {
        let mut behind = self.address;
        for (index, line) in self.lines.iter().enumerate() {
            let field = format!("{field}.lines[{index}]");
            check_path(&format!("{field}.file"), &line.file)?;
            check_printable(&format!("{field}.text"), &line.text, 0..=MAX_PATH)?;
            check(
                &field,
                (behind..self.end).contains(&line.address),
                "not behind the one before, or outside the symbol",
            )?;
            behind = line.address;
        }
        Ok(())
    }
}

impl Capture {
    /// A capture without a snapshot yet, of all branches of the kernel.
    pub fn new(scenario: impl Into<String>, kernel: Kernel) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            scenario: scenario.into(),
            kernel,
            branches: vec!["any".to_owned(), "k".to_owned()],
            symbols: Vec::new(),
            code: Vec::new(),
            code_missing: None,
            processes: Vec::new(),
            dropped: 0,
            snapshots: Vec::new(),
        }
    }

    /// Whether all branches were recorded: a record then follows on the one before.
    pub fn has_all_branches(&self) -> bool {
        self.branches.iter().any(|name| name == "any")
    }

    /// Reads a capture and checks it.
    ///
    /// # Errors
    ///
    /// See [`CaptureError`]: whatever is not a capture of this version, or
    /// breaks a promise of its fields.
    pub fn from_reader(reader: impl Read) -> Result<Self, CaptureError> {
        let mut text = Vec::new();
        reader
            .take(MAX_BYTES + 1)
            .read_to_end(&mut text)
            .map_err(CaptureError::Read)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(CaptureError::TooLong);
        }
        Self::from_slice(&text)
    }

    /// Reads a capture from memory and checks it.
    ///
    /// # Errors
    ///
    /// As [`Capture::from_reader`].
    pub fn from_slice(text: &[u8]) -> Result<Self, CaptureError> {
        /// What every version has.
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let head: Head = serde_json::from_slice(text)?;
        if head.format != FORMAT {
            return Err(CaptureError::Format(head.format));
        }
        if head.version != VERSION {
            return Err(CaptureError::Version(head.version));
        }
        let capture: Self = serde_json::from_slice(text)?;
        capture.validate()?;
        Ok(capture)
    }

    /// Writes the capture as one line of JSON.
    ///
    /// # Errors
    ///
    /// When a field breaks its promise, so that no reader would take the
    /// document, and when `writer` fails.
    pub fn to_writer(&self, mut writer: impl Write) -> Result<(), CaptureError> {
        self.validate()?;
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        // At once: a guest's file may be on a file system where each write is a
        // message to the host.
        writer
            .write_all(&text)
            .and_then(|()| writer.flush())
            .map_err(CaptureError::Write)
    }

    /// Checks every promise that the fields make.
    fn validate(&self) -> Result<(), CaptureError> {
        check_text("scenario", &self.scenario)?;
        check_text("kernel.release", &self.kernel.release)?;
        check_text("kernel.machine", &self.kernel.machine)?;
        check_name("kernel.anchor.symbol", &self.kernel.anchor.symbol)?;
        check(
            "kernel.anchor.address",
            self.kernel.anchor.address != 0,
            "is 0: /proc/kallsyms hides addresses from this user",
        )?;
        check(
            "branches",
            (1..=MAX_BRANCHES).contains(&self.branches.len()),
            &format!("none, or more than {MAX_BRANCHES}"),
        )?;
        for (index, name) in self.branches.iter().enumerate() {
            check_name(&format!("branches[{index}]"), name)?;
        }
        check(
            "symbols",
            self.symbols.len() <= MAX_SYMBOLS,
            &format!("more than {MAX_SYMBOLS}"),
        )?;
        for (index, symbol) in self.symbols.iter().enumerate() {
            let field = format!("symbols[{index}]");
            check_name(&format!("{field}.name"), &symbol.name)?;
            check_name(&format!("{field}.module"), &symbol.module)?;
            check(
                &field,
                symbol.address != 0 && symbol.address < symbol.end,
                "is empty or at address 0",
            )?;
            symbol.check_lines(&field)?;
        }
        check_code(&self.code)?;
        if let Some(reason) = &self.code_missing {
            check_text("code_missing", reason)?;
        }
        check(
            "snapshots",
            self.snapshots.len() <= MAX_SNAPSHOTS,
            &format!("more than {MAX_SNAPSHOTS}"),
        )?;
        check(
            "processes",
            self.processes.len() <= MAX_PROCESSES,
            &format!("more than {MAX_PROCESSES}"),
        )?;
        for (index, process) in self.processes.iter().enumerate() {
            process.validate(&format!("processes[{index}]"))?;
        }
        for (index, snapshot) in self.snapshots.iter().enumerate() {
            snapshot.validate(&format!("snapshots[{index}]"))?;
        }
        Ok(())
    }
}

fn check(field: &str, holds: bool, problem: &str) -> Result<(), CaptureError> {
    if holds {
        return Ok(());
    }
    Err(CaptureError::Invalid {
        field: field.to_owned(),
        problem: problem.to_owned(),
    })
}

/// A name ends up on a terminal: it is short and holds nothing that a terminal
/// would obey.
fn check_name(field: &str, name: &str) -> Result<(), CaptureError> {
    check(
        field,
        (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic()),
        "not a name of 1 to 512 visible ASCII characters",
    )
}

/// As [`check_name`], and words may be spaced.
fn check_text(field: &str, text: &str) -> Result<(), CaptureError> {
    check_printable(field, text, 1..=MAX_NAME)
}

/// The same for what names a file.
fn check_path(field: &str, path: &str) -> Result<(), CaptureError> {
    check_printable(field, path, 1..=MAX_PATH)
}

fn check_printable(
    field: &str,
    text: &str,
    bytes: RangeInclusive<usize>,
) -> Result<(), CaptureError> {
    let printable = text.chars().all(|c| !c.is_control());
    check(
        field,
        bytes.contains(&text.len()) && printable,
        &format!(
            "not a text of {} to {} bytes without control characters",
            bytes.start(),
            bytes.end()
        ),
    )
}

/// Whether a field can be left out. By reference, as serde asks.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Addresses are hexadecimal text: JSON's numbers lose bits in many readers.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Text(String);

    pub(super) fn parse(text: &str) -> Result<u64, String> {
        text.strip_prefix("0x")
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or_else(|| format!("{text:?} is not a hexadecimal number of up to 64 bits"))
    }

    pub(super) fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{value:#x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        parse(&Text::deserialize(from)?.0).map_err(D::Error::custom)
    }
}

/// A record is a list of three hexadecimal numbers: from, to, flags.
pub(crate) mod raw_records {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{RawRecord, hex};

    #[derive(Serialize, Deserialize)]
    struct Word(#[serde(with = "hex")] u64);

    pub(crate) fn serialize<S: Serializer>(
        records: &[RawRecord],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(
            records
                .iter()
                .map(|record| [Word(record.from), Word(record.to), Word(record.flags)]),
        )
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<RawRecord>, D::Error> {
        let records = Vec::<[Word; 3]>::deserialize(from)?;
        Ok(records
            .into_iter()
            .map(|[from, to, flags]| RawRecord {
                from: from.0,
                to: to.0,
                flags: flags.0,
            })
            .collect())
    }
}

#[cfg(test)]
mod tests;
