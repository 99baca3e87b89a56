//! Exceptions: what TYPE their record has (Table D19-2).

use crate::pe::ExceptionLevel;
use crate::record::RecordType;

/// Why an exception was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceptionKind {
    /// SVC, HVC, SMC.
    Call,
    /// UNDEFINED or trapped.
    Trap,
    /// SError, physical or virtual.
    SError,
    /// Breakpoint, software step, BRK, PMU exception.
    InstructionDebug,
    /// Watchpoint.
    DataDebug,
    /// PC or SP alignment.
    Alignment,
    /// Instruction abort, branch target.
    InstructionFault,
    /// Data abort, pointer authentication failure.
    DataFault,
    /// IRQ.
    Irq,
    /// FIQ.
    Fiq,
    /// IMPLEMENTATION DEFINED exception to EL3.
    ImplementationDefined,
}

impl ExceptionKind {
    /// The kind of a synchronous exception, by its syndrome in ESR_ELx.
    ///
    /// `is_trapped` says of an SVC, HVC or SMC whether it was trapped (HFGITR_EL2.SVC_ELx,
    /// HCR_EL2.TSC): then its preferred return address is its own. Where that is not known, `None`,
    /// it follows from the Exception level it was taken from, that which it was taken to, and the
    /// value of HCR_EL2.TGE; but for an SVC at EL0 with {E2H, TGE} = {0, 1}, which is taken to EL2
    /// in both cases, and counts as not trapped.
    pub const fn synchronous(
        esr: u64,
        from: ExceptionLevel,
        to: ExceptionLevel,
        tge: bool,
        is_trapped: Option<bool>,
    ) -> Self {
        use ExceptionLevel::{El1, El2};
        let class = esr >> 26 & 0x3f;
        let iss = esr & 0x01ff_ffff;
        let to_el2_from_below = matches!(to, El2) && !matches!(from, El2);
        match class {
            0x11..=0x13 | 0x15..=0x17 if matches!(is_trapped, Some(false)) => Self::Call,
            0x11..=0x13 | 0x15..=0x17 if matches!(is_trapped, Some(true)) => Self::Trap,
            0x11 | 0x15 if to_el2_from_below && (!tge || matches!(from, El1)) => Self::Trap,
            0x13 | 0x17 if matches!(to, El2) => Self::Trap,
            0x11..=0x13 | 0x15..=0x17 => Self::Call,
            0x0d | 0x20 | 0x21 => Self::InstructionFault,
            0x1c | 0x24 | 0x25 => Self::DataFault,
            // Granule protection check: ISS[20] is "on an instruction fetch".
            0x1e if iss >> 20 & 1 != 0 => Self::InstructionFault,
            0x1e => Self::DataFault,
            0x1f => Self::ImplementationDefined,
            0x22 | 0x26 => Self::Alignment,
            // Guarded control stack, by ISS[23:20].
            0x2d => match iss >> 20 & 0xf {
                0 => Self::DataFault,
                1 => Self::InstructionFault,
                _ => Self::Trap,
            },
            0x2f => Self::SError,
            0x30..=0x33 | 0x38 | 0x3a | 0x3c | 0x3d => Self::InstructionDebug,
            0x34 | 0x35 => Self::DataDebug,
            _ => Self::Trap,
        }
    }

