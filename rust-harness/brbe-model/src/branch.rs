//! Branch instructions: the TYPE of their records, and the filters that select them
//! (Tables D19-4 to D19-10).

mod condition;
mod decode;

use crate::record::RecordType;

pub use condition::{Comparison, Condition, Operand};
pub use decode::{Decoded, decode};

/// Kind of a branch instruction. It follows from the opcode alone: `RET X0` is
/// a return and `BR X30` is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchKind {
    /// B.
    Direct,
    /// BR and its pointer authentication forms.
    Indirect,
    /// RET and its pointer authentication forms.
    Return,
    /// BLR and its pointer authentication forms.
    IndirectCall,
    /// BL.
    DirectCall,
    /// B.cond, BC.cond, CBZ, CBNZ, TBZ, TBNZ, CB\<cc\>.
    Conditional,
}

impl BranchKind {
    /// The BRBINF.TYPE of the record of such a branch (Table D19-1).
    #[inline]
    pub(crate) const fn record_type(self) -> RecordType {
        match self {
            Self::Direct => RecordType::Direct,
            Self::Indirect => RecordType::Indirect,
            Self::Return => RecordType::Return,
            Self::IndirectCall => RecordType::IndirectLink,
            Self::DirectCall => RecordType::DirectLink,
            Self::Conditional => RecordType::Conditional,
        }
    }

    /// The number of the bit of BRBFCR_EL1 that selects branches of this kind.
    #[inline]
    pub(crate) const fn filter_bit(self) -> u32 {
        match self {
            Self::Direct => 17,
            Self::Indirect => 18,
            Self::Return => 19,
            Self::IndirectCall => 20,
            Self::DirectCall => 21,
            Self::Conditional => 22,
        }
    }
}

#[cfg(test)]
mod tests;
