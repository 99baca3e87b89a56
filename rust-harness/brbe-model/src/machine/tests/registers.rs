//! Accesses to registers.

use super::*;

#[test]
fn redirected_names_reach_one_register() {
    let vhe = {
        let hcr = Hcr {
            e2h: true,
            tge: true,
            ..Hcr::default()
        };
        let el2 = Some(El2 {
            enabled: true,
            hcr,
            hpmn: 6,
            fgt: None,
        });
        Pe {
            el: Hyp,
            el2,
            ..Pe::default()
        }
    };
    let mut brbe = Brbe::new(Config::default());
    brbe.write(&vhe, Register::CrEl12, FZP).unwrap();
    brbe.write(&vhe, Register::CrEl1, EXBRE).unwrap();
    assert_eq!(
        (brbe.brbcr_el1().bits(), brbe.brbcr_el2().bits()),
        (FZP, EXBRE)
    );
    assert_eq!(brbe.read(&vhe, Register::CrEl2), Ok(EXBRE));
    assert_eq!(brbe.read(&vhe, Register::CrEl12), Ok(FZP));
}

/// D24.8.2: at EL3 the register has no field where EL2 is not implemented.
#[test]
fn brbcr_el2_is_res0_without_el2() {
    let mon = Pe {
        el3: el3(0b11, false, false, false),
        ..only(Mon)
    };
    let mut brbe = Brbe::new(Config::default());
    assert_eq!(brbe.write(&mon, Register::CrEl2, u64::MAX), Ok(()));
    assert_eq!(brbe.read(&mon, Register::CrEl2), Ok(0));
}

#[test]
fn denied_accesses_change_nothing() {
    let mut brbe = brbe(EXBRE, 0);
    branches(&mut brbe, &only(El1));
    let before = youngest(&brbe);
    let denied = Err(Denied::Undefined);
    assert_eq!(brbe.write(&only(El0), Register::CrEl1, 0), denied);
    assert_eq!(brbe.write(&only(El1), Register::Src(0), 0), denied);
    assert_eq!(brbe.write(&only(El1), Register::Idr0, 0), denied);
    assert_eq!(brbe.execute(&only(El0), Instruction::Iall), denied);
    assert_eq!(brbe.read(&only(El0), Register::Ts), Err(Denied::Undefined));
    assert_eq!((brbe.brbcr_el1().bits(), youngest(&brbe)), (EXBRE, before));
}

/// D24.8: which bits a write changes, with every feature but FEAT_TME.
#[test]
fn res0_bits_of_the_control_registers() {
    let hyp = at(Hyp, false);
    let mut brbe = brbe(0, 0);
    for (register, value) in [
        (Register::CrEl1, 0x00c0_037b),
        (Register::CrEl2, 0x00c0_037b),
        (Register::Fcr, 0x307f_0080),
        (Register::Ts, u64::MAX),
        (Register::SrcInj, u64::MAX),
        (Register::TgtInj, u64::MAX),
    ] {
        brbe.write(&hyp, register, u64::MAX).unwrap();
        assert_eq!(brbe.read(&hyp, register), Ok(value), "{register}");
    }
    assert_eq!(brbe.read(&hyp, Register::Idr0), Ok(0x5040));
}

#[test]
fn the_bank_is_what_was_selected() {
    let hyp = at(Hyp, false);
    let mut brbe = brbe(0, 0);
    for bank in 0..4 {
        let others = 0x7f << 16 | PAUSED;
        brbe.write(&hyp, Register::Fcr, u64::from(bank) << 28 | others)
            .unwrap();
        assert_eq!(brbe.bank(), bank);
    }
}
