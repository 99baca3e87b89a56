//! What can be wrong with a recording.

use std::fmt;

use branch_records::path::Broken;

use super::script::BRANCHES;

/// The place of a branch: the number of its sample, from 1, and its number in the sample,
/// from 0 for the newest. These are the numbers of the line in the output of `perf script`,
/// and of the branch in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchAt {
    pub(super) sample: usize,
    pub(super) branch: usize,
}

impl fmt::Display for BranchAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sample {}, #{:02}", self.sample, self.branch)
    }
}

/// What does not hold of a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// There are too few branches or samples: the event hardly fired, or BRBE hardly
    /// recorded.
    #[error("no more than {branches} branches, {samples} samples")]
    TooFew {
        /// How many branches there are.
        branches: usize,
        /// How many samples there are.
        samples: usize,
    },
    /// A branch is of a type that the filter does not let through.
    #[error("{0}: {1} is not what was asked for")]
    Type(BranchAt, String),
    /// No branch is of one of these types, though the workload has such branches all the
    /// time.
    #[error("no branch is {0}")]
    Missing(String),
    /// A branch of this type does not lead from one place to the other, or may not be seen
    /// there.
    #[error("{0}: {1} leads from {from} to {to}", from = .2.0, to = .2.1)]
    Level(BranchAt, String, (AddressPlace, AddressPlace)),
    /// Too few samples are full: what was not asked for takes room in the buffer, or nothing
    /// stays there.
    #[error("of {samples} samples only {full} have {BRANCHES} branches")]
    NotFull {
        /// How many samples are full.
        full: usize,
        /// How many samples there are.
        samples: usize,
    },
    /// Too many samples have branches of the handler that took them. An overflow has to
    /// freeze BRBE, or BRBE has to be frozen as soon as it records again.
    #[error("{handlers} of {samples} samples end in the handler that took them")]
    NotFrozen {
        /// How many samples end in the handler.
        handlers: usize,
        /// How many samples there are.
        samples: usize,
    },
    /// A branch cannot follow the one before: a branch between them is missing, or one of
    /// them did not happen.
    #[error("{0}: {1} cannot follow {2}")]
    Gap(BranchAt, String, String),
    /// The code does not do what a sample shows.
    #[error("sample {0}: {1}")]
    Path(usize, Broken),
    /// Too many steps and sources could not be checked: most of the code has to be known.
    #[error("of {0} steps and sources {1} could not be checked")]
    Unknown(usize, usize),
    /// A branch has not as many cycles as there are instructions since the branch before.
    #[error("{0}: {1} follows {2} by {3} cycles")]
    Cycles(BranchAt, String, String, u64),
}

/// What an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressPlace {
    /// A program.
    User,
    /// The kernel.
    Kernel,
    /// An unknown place: the address was not recorded, since recording is prohibited there.
    Hidden,
    /// No place: the upper bits of the address are not all the same.
    Nowhere,
}

impl AddressPlace {
    /// The place of an address. Bit 55 decides, and those above are copies of it.
    pub(super) fn of(address: u64) -> Self {
        match address >> 55 {
            _ if address == 0 => Self::Hidden,
            0 => Self::User,
            0x1ff => Self::Kernel,
            _ => Self::Nowhere,
        }
    }
}

impl fmt::Display for AddressPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "a program",
            Self::Kernel => "the kernel",
            Self::Hidden => "where it was not recorded",
            Self::Nowhere => "nowhere",
        })
    }
}
