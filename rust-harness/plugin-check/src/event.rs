//! Events: what a branch recorder may have to record, in the order of execution.

/// Something that a branch recorder may have to record, or software's access to
/// it, in the order of execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A branch that was taken.
    Branch {
        /// BRBINF.TYPE by its name.
        kind: &'static str,
        /// Address of the branch.
        src: u64,
        /// Address that the branch led to.
        tgt: u64,
    },
    /// A conditional branch to the next instruction: whether it was taken does
    /// not show.
    Undecidable {
        /// Address of the branch.
        src: u64,
    },
    /// An exception that was taken.
    Exception {
        /// BRBINF.TYPE by its name.
        kind: &'static str,
        /// The Exception level that the exception was taken from.
        from: u8,
        /// The Exception level that the exception was taken to.
        to: u8,
        /// The value of ELR_ELx.
        src: u64,
        /// Address of the vector.
        tgt: u64,
    },
    /// An exception return.
    Return {
        /// The Exception level of the ERET.
        from: u8,
        /// The Exception level that the ERET went to.
        to: u8,
        /// Address of the ERET.
        src: u64,
        /// Address that the ERET led to.
        tgt: u64,
    },
    /// An access to a register of BRBE, or BRB IALL or BRB INJ.
    Access {
        /// Address of the instruction.
        pc: u64,
    },
    /// QEMU's log cannot be made sense of here: execution went from one address to another
    /// without a reason.
    Lost {
        /// Address of the last block that was executed before.
        from: u64,
        /// Address of what was executed next.
        to: u64,
    },
}
