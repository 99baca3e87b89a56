//! The names of BRBCR (D24.8.1, D24.8.2).

use super::*;

const EL1: Result<Writable, Denied> = Ok(Writable::CrEl1);
const EL2: Result<Writable, Denied> = Ok(Writable::CrEl2);
const UNDEFINED: Result<Writable, Denied> = Err(Denied::Undefined);
const TRAP: Result<Writable, Denied> = Err(Denied::TrapToEl2);
const MEMORY: Result<Writable, Denied> = Err(Denied::Memory(0x8e0));

/// The registers that the names BRBCR_EL1, BRBCR_EL12 and BRBCR_EL2 reach.
fn names(pe: &Pe) -> [Result<Writable, Denied>; 3] {
    [Register::CrEl1, Register::CrEl12, Register::CrEl2].map(|name| brbcr(pe, name))
}

/// The accessor table of BRBCR. TGE plays no part.
#[test]
fn e2h_redirects_brbcr_at_el2() {
    for tge in [false, true] {
        let host = Hcr { tge, ..VHE };
        let hypervisor = Hcr { e2h: false, ..host };
        for (el, hcr, expected) in [
            (ExceptionLevel::El1, hypervisor, [EL1, UNDEFINED, UNDEFINED]),
            (ExceptionLevel::El1, host, [EL1, UNDEFINED, UNDEFINED]),
            (ExceptionLevel::El2, hypervisor, [EL1, UNDEFINED, EL2]),
            (ExceptionLevel::El2, host, [EL2, EL1, EL2]),
            (ExceptionLevel::El3, hypervisor, [EL1, UNDEFINED, EL2]),
            (ExceptionLevel::El3, host, [EL1, EL1, EL2]),
        ] {
            assert_eq!(names(&pe(el, hcr)), expected, "{el:?} {hcr:?}");
        }
    }
}

/// EL3 with EL2 disabled: there is no host.
#[test]
fn e2h_counts_where_el2_is_enabled() {
    let el2 = Some(El2 {
        hcr: VHE,
        ..El2::default()
    });
    let el3 = Pe {
        el: ExceptionLevel::El3,
        el2,
        ..Pe::default()
    };
    assert_eq!(names(&el3), [EL1, UNDEFINED, EL2]);
}

fn nested(nv2: bool, nv1: bool, nv: bool) -> Hcr {
    Hcr {
        nv,
        nv1,
        nv2,
        ..Hcr::default()
    }
}

/// FEAT_NV and FEAT_NV2 at EL1.
#[test]
fn nested_virtualisation_at_el1() {
    for (hcr, expected) in [
        (nested(false, false, true), [EL1, TRAP, TRAP]),
        (nested(false, true, true), [EL1, TRAP, TRAP]),
        (nested(true, false, true), [EL1, MEMORY, TRAP]),
        (nested(true, true, true), [MEMORY, TRAP, TRAP]),
        // Without NV the other two bits do nothing.
        (nested(true, true, false), [EL1, UNDEFINED, UNDEFINED]),
    ] {
        assert_eq!(names(&pe(ExceptionLevel::El1, hcr)), expected, "{hcr:?}");
    }
}

#[test]
fn nested_virtualisation_needs_an_enabled_el2() {
    let el2 = Some(El2 {
        hcr: nested(true, true, true),
        ..El2::default()
    });
    let el1 = Pe {
        el2,
        ..Pe::default()
    };
    assert_eq!(names(&el1), [EL1, UNDEFINED, UNDEFINED]);
}
