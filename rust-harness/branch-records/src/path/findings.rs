//! The result of a check of records, as values, words and JSON.

use std::fmt;

use serde::Serialize;

use super::Doubt;

/// The result of a check of records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// The number of steps from one record to the next, and of sources of records, that
    /// are possible.
    pub possible: usize,
    /// The number of steps and sources of which nothing can be said: the code or the type
    /// is not known, or a record has one address only.
    pub undecided: usize,
    /// The number of steps and sources that are undecided because the code or the type is
    /// not known. Where all code and types are known, it is 0.
    pub unknown: usize,
    /// The steps and sources that no execution can have.
    pub broken: Vec<Broken>,
}

/// Something that no execution does, with the numbers of the records that show it. Record
/// 0 is the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Broken {
    /// The source of the newer record is before the target of the older one, or further
    /// after it than any execution goes without a branch.
    Apart {
        /// The number of the newer record.
        number: usize,
        /// The target of the older record.
        start: u64,
        /// The source of the newer record.
        end: u64,
    },
    /// Between the target of the older record and the source of the newer one there is a
    /// branch that is always taken.
    Leaves {
        /// The number of the newer record.
        number: usize,
        /// The address of the branch that is always taken.
        at: u64,
    },
    /// The instruction at the record's source is no branch of the recorded type.
    Source {
        /// The number of the record.
        number: usize,
        /// The record's source.
        at: u64,
    },
    /// The instruction at the record's source branches to another address than the
    /// record's target.
    Target {
        /// The number of the record.
        number: usize,
        /// The record's source.
        at: u64,
        /// The address that the instruction branches to.
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
    /// Whether the records are a path: something was decided, nothing is impossible, and
    /// no code or type was unknown. Half records alone leave no doubt.
    pub fn is_path(&self) -> bool {
        self.broken.is_empty() && self.possible > 0 && self.unknown == 0
    }

    pub(super) fn add(&mut self, outcome: Result<(), Doubt>) {
        match outcome {
            Ok(()) => self.possible += 1,
            Err(Doubt::Half) => self.undecided += 1,
            Err(Doubt::Unknown) => {
                self.undecided += 1;
                self.unknown += 1;
            }
            Err(Doubt::Broken(broken)) => self.broken.push(broken),
        }
    }
}
