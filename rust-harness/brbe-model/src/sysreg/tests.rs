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

/// D24.8.4 to D24.8.12: n is CRm with op2[2] above.
#[test]
fn record_registers_are_numbered_by_crm_and_op2() {
    for n in 0..32_u8 {
        let (crm, high) = (n & 15, n >> 4 << 2);
        assert_eq!(Register::decode(2, 1, 8, crm, high), Some(Register::Inf(n)));
        assert_eq!(
            Register::decode(2, 1, 8, crm, high | 1),
            Some(Register::Src(n))
        );
        assert_eq!(
            Register::decode(2, 1, 8, crm, high | 2),
            Some(Register::Tgt(n))
        );
        assert_eq!(Register::decode(2, 1, 8, crm, high | 3), None);
    }
    assert_eq!(Register::decode(2, 1, 7, 0, 0), None); // the trace unit's
}

#[test]
fn at_el0_everything_is_undefined() {
    let el0 = pe(ExceptionLevel::El0, VHE);
    for name in NAMES {
        for access in [Read, Write] {
            assert_eq!(check_register(&el0, name, access), Err(Denied::Undefined));
            assert_eq!(control(&el0, name, access), Err(Denied::Undefined));
        }
    }
    assert_eq!(
        check_instruction(&el0, Instruction::Iall),
        Err(Denied::Undefined)
    );
}

#[test]
fn writes_of_read_only_registers_are_undefined() {
    for name in [
        Register::Inf(0),
        Register::Src(0),
        Register::Tgt(0),
        Register::Idr0,
    ] {
        assert_eq!(
            check_register(&Pe::default(), name, Write),
            Err(Denied::Undefined)
        );
        assert_eq!(check_register(&Pe::default(), name, Read), Ok(()));
    }
}

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

/// HDFGRTR_EL2, HDFGWTR_EL2 and HFGITR_EL2 trap where their bit is 0.
#[test]
fn fine_grained_traps_of_el1() {
    let with = |hdfgrtr: u64, hdfgwtr: u64, hfgitr: u64| {
        let fgt = Some(FineGrainedTraps {
            hdfgrtr,
            hdfgwtr,
            hfgitr,
        });
        let el2 = Some(El2 {
            enabled: true,
            fgt,
            ..El2::default()
        });
        Pe {
            el2,
            ..Pe::default()
        }
    };
    for (name, bit) in [
        (Register::Inf(3), 61),
        (Register::Ts, 61),
        (Register::SrcInj, 61),
        (Register::CrEl1, 60),
        (Register::Fcr, 60),
        (Register::Idr0, 59),
    ] {
        let trap = with(!(1 << bit), u64::MAX, u64::MAX);
        assert_eq!(
            check_register(&trap, name, Read),
            Err(Denied::TrapToEl2),
            "{name:?}"
        );
        assert_eq!(
            check_register(&with(1 << bit, 0, 0), name, Read),
            Ok(()),
            "{name:?}"
        );
        if !name.is_read_only() {
            let trap = with(u64::MAX, !(1 << bit), u64::MAX);
            assert_eq!(check_register(&trap, name, Write), Err(Denied::TrapToEl2));
            assert_eq!(check_register(&trap, name, Read), Ok(()));
        }
    }
    for (instruction, bit) in [(Instruction::Iall, 56), (Instruction::Inj, 55)] {
        let trap = with(u64::MAX, u64::MAX, !(1 << bit));
        assert_eq!(
            check_instruction(&trap, instruction),
            Err(Denied::TrapToEl2)
        );
        assert_eq!(
            check_instruction(&with(0, 0, 1 << bit), instruction),
            Ok(())
        );
    }
    let at_el2 = Pe {
        el: ExceptionLevel::El2,
        ..with(0, 0, 0)
    };
    assert_eq!(check_register(&at_el2, Register::Fcr, Write), Ok(()));
}

/// MDCR_EL3.SBRBE, by Security state; nothing traps at EL3.
#[test]
fn sbrbe_traps_to_el3() {
    let with = |el, sbrbe, secure| {
        let el3 = Some(El3 {
            sbrbe,
            secure,
            ..El3::default()
        });
        Pe {
            el,
            el3,
            ..Pe::default()
        }
    };
    for (sbrbe, non_secure, secure) in [
        (0b00, true, true),
        (0b01, false, true),
        (0b10, true, true),
        (0b11, false, false),
    ] {
        for (state, traps) in [(false, non_secure), (true, secure)] {
            let pe = with(ExceptionLevel::El1, sbrbe, state);
            let denied = check_register(&pe, Register::Fcr, Read) == Err(Denied::TrapToEl3);
            assert_eq!(denied, traps, "SBRBE {sbrbe:#b} secure {state}");
            let el3 = with(ExceptionLevel::El3, sbrbe, state);
            assert_eq!(check_register(&el3, Register::Fcr, Read), Ok(()));
        }
    }
}
