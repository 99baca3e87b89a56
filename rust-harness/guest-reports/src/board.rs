//! What a machine says of its branch records: the document that `branch-guest board` writes and
//! `brbe report` reads.
//!
//! A part of the document that could not be found out says why: see [`Part`].

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use serde::{Deserialize, Serialize};

use crate::kit::Decides;
use crate::waste::KeptWaste;

/// The word in the field `format` of each such document.
pub const FORMAT: &str = "brbe-board";
/// The version of the format, which changes when a field changes its meaning.
pub const VERSION: u32 = 1;
/// The most bytes of a document that are read.
pub const MOST: u64 = 2 << 20;

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoardReport {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The version of the kit that wrote the document, by its own words.
    pub kit: String,
    /// Whether everything was tried. Otherwise the machine went down, the run was ended, or there was
    /// no time for all.
    pub complete: bool,
    /// What was under way when the document was written last, where it is not complete.
    pub under_way: Option<String>,
    /// How long everything took, in seconds.
    pub seconds: f64,
    /// The machine and its kernel.
    pub machine: BoardMachine,
    /// The register BRBIDR0_EL1, by each CPU that records branches: the kernel's driver has read it
    /// once for all CPUs of a PMU.
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
    /// Nothing was found out.
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
    /// The number of branches that the CPU records, by the PMU's `caps/branches`. Where no PMU says
    /// that it is of this CPU, it is 0.
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
    /// The smallest difference between two of the times, in nanoseconds: the clock's step, if that is
    /// not finer.
    pub clock_step: u64,
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
    /// By a counter of CPU_CYCLES.
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
    /// The document could not be read.
    #[error("cannot read it")]
    Io(#[from] std::io::Error),
    /// The document has more than [`MOST`] bytes.
    #[error("it has more than {} MiB", MOST >> 20)]
    TooLong,
    /// The text is no such document.
    #[error("it is no document of `branch-guest board`: {0}")]
    Json(String),
    /// Two tests, or two ways to attach a program, have one name.
    #[error("it has {0:?} twice")]
    Twice(String),
    /// The document is of another version of the format.
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
        let head: Head = parsed(text)?;
        if head.format != FORMAT {
            return Err(Unreadable::Json(format!("it is {:?}", head.format)));
        }
        if head.version != VERSION {
            return Err(Unreadable::Version(head.version));
        }
        let report: Self = parsed(text)?;
        let tests = report.tests.iter().map(|test| &test.name);
        let ways = report.waste.iter().map(|way| &way.way);
        for names in [tests.collect::<Vec<_>>(), ways.collect()] {
            let mut seen = BTreeSet::new();
            if let Some(twice) = names.into_iter().find(|name| !seen.insert(*name)) {
                return Err(Unreadable::Twice(twice.clone()));
            }
        }
        Ok(report)
    }
}

/// What the JSON says. An error has no character of it that a terminal would act on.
fn parsed<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|error| Unreadable::Json(visible(&error.to_string())))
}

/// The text without what a terminal would act on. A document comes from anywhere.
pub fn visible(text: &str) -> String {
    // Beside what controls a terminal, what turns the direction of text around.
    let acts = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let shown = |c: char| if acts(c) { '?' } else { c };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document of which everything is missing, with these tests.
    fn document(names: &[&str]) -> String {
        let missing = || serde_json::json!({ "missing": "why" });
        let test = |name: &&str| {
            serde_json::json!({
                "name": name, "decides": "promise", "verdict": "pass", "reason": "", "seconds": 0.5
            })
        };
        serde_json::json!({
            "format": FORMAT, "version": VERSION, "kit": "x", "complete": true, "under_way": null,
            "seconds": 1.0, "machine": {
                "model": null, "architecture": "aarch64", "release": "7.3", "kernel_version": "#1",
                "is_root": true, "has_btf": false, "has_snapshots": false, "cpus": []
            },
            "brbidr": missing(), "cost": missing(), "waste": [], "records": missing(),
            "tests": names.iter().map(test).collect::<Vec<_>>(),
        })
        .to_string()
    }

    #[test]
    fn a_document_is_read_and_what_is_none_is_not() {
        let good = document(&["twice", "flags"]);
        assert!(is_one(&good) && !is_one(&good[..good.len() - 1]));
        let report = BoardReport::parse(&good).unwrap();
        assert_eq!(report.cost.seen(), Err("why"));
        assert_eq!(report.machine.has_snapshots, Part::Seen(false));
        assert!(BoardReport::parse(&good.replace(FORMAT, "other")).is_err());
        let newer = good.replace("\"version\":1", "\"version\":2");
        assert!(matches!(
            BoardReport::parse(&newer),
            Err(Unreadable::Version(2))
        ));
        let twice = document(&["twice", "twice"]);
        assert!(
            matches!(BoardReport::parse(&twice), Err(Unreadable::Twice(name)) if name == "twice")
        );
        let much = "x".repeat(usize::try_from(MOST).unwrap() + 1);
        assert!(matches!(
            BoardReport::read(much.as_bytes()),
            Err(Unreadable::TooLong)
        ));
    }

    #[test]
    fn an_error_does_not_act_on_a_terminal() {
        let escape = document(&["twice"]).replace("\"pass\"", r#""\u001b]0;x\u009b""#);
        let error = BoardReport::parse(&escape).unwrap_err().to_string();
        assert!(
            error.contains("variant") && !error.chars().any(char::is_control),
            "{error:?}"
        );
    }
}
