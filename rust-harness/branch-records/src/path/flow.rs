//! What an A64 instruction does to the control flow.

use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Opcode, Operand};

/// The type of a branch, as `BRBINF<n>_EL1.TYPE` distinguishes them (Arm ARM,
/// "`BRBINF<n>_EL1`").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowKind {
    /// `B`.
    Direct,
    /// `BL`.
    DirectLink,
    /// `B.cond`, `CBZ`, `TBZ` and the like.
    Conditional,
    /// `BR` and its pointer authentication forms.
    Indirect,
    /// `BLR` and its pointer authentication forms.
    IndirectLink,
    /// `RET` and its pointer authentication forms.
    Return,
}

impl FlowKind {
    /// The name that the architecture's documents give to this value of TYPE.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "DIRECT",
            Self::DirectLink => "DIRECT_LINK",
            Self::Conditional => "COND_DIRECT",
            Self::Indirect => "INDIRECT",
            Self::IndirectLink => "INDIRECT_LINK",
            Self::Return => "RET",
        }
    }
}

/// What an instruction does to the control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Execution goes on at the next instruction, or an exception is taken that returns
    /// to this instruction.
    On,
    /// A branch to the instruction's own address plus `offset`. A conditional branch may
    /// also not be taken.
    Direct {
        /// The type of the branch.
        kind: FlowKind,
        /// The distance from the instruction to its target, in bytes.
        offset: i64,
    },
    /// A branch to the address in a register.
    Indirect {
        /// The type of the branch.
        kind: FlowKind,
    },
    /// `ERET` and its pointer authentication forms.
    ExceptionReturn,
    /// `SVC`, `HVC` or `SMC`: an exception that returns to the next instruction.
    Call,
}

/// Whether the A64 instruction `word` is `BRK`.
pub fn is_breakpoint(word: u32) -> bool {
    word & 0xffe0_001f == 0xd420_0000
}

/// What the A64 instruction `word` does to the control flow.
pub fn flow(word: u32) -> Flow {
    newer(word).unwrap_or_else(|| decoded(word))
}

/// The branches that `yaxpeax-arm` does not know (Arm ARM, C4.1, "Branches,
/// Exception Generating and System instructions").
fn newer(word: u32) -> Option<Flow> {
    // A conditional branch whose offset is a signed number of words, in the `bits` bits
    // above bit 4.
    let conditional = |bits: u32| Flow::Direct {
        kind: FlowKind::Conditional,
        offset: i64::from(((word << (27 - bits)) as i32) >> (32 - bits)) * 4,
    };
    let is = |mask, value| word & mask == value;
    if is(0xff00_0010, 0x5400_0010) {
        // BC.cond, FEAT_HBC.
        Some(conditional(19))
    } else if is(0x7e00_0000, 0x7400_0000) {
        // CB<cc>, FEAT_CMPBR.
        Some(conditional(9))
    } else if is(0xffc0_001f, 0x5500_001f) || is(0xffff_fbe0, 0xd65f_0be0) {
        // RETAASPPC and RETABSPPC, FEAT_PAuth_LR, and their forms with a register; the
        // form with register 31 is RETAA and RETAB.
        Some(Flow::Indirect {
            kind: FlowKind::Return,
        })
    } else {
        None
    }
}

fn decoded(word: u32) -> Flow {
    let bytes = word.to_le_bytes();
    let mut reader = U8Reader::new(&bytes);
    let Ok(instruction) = InstDecoder::default().decode(&mut reader) else {
        return Flow::On;
    };
    let direct = |kind| match offset(&instruction) {
        Some(offset) => Flow::Direct { kind, offset },
        None => Flow::On,
    };
    let indirect = |kind| Flow::Indirect { kind };
    match instruction.opcode {
        Opcode::B => direct(FlowKind::Direct),
        Opcode::BL => direct(FlowKind::DirectLink),
        Opcode::Bcc(_) | Opcode::CBZ | Opcode::CBNZ | Opcode::TBZ | Opcode::TBNZ => {
            direct(FlowKind::Conditional)
        }
        Opcode::BR | Opcode::BRAA | Opcode::BRAAZ | Opcode::BRAB | Opcode::BRABZ => {
            indirect(FlowKind::Indirect)
        }
        Opcode::BLR | Opcode::BLRAA | Opcode::BLRAAZ | Opcode::BLRAB | Opcode::BLRABZ => {
            indirect(FlowKind::IndirectLink)
        }
        Opcode::RET | Opcode::RETAA | Opcode::RETAB => indirect(FlowKind::Return),
        Opcode::ERET | Opcode::ERETAA | Opcode::ERETAB => Flow::ExceptionReturn,
        Opcode::SVC | Opcode::HVC | Opcode::SMC => Flow::Call,
        _ => Flow::On,
    }
}

