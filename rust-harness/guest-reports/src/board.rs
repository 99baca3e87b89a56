//! What a machine says of its branch records: the document that `branch-guest board` writes and
//! `brbe report` reads.
//!
//! A part of the document that could not be found out says why: see [`Part`].

use std::collections::BTreeMap;
use std::io::Read;

use serde::{Deserialize, Serialize};

use crate::kit::Decides;
use crate::waste::KeptWaste;

/// The word in the field `format` of each such document.
pub const FORMAT: &str = "brbe-board";
/// The version of the format, which changes when a field changes its meaning.
pub const VERSION: u32 = 1;
/// The most bytes of a document that are read.
pub const MOST: u64 = 64 << 20;

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoardReport {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The version of the kit that wrote the document, by its own words.
    pub kit: String,
    /// Whether everything was tried to its end. A document without it is of a machine that went
    /// down, or of a run that was ended.
    pub complete: bool,
    /// What was under way when the document was written last, where it is not complete.
    pub under_way: Option<String>,
    /// How long everything took, in seconds.
    pub seconds: f64,
    /// The machine and its kernel.
    pub machine: BoardMachine,
    /// The register BRBIDR0_EL1 of CPUs that record branches, as the kernel's driver has read it.
    pub brbidr: Part<Vec<Brbidr>>,
    /// How long a snapshot takes, by the number of its records.
    pub cost: Part<SnapshotCost>,
    /// What each way to attach a program wastes of the records.
    pub waste: Vec<Way>,
    /// Records that the architecture has no explanation for.
    pub records: Part<Records>,
    /// What came of each test.
    pub tests: Vec<TestRun>,
}

/// A part of the document: what was found out, or why it could not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Part<T> {
    /// It could not be found out.
    Missing {
        /// Why not.
        missing: String,
    },
    /// What was found out.
    Seen(T),
}

impl<T> Part<T> {
    /// A part that could not be found out, and why not.
    pub fn missing(why: impl Into<String>) -> Self {
        Self::Missing {
            missing: why.into(),
        }
    }

    /// What was found out.
    ///
    /// # Errors
    ///
    /// Why it could not be found out.
    pub fn seen(&self) -> Result<&T, &str> {
        match self {
            Self::Seen(seen) => Ok(seen),
            Self::Missing { missing } => Err(missing),
        }
    }
}

/// The machine and its kernel. The document has no name of the machine and none of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoardMachine {
    /// The model, by the device tree or by DMI, if it says.
    pub model: Option<String>,
    /// The architecture, as `uname -m` prints it.
    pub architecture: String,
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// The kernel's version, as `uname -v` prints it.
    pub kernel_version: String,
    /// Whether the kit ran with root's rights.
    pub is_root: bool,
    /// Whether the kernel has its types as BTF.
    pub has_btf: bool,
    /// Whether a driver takes snapshots: what the static call of the helper leads to.
    pub has_snapshots: Part<bool>,
    /// The CPUs that are online.
    pub cpus: Vec<BoardCpu>,
}

impl Default for Part<bool> {
    fn default() -> Self {
        Self::missing("not looked at")
    }
}

/// A CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoardCpu {
    /// Linux's number of the CPU.
    pub number: u32,
    /// The register MIDR_EL1, which says what core it is, if the kernel says.
    pub midr: Option<String>,
    /// The name of the CPU's PMU, if it has one.
    pub pmu: Option<String>,
    /// The number of branches that the CPU records, by the PMU's `caps/branches`.
    pub records: u32,
}

/// The register BRBIDR0_EL1 of a CPU (Arm ARM, D24.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brbidr {
    /// Linux's number of the CPU.
    pub cpu: u32,
    /// The value of the register.
    pub value: u64,
}

impl Brbidr {
    /// The number of records, NUMREC.
    pub fn records(self) -> u64 {
        self.value & 0xff
    }

    /// The format of records, FORMAT. The architecture defines 0.
    pub fn format(self) -> u64 {
        self.value >> 8 & 0xf
    }

    /// The cycle counter, CC. The architecture defines 5, which has 20 bits.
    pub fn cycle_counter(self) -> u64 {
        self.value >> 12 & 0xf
    }
}

/// How long a snapshot takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotCost {
    /// The CPU that it was measured on.
    pub cpu: u32,
    /// Reading both clocks twice, with nothing in between.
    pub nothing: Took,
    /// A snapshot with room for so many records, of a buffer that has no fewer.
    pub snapshots: Vec<SnapshotTook>,
}

