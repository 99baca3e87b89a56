//! Checks whether records can be one execution of A64 code.
//!
//! Between the target of a record and the source of the next newer one the CPU went
//! straight on: there is no branch that is always taken. And the instruction at a
//! record's source is a branch of the recorded type. Where that instruction encodes its
//! target, it is the recorded one. Records from both sides of a gap fail this sooner or
//! later.

mod cycles;
#[cfg(feature = "show")]
mod executed;
mod findings;
mod flow;

pub use cycles::{can_count, instructions};
#[cfg(feature = "show")]
pub(crate) use executed::{executed, straight_from};
pub use findings::{Broken, Findings};
pub use flow::{Flow, FlowKind, flow, is_breakpoint};

use std::ops::Range;

use crate::record::{BranchType, RawRecord};

/// What a check needs to know of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathBranch {
    /// The source of the branch, 0 where the hardware kept it back.
    pub from: u64,
    /// The target of the branch, 0 where the hardware kept it back.
    pub to: u64,
    /// The type of the branch.
    pub kind: BranchType,
}

impl From<RawRecord> for PathBranch {
    fn from(record: RawRecord) -> Self {
        Self {
            from: record.from,
            to: record.to,
            kind: record.decode().kind,
        }
    }
}

/// The code that was executed.
pub trait Code {
    /// The instruction at `address`, if it is known.
    fn fetch(&self, address: u64) -> Option<u32>;

    /// Whether execution can go straight on from the beginning of `way` to its end, which is some
    /// instructions behind it.
    fn straight(&self, way: Range<u64>) -> Straight {
        let mut straight = Straight::Known;
        for at in way.step_by(4) {
            match self.fetch(at).map(goes_on) {
                Some(true) => {}
                Some(false) => return Straight::Leaves(at),
                // Code after this instruction may be known, and may be a branch that is always
                // taken.
                None => straight = Straight::Unknown,
            }
        }
        straight
    }

    /// Whether what a branch to `address` leads to may stop recording for a while.
    fn pauses(&self, _address: u64) -> bool {
        false
    }
}

/// How execution goes from one address straight on to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Straight {
    /// By instructions that all may go on to the next one.
    Known,
    /// Not all instructions are known. None of the others is a branch that is always taken.
    Unknown,
    /// Not at all: the instruction at this address is a branch that is always taken.
    Leaves(u64),
}

/// Code in which one function stops recording for a while: the one that takes snapshots. Where a
/// snapshot keeps the records that it reads, there is a gap behind the branch to that function.
#[derive(Clone, Copy, Debug)]
pub struct Pausing<'a, C> {
    /// The code.
    pub code: &'a C,
    /// The address of the function, if it is known.
    pub entry: Option<u64>,
}

impl<C: Code> Code for Pausing<'_, C> {
    fn fetch(&self, address: u64) -> Option<u32> {
        self.code.fetch(address)
    }

    fn straight(&self, way: Range<u64>) -> Straight {
        self.code.straight(way)
    }

    fn pauses(&self, address: u64) -> bool {
        self.entry == Some(address)
    }
}

/// The most bytes of code that are believed to be executed without a taken branch.
/// Unrolled loops of cryptography are a few thousand instructions long.
pub const STRAIGHT: u64 = 1 << 16;

/// Why a step is not known to be possible.
enum Doubt {
    /// A record has one address only.
    Half,
    /// The code, or the type of the record, is not known.
    Unknown,
    Broken(Broken),
}

/// Checks records, newest first, that no filter has left any branch out of.
pub fn check(records: &[impl Into<PathBranch> + Copy], code: &impl Code) -> Findings {
    check_steps(records, code, |number, newer, older| {
        step(number, newer, older, code)
    })
}

/// Checks the records of a sample of all branches, newest first. perf leaves debug
/// exceptions out of a sample: prepare_event_branch_type_mask() in
/// drivers/perf/arm_brbe.c knows no type for them.
pub fn check_sample(records: &[impl Into<PathBranch> + Copy], code: &impl Code) -> Findings {
    check_steps(records, code, |number, newer, older| {
        let apart = match step(number, newer, older, code) {
            Err(Doubt::Broken(broken)) => broken,
            possible => return possible,
        };
        let trapped = by_breakpoint(number, newer, older, code);
        trapped.unwrap_or(Err(Doubt::Broken(apart)))
    })
}

fn check_steps(
    records: &[impl Into<PathBranch> + Copy],
    code: &impl Code,
    step: impl Fn(usize, &PathBranch, &PathBranch) -> Result<(), Doubt>,
) -> Findings {
    let mut findings = check_each(records, code);
    for (number, pair) in records.windows(2).enumerate() {
        if let [newer, older] = *pair {
            findings.add(step(number, &newer.into(), &older.into()));
        }
    }
    findings
}

/// Checks each record by itself, and no steps between records: for records that a filter
/// has left some branches out of.
pub fn check_each(records: &[impl Into<PathBranch> + Copy], code: &impl Code) -> Findings {
    let mut findings = Findings::default();
    for (number, record) in records.iter().enumerate() {
        findings.add(source(number, &(*record).into(), code));
    }
    findings
}

