//! What a branch recorder may have to record, in the order of execution.

/// Something that a branch recorder may have to record, or software's access to
/// it, in the order of execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A branch that was taken.
    Branch {
        /// BRBINF.TYPE by its name.
        kind: &'static str,
        /// Address of the instruction.
        src: u64,
        /// Where it led.
        tgt: u64,
    },
    /// A conditional branch to the next instruction: whether it was taken does
    /// not show.
    Undecidable {
        /// Address of the instruction.
        src: u64,
    },
    /// An exception.
    Exception {
        /// BRBINF.TYPE by its name.
        kind: &'static str,
        /// The Exception level that it was taken from.
        from: u8,
        /// The one that it was taken to.
        to: u8,
        /// What ELR_ELx holds.
        src: u64,
        /// The vector.
        tgt: u64,
    },
    /// An exception return.
    Return {
        /// The Exception level of the ERET.
        from: u8,
        /// The one that it went to.
        to: u8,
        /// Address of the ERET.
        src: u64,
        /// Where it led.
        tgt: u64,
    },
    /// An access to a register of BRBE, or BRB IALL or BRB INJ.
    Access {
        /// Address of the instruction.
        pc: u64,
    },
    /// The log cannot be made sense of here: from one address to another without
    /// a reason.
    Lost {
        /// Address of the last block executed.
        from: u64,
        /// What was executed next.
        to: u64,
    },
}
