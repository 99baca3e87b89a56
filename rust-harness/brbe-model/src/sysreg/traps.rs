//! Which accesses to BRBE are permitted, UNDEFINED, or trap (the accessors of D24.8;
//! MDCR_EL3, HDFGRTR_EL2, HDFGWTR_EL2, HFGITR_EL2).

use super::{Instruction, Register};
use crate::pe::{ExceptionLevel, Pe};

/// The direction of a register access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// `MRS`.
    Read,
    /// `MSR`.
    Write,
}

/// Why an access does not reach the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The instruction is UNDEFINED.
    Undefined,
    /// The instruction traps to EL2, with EC 0x18.
    TrapToEl2,
    /// The instruction traps to EL3, with EC 0x18.
    TrapToEl3,
    /// FEAT_NV2 makes the access one to memory, at this offset from VNCR_EL2.
    Memory(u16),
}

/// Whether EL3 traps accesses at lower Exception levels (MDCR_EL3.SBRBE).
fn el3_traps(pe: &Pe) -> bool {
    pe.el3.as_ref().is_some_and(|el3| {
        if el3.secure {
            el3.sbrbe != 0b11
        } else {
            el3.sbrbe & 1 == 0
        }
    })
}

fn check(pe: &Pe, fine_grained_trap: bool) -> Result<(), Denied> {
    match pe.el {
        ExceptionLevel::El0 => Err(Denied::Undefined),
        ExceptionLevel::El1 if fine_grained_trap => Err(Denied::TrapToEl2),
        ExceptionLevel::El1 | ExceptionLevel::El2 if el3_traps(pe) => Err(Denied::TrapToEl3),
        _ => Ok(()),
    }
}

/// Checks that `pe` may execute this `BRB` instruction: HFGITR_EL2.nBRBIALL and nBRBINJ.
pub(crate) fn check_instruction(pe: &Pe, instruction: Instruction) -> Result<(), Denied> {
    let bit = match instruction {
        Instruction::Iall => 56,
        Instruction::Inj => 55,
    };
    let fgt = pe.el2_enabled().and_then(|el2| el2.fgt);
    check(pe, fgt.is_some_and(|fgt| fgt.hfgitr >> bit & 1 == 0))
}

/// Checks that `pe` may access `register`, if the name has a register for it at all.
pub(super) fn check_register(pe: &Pe, register: Register, access: Access) -> Result<(), Denied> {
    let fgt = pe.el2_enabled().and_then(|el2| el2.fgt);
    let traps = fgt.is_some_and(|fgt| {
        let enables = match access {
            Access::Read => fgt.hdfgrtr,
            Access::Write => fgt.hdfgwtr,
        };
        enables >> register.fine_grained_bit() & 1 == 0
    });
    check(pe, traps)
}
