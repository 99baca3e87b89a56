//! Sections 2.6 and 2.7: which accesses are UNDEFINED, which trap, and which
//! register the others reach.

use brbe_model::{Denied, ExceptionLevel, FineGrainedTraps, Hcr, Instruction, Pe, Register};

use super::bit;
use ExceptionLevel::{El0, El1, El2, El3};

/// The register that an access reaches; BRBCR_EL12 is never one.
pub(crate) fn register(pe: &Pe, name: Register, write: bool) -> Result<Register, Denied> {
    if pe.el == El0 {
        return Err(Denied::Undefined);
    }
    match name {
        Register::CrEl1 => brbcr_el1(pe, write),
        Register::CrEl2 => brbcr_el2(pe),
        Register::CrEl12 => brbcr_el12(pe),
        Register::Inf(_) | Register::Src(_) | Register::Tgt(_) | Register::Idr0 if write => {
            Err(Denied::Undefined)
        }
        Register::Inf(_)
        | Register::Src(_)
        | Register::Tgt(_)
        | Register::InfInj
        | Register::SrcInj
        | Register::TgtInj
        | Register::Ts => traps(pe, |fgt| bit(debug_traps(fgt, write), 61)).map(|()| name),
        Register::Fcr => traps(pe, |fgt| bit(debug_traps(fgt, write), 60)).map(|()| name),
        Register::Idr0 => traps(pe, |fgt| bit(fgt.hdfgrtr, 59)).map(|()| name),
    }
}

pub(crate) fn instruction(pe: &Pe, instruction: Instruction) -> Result<(), Denied> {
    if pe.el == El0 {
        return Err(Denied::Undefined);
    }
    traps(pe, |fgt| match instruction {
        Instruction::Iall => bit(fgt.hfgitr, 56),
        Instruction::Inj => bit(fgt.hfgitr, 55),
    })
}

fn debug_traps(fgt: &FineGrainedTraps, write: bool) -> u64 {
    if write { fgt.hdfgwtr } else { fgt.hdfgrtr }
}

/// Steps 2 and 3 of section 2.7; `permits` is the fine-grained control bit.
fn traps(pe: &Pe, permits: impl Fn(&FineGrainedTraps) -> bool) -> Result<(), Denied> {
    if pe.el == El1
        && let Some(el2) = &pe.el2
        && el2.enabled
        && let Some(fgt) = &el2.fgt
        && !permits(fgt)
    {
        return Err(Denied::TrapToEl2);
    }
    if pe.el != El3
        && let Some(el3) = &pe.el3
    {
        if el3.secure && el3.sbrbe != 0b11 {
            return Err(Denied::TrapToEl3);
        }
        if !el3.secure && (el3.sbrbe == 0b00 || el3.sbrbe == 0b10) {
            return Err(Denied::TrapToEl3);
        }
    }
    Ok(())
}

/// The Effective value of HCR_EL2.
fn hcr(pe: &Pe) -> Hcr {
    match &pe.el2 {
        Some(el2) if el2.enabled => el2.hcr,
        _ => Hcr::default(),
    }
}

fn brbcr_el1(pe: &Pe, write: bool) -> Result<Register, Denied> {
    traps(pe, |fgt| bit(debug_traps(fgt, write), 60))?;
    let Hcr {
        e2h, nv, nv1, nv2, ..
    } = hcr(pe);
    if pe.el == El1 && nv2 && nv1 && nv {
        return Err(Denied::Memory(0x8e0));
    }
    if pe.el == El2 && e2h {
        return Ok(Register::CrEl2);
    }
    Ok(Register::CrEl1)
}

fn brbcr_el12(pe: &Pe) -> Result<Register, Denied> {
    let Hcr {
        e2h, nv, nv1, nv2, ..
    } = hcr(pe);
    if pe.el == El1 {
        return Err(match (nv2, nv1, nv) {
            (true, false, true) => Denied::Memory(0x8e0),
            (_, _, true) => Denied::TrapToEl2,
            _ => Denied::Undefined,
        });
    }
    if !e2h {
        return Err(Denied::Undefined);
    }
    traps(pe, |_| true)?;
    Ok(Register::CrEl1)
}

fn brbcr_el2(pe: &Pe) -> Result<Register, Denied> {
    if pe.el == El1 {
        return Err(if hcr(pe).nv {
            Denied::TrapToEl2
        } else {
            Denied::Undefined
        });
    }
    traps(pe, |_| true)?;
    Ok(Register::CrEl2)
}
