//! A capture with names put to its addresses: what is shown as text or JSON.

use std::collections::HashMap;

use serde::{Serialize, Serializer};

use crate::capture::{Capture, Snapshot};
use crate::machinery::Machinery;
use crate::record::{BranchType, Cycles, Privilege, RawRecord, Record, Speculation};
use crate::symbol::{Resolve, Symbol};

/// What `format` says in every report.
const FORMAT: &str = "branch-report";
/// Grows when a field of the JSON changes its meaning or goes.
const VERSION: u32 = 1;

/// A symbolised capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    format: &'static str,
    version: u32,
    /// What was done to take the snapshots.
    pub scenario: String,
    /// `uname -r` of the kernel they were taken in.
    pub kernel: String,
    /// Why some of the code that a path needs could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_missing: Option<String>,
    /// The snapshots, oldest first.
    pub snapshots: Vec<SnapshotReport>,
}

/// One symbolised snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SnapshotReport {
    /// The traced function.
    pub function: String,
    /// What it had returned.
    pub return_value: i64,
    /// The CPU the snapshot was taken on.
    pub cpu: u32,
    /// The process that called the function.
    pub pid: u32,
    /// How many records there was room for.
    pub asked: u32,
    /// The error that the helper returned instead of records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<u32>,
    /// The number of the newest record that starts and ends in the traced
    /// function: the last jump it took before it returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_jump: Option<usize>,
    /// Whether the records can be one execution.
    #[cfg(feature = "path")]
    pub path: crate::path::Findings,
    /// The records, oldest first: in the order of the path.
    pub records: Vec<Branch>,
}

/// One branch of the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Branch {
    /// Its number: 0 is the newest.
    pub number: usize,
    /// Whether both its ends lie in the tracing machinery.
    pub machinery: bool,
    /// Where the branch instruction is.
    pub from: End,
    /// Where it went.
    pub to: End,
    /// What sort of branch.
    #[serde(rename = "type", serialize_with = "type_name")]
    pub kind: BranchType,
    /// Whether it was mispredicted, where the hardware says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mispredicted: Option<bool>,
    /// Cycles since the branch before.
    pub cycles: Cycles,
    /// Where it went to.
    #[serde(serialize_with = "privilege_name")]
    pub privilege: Privilege,
    /// Whether it was taken speculatively.
    pub speculation: Speculation,
}

/// One end of a branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct End {
    /// Its address in the running kernel, unless the hardware kept it back.
    #[serde(serialize_with = "hex")]
    pub address: Option<u64>,
    /// What is there, when some source of symbols knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol: Option<Symbol>,
}

fn type_name<S: Serializer>(kind: &BranchType, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(kind.name())
}

fn privilege_name<S: Serializer>(privilege: &Privilege, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(privilege.name())
}

fn hex<S: Serializer>(address: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    match address {
        Some(address) => to.collect_str(&format_args!("{address:#x}")),
        None => to.serialize_none(),
    }
}

impl Report {
    /// Puts names to the addresses of a capture.
    pub fn new(capture: &Capture, symbols: &impl Resolve) -> Self {
        let mut symbols = Cached {
            symbols,
            known: HashMap::new(),
        };
        Self {
            format: FORMAT,
            version: VERSION,
            scenario: capture.scenario.clone(),
            kernel: capture.kernel.release.clone(),
            code_missing: capture.code_missing.clone(),
            snapshots: capture
                .snapshots
                .iter()
                .map(|snapshot| SnapshotReport {
                    #[cfg(feature = "path")]
                    path: crate::path::check(&snapshot.records, &capture.code),
                    ..SnapshotReport::new(snapshot, &mut symbols)
                })
                .collect(),
        }
    }
}

impl SnapshotReport {
    fn new<R: Resolve>(snapshot: &Snapshot, symbols: &mut Cached<'_, R>) -> Self {
        let mut machinery = Machinery::new(&snapshot.function);
        let records: Vec<_> = snapshot
            .records
            .iter()
            .enumerate()
            .rev()
            .map(|(number, raw)| Branch::new(number, raw, symbols, &mut machinery))
            .collect();
        let mut report = Self {
            function: snapshot.function.clone(),
            return_value: snapshot.return_value,
            cpu: snapshot.cpu,
            pid: snapshot.pid,
            asked: snapshot.asked,
            errno: snapshot.errno,
            last_jump: None,
            #[cfg(feature = "path")]
            path: crate::path::Findings::default(),
            records,
        };
        report.last_jump = report.find_last_jump();
        report
    }

    fn find_last_jump(&self) -> Option<usize> {
        self.records
            .iter()
            .rfind(|branch| self.is_in_function(&branch.from) && self.is_in_function(&branch.to))
            .map(|branch| branch.number)
    }

    /// Whether a branch starts or ends in the traced function.
    pub fn touches_function(&self) -> bool {
        self.records
            .iter()
            .any(|branch| self.is_in_function(&branch.from) || self.is_in_function(&branch.to))
    }

    fn is_in_function(&self, end: &End) -> bool {
        end.symbol
            .as_ref()
            .is_some_and(|symbol| symbol.base_name() == self.function)
    }
}

impl Branch {
    fn new<R: Resolve>(
        number: usize,
        raw: &RawRecord,
        symbols: &mut Cached<'_, R>,
        machinery: &mut Machinery<'_>,
    ) -> Self {
        let record: Record = raw.decode();
        let mut end = |address: Option<std::num::NonZeroU64>| End {
            address: address.map(Into::into),
            symbol: address.and_then(|address| symbols.resolve(address.get())),
        };
        let (from, to) = (end(record.from), end(record.to));
        let (source, target) = machinery.follow(from.symbol.as_ref(), to.symbol.as_ref());
        Self {
            number,
            machinery: source && target,
            from,
            to,
            kind: record.kind,
            mispredicted: match (record.mispredicted, record.predicted) {
                (false, false) => None,
                (mispredicted, _) => Some(mispredicted),
            },
            cycles: record.cycles,
            privilege: record.privilege,
            speculation: record.speculation,
        }
    }
}

/// Many records share few addresses: each is looked up once.
struct Cached<'symbols, R> {
    symbols: &'symbols R,
    known: HashMap<u64, Option<Symbol>>,
}

impl<R: Resolve> Cached<'_, R> {
    fn resolve(&mut self, address: u64) -> Option<Symbol> {
        self.known
            .entry(address)
            .or_insert_with(|| self.symbols.resolve(address))
            .clone()
    }
}
