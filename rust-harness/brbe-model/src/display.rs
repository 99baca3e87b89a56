//! Names as people write them, for logs and messages.

use core::fmt;

use crate::cycles::CycleCount;
use crate::record::{BrbeRecord, Valid};
use crate::sysreg::{Instruction, Register};

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Inf(n) => return write!(f, "BRBINF{n}_EL1"),
            Self::Src(n) => return write!(f, "BRBSRC{n}_EL1"),
            Self::Tgt(n) => return write!(f, "BRBTGT{n}_EL1"),
            Self::CrEl1 => "BRBCR_EL1",
            Self::CrEl2 => "BRBCR_EL2",
            Self::CrEl12 => "BRBCR_EL12",
            Self::Fcr => "BRBFCR_EL1",
            Self::Ts => "BRBTS_EL1",
            Self::InfInj => "BRBINFINJ_EL1",
            Self::SrcInj => "BRBSRCINJ_EL1",
            Self::TgtInj => "BRBTGTINJ_EL1",
            Self::Idr0 => "BRBIDR0_EL1",
        };
        f.write_str(name)
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Iall => "BRB IALL",
            Self::Inj => "BRB INJ",
        })
    }
}

/// `COND_DIRECT EL1 0x4000 -> 0x4010 cc=3`. An address that the record does not
/// have is `-`, an unknown cycle count `?`.
impl fmt::Display for BrbeRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match type_name(self.type_bits()) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "{:#04x}", self.type_bits())?,
        }
        let (has_source, has_target) = match self.valid() {
            Valid::None => (false, false),
            Valid::Target => (false, true),
            Valid::Source => (true, false),
            Valid::Full => (true, true),
        };
        // A source-only record has no Exception level.
        if has_target {
            write!(f, " EL{} ", self.inf >> 6 & 3)?;
        } else {
            f.write_str(" - ")?;
        }
        if has_source {
            write!(f, "{:#x} -> ", self.src)?;
        } else {
            f.write_str("- -> ")?;
        }
        if has_target {
            write!(f, "{:#x}", self.tgt)?;
        } else {
            f.write_str("-")?;
        }
        match self.cycle_count().map(CycleCount::decode) {
            None => f.write_str(" cc=?"),
            Some(None) => f.write_str(" cc=exceeded"),
            Some(Some(cycles)) => write!(f, " cc={cycles}"),
        }
    }
}

/// Names of BRBINF.TYPE (Tables D19-1 and D19-2).
const fn type_name(bits: u8) -> Option<&'static str> {
    Some(match bits {
        0b000000 => "DIRECT",
        0b000001 => "INDIRECT",
        0b000010 => "DIRECT_LINK",
        0b000011 => "INDIRECT_LINK",
        0b000101 => "RET",
        0b000111 => "ERET",
        0b001000 => "COND_DIRECT",
        0b100001 => "DEBUG_HALT",
        0b100010 => "CALL",
        0b100011 => "TRAP",
        0b100100 => "SERROR",
        0b100110 => "INST_DEBUG",
        0b100111 => "DATA_DEBUG",
        0b101010 => "ALIGNMENT",
        0b101011 => "INST_FAULT",
        0b101100 => "DATA_FAULT",
        0b101110 => "IRQ",
        0b101111 => "FIQ",
        0b110000 => "IMPDEF_EL3",
        0b111001 => "DEBUG_EXIT",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString as _;

    use super::*;

    #[test]
    fn records() {
        let record = |inf| BrbeRecord {
            inf,
            src: 0x4000,
            tgt: 0x8000,
        };
        for (inf, text) in [
            (
                3 << 32 | 8 << 8 | 1 << 6 | 3,
                "COND_DIRECT EL1 0x4000 -> 0x8000 cc=3",
            ),
            (0x105 << 32 | 5 << 8 | 3, "RET EL0 0x4000 -> 0x8000 cc=261"),
            (0x3fff << 32 | 3, "DIRECT EL0 0x4000 -> 0x8000 cc=exceeded"),
            (1 << 46 | 0x22 << 8 | 2, "CALL - 0x4000 -> - cc=?"),
            (1 << 46 | 7 << 8 | 1, "ERET EL0 - -> 0x8000 cc=?"),
            (1 << 46 | 0x3f << 8 | 3, "0x3f EL0 0x4000 -> 0x8000 cc=?"),
        ] {
            assert_eq!(record(inf).to_string(), text);
        }
    }

    /// Tables D19-1 and D19-2, and every other type.
    #[test]
    fn each_type_has_its_name() {
        let known = [
            (0x00, "DIRECT"),
            (0x01, "INDIRECT"),
            (0x02, "DIRECT_LINK"),
            (0x03, "INDIRECT_LINK"),
            (0x05, "RET"),
            (0x07, "ERET"),
            (0x08, "COND_DIRECT"),
            (0x21, "DEBUG_HALT"),
            (0x22, "CALL"),
            (0x23, "TRAP"),
            (0x24, "SERROR"),
            (0x26, "INST_DEBUG"),
            (0x27, "DATA_DEBUG"),
            (0x2a, "ALIGNMENT"),
            (0x2b, "INST_FAULT"),
            (0x2c, "DATA_FAULT"),
            (0x2e, "IRQ"),
            (0x2f, "FIQ"),
            (0x30, "IMPDEF_EL3"),
            (0x39, "DEBUG_EXIT"),
        ];
        for bits in 0..64 {
            let found = known.iter().find(|(known, _)| *known == bits);
            assert_eq!(type_name(bits), found.map(|(_, name)| *name), "{bits:#x}");
        }
    }

    #[test]
    fn names() {
        assert_eq!(Register::Inf(31).to_string(), "BRBINF31_EL1");
        assert_eq!(Register::CrEl12.to_string(), "BRBCR_EL12");
        assert_eq!(Instruction::Iall.to_string(), "BRB IALL");
    }
}
