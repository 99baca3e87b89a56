//! The register that a name reaches: BRBCR has three names, and FEAT_VHE and
//! FEAT_NV2 give them other meanings (D24.8.1, D24.8.2).

use super::Register;
use super::traps::{Access, Denied, check_register};
use crate::pe::{ExceptionLevel, Pe};

/// The offset of BRBCR_EL1 from VNCR_EL2, in bytes (FEAT_NV2).
const BRBCR_EL1_IN_MEMORY: u16 = 0x8e0;

/// A register that an `MSR` reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writable {
    /// BRBCR_EL1.
    CrEl1,
    /// BRBCR_EL2.
    CrEl2,
    /// BRBFCR_EL1.
    Fcr,
    /// BRBTS_EL1.
    Ts,
    /// BRBINFINJ_EL1.
    InfInj,
    /// BRBSRCINJ_EL1.
    SrcInj,
    /// BRBTGTINJ_EL1.
    TgtInj,
}

/// A register that an `MRS` reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readable {
    /// BRBINF\<n\>_EL1.
    Inf(u8),
    /// BRBSRC\<n\>_EL1.
    Src(u8),
    /// BRBTGT\<n\>_EL1.
    Tgt(u8),
    /// BRBIDR0_EL1.
    Idr0,
    /// A register that can be written too.
    Writable(Writable),
}

/// The register that an `MRS` of `name` by `pe` reaches.
pub(crate) fn resolve_read(pe: &Pe, name: Register) -> Result<Readable, Denied> {
    let read_only = match name {
        Register::Inf(n) => Readable::Inf(n),
        Register::Src(n) => Readable::Src(n),
        Register::Tgt(n) => Readable::Tgt(n),
        Register::Idr0 => Readable::Idr0,
        _ => return resolve(pe, name, Access::Read).map(Readable::Writable),
    };
    check_register(pe, name, Access::Read).map(|()| read_only)
}

/// The register that an `MSR` of `name` by `pe` reaches.
pub(crate) fn resolve_write(pe: &Pe, name: Register) -> Result<Writable, Denied> {
    resolve(pe, name, Access::Write)
}

/// The register that an access reaches, if `name` can be written.
fn resolve(pe: &Pe, name: Register, access: Access) -> Result<Writable, Denied> {
    let register = match name {
        Register::CrEl1 => return brbcr_el1(pe, access),
        Register::CrEl2 => return brbcr_el2(pe, access),
        Register::CrEl12 => return brbcr_el12(pe, access),
        Register::Fcr => Writable::Fcr,
        Register::Ts => Writable::Ts,
        Register::InfInj => Writable::InfInj,
        Register::SrcInj => Writable::SrcInj,
        Register::TgtInj => Writable::TgtInj,
        // There is no MSR of a read-only register.
        Register::Inf(_) | Register::Src(_) | Register::Tgt(_) | Register::Idr0 => {
            return Err(Denied::Undefined);
        }
    };
    check_register(pe, name, access).map(|()| register)
}

/// The register that the name BRBCR_EL1 reaches. HCR_EL2.E2H redirects the name at EL2,
/// {NV,NV1,NV2} at EL1. TGE plays no part.
fn brbcr_el1(pe: &Pe, access: Access) -> Result<Writable, Denied> {
    check_register(pe, Register::CrEl1, access)?;
    match pe.el {
        ExceptionLevel::El1 if pe.nv().is_some_and(|hcr| hcr.nv1 && hcr.nv2) => {
            Err(Denied::Memory(BRBCR_EL1_IN_MEMORY))
        }
        ExceptionLevel::El2 if pe.e2h() => Ok(Writable::CrEl2),
        _ => Ok(Writable::CrEl1),
    }
}

/// The register that the name BRBCR_EL12 reaches: BRBCR_EL1 for a host at EL2, and for
/// EL3 while there is such a host.
fn brbcr_el12(pe: &Pe, access: Access) -> Result<Writable, Denied> {
    match (pe.el, pe.nv()) {
        (ExceptionLevel::El1, Some(hcr)) if hcr.nv2 && !hcr.nv1 => {
            Err(Denied::Memory(BRBCR_EL1_IN_MEMORY))
        }
        (ExceptionLevel::El1, Some(_)) => Err(Denied::TrapToEl2),
        (ExceptionLevel::El2 | ExceptionLevel::El3, _) if pe.e2h() => {
            check_register(pe, Register::CrEl12, access).map(|()| Writable::CrEl1)
        }
        _ => Err(Denied::Undefined),
    }
}

/// The register that the name BRBCR_EL2 reaches. At EL1 there is no such register;
/// FEAT_NV traps it for EL2 to emulate.
fn brbcr_el2(pe: &Pe, access: Access) -> Result<Writable, Denied> {
    match (pe.el, pe.nv()) {
        (ExceptionLevel::El1, Some(_)) => Err(Denied::TrapToEl2),
        (ExceptionLevel::El1, None) => Err(Denied::Undefined),
        _ => check_register(pe, Register::CrEl2, access).map(|()| Writable::CrEl2),
    }
}
