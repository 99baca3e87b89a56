//! Which accesses are UNDEFINED, and which trap (the accessors of D24.8).

use super::*;

#[test]
fn at_el0_everything_is_undefined() {
    let el0 = pe(ExceptionLevel::El0, VHE);
    for name in NAMES {
        for access in [Read, Write] {
            assert_eq!(permitted(&el0, name, access), Err(Denied::Undefined));
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
            permitted(&Pe::default(), name, Write),
            Err(Denied::Undefined)
        );
        assert_eq!(permitted(&Pe::default(), name, Read), Ok(()));
    }
}

/// The order of the checks: fine-grained traps, EL3, and then FEAT_NV2's memory.
#[test]
fn traps_in_order_of_priority() {
    let nv = Hcr {
        nv: true,
        nv1: true,
        nv2: true,
        ..Hcr::default()
    };
    let with = |el2_traps: bool, sbrbe: u8| {
        let bits = if el2_traps { 0 } else { u64::MAX };
        let fgt = Some(FineGrainedTraps {
            hdfgrtr: bits,
            hdfgwtr: bits,
            hfgitr: bits,
        });
        let el2 = Some(El2 {
            enabled: true,
            hcr: nv,
            fgt,
            ..El2::default()
        });
        let el3 = Some(El3 {
            sbrbe,
            ..El3::default()
        });
        Pe {
            el2,
            el3,
            ..Pe::default()
        }
    };
    let reached = |el2_traps, sbrbe| brbcr(&with(el2_traps, sbrbe), Register::CrEl1);
    assert_eq!(reached(true, 0b00), Err(Denied::TrapToEl2));
    assert_eq!(reached(true, 0b11), Err(Denied::TrapToEl2));
    assert_eq!(reached(false, 0b00), Err(Denied::TrapToEl3));
    assert_eq!(reached(false, 0b11), Err(Denied::Memory(0x8e0)));
    // The names of EL2's registers at EL1: SBRBE is not looked at.
    for name in [Register::CrEl2, Register::CrEl12] {
        let trapped = brbcr(&with(false, 0b00), name);
        assert_eq!(trapped, Err(Denied::TrapToEl2));
    }
    for instruction in [Instruction::Iall, Instruction::Inj] {
        let checked = |el2_traps, sbrbe| check_instruction(&with(el2_traps, sbrbe), instruction);
        assert_eq!(checked(true, 0b00), Err(Denied::TrapToEl2));
        assert_eq!(checked(false, 0b00), Err(Denied::TrapToEl3));
        assert_eq!(checked(false, 0b11), Ok(()));
    }
}

#[test]
fn fine_grained_traps_need_an_enabled_el2() {
    let fgt = Some(FineGrainedTraps {
        hdfgrtr: 0,
        hdfgwtr: 0,
        hfgitr: 0,
    });
    let el2 = Some(El2 {
        fgt,
        ..El2::default()
    });
    let disabled = Pe {
        el2,
        ..Pe::default()
    };
    assert_eq!(permitted(&disabled, Register::Fcr, Read), Ok(()));
    assert_eq!(check_instruction(&disabled, Instruction::Iall), Ok(()));
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
        (Register::Src(0), 61),
        (Register::Tgt(31), 61),
        (Register::Ts, 61),
        (Register::InfInj, 61),
        (Register::SrcInj, 61),
        (Register::TgtInj, 61),
        (Register::CrEl1, 60),
        (Register::Fcr, 60),
        (Register::Idr0, 59),
    ] {
        let trap = with(!(1 << bit), u64::MAX, u64::MAX);
        assert_eq!(
            permitted(&trap, name, Read),
            Err(Denied::TrapToEl2),
            "{name:?}"
        );
        assert_eq!(
            permitted(&with(1 << bit, 0, 0), name, Read),
            Ok(()),
            "{name:?}"
        );
        let trap = with(u64::MAX, !(1 << bit), u64::MAX);
        if permitted(&Pe::default(), name, Write).is_ok() {
            assert_eq!(permitted(&trap, name, Write), Err(Denied::TrapToEl2));
        }
        assert_eq!(permitted(&trap, name, Read), Ok(()));
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
    assert_eq!(permitted(&at_el2, Register::Fcr, Write), Ok(()));
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
            let denied = permitted(&pe, Register::Fcr, Read) == Err(Denied::TrapToEl3);
            assert_eq!(denied, traps, "SBRBE {sbrbe:#b} secure {state}");
            let el3 = with(ExceptionLevel::El3, sbrbe, state);
            assert_eq!(permitted(&el3, Register::Fcr, Read), Ok(()));
        }
    }
}

/// SBRBE traps BRBCR's names at EL2 as it does the other registers.
#[test]
fn sbrbe_traps_at_el2_too() {
    let with = |sbrbe| Pe {
        el3: Some(El3 {
            sbrbe,
            ..El3::default()
        }),
        ..pe(ExceptionLevel::El2, VHE)
    };
    for name in [Register::CrEl1, Register::CrEl2, Register::CrEl12] {
        assert_eq!(brbcr(&with(0b10), name), Err(Denied::TrapToEl3));
        assert!(brbcr(&with(0b01), name).is_ok());
    }
    let trapped = Err(Denied::TrapToEl3);
    assert_eq!(permitted(&with(0b00), Register::Ts, Read), trapped);
    assert_eq!(check_instruction(&with(0b00), Instruction::Inj), trapped);
}
