//! Whether records can be one execution, of A64 code.
//!
//! Between the target of a record and the source of the next newer one the CPU
//! went straight on: there is no branch that is always taken. And a source is a
//! branch of the recorded type, whose target, where the instruction encodes it, is
//! the recorded one. Records from both sides of a gap fail this sooner or later.

mod findings;
mod flow;

pub use findings::{Broken, Findings};
pub use flow::{Flow, Kind, flow, is_breakpoint};

use crate::record::{BranchType, RawRecord};

/// What a check needs to know of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Its source, 0 where that was kept back.
    pub from: u64,
    /// Its target, 0 where that was kept back.
    pub to: u64,
    /// What sort of branch.
    pub kind: BranchType,
}

impl From<RawRecord> for Branch {
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
}

/// The longest way without a taken branch that is believed, in bytes. Unrolled
/// loops of cryptography are a few thousand instructions long.
pub const STRAIGHT: u64 = 1 << 16;

/// Why a step is not known to be possible.
enum Doubt {
    /// A record has one address only.
    Half,
    /// The code is not known.
    Unknown,
    Broken(Broken),
}

/// Checks records that nothing was filtered from, the newest first.
pub fn check(records: &[impl Into<Branch> + Copy], code: &impl Code) -> Findings {
    check_steps(records, code, |number, newer, older| {
        step(number, newer, older, code)
    })
}

/// Checks the records of a sample of all branches, the newest first. perf leaves
/// debug exceptions out: prepare_event_branch_type_mask() in
/// drivers/perf/arm_brbe.c knows no type for them.
pub fn check_sample(records: &[impl Into<Branch> + Copy], code: &impl Code) -> Findings {
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
    records: &[impl Into<Branch> + Copy],
    code: &impl Code,
    step: impl Fn(usize, &Branch, &Branch) -> Result<(), Doubt>,
) -> Findings {
    let mut findings = check_each(records, code);
    for (number, pair) in records.windows(2).enumerate() {
        if let [newer, older] = *pair {
            findings.add(step(number, &newer.into(), &older.into()));
        }
    }
    findings
}

/// Checks each record by itself, where a filter has left some out.
pub fn check_each(records: &[impl Into<Branch> + Copy], code: &impl Code) -> Findings {
    let mut findings = Findings::default();
    for (number, record) in records.iter().enumerate() {
        findings.add(source(number, &(*record).into(), code));
    }
    findings
}

/// From where `older` leads to where `newer` starts.
fn step(number: usize, newer: &Branch, older: &Branch, code: &impl Code) -> Result<(), Doubt> {
    let (start, end) = (older.to, newer.from);
    if start == 0 || end == 0 {
        return Err(Doubt::Half);
    }
    // A call of the system is executed, and lies before its record's source.
    let way = match newer.kind {
        BranchType::Syscall => end.checked_sub(start).filter(|way| *way >= 4),
        _ => end.checked_sub(start),
    };
    if way.is_none_or(|way| way > STRAIGHT || way % 4 != 0) {
        return Err(Doubt::Broken(Broken::Apart { number, start, end }));
    }
    let mut known = Ok(());
    for at in (start..end).step_by(4) {
        match code.fetch(at).map(flow) {
            // What comes behind it may still be known to be a branch.
            None => known = Err(Doubt::Unknown),
            Some(
                Flow::On
                | Flow::Call
                | Flow::Direct {
                    kind: Kind::Conditional,
                    ..
                },
            ) => {}
            Some(_) => return Err(Doubt::Broken(Broken::Leaves { number, at })),
        }
    }
    known
}

/// From where `older` leads to a `BRK`, and from the vector that this leads to, to
/// where `newer` starts; `None` where that is no part of a vector.
fn by_breakpoint(
    number: usize,
    newer: &Branch,
    older: &Branch,
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
    let brk = Branch {
        from: at,
        to: vector,
        kind: BranchType::Unknown,
    };
    let to_brk = step(number, &brk, older, code);
    Some(to_brk.and_then(|()| step(number, newer, &brk, code)))
}

/// What a record's source is.
enum Source {
    /// A branch of this kind.
    Branch(Kind),
    ExceptionReturn,
    /// The instruction behind `SVC`, `HVC` or `SMC`.
    BehindCall,
    /// Any instruction: it is the preferred return address of an exception.
    Any,
    /// Not known.
    Unknown,
    /// No record of A64 has this type.
    None,
}

/// What drivers/perf/arm_brbe.c gives each type to, and what BRBE has in the
/// source address of that (Tables D19-4 to D19-10, R_YSKQK to R_FYLTC).
fn source_of(kind: BranchType) -> Source {
    match kind {
        BranchType::Unconditional => Source::Branch(Kind::Direct),
        BranchType::Call => Source::Branch(Kind::DirectLink),
        BranchType::Conditional => Source::Branch(Kind::Conditional),
        BranchType::Indirect => Source::Branch(Kind::Indirect),
        BranchType::IndirectCall => Source::Branch(Kind::IndirectLink),
        BranchType::Return => Source::Branch(Kind::Return),
        BranchType::ExceptionReturn => Source::ExceptionReturn,
        BranchType::Syscall => Source::BehindCall,
        BranchType::Irq | BranchType::SystemError | BranchType::Extended(_) => Source::Any,
        // Debug exceptions; and all, where perf was not asked for types.
        BranchType::Unknown => Source::Unknown,
        BranchType::SyscallReturn
        | BranchType::ConditionalCall
        | BranchType::ConditionalReturn
        | BranchType::NotInTransaction => Source::None,
    }
}

/// Whether there is what the record's type says where it starts.
fn source(number: usize, record: &Branch, code: &impl Code) -> Result<(), Doubt> {
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

/// Whether a branch by `offset` leads where the record says.
fn target(number: usize, record: &Branch, offset: i64) -> Result<(), Doubt> {
    let (at, leads) = (record.from, record.from.wrapping_add_signed(offset));
    if record.to == 0 || record.to == leads {
        return Ok(());
    }
    Err(Doubt::Broken(Broken::Target { number, at, leads }))
}

#[cfg(test)]
mod tests;
