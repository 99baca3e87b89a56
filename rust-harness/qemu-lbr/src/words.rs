//! The words of each vCPU that translated code looks at before it calls back, and one
//! that it adds to.

use qemu_plugin::scoreboard::{self, Place};

/// Which word.
#[derive(Clone, Copy)]
pub(crate) enum Word {
    /// Branches are recorded: each matters.
    Recording,
    /// Branches are recorded, or instructions counted: where the privilege level may
    /// change matters.
    Watching,
    /// The start of the next block is of interest.
    Arriving,
    /// CPUID was executed, and its result is to be completed.
    Completing,
    /// Written by translated code: instructions executed, from a start that makes it
    /// [`OVERFLOWN`] when a counter overflows.
    Executed,
}

/// What [`Word::Executed`] is, or more, when a counter has overflown.
pub(crate) const OVERFLOWN: u64 = 1 << 63;

impl Place for Word {
    fn place(self) -> usize {
        self as usize
    }
}

/// The words of all vCPUs.
pub(crate) type Scoreboard = scoreboard::Scoreboard<5>;
