//! One branch record: BRBINF\<n\>_EL1, BRBSRC\<n\>_EL1 and BRBTGT\<n\>_EL1.

use crate::cycles::CycleCount;
use crate::pe::ExceptionLevel;

const CCU: u64 = 1 << 46;
const CC: u64 = 0x3fff << 32;
const TYPE: u64 = 0x3f << 8;
const TYPE_NOT_A_BRANCH: u64 = 1 << 13;
const EL: u64 = 3 << 6;
const MPRED: u64 = 1 << 5;
const VALID: u64 = 3;

/// Writable bits of BRBINFINJ_EL1 without FEAT_TME (D24.8.5).
pub(crate) const INF_MASK: u64 = CCU | CC | TYPE | EL | MPRED | VALID;

/// BRBINF.VALID: which addresses a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Valid {
    /// 0b00: no record.
    None = 0,
    /// 0b01: a half record with a target only. The source was in a prohibited region.
    Target = 1,
    /// 0b10: a half record with a source only. The target was in a prohibited region.
    Source = 2,
    /// 0b11: a record with both addresses.
    Full = 3,
}

/// BRBINF.TYPE (Tables D19-1 and D19-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordType {
    /// Unconditional direct branch.
    Direct = 0b000000,
    /// Indirect branch, neither a call nor a return.
    Indirect = 0b000001,
    /// Direct branch with link.
    DirectLink = 0b000010,
    /// Indirect branch with link.
    IndirectLink = 0b000011,
    /// Return from subroutine.
    Return = 0b000101,
    /// Return from an exception.
    ExceptionReturn = 0b000111,
    /// Conditional direct branch.
    Conditional = 0b001000,
    /// Entry to Debug state.
    DebugHalt = 0b100001,
    /// SVC, HVC or SMC.
    Call = 0b100010,
    /// An instruction that is UNDEFINED or trapped.
    Trap = 0b100011,
    /// SError.
    SError = 0b100100,
    /// Breakpoint, software step, BRK.
    InstructionDebug = 0b100110,
    /// Watchpoint.
    DataDebug = 0b100111,
    /// PC or SP alignment.
    Alignment = 0b101010,
    /// Instruction abort, branch target.
    InstructionFault = 0b101011,
    /// Data abort, pointer authentication.
    DataFault = 0b101100,
    /// IRQ.
    Irq = 0b101110,
    /// FIQ.
    Fiq = 0b101111,
    /// IMPLEMENTATION DEFINED exception to EL3.
    ImplementationDefined = 0b110000,
    /// Exit from Debug state.
    DebugExit = 0b111001,
}

/// A record as software reads it; all zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrbeRecord {
    /// BRBINF\<n\>_EL1.
    pub inf: u64,
    /// BRBSRC\<n\>_EL1.
    pub src: u64,
    /// BRBTGT\<n\>_EL1.
    pub tgt: u64,
}

/// What a record says about time: `None` sets CCU, "cycle count unknown".
pub(crate) type Cycles = Option<CycleCount>;

#[inline]
fn inf(kind: RecordType, valid: Valid, cycles: Cycles) -> u64 {
    let cc = cycles.map_or(CCU, |cc| cc.bits() << 32);
    cc | (kind as u64) << 8 | valid as u64
}

impl BrbeRecord {
    /// A record whose source and target are outside prohibited regions.
    #[inline]
    pub(crate) fn full(
        kind: RecordType,
        src: u64,
        tgt: u64,
        el: ExceptionLevel,
        cycles: Cycles,
    ) -> Self {
        let inf = inf(kind, Valid::Full, cycles) | (el as u64) << 6;
        Self { inf, src, tgt }
    }

    /// A half record whose target is in a prohibited region: BRBTGT and EL are zero.
    pub(crate) fn source_only(kind: RecordType, src: u64, cycles: Cycles) -> Self {
        Self {
            inf: inf(kind, Valid::Source, cycles),
            src,
            tgt: 0,
        }
    }

    /// A half record whose source is in a prohibited region: BRBSRC is zero, and the
    /// cycle count is unknown as for every first record after such a region.
    pub(crate) fn target_only(kind: RecordType, tgt: u64, el: ExceptionLevel) -> Self {
        let inf = inf(kind, Valid::Target, None) | (el as u64) << 6;
        Self { inf, src: 0, tgt }
    }

