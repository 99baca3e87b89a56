//! The names of registers and instructions, and their encodings (D24.8, C5.7).

/// A name in an `MRS` or `MSR` instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// BRBINF\<n\>_EL1.
    Inf(u8),
    /// BRBSRC\<n\>_EL1.
    Src(u8),
    /// BRBTGT\<n\>_EL1.
    Tgt(u8),
    /// BRBCR_EL1.
    CrEl1,
    /// BRBCR_EL2.
    CrEl2,
    /// BRBCR_EL12 (FEAT_VHE).
    CrEl12,
    /// BRBFCR_EL1.
    Fcr,
    /// BRBTS_EL1.
    Ts,
    /// BRBINFINJ_EL1.
    InfInj,
    /// BRBSRCINJ_EL1.
    SrcInj,
    /// BRBTGTINJ_EL1.
    TgtInj,
    /// BRBIDR0_EL1.
    Idr0,
}

impl Register {
    /// The register with this encoding, `None` where it is not BRBE's.
    pub const fn decode(op0: u8, op1: u8, crn: u8, crm: u8, op2: u8) -> Option<Self> {
        let register = match (op0, op1, crn, crm, op2) {
            (2, 1, 8, 0..=15, 0..=7) => {
                // The number is CRm with op2[2] above it.
                let n = crm | (op2 & 4) << 2;
                match op2 & 3 {
                    0 => Self::Inf(n),
                    1 => Self::Src(n),
                    2 => Self::Tgt(n),
                    _ => return None,
                }
            }
            (2, 1, 9, 0, 0) => Self::CrEl1,
            (2, 4, 9, 0, 0) => Self::CrEl2,
            (2, 5, 9, 0, 0) => Self::CrEl12,
            (2, 1, 9, 0, 1) => Self::Fcr,
            (2, 1, 9, 0, 2) => Self::Ts,
            (2, 1, 9, 1, 0) => Self::InfInj,
            (2, 1, 9, 1, 1) => Self::SrcInj,
            (2, 1, 9, 1, 2) => Self::TgtInj,
            (2, 1, 9, 2, 0) => Self::Idr0,
            _ => return None,
        };
        Some(register)
    }

    /// The bit of HDFGRTR_EL2 and HDFGWTR_EL2 that traps accesses at EL1 while
    /// it is 0: nBRBDATA, nBRBCTL or nBRBIDR.
    pub(super) const fn fine_grained_bit(self) -> u32 {
        match self {
            Self::CrEl1 | Self::CrEl2 | Self::CrEl12 | Self::Fcr => 60,
            Self::Idr0 => 59,
            _ => 61,
        }
    }
}

/// A `BRB` instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// BRB IALL: invalidate all records.
    Iall,
    /// BRB INJ: inject a record.
    Inj,
}

impl Instruction {
    /// The instruction with this encoding, `None` where it is not BRBE's.
    pub const fn decode(op0: u8, op1: u8, crn: u8, crm: u8, op2: u8) -> Option<Self> {
        match (op0, op1, crn, crm, op2) {
            (1, 1, 7, 2, 4) => Some(Self::Iall),
            (1, 1, 7, 2, 5) => Some(Self::Inj),
            _ => None,
        }
    }
}
