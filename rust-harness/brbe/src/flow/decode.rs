//! What an instruction does to the control flow.

use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Opcode, Operand};

/// An instruction, as far as control flow goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Goes on behind it, or takes an exception.
    On,
    /// A branch to its own address and `offset` bytes.
    Direct {
        /// BRBINF.TYPE by its name.
        kind: &'static str,
        /// It may also not be taken.
        conditional: bool,
        /// Bytes from the instruction to its target.
        offset: i64,
    },
    /// A branch to where a register says.
    Indirect {
        /// BRBINF.TYPE by its name.
        kind: &'static str,
    },
    /// ERET and its pointer authentication forms.
    ExceptionReturn,
}

/// What the A64 instruction `word` does.
pub fn flow(word: u32) -> Flow {
    let bytes = word.to_le_bytes();
    let mut reader = U8Reader::new(&bytes);
    let Ok(instruction) = InstDecoder::default().decode(&mut reader) else {
        return Flow::On;
    };
    let direct = |kind, conditional| match offset(&instruction) {
        Some(offset) => Flow::Direct {
            kind,
            conditional,
            offset,
        },
        None => Flow::On,
    };
    match instruction.opcode {
        Opcode::B => direct("DIRECT", false),
        Opcode::BL => direct("DIRECT_LINK", false),
        Opcode::Bcc(_) | Opcode::CBZ | Opcode::CBNZ | Opcode::TBZ | Opcode::TBNZ => {
            direct("COND_DIRECT", true)
        }
        Opcode::BR | Opcode::BRAA | Opcode::BRAAZ | Opcode::BRAB | Opcode::BRABZ => {
            Flow::Indirect { kind: "INDIRECT" }
        }
        Opcode::BLR | Opcode::BLRAA | Opcode::BLRAAZ | Opcode::BLRAB | Opcode::BLRABZ => {
            Flow::Indirect {
                kind: "INDIRECT_LINK",
            }
        }
        Opcode::RET | Opcode::RETAA | Opcode::RETAB => Flow::Indirect { kind: "RET" },
        Opcode::ERET | Opcode::ERETAA | Opcode::ERETAB => Flow::ExceptionReturn,
        _ => Flow::On,
    }
}

fn offset(instruction: &Instruction) -> Option<i64> {
    instruction
        .operands
        .iter()
        .find_map(|operand| match operand {
            Operand::PCOffset(offset) => Some(*offset),
            _ => None,
        })
}

/// What the plugin executes in QEMU's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulated {
    /// An access to BRBE: registers S2_1_C8_Cm_n, S2_\<n\>_C9_Cm_n and the
    /// instructions `SYS #1, C7, C2, #4` and `#5`.
    Brbe,
    /// `MRS Xt, ID_AA64DFR0_EL1`.
    Id,
}

/// Is `word` executed by the plugin?
pub const fn emulated(word: u32) -> Option<Emulated> {
    // The register or instruction, without the direction and Rt.
    match (word >> 5) & 0x1_ffff {
        // 1101 0101 00L1 0 op1 CRn CRm op2: op0 is 2.
        name if word >> 22 == 0x354 && (name >> 14) & 3 == 2 => {
            let (op1, crn, crm) = ((name >> 11) & 7, (name >> 7) & 15, (name >> 3) & 15);
            match (op1, crn, crm) {
                (1, 8, _) if name & 3 != 3 => Some(Emulated::Brbe),
                (1, 9, 0..=1) if name & 7 <= 2 => Some(Emulated::Brbe),
                (1, 9, 2) | (4 | 5, 9, 0) if name & 7 == 0 => Some(Emulated::Brbe),
                _ => None,
            }
        }
        _ if word == 0xd509_729f || word == 0xd509_72bf => Some(Emulated::Brbe),
        _ if word & 0xffff_ffe0 == 0xd538_0500 => Some(Emulated::Id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches() {
        let direct = |kind, conditional, offset| Flow::Direct {
            kind,
            conditional,
            offset,
        };
        let indirect = |kind| Flow::Indirect { kind };
        for (word, expected) in [
            (0x1400_0001, direct("DIRECT", false, 4)),
            (0x97ff_ffff, direct("DIRECT_LINK", false, -4)),
            (0x5400_0041, direct("COND_DIRECT", true, 8)),
            (0xb5ff_ffc3, direct("COND_DIRECT", true, -8)),
            (0x3618_0083, direct("COND_DIRECT", true, 16)), // tbz w3, #3
            (0xd61f_0120, indirect("INDIRECT")),
            (0xd71f_0920, indirect("INDIRECT")), // braa x9, x0
            (0xd63f_0120, indirect("INDIRECT_LINK")),
            (0xd63f_093f, indirect("INDIRECT_LINK")), // blraaz x9
            (0xd65f_03c0, indirect("RET")),
            (0xd65f_0bff, indirect("RET")), // retaa
            (0xd69f_03e0, Flow::ExceptionReturn),
            (0xd69f_0bff, Flow::ExceptionReturn), // eretaa
            (0xd503_201f, Flow::On),
            (0xd400_0001, Flow::On), // svc #0
        ] {
            assert_eq!(flow(word), expected, "{word:#010x}");
        }
    }

    #[test]
    fn what_the_plugin_executes() {
        for (word, expected) in [
            (0xd531_9000, Some(Emulated::Brbe)), // mrs x0, brbcr_el1
            (0xd511_9021, Some(Emulated::Brbe)), // msr brbfcr_el1, x1
            (0xd514_9001, Some(Emulated::Brbe)), // msr brbcr_el2, x1
            (0xd515_9001, Some(Emulated::Brbe)), // msr brbcr_el12, x1
            (0xd531_8f80, Some(Emulated::Brbe)), // mrs x0, brbinf31_el1
            (0xd531_8060, None),                 // no such register
            (0xd531_9200, Some(Emulated::Brbe)), // mrs x0, brbidr0_el1
            (0xd509_729f, Some(Emulated::Brbe)), // brb iall
            (0xd509_72bf, Some(Emulated::Brbe)), // brb inj
            (0xd538_0503, Some(Emulated::Id)),   // mrs x3, id_aa64dfr0_el1
            (0xd538_0520, None),                 // mrs x0, id_aa64dfr1_el1
            (0xd530_0240, None),                 // mrs x0, mdscr_el1
        ] {
            assert_eq!(emulated(word), expected, "{word:#010x}");
        }
    }
}