    /// Which addresses the record has.
    pub const fn valid(&self) -> Valid {
        match self.inf & VALID {
            0 => Valid::None,
            1 => Valid::Target,
            2 => Valid::Source,
            _ => Valid::Full,
        }
    }

    /// BRBINF.TYPE, six bits: software may inject any.
    pub const fn type_bits(&self) -> u8 {
        (self.inf >> 8 & 0x3f) as u8
    }

    /// BRBINF.CC, `None` where CCU says that it is unknown.
    pub const fn cycle_count(&self) -> Option<CycleCount> {
        if self.inf & CCU != 0 {
            return None;
        }
        Some(CycleCount::from_bits(self.inf >> 32))
    }

    /// The record with every field zero that its VALID, CCU and TYPE make
    /// RES0 (D24.8.6, D24.8.8, D24.8.10).
    pub(crate) const fn without_res0(self) -> Self {
        let mut record = match self.valid() {
            Valid::None => {
                return Self {
                    inf: 0,
                    src: 0,
                    tgt: 0,
                };
            }
            Valid::Target => Self {
                inf: self.inf & !MPRED,
                src: 0,
                tgt: self.tgt,
            },
            Valid::Source => Self {
                inf: self.inf & !EL,
                src: self.src,
                tgt: 0,
            },
            Valid::Full => self,
        };
        if record.inf & CCU != 0 {
            record.inf &= !CC;
        }
        if record.inf & TYPE_NOT_A_BRANCH != 0 {
            record.inf &= !MPRED;
        }
        record.inf &= INF_MASK;
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: BrbeRecord = BrbeRecord {
        inf: u64::MAX,
        src: 0x1234,
        tgt: 0x5678,
    };

    fn with_valid(valid: Valid) -> BrbeRecord {
        BrbeRecord {
            inf: !(TYPE_NOT_A_BRANCH | CCU | VALID) | valid as u64,
            ..ALL
        }
    }

    #[test]
    fn fields_zero_by_valid() {
        assert_eq!(
            with_valid(Valid::None).without_res0(),
            BrbeRecord::default()
        );
        let target = with_valid(Valid::Target).without_res0();
        assert_eq!((target.src, target.tgt, target.inf & MPRED), (0, 0x5678, 0));
        assert_eq!(target.inf & EL, EL);
        let source = with_valid(Valid::Source).without_res0();
        assert_eq!((source.src, source.tgt, source.inf & EL), (0x1234, 0, 0));
        assert_eq!(source.inf & MPRED, MPRED);
        let full = with_valid(Valid::Full).without_res0();
        assert_eq!(full.inf, INF_MASK & !CCU & !TYPE_NOT_A_BRANCH);
    }

    #[test]
    fn ccu_zeroes_cc_and_exceptions_have_no_mpred() {
        assert_eq!(ALL.without_res0().inf, INF_MASK & !CC & !MPRED);
    }

    /// D24.8.5: bits 63:47, 31:14 and 4:2 are RES0 without FEAT_TME.
    #[test]
    fn brbinf_layout() {
        assert_eq!(INF_MASK, 0x0000_7fff_0000_3fe3);
        let cycles = Some(CycleCount::encode(256));
        let record = BrbeRecord::full(RecordType::Irq, 1, 2, ExceptionLevel::El2, cycles);
        assert_eq!(record.inf, 0x100 << 32 | 0b101110 << 8 | 2 << 6 | 3);
        assert_eq!(
            BrbeRecord::source_only(RecordType::Call, 1, None).inf,
            1 << 46 | 0b100010 << 8 | 2
        );
    }

    /// Tables D19-1 and D19-2: TYPE[5] distinguishes branches from exceptions and Debug
    /// state, which have no MPRED.
    #[test]
    fn type_bit_5_is_no_branch() {
        use RecordType::*;
        let bit = |kind: RecordType| (kind as u64) << 8 & TYPE_NOT_A_BRANCH != 0;
        for kind in [
            Direct,
            Indirect,
            DirectLink,
            IndirectLink,
            Return,
            ExceptionReturn,
            Conditional,
        ] {
            assert!(!bit(kind), "{kind:?}");
        }
        for kind in [
            DebugHalt,
            Call,
            Trap,
            SError,
            InstructionDebug,
            DataDebug,
            Alignment,
            InstructionFault,
            DataFault,
            Irq,
            Fiq,
            ImplementationDefined,
            DebugExit,
        ] {
            assert!(bit(kind), "{kind:?}");
        }
    }
}
