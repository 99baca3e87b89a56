//! The register that a name reaches: BRBCR has three names, and FEAT_VHE and
//! FEAT_NV2 give them other meanings (D24.8.1, D24.8.2).

use super::traps::{Denied, check_register};
use super::{Access, Register};
use crate::pe::{ExceptionLevel, Pe};

/// Offset from VNCR_EL2.
const BRBCR_EL1_IN_MEMORY: u16 = 0x8e0;

/// The register that an access by `pe` reaches: the one named, but for BRBCR.
pub(crate) fn resolve(pe: &Pe, name: Register, access: Access) -> Result<Register, Denied> {
    match name {
        Register::CrEl1 | Register::CrEl2 | Register::CrEl12 => control(pe, name, access),
        _ => check_register(pe, name, access).map(|()| name),
    }
}

/// The register that a BRBCR name reaches (D24.8.1, D24.8.2): HCR_EL2.E2H
/// redirects at EL2, HCR_EL2.{NV,NV1,NV2} at EL1. TGE plays no part.
pub(super) fn control(pe: &Pe, name: Register, access: Access) -> Result<Register, Denied> {
    use ExceptionLevel::{El0, El1, El2, El3};
    let nv = pe.el2_enabled().map(|el2| el2.hcr).filter(|hcr| hcr.nv);
    let checked = || check_register(pe, name, access);
    match (name, pe.el) {
        (_, El0) => Err(Denied::Undefined),
        (Register::CrEl12, El1) => match nv {
            Some(hcr) if hcr.nv2 && !hcr.nv1 => Err(Denied::Memory(BRBCR_EL1_IN_MEMORY)),
            Some(_) => Err(Denied::TrapToEl2),
            None => Err(Denied::Undefined),
        },
        (Register::CrEl12, El2 | El3) if !pe.e2h() => Err(Denied::Undefined),
        (Register::CrEl12, _) => checked().map(|()| Register::CrEl1),
        (Register::CrEl2, El1) if nv.is_some() => Err(Denied::TrapToEl2),
        (Register::CrEl2, El1) => Err(Denied::Undefined),
        (Register::CrEl2, _) => checked().map(|()| Register::CrEl2),
        (_, El1) => {
            checked()?;
            match nv {
                Some(hcr) if hcr.nv1 && hcr.nv2 => Err(Denied::Memory(BRBCR_EL1_IN_MEMORY)),
                _ => Ok(Register::CrEl1),
            }
        }
        (_, El2) if pe.e2h() => checked().map(|()| Register::CrEl2),
        _ => checked().map(|()| Register::CrEl1),
    }
}
