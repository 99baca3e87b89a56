mod encodings;
mod redirection;
mod traps;

use super::redirection::control;
use super::traps::check_register;
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