fn offset(instruction: &Instruction) -> Option<i64> {
    let mut operands = instruction.operands.iter();
    operands.find_map(|operand| match operand {
        Operand::PCOffset(offset) => Some(*offset),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches() {
        let direct = |kind, offset| Flow::Direct { kind, offset };
        let indirect = |kind| Flow::Indirect { kind };
        // Words from `llvm-mc -mattr=+all`.
        for (word, expected) in [
            (0x1400_0001, direct(FlowKind::Direct, 4)),
            (0x17ff_ffff, direct(FlowKind::Direct, -4)),
            (0x97ff_ffff, direct(FlowKind::DirectLink, -4)),
            (0x5400_0041, direct(FlowKind::Conditional, 8)),
            (0x54ff_ffe0, direct(FlowKind::Conditional, -4)),
            (0x5400_004e, direct(FlowKind::Conditional, 8)), // b.al
            (0x5400_0051, direct(FlowKind::Conditional, 8)), // bc.ne
            (0x3400_0040, direct(FlowKind::Conditional, 8)), // cbz w0
            (0xb5ff_ffc3, direct(FlowKind::Conditional, -8)),
            (0x3618_0083, direct(FlowKind::Conditional, 16)), // tbz w3, #3
            (0xb740_0041, direct(FlowKind::Conditional, 8)),  // tbnz x1, #40
            (0x7401_0040, direct(FlowKind::Conditional, 8)),  // cbgt w0, w1
            (0xf403_3fe0, direct(FlowKind::Conditional, -4)), // cbgt x0, x3
            (0x75c0_0040, direct(FlowKind::Conditional, 8)),  // cbeq w0, #0
            (0xd61f_0120, indirect(FlowKind::Indirect)),
            (0xd71f_0920, indirect(FlowKind::Indirect)), // braa x9, x0
            (0xd61f_081f, indirect(FlowKind::Indirect)), // braaz x0
            (0xd71f_0c1f, indirect(FlowKind::Indirect)), // brab x0, sp
            (0xd61f_0c1f, indirect(FlowKind::Indirect)), // brabz x0
            (0xd63f_0120, indirect(FlowKind::IndirectLink)),
            (0xd73f_0801, indirect(FlowKind::IndirectLink)), // blraa x0, x1
            (0xd63f_093f, indirect(FlowKind::IndirectLink)), // blraaz x9
            (0xd73f_0c01, indirect(FlowKind::IndirectLink)), // blrab x0, x1
            (0xd63f_0c1f, indirect(FlowKind::IndirectLink)), // blrabz x0
            (0xd65f_03c0, indirect(FlowKind::Return)),
            (0xd65f_0000, indirect(FlowKind::Return)), // ret x0
            (0xd65f_0bff, indirect(FlowKind::Return)), // retaa
            (0xd65f_0fff, indirect(FlowKind::Return)), // retab
            (0x5500_005f, indirect(FlowKind::Return)), // retaasppc .-8
            (0x5520_005f, indirect(FlowKind::Return)), // retabsppc .-8
            (0xd65f_0be3, indirect(FlowKind::Return)), // retaasppcr x3
            (0xd65f_0fe3, indirect(FlowKind::Return)), // retabsppcr x3
            (0xd69f_03e0, Flow::ExceptionReturn),
            (0xd69f_0bff, Flow::ExceptionReturn), // eretaa
            (0xd69f_0fff, Flow::ExceptionReturn), // eretab
            (0xd400_0001, Flow::Call),            // svc #0
            (0xd400_0002, Flow::Call),            // hvc #0
            (0xd400_0003, Flow::Call),            // smc #0
            (0xd503_201f, Flow::On),
            (0xd503_3fdf, Flow::On), // isb
            (0xd6bf_03e0, Flow::On), // drps
            (0xd420_0000, Flow::On), // brk #0
            (0x0000_0000, Flow::On), // udf #0
        ] {
            assert_eq!(flow(word), expected, "{word:#010x}");
        }
    }

    #[test]
    fn kinds_have_the_names_of_the_architecture() {
        use FlowKind::*;
        let kinds = [
            Direct,
            DirectLink,
            Conditional,
            Indirect,
            IndirectLink,
            Return,
        ];
        let names = "DIRECT DIRECT_LINK COND_DIRECT INDIRECT INDIRECT_LINK RET";
        assert_eq!(kinds.map(FlowKind::name).join(" "), names);
    }
}
