//! Whether a conditional branch is taken.

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
        /// Whether the branch is taken where the bits are not zero. Otherwise it is taken
        /// where they are zero.
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

/// Whether a condition holds with the flags `nzcv`: ConditionHolds of the Arm ARM.
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
    // The operands are moved to the top of a word: both comparisons then see the right
    // sign.
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
