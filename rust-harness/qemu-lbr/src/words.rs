//! The words of each vCPU that translated code looks at before it calls back, and one
//! that it adds to.

use qemu_plugin::scoreboard::{self, Place};

/// One of the words of a vCPU.
#[derive(Clone, Copy)]
pub(crate) enum Word {
    /// Set if branches are recorded: each branch matters then.
    Recording,
    /// Set if branches are recorded, or instructions counted: instructions by which the
    /// privilege level may change matter then.
    Watching,
    /// Set if the start of the next block is of interest.
    Arriving,
    /// Set if CPUID was executed, and its result is to be completed.
    Completing,
    /// The number of instructions executed, which translated code adds to. It starts so
    /// that it is [`OVERFLOWN`] when a counter overflows.
    Executed,
}

/// The value that [`Word::Executed`] has at least when a counter has overflowed.
pub(crate) const OVERFLOWN: u64 = 1 << 63;

impl Place for Word {
    fn place(self) -> usize {
        self as usize
    }
}

/// The words of all vCPUs.
pub(crate) type Scoreboard = scoreboard::Scoreboard<5>;