/// How long snapshots with room for a number of records took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotTook {
    /// The number of records that each snapshot had.
    pub records: u32,
    /// How long they took, reading the clocks included.
    pub took: Took,
}

/// How long something took that was done often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Took {
    /// How often it was done.
    pub times: u32,
    /// By the kernel's monotonic clock.
    pub nanoseconds: Spread,
    /// By the PMU's cycle counter.
    pub cycles: Spread,
}

/// The least of several figures, their median, and the one that nine tenths do not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names say it
pub struct Spread {
    pub least: u64,
    pub median: u64,
    pub ninth_decile: u64,
}

impl Spread {
    /// The spread of figures, `None` if there are none.
    pub fn of(mut figures: Vec<u64>) -> Option<Self> {
        figures.sort_unstable();
        let last = figures.len().checked_sub(1)?;
        Some(Self {
            least: figures[0],
            median: figures[last / 2],
            ninth_decile: figures[last * 9 / 10],
        })
    }
}

/// What a way to attach a program wastes of the records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// The name of the way, such as `fexit`.
    pub way: String,
    /// How many records it wastes.
    pub wasted: Part<KeptWaste>,
}

/// What many records of many snapshots were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// The number of snapshots.
    pub snapshots: u32,
    /// The number of their records.
    pub records: u64,
    /// Between how many records the way was followed through the kernel's code. 0 where the code
    /// cannot be read.
    pub followed: u64,
    /// How many records there were of each type, by perf's names.
    pub types: BTreeMap<String, u64>,
    /// In how many records the cycles were counted.
    pub with_cycles: u64,
    /// How many branches were predicted wrongly, by their record.
    pub mispredicted: u64,
    /// The number of snapshots with something that the architecture has no explanation for.
    pub odd: u32,
    /// The first of these snapshots.
    pub examples: Vec<Odd>,
}

/// A snapshot with something that the architecture has no explanation for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Odd {
    /// What it is.
    pub what: String,
    /// The records, newest first, each as three words of `struct perf_branch_entry` in
    /// hexadecimal digits: from, to, flags.
    pub records: Vec<[String; 3]>,
    /// The names of the addresses, from the kernel's symbols: of source and target of each record.
    pub names: Vec<[String; 2]>,
}

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestRun {
    /// The test's name.
    pub name: String,
    /// What the test decides.
    pub decides: Decides,
    /// The verdict.
    pub verdict: BoardVerdict,
    /// What was seen, or why there is this verdict.
    pub reason: String,
    /// How long the test took, in seconds.
    pub seconds: f64,
}

/// The verdict on a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BoardVerdict {
    /// The kernel does what it should.
    Pass,
    /// The kernel does not do what it should.
    Fail,
    /// The machine or its kernel does not have what the test is about.
    Skip,
    /// The test could not be tried, or did not come to its end.
    Error,
}

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It could not be read.
    #[error("cannot read it")]
    Io(#[from] std::io::Error),
    /// It is too long.
    #[error("it has more than {} MiB", MOST >> 20)]
    TooLong,
    /// It is not such a document.
    #[error("it is no document of `branch-guest board`")]
    Json(#[from] serde_json::Error),
    /// It is of another version.
    #[error(
        "it is of version {0} of the format, and {VERSION} is known: make it with a kit of this checkout"
    )]
    Version(u32),
}

/// What tells documents apart.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

/// Whether `text` is JSON with the head of such a document, of whatever version.
pub fn is_one(text: &str) -> bool {
    serde_json::from_str::<Head>(text).is_ok_and(|head| head.format == FORMAT)
}

impl BoardReport {
    /// Reads a document, which need not be one.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is no such document.
    pub fn read(from: impl Read) -> Result<Self, Unreadable> {
        let mut text = String::new();
        from.take(MOST + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MOST {
            return Err(Unreadable::TooLong);
        }
        Self::parse(&text)
    }

    /// The document in `text`.
    ///
    /// # Errors
    ///
    /// When it is no such document.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        let head: Head = serde_json::from_str(text)?;
        if head.format == FORMAT && head.version != VERSION {
            return Err(Unreadable::Version(head.version));
        }
        Ok(serde_json::from_str(text)?)
    }
}
