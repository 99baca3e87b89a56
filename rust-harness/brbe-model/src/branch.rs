//! Branch instructions: which they are, what their record's TYPE and filter is,
//! and whether a conditional one is taken (Tables D19-4 to D19-10).

use crate::record::RecordType;

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
    /// BRBINF.TYPE (Table D19-1).
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

    /// The bit of BRBFCR_EL1 that selects it.
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

/// What a conditional branch compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// B.cond, BC.cond: the flags. AL and NV are always true.
    Flags(u8),
    /// CBZ and CBNZ, TBZ and TBNZ: `X<register> & mask` is zero, or is not.
    Bits {
        /// Number of the register; 31 is zero.
        register: u8,
        /// The bits looked at.
        mask: u64,
        /// Taken where they are not zero.
        nonzero: bool,
    },
    /// CB\<cc\>, CBB\<cc\>, CBH\<cc\> (FEAT_CMPBR).
    Compare {
        /// The comparison.
        test: Comparison,
        /// Width in bits: 8, 16, 32 or 64.
        width: u8,
        /// Left operand, a register; 31 is zero.
        left: u8,
        /// Right operand.
        right: Operand,
    },
}

/// Comparisons of FEAT_CMPBR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Signed greater.
    Gt,
    /// Signed greater or equal.
    Ge,
    /// Signed less.
    Lt,
    /// Unsigned higher.
    Hi,
    /// Unsigned higher or same.
    Hs,
    /// Unsigned lower.
    Lo,
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
}

/// Right operand of a comparison of FEAT_CMPBR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register; 31 is zero.
    Register(u8),
    /// An unsigned 6-bit immediate.
    Immediate(u8),
}

impl Condition {
    /// Whether the branch is taken, with `nzcv` in bits 31:28 of PSTATE's AArch64
    /// layout and `register` the way to read X0 to X30.
    pub fn holds(&self, nzcv: u32, mut register: impl FnMut(u8) -> u64) -> bool {
        let mut x = |n: u8| if n == 31 { 0 } else { register(n) };
        match *self {
            Self::Flags(condition) => flags_hold(condition, nzcv),
            Self::Bits {
                register,
                mask,
                nonzero,
            } => (x(register) & mask != 0) == nonzero,
            Self::Compare {
                test,
                width,
                left,
                right,
            } => {
                let right = match right {
                    Operand::Register(n) => x(n),
                    Operand::Immediate(value) => value.into(),
                };
                compare(test, width, x(left), right)
            }
        }
    }
}

/// ConditionHolds of the Arm ARM.
const fn flags_hold(condition: u8, nzcv: u32) -> bool {
    let (n, z) = (nzcv >> 31 & 1 != 0, nzcv >> 30 & 1 != 0);
    let (c, v) = (nzcv >> 29 & 1 != 0, nzcv >> 28 & 1 != 0);
    let holds = match condition >> 1 {
        0 => z,
        1 => c,
        2 => n,
        3 => v,
        4 => c && !z,
        5 => n == v,
        6 => n == v && !z,
        _ => return true,
    };
    holds != (condition & 1 != 0)
}

const fn compare(test: Comparison, width: u8, left: u64, right: u64) -> bool {
    // The operands at the top of a word: both comparisons see the right sign.
    let shift = 64 - width as u32;
    let (left, right) = (left << shift, right << shift);
    match test {
        Comparison::Gt => left as i64 > right as i64,
        Comparison::Ge => left as i64 >= right as i64,
        Comparison::Lt => (left as i64) < right as i64,
        Comparison::Hi => left > right,
        Comparison::Hs => left >= right,
        Comparison::Lo => left < right,
        Comparison::Eq => left == right,
        Comparison::Ne => left != right,
    }
}

/// An instruction that changes the flow of execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// To a fixed distance, under a condition or always.
    Direct {
        /// B, BL or a conditional branch.
        kind: BranchKind,
        /// Bytes from the branch to its target.
        offset: i64,
        /// `None` where the branch is always taken.
        condition: Option<Condition>,
    },
    /// To what a register holds.
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

/// Compare and branch, FEAT_CMPBR.
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

