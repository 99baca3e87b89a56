//! Branches, as the records describe them.

/// The kinds of branches that are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    /// Jcc, LOOP, JRCXZ.
    Conditional,
    /// A near jump to an address in a register or in memory.
    IndirectJump,
    /// A near jump to an address in the instruction.
    DirectJump,
    /// A near call of an address in a register or in memory.
    IndirectCall,
    /// A near call of an address in the instruction.
    DirectCall,
    /// A near return.
    Return,
    /// A far branch, SYSCALL, SYSRET, IRET, an interrupt or an exception.
    Other,
}

impl TransferKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Conditional,
        Self::IndirectJump,
        Self::DirectJump,
        Self::IndirectCall,
        Self::DirectCall,
        Self::Return,
        Self::Other,
    ];

    /// The kind as `BR_TYPE`, bits 59:56 of `IA32_LBR_x_INFO` (SDM, "IA32_LBR_x_INFO").
    pub(crate) fn in_record(self) -> u64 {
        match self {
            Self::Conditional => 0,
            Self::IndirectJump => 1,
            Self::DirectJump => 2,
            Self::IndirectCall => 3,
            Self::DirectCall => 4,
            Self::Return => 5,
            Self::Other => 8,
        }
    }

    /// The number of the bit of `IA32_LBR_CTL` that selects branches of this kind (SDM,
    /// "Branch Type Filtering").
    pub(crate) fn filter(self) -> u32 {
        match self {
            Self::Conditional => 16,
            Self::DirectJump => 17,
            Self::IndirectJump => 18,
            Self::DirectCall => 19,
            Self::IndirectCall => 20,
            Self::Return => 21,
            Self::Other => 22,
        }
    }
}

/// The current privilege level, as far as LBRs and counters distinguish levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cpl {
    /// CPL 0.
    #[default]
    Kernel,
    /// Any other CPL.
    User,
}

/// An address at a privilege level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodePlace {
    /// The linear address of an instruction.
    pub ip: u64,
    /// The privilege level that the instruction executes at.
    pub cpl: Cpl,
}

/// A branch that was taken, or an event that led elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenBranch {
    /// The kind of the branch.
    pub kind: TransferKind,
    /// The instruction that branches, or that the event came at.
    pub from: CodePlace,
    /// The instruction that is executed next.
    pub to: CodePlace,
    /// Whether the branch leads to the instruction after it. This matters for calls only.
    pub to_next: bool,
}
