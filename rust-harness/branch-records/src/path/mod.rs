//! Whether records can be one execution.
//!
//! Between the target of a record and the source of the next newer one the CPU
//! went straight on: there is no branch that is always taken. And a source is a
//! branch of the recorded type, whose target, where the instruction encodes it, is
//! the recorded one. Records from both sides of a gap fail this sooner or later.

mod flow;

use std::fmt;

pub use flow::{Flow, Kind, flow};
use serde::Serialize;

use crate::record::{BranchType, RawRecord};

/// The code that was executed.
pub trait Code {
    /// The instruction at `address`, if it is known.
    fn fetch(&self, address: u64) -> Option<u32>;
}

/// Words of a capture, by address.
impl Code for std::collections::BTreeMap<u64, u32> {
    fn fetch(&self, address: u64) -> Option<u32> {
        self.get(&address).copied()
    }
}

/// The longest way without a taken branch that is believed, in bytes. Unrolled
/// loops of cryptography are a few thousand instructions long.
pub const STRAIGHT: u64 = crate::capture::MAX_CODE_BYTES;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Steps from one record to the next, and sources of records, that are
    /// possible.
    pub possible: usize,
    /// Those of which nothing can be said: the code is not known, or a record has
    /// one address only.
    pub undecided: usize,
    /// Those that no execution can have.
    pub broken: Vec<Broken>,
}

/// What no execution does, and between which records: 0 is the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Broken {
    /// The source is before the target of the record before it, or further
    /// behind than anyone goes without a branch.
    Apart {
        /// The newer record.
        number: usize,
        /// Where the older one leads.
        start: u64,
        /// Where the newer one starts.
        end: u64,
    },
    /// On the way there is a branch that is always taken.
    Leaves {
        /// The newer record.
        number: usize,
        /// That branch.
        at: u64,
    },
    /// The source is no branch of the recorded type.
    Source {
        /// The record.
        number: usize,
        /// Its source.
        at: u64,
    },
    /// The instruction branches to another address.
    Target {
        /// The record.
        number: usize,
        /// Its source.
        at: u64,
        /// Where the instruction leads.
        leads: u64,
    },
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apart { number, start, end } => write!(
                f,
                "record {} leads to {start:#x}, but record {number} starts at {end:#x}",
                number + 1
            ),
            Self::Leaves { number, at } => write!(
                f,
                "on the way from record {} to {number} there is a branch at {at:#x}",
                number + 1
            ),
            Self::Source { number, at } => write!(
                f,
                "record {number} starts at {at:#x}, which is no branch of its type"
            ),
            Self::Target { number, at, leads } => write!(
                f,
                "record {number} starts at {at:#x}, which branches to {leads:#x}"
            ),
        }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (possible, undecided) = (self.possible, self.undecided);
        match self.broken.first() {
            None => write!(f, "{possible} steps possible, {undecided} undecided"),
            Some(first) => write!(
                f,
                "{} steps impossible, {possible} possible, {undecided} undecided: {first}",
                self.broken.len()
            ),
        }
    }
}

impl Findings {
    fn add(&mut self, outcome: Result<(), Doubt>) {
        match outcome {
            Ok(()) => self.possible += 1,
            Err(Doubt::Undecided) => self.undecided += 1,
            Err(Doubt::Broken(broken)) => self.broken.push(broken),
        }
    }
}

/// Why a step is not known to be possible.
enum Doubt {
    Undecided,
    Broken(Broken),
}

/// Checks records that nothing was filtered from, the newest first.
pub fn check(records: &[RawRecord], code: &impl Code) -> Findings {
    let mut findings = Findings::default();
    for (number, record) in records.iter().enumerate() {
        findings.add(source(number, record, code));
        if let Some(older) = records.get(number + 1) {
            findings.add(step(number, record, older, code));
        }
    }
    findings
}

/// From where `older` leads to where `newer` starts.
fn step(
    number: usize,
    newer: &RawRecord,
    older: &RawRecord,
    code: &impl Code,
) -> Result<(), Doubt> {
    let (start, end) = (older.to, newer.from);
    if start == 0 || end == 0 {
        return Err(Doubt::Undecided);
    }
    if end < start || end - start > STRAIGHT || (end - start) % 4 != 0 {
        return Err(Doubt::Broken(Broken::Apart { number, start, end }));
    }
    for at in (start..end).step_by(4) {
        match flow(code.fetch(at).ok_or(Doubt::Undecided)?) {
            Flow::On
            | Flow::Direct {
                kind: Kind::Conditional,
                ..
            } => {}
            _ => return Err(Doubt::Broken(Broken::Leaves { number, at })),
        }
    }
    Ok(())
}

/// Whether there is a branch of the record's type where it starts.
fn source(number: usize, record: &RawRecord, code: &impl Code) -> Result<(), Doubt> {
    let (at, to) = (record.from, record.to);
    let kind = match record.decode().kind {
        // The types that drivers/perf/arm_brbe.c gives to them.
        BranchType::Unconditional => Some(Kind::Direct),
        BranchType::Call => Some(Kind::DirectLink),
        BranchType::Conditional => Some(Kind::Conditional),
        BranchType::Indirect => Some(Kind::Indirect),
        BranchType::IndirectCall => Some(Kind::IndirectLink),
        BranchType::Return => Some(Kind::Return),
        BranchType::ExceptionReturn => None,
        // An exception may come anywhere.
        _ => return Ok(()),
    };
    if at == 0 {
        return Err(Doubt::Undecided);
    }
    let found = flow(code.fetch(at).ok_or(Doubt::Undecided)?);
    match (kind, found) {
        (None, Flow::ExceptionReturn) => Ok(()),
        (Some(kind), Flow::Indirect { kind: found }) if kind == found => Ok(()),
        (
            Some(kind),
            Flow::Direct {
                kind: found,
                offset,
            },
        ) if kind == found => {
            let leads = at.wrapping_add_signed(offset);
            match to == 0 || to == leads {
                true => Ok(()),
                false => Err(Doubt::Broken(Broken::Target { number, at, leads })),
            }
        }
        _ => Err(Doubt::Broken(Broken::Source { number, at })),
    }
}

#[cfg(test)]
mod tests;