/// Unconditional branch (register): opc, op2 = 0b11111, op3, Rn, op4.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Words from `aarch64-linux-gnu-as -march=armv9.5-a+cmpbr`.
    #[test]
    fn opcodes_by_table() {
        let direct = |kind, offset| {
            Some(Decoded::Direct {
                kind,
                offset,
                condition: None,
            })
        };
        let indirect = |kind| Some(Decoded::Indirect(kind));
        for (word, expected) in [
            (0x1400_0002, direct(BranchKind::Direct, 8)),
            (0x17ff_ffff, direct(BranchKind::Direct, -4)),
            (0x97ff_fffe, direct(BranchKind::DirectCall, -8)),
            (0xd61f_03c0, indirect(BranchKind::Indirect)), // br x30
            (0xd71f_0801, indirect(BranchKind::Indirect)), // braa x0, x1
            (0xd71f_0c01, indirect(BranchKind::Indirect)), // brab x0, x1
            (0xd61f_081f, indirect(BranchKind::Indirect)), // braaz x0
            (0xd63f_0000, indirect(BranchKind::IndirectCall)), // blr x0
            (0xd73f_0801, indirect(BranchKind::IndirectCall)), // blraa x0, x1
            (0xd63f_0c1f, indirect(BranchKind::IndirectCall)), // blrabz x0
            (0xd65f_0000, indirect(BranchKind::Return)),   // ret x0
            (0xd65f_03c0, indirect(BranchKind::Return)),   // ret
            (0xd65f_0bff, indirect(BranchKind::Return)),   // retaa
            (0xd65f_0fff, indirect(BranchKind::Return)),   // retab
            (0xd69f_03e0, Some(Decoded::ExceptionReturn)), // eret
            (0xd69f_0bff, Some(Decoded::ExceptionReturn)), // eretaa
            (0xd503_3fdf, None),                           // isb
            (0xd503_201f, None),                           // nop
            (0xd400_0001, None),                           // svc #0
            (0xd6bf_03e0, None),                           // drps
        ] {
            assert_eq!(decode(word), expected, "{word:#010x}");
        }
    }

    fn taken(word: u32, nzcv: u32, x: u64) -> bool {
        let Some(Decoded::Direct {
            kind: BranchKind::Conditional,
            condition,
            ..
        }) = decode(word)
        else {
            panic!("{word:#010x} is no conditional branch");
        };
        condition.is_some_and(|condition| condition.holds(nzcv, |_| x))
    }

    /// ConditionHolds: each condition over all sixteen values of NZCV.
    #[test]
    fn b_cond_by_the_flags() {
        for flags in 0..16_u32 {
            let (n, z, c, v) = (
                flags & 8 != 0,
                flags & 4 != 0,
                flags & 2 != 0,
                flags & 1 != 0,
            );
            let expected = [
                z,
                !z,
                c,
                !c,
                n,
                !n,
                v,
                !v,
                c && !z,
                !c || z,
                n == v,
                n != v,
                !z && n == v,
                z || n != v,
                true,
                true,
            ];
            for (condition, expected) in (0..16).zip(expected) {
                assert_eq!(taken(0x5400_0040 | condition, flags << 28, 0), expected);
            }
        }
    }

    #[test]
    fn compare_and_branch_on_zero_and_on_a_bit() {
        assert!(taken(0x3400_0040, 0, 1 << 32)); // cbz w0
        assert!(!taken(0xb400_0040, 0, 1 << 32)); // cbz x0
        assert!(taken(0xb500_0040, 0, 1 << 32)); // cbnz x0
        assert!(taken(0xb400_005f, 0, 1)); // cbz xzr
        assert!(taken(0x3718_0040, 0, 1 << 3)); // tbnz w0, #3
        assert!(taken(0xb618_0040, 0, 1 << 3)); // tbz x0, #35
        assert!(!taken(0xb618_0040, 0, 1 << 35));
    }

    #[test]
    fn compare_and_branch_on_a_comparison() {
        let word = |top: u32, test: u32, low: u32| top << 24 | test << 21 | low | 2 << 5;
        let minus_one = u64::MAX;
        assert!(!taken(word(0xf5, 0, 0), 0, minus_one)); // cbgt x0, #0
        assert!(taken(word(0xf5, 1, 0), 0, minus_one)); // cblt x0, #0
        assert!(taken(word(0xf5, 2, 0), 0, minus_one)); // cbhi x0, #0
        assert!(taken(word(0x75, 6, 5 << 15), 0, 1 << 32 | 5)); // cbeq w0, #5
        assert!(taken(word(0x74, 6, 2 << 14 | 31 << 16), 0, 0x100)); // cbbeq w0, wzr
        assert!(!taken(word(0x74, 6, 3 << 14 | 31 << 16), 0, 0x100)); // cbheq w0, wzr
        assert!(taken(word(0x74, 7, 3 << 14 | 31 << 16), 0, 0x100)); // cbhne w0, wzr
        assert_eq!(decode(word(0xf4, 6, 2 << 14)), None);
        assert_eq!(decode(word(0x75, 4, 0)), None);
    }
}
