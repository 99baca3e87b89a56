//! The capture: the document in which a guest hands snapshots to a host. It holds what
//! was recorded, and what only the machine that recorded it knows.
//!
//! The document is JSON. A reader must not trust it: [`Capture::from_reader`] bounds what
//! it reads, and checks every invariant that the fields below document.

use std::collections::HashSet;
use std::fmt;
use std::io::{Read, Write};

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _, Serialize};

mod addresses;
mod argument;
mod code;
pub(crate) mod document;
mod field;
pub(crate) mod hex;
#[cfg(feature = "path")]
mod indexed;
mod module;
mod process;
pub(crate) mod raw_records;
mod snapshot;

use crate::visible::visible;
pub use argument::{Argument, ArgumentValue, MAX_VALUES, have_room};
pub(crate) use code::check_code;
pub use code::{CodeRange, MAX_CODE, MAX_CODE_BYTES};
use field::{check, check_name, check_path, check_printable, check_text};
#[cfg(feature = "path")]
pub use indexed::IndexedCode;
use module::check_build_id;
pub use module::{MAX_MODULES, Module};
pub use process::{MAX_MAPPINGS, Mapping, Process};
pub use snapshot::{MAX_COMM, MAX_FRAMES, Moment, Returned, Snapshot};

/// The value of [`Capture::format`] in every capture.
pub const FORMAT: &str = "branch-capture";
/// The version of the document that this crate writes, and the only one that it reads.
pub const VERSION: u32 = 7;
/// The most bytes of a document. A longer document is refused.
pub const MAX_BYTES: u64 = 512 << 20;
/// How many bytes of a document are looked at for its format and its version.
const HEAD: u64 = 64 << 10;
/// The most records of a snapshot: more than any hardware keeps.
pub const MAX_RECORDS: usize = 1024;
/// The most snapshots of a capture. A capture with more is refused.
pub const MAX_SNAPSHOTS: usize = 100_000;
/// The most symbols of a capture. A capture with more is refused.
pub const MAX_SYMBOLS: usize = 100_000;
/// The most names in [`Capture::branches`]: more than perf has.
pub const MAX_BRANCHES: usize = 64;
/// The most processes of a capture. A capture with more is refused.
pub const MAX_PROCESSES: usize = 10_000;
/// The most bytes of a name: `KSYM_NAME_LEN`.
pub const MAX_NAME: usize = 512;
/// The most bytes of a path: `PATH_MAX`.
pub const MAX_PATH: usize = 4096;

/// Why a capture was not accepted or not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The document is not JSON, or its JSON is not that of a capture.
    #[error("not a branch capture: {}", visible(&.0.to_string()))]
    Json(#[from] serde_json::Error),
    /// The document could not be read.
    #[error("cannot read the capture: {0}")]
    Read(#[source] std::io::Error),
    /// The document could not be written.
    #[error("cannot write the capture: {0}")]
    Write(#[source] std::io::Error),
    /// The document is longer than this limit, in bytes.
    #[error("the document is longer than {0} bytes")]
    TooLong(u64),
    /// The document is no capture: its `format` is another.
    #[error("not a branch capture: its format is {0:?}, not {FORMAT:?}")]
    Format(String),
    /// The document has another version than [`VERSION`]: another version of this program
    /// wrote it.
    #[error(
        "the capture has version {0}, this program reads version {VERSION}: use the same build on both sides"
    )]
    Version(u32),
    /// A field breaks an invariant that its documentation states.
    #[error("the capture is damaged: {field}: {problem}")]
    Invalid {
        /// The field, as a path into the document: `snapshots[0].asked`.
        field: String,
        /// What is wrong with the field.
        problem: String,
    },
}

/// A capture: snapshots taken on one machine, with what only that machine knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// Always [`FORMAT`].
    pub format: String,
    /// Always [`VERSION`].
    pub version: u32,
    /// What was done to take the snapshots, as a text for people.
    pub scenario: String,
    /// The kernel that the snapshots were taken in.
    pub kernel: CapturedKernel,
    /// Which branches were recorded, by perf's names: `any`, `cond`, `k`, ….
    pub branches: Vec<String>,
    /// Symbols that no vmlinux file has: those of modules, BPF programs and trampolines,
    /// as far as the records in `snapshots` touch them.
    pub symbols: Vec<GuestSymbol>,
    /// The modules that some of `symbols` belong to, if their build IDs are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<Module>,
    /// The code around the records, as it was executed: the kernel changes its own code
    /// when it boots and while it runs. The ranges are sorted by address, and do not
    /// overlap.
    pub code: Vec<CodeRange>,
    /// Why some of the code could not be read, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_missing: Option<String>,
    /// The processes that the records' addresses in user space belong to, if there are
    /// any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
    /// The number of snapshots that were lost because there was no room for them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// The snapshots, oldest first.
    pub snapshots: Vec<Snapshot>,
}

/// The kernel that snapshots were taken in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapturedKernel {
    /// The release of the kernel: `uname -r`.
    pub release: String,
    /// The architecture of the machine: `uname -m`.
    pub machine: String,
    /// The build ID that the linker gave the kernel, as hexadecimal digits, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// A symbol of the kernel image and its address. The address shows how far the kernel
    /// was moved at boot (KASLR).
    pub anchor: Anchor,
}

/// A symbol of the kernel image and its address in the running kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// The symbol's name, `_stext` by convention.
    pub symbol: String,
    /// The symbol's address.
    #[serde(with = "hex")]
    pub address: u64,
}

