//! The document that a guest writes and a host reads: what was recorded, and
//! what only the machine that recorded it knows.
//!
//! It is JSON. A reader may not trust it: [`Capture::from_reader`] bounds what
//! it takes in and checks every promise made by the fields below.

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use crate::record::RawRecord;

mod code;

pub(crate) use code::check_code;
pub use code::{CodeRange, MAX_CODE, MAX_CODE_BYTES};

/// What `format` says in every capture.
pub const FORMAT: &str = "branch-capture";
/// The version written here, and the only one read.
pub const VERSION: u32 = 3;
/// A longer document is not read.
pub const MAX_BYTES: u64 = 64 << 20;
/// More records than any hardware keeps.
pub const MAX_RECORDS: usize = 1024;
/// More snapshots are not read.
pub const MAX_SNAPSHOTS: usize = 100_000;
/// More symbols are not read.
pub const MAX_SYMBOLS: usize = 100_000;
/// The longest name: `KSYM_NAME_LEN`.
pub const MAX_NAME: usize = 512;

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
    /// Symbols of addresses that no vmlinux file knows: those of modules, BPF
    /// programs and trampolines, as far as the records below touch them.
    pub symbols: Vec<GuestSymbol>,
    /// The code around the records as it was executed: the kernel changes its own
    /// when it boots and when it runs. By address, and none twice.
    pub code: Vec<CodeRange>,
    /// Why some of the code could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_missing: Option<String>,
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
}

/// What one call of `bpf_get_branch_snapshot()` gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The kernel function that was traced.
    pub function: String,
    /// What it had returned when the snapshot was taken.
    pub return_value: i64,
    /// The CPU the snapshot was taken on.
    pub cpu: u32,
    /// The process that had called the function.
    pub pid: u32,
    /// How many records the caller of the helper had room for.
    pub asked: u32,
    /// The error that the helper returned instead of records, as a positive
    /// number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<u32>,
    /// The records, newest first, as the helper orders them.
    #[serde(with = "raw_records")]
    pub records: Vec<RawRecord>,
}

impl Capture {
    /// A capture without a snapshot yet.
    pub fn new(scenario: impl Into<String>, kernel: Kernel) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            scenario: scenario.into(),
            kernel,
            symbols: Vec::new(),
            code: Vec::new(),
            code_missing: None,
            snapshots: Vec::new(),
        }
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
        for (index, snapshot) in self.snapshots.iter().enumerate() {
            snapshot.validate(&format!("snapshots[{index}]"))?;
        }
        Ok(())
    }
}

impl Snapshot {
    fn validate(&self, field: &str) -> Result<(), CaptureError> {
        check_name(&format!("{field}.function"), &self.function)?;
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
        )
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
    check(
        field,
        (1..=MAX_NAME).contains(&text.len())
            && text
                .bytes()
                .all(|byte| byte == b' ' || byte.is_ascii_graphic()),
        "not a text of 1 to 512 printable ASCII characters",
    )
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
