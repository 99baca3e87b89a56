//! How long the instructions of a machine are, and where they begin.

use std::ops::RangeInclusive;

/// The instructions of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    /// Those of arm64.
    A64,
    /// Those of x86-64.
    X86,
}

impl InstructionSet {
    /// The instructions of the machine that `uname -m` calls `machine`; `None` for a machine that
    /// this crate does not know.
    pub fn of(machine: &str) -> Option<Self> {
        match machine {
            "aarch64" => Some(Self::A64),
            "x86_64" => Some(Self::X86),
            _ => None,
        }
    }

    /// How many bytes an instruction has: from the shortest to the longest. Addresses of
    /// instructions are multiples of the least number.
    pub const fn lengths(self) -> RangeInclusive<u64> {
        match self {
            Self::A64 => 4..=4,
            Self::X86 => 1..=15,
        }
    }
}
