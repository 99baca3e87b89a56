//! The instructions that the plugin handles, classified when they are translated.

use brbe_model::{Decoded, Instruction, Register, decode};

use crate::block::is_conditional_to_next;

/// An instruction in translated code: its word and its offset in the page,
/// packed into what QEMU hands to a callback, so that nothing is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site(u64);

impl Site {
    pub(crate) fn new(word: u32, address: u64) -> Self {
        Self(u64::from(word) | (address & 0xfff) << 32)
    }

    pub(crate) fn from_userdata(userdata: *mut std::ffi::c_void) -> Self {
        Self(userdata.addr() as u64)
    }

    pub(crate) fn into_userdata(self) -> *mut std::ffi::c_void {
        qemu_plugin::userdata(self.0)
    }

    pub(crate) fn word(self) -> u32 {
        self.0 as u32
    }

    /// Bits 11:0 of the instruction's address.
    pub(crate) fn offset(self) -> u64 {
        self.0 >> 32
    }

    /// The register that a system instruction names.
    pub(crate) fn rt(self) -> u8 {
        (self.0 & 0x1f) as u8
    }
}

/// A system instruction to emulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    /// `MRS Xt, ID_AA64DFR0_EL1`.
    ReadId,
    Read(Register),
    Write(Register),
    Execute(Instruction),
}

/// What the plugin has to do with an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A conditional branch to the next instruction.
    ConditionalToNext,
    /// ERET, ERETAA, ERETAB.
    ExceptionReturn,
    System(System),
    /// SVC, HVC or SMC.
    Call,
    /// WFE, which does not wait here.
    WaitForEvent,
    /// A semihosting call: it may end QEMU.
    HostCall,
    /// A write of a register that sets or clears the flags that freeze BRBE.
    PmuWrite,
    /// A write of a register that says which Exception level may record, or which
    /// counters freeze BRBE.
    StateWrite,
    /// A write of MDCR_EL3. BRBE's own registers aside, only MDCR_EL3 can switch recording on
    /// where no Exception level may record.
    El3StateWrite,
}

/// `HLT #0xF000`.
const HLT_SEMIHOSTING: u32 = 0xd45e_0000;
/// `WFE`, which is `HINT #2`.
const WFE: u32 = 0xd503_205f;

/// Whether the instruction `word` is SVC, HVC or SMC (Arm ARM, C6.2).
fn is_call(word: u32) -> bool {
    word & 0xffe0_001c == 0xd400_0000 && word & 3 != 0
}

/// The class of the instruction `word`; `None` for an instruction that the plugin does
/// not handle.
pub(crate) fn classify(word: u32) -> Option<Class> {
    if word == HLT_SEMIHOSTING {
        return Some(Class::HostCall);
    }
    if word == WFE {
        return Some(Class::WaitForEvent);
    }
    if is_call(word) {
        return Some(Class::Call);
    }
    if word >> 24 != 0xd5 {
        return match decode(word) {
            Some(Decoded::ExceptionReturn) => Some(Class::ExceptionReturn),
            _ if is_conditional_to_next(word) => Some(Class::ConditionalToNext),
            _ => None,
        };
    }
    // 1101010100 L op0 op1 CRn CRm op2 Rt
    if word >> 22 != 0b11_0101_0100 {
        return None;
    }
    let field = |low: u32, bits: u32| (word >> low & ((1 << bits) - 1)) as u8;
    let name = (
        field(19, 2),
        field(16, 3),
        field(12, 4),
        field(8, 4),
        field(5, 3),
    );
    let (op0, op1, crn, crm, op2) = name;
    let reads = word >> 21 & 1 != 0;
    let register = Register::decode(op0, op1, crn, crm, op2);
    let instruction = Instruction::decode(op0, op1, crn, crm, op2);
    match (reads, register, instruction, name) {
        (true, Some(register), ..) => Some(Class::System(System::Read(register))),
        (false, Some(register), ..) => Some(Class::System(System::Write(register))),
        (false, _, Some(instruction), _) => Some(Class::System(System::Execute(instruction))),
        (true, .., (3, 0, 0, 5, 0)) => Some(Class::System(System::ReadId)),
        // PMOVSCLR_EL0, PMSWINC_EL0 and PMOVSSET_EL0.
        (false, .., (3, 3, 9, 12, 3 | 4) | (3, 3, 9, 14, 3)) => Some(Class::PmuWrite),
        // HCR_EL2, MDCR_EL2, SCR_EL3.
        (false, .., (3, 4, 1, 1, 0 | 1) | (3, 6, 1, 1, 0)) => Some(Class::StateWrite),
        // MDCR_EL3.
        (false, .., (3, 6, 1, 3, 1)) => Some(Class::El3StateWrite),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_instructions() {
        let system = |system| Some(Class::System(system));
        for (word, class) in [
            (0xd538_0500, system(System::ReadId)), // mrs x0, id_aa64dfr0_el1
            (0xd538_0520, None),                   // mrs x0, id_aa64dfr1_el1
            (0xd531_9000, system(System::Read(Register::CrEl1))), // mrs x0, brbcr_el1
            (0xd511_9021, system(System::Write(Register::Fcr))), // msr brbfcr_el1, x1
            (0xd514_9001, system(System::Write(Register::CrEl2))), // msr brbcr_el2, x1
            (0xd515_9001, system(System::Write(Register::CrEl12))), // msr brbcr_el12, x1
            (0xd531_8f80, system(System::Read(Register::Inf(31)))), // mrs x0, brbinf31_el1
            (0xd531_8020, system(System::Read(Register::Src(0)))), // mrs x0, brbsrc0_el1
            (0xd509_729f, system(System::Execute(Instruction::Iall))), // brb iall
            (0xd509_72bf, system(System::Execute(Instruction::Inj))), // brb inj
            (0xd51b_9c60, Some(Class::PmuWrite)),  // msr pmovsclr_el0, x0
            (0xd51b_9c80, Some(Class::PmuWrite)),  // msr pmswinc_el0, x0
            (0xd51b_9e60, Some(Class::PmuWrite)),  // msr pmovsset_el0, x0
            (0xd69f_03e0, Some(Class::ExceptionReturn)), // eret
            (0x5400_0020, Some(Class::ConditionalToNext)), // b.eq .+4
            (0x5400_0040, None),                   // b.eq .+8
            (0xd51c_1120, Some(Class::StateWrite)), // msr mdcr_el2, x0
            (0xd51e_1100, Some(Class::StateWrite)), // msr scr_el3, x0
            (0xd51e_1320, Some(Class::El3StateWrite)), // msr mdcr_el3, x0
            (0xd53e_1320, None),                   // mrs x0, mdcr_el3
            (0xd45e_0000, Some(Class::HostCall)),  // hlt #0xf000
            (0xd400_0001, Some(Class::Call)),      // svc #0
            (0xd41f_ffe2, Some(Class::Call)),      // hvc #0xffff
            (0xd400_0023, Some(Class::Call)),      // smc #1
            (0xd420_0000, None),                   // brk #0
            (0xd503_205f, Some(Class::WaitForEvent)), // wfe
            (0xd503_207f, None),                   // wfi
            (0xd503_3fdf, None),                   // isb
        ] {
            assert_eq!(classify(word), class, "{word:#010x}");
        }
    }

    #[test]
    fn a_site_survives_the_way_through_qemu() {
        let site = Site::new(0xd531_9007, 0xffff_8000_1234_5abc);
        let back = Site::from_userdata(site.into_userdata());
        assert_eq!(
            (back, back.word(), back.offset(), back.rt()),
            (site, 0xd531_9007, 0xabc, 7)
        );
    }
}
