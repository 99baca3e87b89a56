//! A capture with names put to its addresses: what is shown as text or JSON.

use std::collections::HashMap;

use serde::{Serialize, Serializer};

use crate::capture::{Capture, Moment, Returned, Snapshot};
use crate::machinery::Machinery;
use crate::record::{BranchType, Cycles, Privilege, RawRecord, Record, Speculation};
use crate::symbol::{Resolve, Symbol, is_kernel};

/// What `format` says in every report.
const FORMAT: &str = "branch-report";
/// Grows when a field of the JSON changes its meaning or goes.
const VERSION: u32 = 2;

/// A symbolised capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    format: &'static str,
    version: u32,
    /// What was done to take the snapshots.
    pub scenario: String,
    /// `uname -r` of the kernel they were taken in.
    pub kernel: String,
    /// `uname -m` of the machine.
    pub machine: String,
    /// Why some of the code that a path needs could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_missing: Option<String>,
    /// Snapshots that there was no room for when they were taken.
    pub dropped: u64,
    /// The snapshots, oldest first.
    pub snapshots: Vec<SnapshotReport>,
}

/// One symbolised snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SnapshotReport {
    /// What was traced: a function, a tracepoint.
    pub function: String,
    /// At what moment of it this was taken.
    pub moment: Moment,
    /// What the function had returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returned: Option<Returned>,
    /// The CPU the snapshot was taken on.
    pub cpu: u32,
    /// The process that was traced.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// The thread's name.
    pub comm: String,
    /// When: nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// How long the function had taken, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<u64>,
    /// How many records there was room for.
    pub asked: u32,
    /// The error that the helper returned instead of records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<u32>,
    /// The number of the newest record that starts and ends in the traced
    /// function: the last jump it took before it returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_jump: Option<usize>,
    /// How many records are the tracing machinery's.
    pub machinery: usize,
    /// Whether the records can be one execution: nothing where only some branches
    /// were recorded, or the machine is no arm64.
    #[cfg(feature = "path")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<crate::path::Findings>,
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
    pub fn new(capture: &Capture, symbols: &(impl Resolve + ?Sized)) -> Self {
        let mut symbols = Cached {
            symbols,
            known: HashMap::new(),
        };
        Self {
            format: FORMAT,
            version: VERSION,
            scenario: capture.scenario.clone(),
            kernel: capture.kernel.release.clone(),
            machine: capture.kernel.machine.clone(),
            code_missing: capture.code_missing.clone(),
            dropped: capture.dropped,
            snapshots: capture
                .snapshots
                .iter()
                .map(|snapshot| SnapshotReport {
                    #[cfg(feature = "path")]
                    path: (capture.has_all_branches() && capture.kernel.machine == "aarch64")
                        .then(|| crate::path::check(&snapshot.records, &capture.code)),
                    ..SnapshotReport::new(snapshot, &mut symbols)
                })
                .collect(),
        }
    }

    /// How far apart instructions begin, in bytes: at least.
    pub fn step(&self) -> u64 {
        match &*self.machine {
            "aarch64" => 4,
            _ => 1,
        }
    }
}

impl SnapshotReport {
    fn new<R: Resolve + ?Sized>(snapshot: &Snapshot, symbols: &mut Cached<'_, R>) -> Self {
        let mut machinery = Machinery::new(&snapshot.function);
        let records: Vec<_> = snapshot
            .records
            .iter()
            .enumerate()
            .rev()
            .map(|(number, raw)| {
                let mut name = |address| symbols.resolve(snapshot.pid, address);
                Branch::new(number, raw, &mut name, &mut machinery)
            })
            .collect();
        let mut report = Self {
            function: snapshot.function.clone(),
            moment: snapshot.moment,
            returned: snapshot.returned,
            cpu: snapshot.cpu,
            pid: snapshot.pid,
            tid: snapshot.tid,
            comm: snapshot.comm.clone(),
            time: snapshot.time,
            duration: snapshot.duration,
            asked: snapshot.asked,
            errno: snapshot.errno,
            last_jump: None,
            machinery: records.iter().filter(|branch| branch.machinery).count(),
            #[cfg(feature = "path")]
            path: None,
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
    fn new(
        number: usize,
        raw: &RawRecord,
        name: &mut impl FnMut(u64) -> Option<Symbol>,
        machinery: &mut Machinery<'_>,
    ) -> Self {
        let record: Record = raw.decode();
        let mut end = |address: Option<std::num::NonZeroU64>| End {
            address: address.map(Into::into),
            symbol: address.and_then(|address| name(address.get())),
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
struct Cached<'symbols, R: ?Sized> {
    symbols: &'symbols R,
    /// By process, for those of user space, and address.
    known: HashMap<(Option<u32>, u64), Option<Symbol>>,
}

impl<R: Resolve + ?Sized> Cached<'_, R> {
    fn resolve(&mut self, pid: u32, address: u64) -> Option<Symbol> {
        let symbols = self.symbols;
        let known = &mut self.known;
        match is_kernel(address) {
            true => known
                .entry((None, address))
                .or_insert_with(|| symbols.resolve(address)),
            false => known
                .entry((Some(pid), address))
                .or_insert_with(|| symbols.resolve_user(pid, address)),
        }
        .clone()
    }
}
