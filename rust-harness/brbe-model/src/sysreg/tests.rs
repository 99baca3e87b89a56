mod encodings;
mod redirection;
mod traps;

use super::traps::Access;
use super::*;
use crate::pe::{El2, El3, ExceptionLevel, FineGrainedTraps, Hcr, Pe};
use Access::{Read, Write};

const NAMES: [Register; 12] = [
    Register::Inf(0),
    Register::Src(31),
    Register::Tgt(5),
    Register::CrEl1,
    Register::CrEl2,
    Register::CrEl12,
    Register::Fcr,
    Register::Ts,
    Register::InfInj,
    Register::SrcInj,
    Register::TgtInj,
    Register::Idr0,
];

fn pe(el: ExceptionLevel, hcr: Hcr) -> Pe {
    let el2 = Some(El2 {
        enabled: true,
        hcr,
        hpmn: 6,
        fgt: None,
    });
    Pe {
        el,
        el2,
        ..Pe::default()
    }
}

const VHE: Hcr = Hcr {
    e2h: true,
    tge: true,
    nv: false,
    nv1: false,
    nv2: false,
};

/// Whether the access reaches a register.
fn permitted(pe: &Pe, name: Register, access: Access) -> Result<(), Denied> {
    match access {
        Read => resolve_read(pe, name).map(|_| ()),
        Write => resolve_write(pe, name).map(|_| ()),
    }
}

/// The register that `MRS` and `MSR` of this name of BRBCR reach.
fn brbcr(pe: &Pe, name: Register) -> Result<Writable, Denied> {
    let reached = resolve_write(pe, name);
    assert_eq!(resolve_read(pe, name), reached.map(Readable::Writable));
    reached
}
