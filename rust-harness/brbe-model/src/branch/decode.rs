//! Which instruction words are branches, and of which kind (Tables D19-4 to
//! D19-10; the encodings are those of chapter C4.1).

use super::{BranchKind, Comparison, Condition, Operand};

/// An instruction that changes the flow of execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A branch to a fixed distance, under a condition or always.
    Direct {
        /// B, BL or a conditional branch.
        kind: BranchKind,
        /// The distance from the branch to its target, in bytes.
        offset: i64,
        /// The condition of the branch; `None` where it is always taken.
        condition: Option<Condition>,
    },
    /// A branch to the address in a register.
    Indirect(BranchKind),
    /// ERET, ERETAA, ERETAB.
    ExceptionReturn,
}

const fn sign_extend(value: u32, bits: u32) -> i64 {
    let shift = 64 - bits;
    (((value as u64) << shift) as i64) >> shift
}

const fn conditional(offset: i64, condition: Condition) -> Option<Decoded> {
    let kind = BranchKind::Conditional;
    Some(Decoded::Direct {
        kind,
        offset,
        condition: Some(condition),
    })
}

/// The branch that the A64 instruction `word` is, `None` where it is another
/// instruction. ISB, which an implementation may record as a branch, is not.
pub const fn decode(word: u32) -> Option<Decoded> {
    let register = (word & 0x1f) as u8;
    let imm26 = sign_extend(word & 0x03ff_ffff, 26) * 4;
    let imm19 = sign_extend(word >> 5 & 0x7_ffff, 19) * 4;
    let imm14 = sign_extend(word >> 5 & 0x3fff, 14) * 4;
    let sf = word >> 31 != 0;
    let nonzero = word >> 24 & 1 != 0;
    match word >> 24 {
        0x14..=0x17 => Some(Decoded::Direct {
            kind: BranchKind::Direct,
            offset: imm26,
            condition: None,
        }),
        0x94..=0x97 => Some(Decoded::Direct {
            kind: BranchKind::DirectCall,
            offset: imm26,
            condition: None,
        }),
        0x54 => conditional(imm19, Condition::Flags((word & 0xf) as u8)),
        0x34 | 0x35 | 0xb4 | 0xb5 => {
            let mask = if sf { u64::MAX } else { u32::MAX as u64 };
            conditional(
                imm19,
                Condition::Bits {
                    register,
                    mask,
                    nonzero,
                },
            )
        }
        0x36 | 0x37 | 0xb6 | 0xb7 => {
            let mask = 1 << (word >> 19 & 0x1f | (sf as u32) << 5);
            conditional(
                imm14,
                Condition::Bits {
                    register,
                    mask,
                    nonzero,
                },
            )
        }
        0x74 | 0x75 | 0xf4 | 0xf5 => decode_compare(word),
        0xd6 | 0xd7 => decode_register(word),
        // RETAASPPC, RETABSPPC.
        0x55 if word & 0xffc0_001f == 0x5500_001f => Some(Decoded::Indirect(BranchKind::Return)),
        _ => None,
    }
}

/// Decodes a compare and branch instruction, FEAT_CMPBR.
const fn decode_compare(word: u32) -> Option<Decoded> {
    let immediate = word >> 24 & 1 != 0;
    let size = word >> 14 & 3;
    let width = match (word >> 31 != 0, immediate) {
        (true, _) => 64,
        (false, true) => 32,
        (false, false) => match size {
            0 => 32,
            2 => 8,
            3 => 16,
            _ => return None,
        },
    };
    if (immediate && word >> 14 & 1 != 0) || (!immediate && word >> 31 != 0 && size != 0) {
        return None;
    }
    let test = match (word >> 21 & 7, immediate) {
        (0, _) => Comparison::Gt,
        (1, false) => Comparison::Ge,
        (1, true) => Comparison::Lt,
        (2, _) => Comparison::Hi,
        (3, false) => Comparison::Hs,
        (3, true) => Comparison::Lo,
        (6, _) => Comparison::Eq,
        (7, _) => Comparison::Ne,
        _ => return None,
    };
    let right = if immediate {
        Operand::Immediate((word >> 15 & 0x3f) as u8)
    } else {
        Operand::Register((word >> 16 & 0x1f) as u8)
    };
    let offset = sign_extend(word >> 5 & 0x1ff, 9) * 4;
    let left = (word & 0x1f) as u8;
    conditional(
        offset,
        Condition::Compare {
            test,
            width,
            left,
            right,
        },
    )
}

/// Decodes an unconditional branch (register): opc, op2 = 0b11111, op3, Rn, op4.
const fn decode_register(word: u32) -> Option<Decoded> {
    let (opc, op3, rn, op4) = (
        word >> 21 & 0xf,
        word >> 10 & 0x3f,
        word >> 5 & 0x1f,
        word & 0x1f,
    );
    if word >> 16 & 0x1f != 0x1f {
        return None;
    }
    let plain = op3 == 0 && op4 == 0;
    let authenticated = op3 & !1 == 0b000010;
    let with_zero_modifier = authenticated && op4 == 0x1f;
    match opc {
        0 if plain || with_zero_modifier => Some(Decoded::Indirect(BranchKind::Indirect)),
        1 if plain || with_zero_modifier => Some(Decoded::Indirect(BranchKind::IndirectCall)),
        // RETAA and RETAB; RETAASPPCR and RETABSPPCR have a register in op4.
        2 if plain || (authenticated && rn == 0x1f) => Some(Decoded::Indirect(BranchKind::Return)),
        4 if rn == 0x1f && (plain || with_zero_modifier) => Some(Decoded::ExceptionReturn),
        8 if authenticated => Some(Decoded::Indirect(BranchKind::Indirect)),
        9 if authenticated => Some(Decoded::Indirect(BranchKind::IndirectCall)),
        _ => None,
    }
}