/// Whether execution can go straight on from the target of `older` to the source of
/// `newer`.
fn step(
    number: usize,
    newer: &PathBranch,
    older: &PathBranch,
    code: &impl Code,
) -> Result<(), Doubt> {
    let (start, end) = (older.to, newer.from);
    if start == 0 || end == 0 {
        return Err(Doubt::Half);
    }
    if code.pauses(start) {
        return Err(Doubt::Unknown);
    }
    // An `SVC`, `HVC` or `SMC` is executed, and lies before its record's source.
    let way = match newer.kind {
        BranchType::Syscall => end.checked_sub(start).filter(|way| *way >= 4),
        _ => end.checked_sub(start),
    };
    if way.is_none_or(|way| way > STRAIGHT || way % 4 != 0) {
        return Err(Doubt::Broken(Broken::Apart { number, start, end }));
    }
    match code.straight(start..end) {
        Straight::Known => Ok(()),
        Straight::Unknown => Err(Doubt::Unknown),
        Straight::Leaves(at) => Err(Doubt::Broken(Broken::Leaves { number, at })),
    }
}

/// Whether execution may go on from an instruction to the next one.
pub(crate) fn goes_on(word: u32) -> bool {
    matches!(
        flow(word),
        Flow::On
            | Flow::Call
            | Flow::Direct {
                kind: FlowKind::Conditional,
                ..
            }
    )
}

/// Whether execution can go straight on from the target of `older` to a `BRK`, and from
/// the vector of its exception to the source of `newer`. `None` where the source of
/// `newer` is in no such vector, or no `BRK` is found.
fn by_breakpoint(
    number: usize,
    newer: &PathBranch,
    older: &PathBranch,
    code: &impl Code,
) -> Option<Result<(), Doubt>> {
    // Vectors of synchronous exceptions, from the current Exception level and from
    // a lower one, in a table at a multiple of its size (Arm ARM, D1.3.1).
    let vector = [0x200, 0x400]
        .map(|offset| (newer.from & !0x7ff) | offset)
        .into_iter()
        .find(|vector| (*vector..vector + 0x80).contains(&newer.from))?;
    let end = older.to.saturating_add(STRAIGHT);
    let unknown_or_brk = |at: &u64| code.fetch(*at).is_none_or(is_breakpoint);
    let at = (older.to..end).step_by(4).find(unknown_or_brk)?;
    if code.fetch(at).is_none() {
        return Some(Err(Doubt::Unknown));
    }
    let brk = PathBranch {
        from: at,
        to: vector,
        kind: BranchType::Unknown,
    };
    let to_brk = step(number, &brk, older, code);
    Some(to_brk.and_then(|()| step(number, newer, &brk, code)))
}

/// What has to be at a record's source.
enum Source {
    /// A branch of this kind.
    Branch(FlowKind),
    ExceptionReturn,
    /// The instruction after `SVC`, `HVC` or `SMC`.
    BehindCall,
    /// Any instruction: it is the preferred return address of an exception.
    Any,
    /// Not known: the record's type does not say.
    Unknown,
    /// No record of A64 has this type.
    None,
}

/// What has to be at the source of a record of type `kind`: the branches that
/// drivers/perf/arm_brbe.c gives the type to, and what BRBE has in the source address of
/// those (Tables D19-4 to D19-10, R_YSKQK to R_FYLTC).
fn source_of(kind: BranchType) -> Source {
    match kind {
        BranchType::Unconditional => Source::Branch(FlowKind::Direct),
        BranchType::Call => Source::Branch(FlowKind::DirectLink),
        BranchType::Conditional => Source::Branch(FlowKind::Conditional),
        BranchType::Indirect => Source::Branch(FlowKind::Indirect),
        BranchType::IndirectCall => Source::Branch(FlowKind::IndirectLink),
        BranchType::Return => Source::Branch(FlowKind::Return),
        BranchType::ExceptionReturn => Source::ExceptionReturn,
        BranchType::Syscall => Source::BehindCall,
        BranchType::Irq | BranchType::SystemError | BranchType::Extended(_) => Source::Any,
        // The type of debug exceptions, and of all records where perf was not asked for
        // types.
        BranchType::Unknown => Source::Unknown,
        BranchType::SyscallReturn
        | BranchType::ConditionalCall
        | BranchType::ConditionalReturn
        | BranchType::NotInTransaction => Source::None,
    }
}

/// Whether there is at the record's source what its type requires.
fn source(number: usize, record: &PathBranch, code: &impl Code) -> Result<(), Doubt> {
    let at = record.from;
    if at == 0 {
        return Err(Doubt::Half);
    }
    let broken = Err(Doubt::Broken(Broken::Source { number, at }));
    let fetch = |at: u64| code.fetch(at).map(flow).ok_or(Doubt::Unknown);
    let holds = match source_of(record.kind) {
        // Every A64 instruction is at a multiple of 4.
        Source::Branch(_) | Source::ExceptionReturn if !at.is_multiple_of(4) => false,
        Source::Branch(kind) => match fetch(at)? {
            Flow::Indirect { kind: found } => kind == found,
            Flow::Direct {
                kind: found,
                offset,
            } if kind == found => return target(number, record, offset),
            _ => false,
        },
        Source::ExceptionReturn => fetch(at)? == Flow::ExceptionReturn,
        Source::BehindCall => fetch(at.wrapping_sub(4))? == Flow::Call,
        Source::Any => fetch(at).map(|_| true)?,
        Source::Unknown => return Err(Doubt::Unknown),
        Source::None => false,
    };
    if holds { Ok(()) } else { broken }
}

/// Whether a branch by `offset` bytes leads to the record's target.
fn target(number: usize, record: &PathBranch, offset: i64) -> Result<(), Doubt> {
    let (at, leads) = (record.from, record.from.wrapping_add_signed(offset));
    if record.to == 0 || record.to == leads {
        return Ok(());
    }
    Err(Doubt::Broken(Broken::Target { number, at, leads }))
}

#[cfg(test)]
mod tests;