/// A symbol that only the running kernel knows: no vmlinux file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSymbol {
    /// The first address of the symbol.
    #[serde(with = "hex")]
    pub address: u64,
    /// The first address after the symbol, where the next symbol begins or the module ends.
    #[serde(with = "hex")]
    pub end: u64,
    /// The symbol's name.
    pub name: String,
    /// The module that the symbol belongs to; `bpf` for BPF programs and trampolines.
    pub module: String,
    /// The source lines of the symbol, sorted by address: those of a BPF program, which
    /// no file of the host has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<Line>,
}

/// A line of source, and where its code begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The first address of the line's code.
    #[serde(with = "hex")]
    pub address: u64,
    /// The source file, by the name that the compiler was given.
    pub file: String,
    /// The number of the line, counted from 1.
    pub line: u32,
    /// The text of the line.
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
    /// A capture with no snapshots yet, for all branches of the kernel.
    pub fn new(scenario: impl Into<String>, kernel: CapturedKernel) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            scenario: scenario.into(),
            kernel,
            branches: vec!["any".to_owned(), "k".to_owned()],
            symbols: Vec::new(),
            modules: Vec::new(),
            code: Vec::new(),
            code_missing: None,
            processes: Vec::new(),
            dropped: 0,
            snapshots: Vec::new(),
        }
    }

    /// Whether all branches were recorded. If so, each record directly follows the one
    /// before it.
    pub fn has_all_branches(&self) -> bool {
        self.branches.iter().any(|name| name == "any")
    }

    /// Reads a capture and checks it.
    ///
    /// # Errors
    ///
    /// When `reader` fails, when the document is longer than [`MAX_BYTES`], when it is no
    /// capture of version [`VERSION`], and when a field breaks an invariant: see
    /// [`CaptureError`].
    pub fn from_reader(mut reader: impl Read) -> Result<Self, CaptureError> {
        Self::read(&mut reader)
    }

    /// [`Capture::from_reader`], compiled here: other crates need not be optimised for it.
    fn read(reader: &mut dyn Read) -> Result<Self, CaptureError> {
        let mut beginning = Vec::new();
        // The rest is read from where this ends.
        Read::take(&mut *reader, HEAD)
            .read_to_end(&mut beginning)
            .map_err(CaptureError::Read)?;
        // The fields of another version may be others.
        let Head { format, version } = Head::of(&beginning);
        match (format, version) {
            (Some(format), _) if format != FORMAT => return Err(CaptureError::Format(format)),
            (_, Some(version)) if version != VERSION => return Err(CaptureError::Version(version)),
            _ => {}
        }
        let capture: Self = document::read(beginning.chain(reader), MAX_BYTES)?;
        capture.validate()?;
        Ok(capture)
    }

    /// Writes the capture as one line of JSON.
    ///
    /// # Errors
    ///
    /// When a field breaks an invariant, so that [`Capture::from_reader`] would refuse
    /// the document, and when `writer` fails.
    pub fn to_writer(&self, mut writer: impl Write) -> Result<(), CaptureError> {
        self.write(&mut writer)
    }

    fn write(&self, writer: &mut dyn Write) -> Result<(), CaptureError> {
        self.validate()?;
        document::write(self, writer, MAX_BYTES)
    }

    /// Checks every invariant that the fields document.
    fn validate(&self) -> Result<(), CaptureError> {
        if self.format != FORMAT {
            return Err(CaptureError::Format(self.format.clone()));
        }
        if self.version != VERSION {
            return Err(CaptureError::Version(self.version));
        }
        check_text("scenario", &self.scenario)?;
        check_text("kernel.release", &self.kernel.release)?;
        // It names a directory below /lib/modules.
        check(
            "kernel.release",
            !self.kernel.release.contains('/') && !matches!(&*self.kernel.release, "." | ".."),
            "is a path",
        )?;
        check_text("kernel.machine", &self.kernel.machine)?;
        if let Some(build_id) = &self.kernel.build_id {
            check_build_id("kernel.build_id", build_id)?;
        }
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
        check(
            "modules",
            self.modules.len() <= MAX_MODULES,
            &format!("more than {MAX_MODULES}"),
        )?;
        let mut names = HashSet::new();
        for (index, module) in self.modules.iter().enumerate() {
            let field = format!("modules[{index}]");
            module.validate(&field)?;
            check(&field, names.insert(&module.name), "is there twice")?;
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

/// The fields that every version of the document has.
#[derive(Default)]
struct Head {
    format: Option<String>,
    version: Option<u32>,
}

impl Head {
    /// What there is of the head in the beginning of a document.
    fn of(beginning: &[u8]) -> Self {
        let mut head = Self::default();
        // It ends in an error, at the latest where the beginning does.
        let _ = serde_json::Deserializer::from_slice(beginning).deserialize_map(&mut head);
        head
    }
}

impl<'de> Visitor<'de> for &mut Head {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a branch capture")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while self.format.is_none() || self.version.is_none() {
            match map.next_key::<String>()?.as_deref() {
                Some("format") => self.format = Some(map.next_value()?),
                Some("version") => self.version = Some(map.next_value()?),
                Some(_) => drop(map.next_value::<IgnoredAny>()?),
                None => break,
            }
        }
        Ok(())
    }
}

/// Whether a count can be left out of the document. The parameter is a reference because
/// serde requires that.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
