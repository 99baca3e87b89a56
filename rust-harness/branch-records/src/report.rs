//! A report: a capture with names put to its addresses. It is what is shown as text or
//! JSON.

use std::collections::HashMap;
use std::rc::Rc;

use serde::{Serialize, Serializer};

use crate::InstructionSet;
use crate::capture::{Argument, Capture, Moment, Returned, Snapshot};
use crate::machinery::{self, Machinery};
use crate::record::{BranchType, Cycles, Privilege, RawRecord, Record, Speculation};
use crate::symbol::{Resolve, Symbol, SymbolCache, is_kernel};

/// The value of `format` in every report.
const FORMAT: &str = "branch-report";
/// The version of the JSON. It grows when a field changes its meaning or is removed.
const VERSION: u32 = 3;

/// A symbolised capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceReport {
    format: &'static str,
    version: u32,
    /// What was done to take the snapshots.
    pub scenario: String,
    /// `uname -r` of the kernel that the snapshots were taken in.
    pub kernel: String,
    /// `uname -m` of the machine.
    pub machine: String,
    /// Why some of the code that a path needs could not be read, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_missing: Option<String>,
    /// The number of snapshots that were lost because there was no room for them.
    pub dropped: u64,
    /// The snapshots, oldest first.
    pub snapshots: Vec<SnapshotReport>,
}

/// One symbolised snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SnapshotReport {
    /// The name of what was traced: a function or a tracepoint.
    pub function: String,
    /// The moment at which the snapshot was taken.
    pub moment: Moment,
    /// The return value of the function, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<u64>,
    /// The number of records that the caller of the helper had room for.
    pub asked: u32,
    /// The error that the helper returned instead of records, as a positive number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<u32>,
    /// The number of the newest record that starts and ends in the traced function: the
    /// last jump that the function took before it returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_jump: Option<usize>,
    /// The number of records within the tracing machinery.
    pub machinery: usize,
    /// How many of the oldest records were in the snapshot before on this CPU, too. arm64's
    /// kernel discards the records that it hands out, x86's keeps them.
    #[serde(skip_serializing_if = "is_zero")]
    pub repeated: usize,
    /// Whether the records can be one execution. `None` where only some branches were
    /// recorded, or the machine is not arm64.
    #[cfg(feature = "path")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<crate::path::Findings>,
    /// The records, oldest first: in the order of the path.
    pub records: Vec<NamedBranch>,
    /// The call stack, if it was taken: the kernel's functions, and then those of user space, the
    /// innermost of each first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<StackFrame>,
    /// The arguments of the function, if they were taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Argument>,
}

/// A function on the call stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StackFrame {
    /// The address to which the function returns that was called from here; of the innermost
    /// function of user space, the address that it had reached.
    #[serde(serialize_with = "crate::capture::hex::serialize")]
    pub address: u64,
    /// The symbol of the call, if some source of symbols knows one. Its offset is that of
    /// `address`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol: Option<Rc<Symbol>>,
    /// Whether the function belongs to the tracing itself.
    pub machinery: bool,
}

/// One branch of the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedBranch {
    /// The number of the branch's record. 0 is the newest.
    pub number: usize,
    /// Whether both ends of the branch lie in the tracing machinery.
    pub machinery: bool,
    /// The source: where the branch instruction is.
    pub from: Endpoint,
    /// The target: where the branch went.
    pub to: Endpoint,
    /// The type of the branch.
    #[serde(rename = "type", serialize_with = "type_name")]
    pub kind: BranchType,
    /// Whether the branch was mispredicted, where the hardware reports that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mispredicted: Option<bool>,
    /// Cycles since the branch before this one.
    pub cycles: Cycles,
    /// The privilege level that the branch went to.
    #[serde(serialize_with = "privilege_name")]
    pub privilege: Privilege,
    /// Whether the branch was taken speculatively.
    pub speculation: Speculation,
    /// The instructions that were executed since the branch before, this branch included, where
    /// they were asked for and are known.
    #[cfg(feature = "show")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<crate::instructions::ExecutedInstruction>,
}

