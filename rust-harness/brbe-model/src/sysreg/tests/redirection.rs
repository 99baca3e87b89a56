//! The names of BRBCR (D24.8.1, D24.8.2).

use super::*;

/// D24.8.1, D24.8.2: the accessor table of BRBCR.
#[test]
fn e2h_redirects_brbcr_at_el2() {
    let (nvhe, vhe) = (
        pe(ExceptionLevel::El2, Hcr::default()),
        pe(ExceptionLevel::El2, VHE),
    );
    assert_eq!(control(&nvhe, Register::CrEl1, Write), Ok(Register::CrEl1));
    assert_eq!(
        control(&nvhe, Register::CrEl12, Write),
        Err(Denied::Undefined)
    );
    assert_eq!(control(&nvhe, Register::CrEl2, Write), Ok(Register::CrEl2));
    assert_eq!(control(&vhe, Register::CrEl1, Write), Ok(Register::CrEl2));
    assert_eq!(control(&vhe, Register::CrEl12, Write), Ok(Register::CrEl1));
    assert_eq!(control(&vhe, Register::CrEl2, Write), Ok(Register::CrEl2));
    let el1 = pe(ExceptionLevel::El1, VHE);
    assert_eq!(control(&el1, Register::CrEl1, Read), Ok(Register::CrEl1));
    assert_eq!(
        control(&el1, Register::CrEl12, Read),
        Err(Denied::Undefined)
    );
    assert_eq!(control(&el1, Register::CrEl2, Read), Err(Denied::Undefined));
    let el3 = Pe {
        el: ExceptionLevel::El3,
        ..vhe
    };
    assert_eq!(control(&el3, Register::CrEl1, Read), Ok(Register::CrEl1));
    assert_eq!(control(&el3, Register::CrEl12, Read), Ok(Register::CrEl1));
}

/// E2H counts while EL2 is enabled, and not only with TGE.
#[test]
fn e2h_alone_decides_the_redirection() {
    let guest = Hcr { tge: false, ..VHE };
    let at_el2 = pe(ExceptionLevel::El2, guest);
    assert_eq!(control(&at_el2, Register::CrEl1, Read), Ok(Register::CrEl2));
    assert_eq!(
        control(&at_el2, Register::CrEl12, Read),
        Ok(Register::CrEl1)
    );
    let tge = Hcr { e2h: false, ..VHE };
    let at_el2 = pe(ExceptionLevel::El2, tge);
    assert_eq!(control(&at_el2, Register::CrEl1, Read), Ok(Register::CrEl1));
    let at_el3 = Pe {
        el2: Some(El2 {
            hcr: VHE,
            ..El2::default()
        }),
        ..pe(ExceptionLevel::El3, VHE)
    };
    let denied = Err(Denied::Undefined);
    assert_eq!(control(&at_el3, Register::CrEl12, Read), denied);
    assert_eq!(control(&at_el3, Register::CrEl2, Read), Ok(Register::CrEl2));
}

/// FEAT_NV and FEAT_NV2 at EL1.
#[test]
fn nested_virtualisation_at_el1() {
    let with = |nv, nv1, nv2| {
        pe(
            ExceptionLevel::El1,
            Hcr {
                nv,
                nv1,
                nv2,
                ..Hcr::default()
            },
        )
    };
    let memory = Err(Denied::Memory(0x8e0));
    let nv = with(true, false, false);
    assert_eq!(control(&nv, Register::CrEl2, Read), Err(Denied::TrapToEl2));
    assert_eq!(control(&nv, Register::CrEl12, Read), Err(Denied::TrapToEl2));
    assert_eq!(control(&nv, Register::CrEl1, Read), Ok(Register::CrEl1));
    assert_eq!(
        control(&with(true, false, true), Register::CrEl12, Read),
        memory
    );
    assert_eq!(
        control(&with(true, true, true), Register::CrEl1, Read),
        memory
    );
    assert_eq!(
        control(&with(true, true, true), Register::CrEl12, Read),
        Err(Denied::TrapToEl2)
    );
}

/// Without NV the other two bits do nothing, and none does where EL2 is disabled.
#[test]
fn nested_virtualisation_needs_nv_and_an_enabled_el2() {
    let hcr = Hcr {
        nv1: true,
        nv2: true,
        ..Hcr::default()
    };
    let without_nv = pe(ExceptionLevel::El1, hcr);
    let nv = Hcr { nv: true, ..hcr };
    let disabled = Pe {
        el2: Some(El2 {
            hcr: nv,
            ..El2::default()
        }),
        ..without_nv
    };
    for pe in [without_nv, disabled] {
        let denied = Err(Denied::Undefined);
        assert_eq!(control(&pe, Register::CrEl1, Read), Ok(Register::CrEl1));
        assert_eq!(control(&pe, Register::CrEl12, Read), denied);
        assert_eq!(control(&pe, Register::CrEl2, Read), denied);
    }
}
