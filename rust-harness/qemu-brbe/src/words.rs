//! The words of each vCPU that translated code looks at before it calls back, and one
//! that it writes: while nothing is recorded, the plugin costs a comparison a block.

use qemu_plugin::scoreboard::{self, Place};

/// One of the words of a vCPU.
#[derive(Clone, Copy)]
pub(crate) enum Word {
    /// Set if what the vCPU executes next is of interest: it records where it is now, or
    /// an exception return or a change of its state is to be completed, or it was idle.
    Following,
    /// Set if the vCPU may record at some Exception level: registers that say where it
    /// records matter then.
    Active,
    /// Set by translated code when the block's last instruction was reached.
    Reached,
    /// Set while a watched call has not returned.
    Called,
}

impl Place for Word {
    fn place(self) -> usize {
        self as usize
    }
}

/// The words of all vCPUs.
pub(crate) type Scoreboard = scoreboard::Scoreboard<4>;