/// One end of a branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// The address in the running kernel or its user space, unless the hardware kept it
    /// back.
    #[serde(serialize_with = "hex")]
    pub address: Option<u64>,
    /// The symbol at the address, if some source of symbols knows one. Many records share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol: Option<Rc<Symbol>>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
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

/// The records of the newest snapshot on each CPU.
#[derive(Clone, Debug, Default)]
pub struct NewestRecords(HashMap<u32, Vec<RawRecord>>);

impl TraceReport {
    /// Makes a report of a capture: puts names from `symbols` to its addresses.
    pub fn new(capture: &Capture, symbols: &(impl Resolve + ?Sized)) -> Self {
        Self::after(&mut NewestRecords::default(), capture, symbols)
    }

    /// Makes a report of a capture that comes after others: some of its records may be in their
    /// newest snapshots, too. `newest` is brought up to date.
    pub fn after(
        newest: &mut NewestRecords,
        capture: &Capture,
        symbols: &(impl Resolve + ?Sized),
    ) -> Self {
        let mut symbols = SymbolCache::of(symbols);
        let known = newest.0.iter();
        let mut before: HashMap<_, _> = known.map(|(cpu, records)| (*cpu, &records[..])).collect();
        // The way into a snapshot is new each time, unless its branches are not recorded. arm64's
        // records are all new.
        let least_new = match &*capture.kernel.machine {
            "aarch64" => usize::MAX,
            _ => capture.has_all_branches().into(),
        };
        #[cfg(feature = "path")]
        let indexed = (capture.has_all_branches() && capture.kernel.machine == "aarch64")
            .then(|| crate::capture::IndexedCode::new(&capture.code));
        let report = Self {
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
                    path: indexed
                        .as_ref()
                        .map(|code| crate::path::check(&snapshot.records, code)),
                    repeated: before
                        .insert(snapshot.cpu, &snapshot.records)
                        .map_or(0, |older| repeated(&snapshot.records, older, least_new)),
                    ..SnapshotReport::new(snapshot, &mut symbols)
                })
                .collect(),
        };
        let after = before.into_iter();
        newest.0 = after
            .map(|(cpu, records)| (cpu, records.to_vec()))
            .collect();
        report
    }

    /// The report with the instructions that were executed. `capture` and `symbols` must be those
    /// that the report was made of.
    #[cfg(feature = "show")]
    pub fn with_instructions(mut self, capture: &Capture, symbols: &dyn Resolve) -> Self {
        let mut disassembler = crate::instructions::Disassembler::new(capture, symbols);
        for (report, snapshot) in self.snapshots.iter_mut().zip(&capture.snapshots) {
            let blocks = disassembler.of_snapshot(snapshot);
            for (branch, block) in report.records.iter_mut().zip(blocks) {
                branch.instructions = block;
            }
        }
        self
    }

    /// The least distance from one instruction to the next, in bytes: 4 on arm64, 1
    /// elsewhere.
    pub fn step(&self) -> u64 {
        step_of(&self.machine)
    }
}

/// How many of the oldest records of a snapshot are the newest ones of an older snapshot, where at
/// least so many records are new. Both have the newest record first.
fn repeated(newer: &[RawRecord], older: &[RawRecord], least_new: usize) -> usize {
    let is_rest = |new: &usize| older.starts_with(&newer[*new..]);
    let new = (least_new..newer.len()).find(is_rest);
    new.map_or(0, |new| newer.len() - new)
}

/// The least distance from one instruction to the next on a machine, in bytes.
pub(crate) fn step_of(machine: &str) -> u64 {
    InstructionSet::of(machine).map_or(1, |set| *set.lengths().start())
}