    /// The BRBINF.TYPE of the record of such an exception.
    pub(crate) const fn record_type(self) -> RecordType {
        match self {
            Self::Call => RecordType::Call,
            Self::Trap => RecordType::Trap,
            Self::SError => RecordType::SError,
            Self::InstructionDebug => RecordType::InstructionDebug,
            Self::DataDebug => RecordType::DataDebug,
            Self::Alignment => RecordType::Alignment,
            Self::InstructionFault => RecordType::InstructionFault,
            Self::DataFault => RecordType::DataFault,
            Self::Irq => RecordType::Irq,
            Self::Fiq => RecordType::Fiq,
            Self::ImplementationDefined => RecordType::ImplementationDefined,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ExceptionKind::{self, *};
    use super::ExceptionLevel::{El0, El1, El2, El3};

    fn class(ec: u64) -> ExceptionKind {
        ExceptionKind::synchronous(ec << 26, El0, El1, false, None)
    }

    #[test]
    fn table_d19_2() {
        for (ec, kind) in [
            (0x00, Trap),
            (0x01, Trap),
            (0x03, Trap),
            (0x04, Trap),
            (0x05, Trap),
            (0x06, Trap),
            (0x07, Trap),
            (0x08, Trap),
            (0x09, Trap),
            (0x0a, Trap),
            (0x0c, Trap),
            (0x0d, InstructionFault),
            (0x0e, Trap),
            (0x11, Call),
            (0x12, Call),
            (0x13, Call),
            (0x14, Trap),
            (0x15, Call),
            (0x16, Call),
            (0x17, Call),
            (0x18, Trap),
            (0x19, Trap),
            (0x1a, Trap),
            (0x1b, Trap),
            (0x1c, DataFault),
            (0x1d, Trap),
            (0x1f, ImplementationDefined),
            (0x20, InstructionFault),
            (0x21, InstructionFault),
            (0x22, Alignment),
            (0x24, DataFault),
            (0x25, DataFault),
            (0x26, Alignment),
            (0x27, Trap),
            (0x28, Trap),
            (0x2c, Trap),
            (0x2f, SError),
            (0x30, InstructionDebug),
            (0x31, InstructionDebug),
            (0x32, InstructionDebug),
            (0x33, InstructionDebug),
            (0x34, DataDebug),
            (0x35, DataDebug),
            (0x38, InstructionDebug),
            (0x3c, InstructionDebug),
            (0x3d, InstructionDebug),
        ] {
            assert_eq!(class(ec), kind, "EC {ec:#x}");
        }
    }

    #[test]
    fn calls_that_were_trapped_are_traps() {
        let kind =
            |ec: u64, from, to, tge| ExceptionKind::synchronous(ec << 26, from, to, tge, None);
        assert_eq!(kind(0x15, El0, El2, true), Call); // routed by TGE
        assert_eq!(kind(0x15, El0, El2, false), Trap); // HFGITR_EL2.SVC_EL0
        assert_eq!(kind(0x15, El1, El2, false), Trap); // HFGITR_EL2.SVC_EL1
        assert_eq!(kind(0x15, El2, El2, false), Call);
        assert_eq!(kind(0x16, El1, El2, false), Call);
        assert_eq!(kind(0x17, El1, El2, false), Trap); // HCR_EL2.TSC
        assert_eq!(kind(0x17, El1, El3, false), Call);
    }

    #[test]
    fn a_call_that_returns_to_itself_was_trapped() {
        let kind = |ec: u64, is_trapped| {
            ExceptionKind::synchronous(ec << 26, El0, El2, true, Some(is_trapped))
        };
        // To EL2 by HFGITR_EL2.SVC_EL0, or routed there by TGE.
        assert_eq!(kind(0x15, true), Trap);
        assert_eq!(kind(0x15, false), Call);
        // What the address tells counts more than how the levels are set.
        let known = ExceptionKind::synchronous(0x15 << 26, El0, El2, false, Some(false));
        assert_eq!(known, Call);
        // Of other exceptions it says nothing.
        assert_eq!(kind(0x18, false), Trap);
        assert_eq!(kind(0x24, true), DataFault);
    }

    #[test]
    fn granule_and_control_stack_by_syndrome() {
        let kind =
            |ec: u64, iss: u64| ExceptionKind::synchronous(ec << 26 | iss, El1, El1, false, None);
        assert_eq!(kind(0x1e, 1 << 20), InstructionFault);
        assert_eq!(kind(0x1e, 0), DataFault);
        assert_eq!(kind(0x2d, 0), DataFault);
        assert_eq!(kind(0x2d, 1 << 20), InstructionFault);
        assert_eq!(kind(0x2d, 2 << 20), Trap);
    }
}
