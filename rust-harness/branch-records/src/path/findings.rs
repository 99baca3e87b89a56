//! What a check of records found, as values, words and JSON.

use std::fmt;

use serde::Serialize;

use super::Doubt;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Steps from one record to the next, and sources of records, that are
    /// possible.
    pub possible: usize,
    /// Those of which nothing can be said: the code or the type is not known, or
    /// a record has one address only.
    pub undecided: usize,
    /// How many of those are undecided because the code or the type is not known:
    /// with all of the code there is none.
    pub unknown: usize,
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
    /// Whether something was decided, nothing is impossible and no code was missing:
    /// half records alone leave no doubt.
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