impl SnapshotReport {
    pub(crate) fn new<R: Resolve + ?Sized>(
        snapshot: &Snapshot,
        symbols: &mut SymbolCache<'_, R>,
    ) -> Self {
        let mut machinery = Machinery::new(&snapshot.function);
        let records: Vec<_> = snapshot
            .records
            .iter()
            .enumerate()
            .rev()
            .map(|(number, raw)| {
                let mut name = |address| symbols.resolve(snapshot.pid, address);
                NamedBranch::new(number, raw, &mut name, &mut machinery)
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
            repeated: 0,
            #[cfg(feature = "path")]
            path: None,
            records,
            stack: stack(snapshot, symbols),
            arguments: snapshot.arguments.clone(),
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

    /// Whether any branch of the snapshot starts or ends in the traced function.
    pub fn touches_function(&self) -> bool {
        self.records
            .iter()
            .any(|branch| self.is_in_function(&branch.from) || self.is_in_function(&branch.to))
    }

    fn is_in_function(&self, end: &Endpoint) -> bool {
        end.symbol
            .as_ref()
            .is_some_and(|symbol| symbol.is_in(&self.function))
    }
}

/// The call stack with names.
fn stack<R: Resolve + ?Sized>(
    snapshot: &Snapshot,
    symbols: &mut SymbolCache<'_, R>,
) -> Vec<StackFrame> {
    let user = snapshot
        .stack
        .iter()
        .position(|address| !is_kernel(*address));
    // The program that took the snapshot, and what called it, come first.
    let mut machinery = true;
    let frame = |(index, address): (usize, &u64)| {
        // The call is before the address that it returns to, and may be the last of its function.
        let behind = u64::from(user != Some(index));
        let found = symbols.resolve(snapshot.pid, address.saturating_sub(behind));
        let symbol = found.map(|mut symbol| {
            Rc::make_mut(&mut symbol).offset += behind;
            symbol
        });
        machinery &= symbol
            .as_deref()
            .is_some_and(machinery::is_caller_of_programs);
        StackFrame {
            address: *address,
            symbol,
            machinery,
        }
    };
    snapshot.stack.iter().enumerate().map(frame).collect()
}

impl NamedBranch {
    fn new(
        number: usize,
        raw: &RawRecord,
        name: &mut impl FnMut(u64) -> Option<Rc<Symbol>>,
        machinery: &mut Machinery<'_>,
    ) -> Self {
        let record: Record = raw.decode();
        let mut end = |address: Option<std::num::NonZeroU64>| Endpoint {
            address: address.map(Into::into),
            symbol: address.and_then(|address| name(address.get())),
        };
        let (from, to) = (end(record.from), end(record.to));
        let (source, target) = machinery.follow(from.symbol.as_deref(), to.symbol.as_deref());
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
            #[cfg(feature = "show")]
            instructions: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up;

    #[test]
    fn records_that_were_kept_are_known() {
        let records = |ends: &[u64]| -> Vec<_> {
            let record = |from: &u64| RawRecord {
                from: *from,
                to: 1,
                flags: 0,
            };
            ends.iter().map(record).collect()
        };
        let of = |newer: &[u64], older: &[u64]| repeated(&records(newer), &records(older), 1);
        assert_eq!(of(&[9, 8, 5, 4, 3], &[5, 4, 3, 2, 1]), 3);
        assert_eq!(of(&[9, 8, 7], &[5, 4, 3]), 0);
        assert_eq!(of(&[9, 8, 5, 3], &[5, 4, 3]), 0);
        // Another call of the same.
        assert_eq!(of(&[5, 4, 3], &[5, 4, 3]), 0);
        assert_eq!(of(&[], &[5]), 0);
        let same = records(&[5, 4, 3]);
        assert_eq!(repeated(&same, &same, 0), 3);
        assert_eq!(repeated(&same, &same, usize::MAX), 0);
    }

    #[test]
    fn records_that_an_earlier_capture_has_are_known_to_be_kept() {
        let mut capture = made_up::capture(vec![made_up::snapshot(made_up::rejected_map())]);
        capture.kernel.machine = "x86_64".to_owned();
        let known = capture.snapshots[0].records.len();
        let mut newest = NewestRecords::default();
        let mut repeated = |capture: &Capture| {
            let report = TraceReport::after(&mut newest, capture, &made_up::MadeUp);
            report.snapshots[0].repeated
        };
        assert_eq!(repeated(&capture), 0);
        let new = RawRecord {
            from: 1,
            to: 2,
            flags: 0,
        };
        capture.snapshots[0].records.insert(0, new);
        assert_eq!(repeated(&capture), known);
        capture.snapshots[0].cpu += 1;
        assert_eq!(repeated(&capture), 0);
    }
}
