//! BRB INJ (D19.5.1).

use super::*;

/// D19.5.1: a saved buffer is restored from the oldest record to the youngest.
#[test]
fn injection_restores_a_buffer() {
    let (mut old, el1) = (brbe(EXBRE | CC, CC), only(El1));
    for n in 1..=10 {
        old.branch(&el1, BranchKind::Return, n, n + 100, n * 300);
    }
    let mut new = Brbe::new(Config::default());
    for n in (0..10).rev() {
        let value = |register| old.read(&el1, register).unwrap();
        new.write(&el1, Register::InfInj, value(Register::Inf(n)))
            .unwrap();
        new.write(&el1, Register::SrcInj, value(Register::Src(n)))
            .unwrap();
        new.write(&el1, Register::TgtInj, value(Register::Tgt(n)))
            .unwrap();
        new.execute(&el1, Instruction::Inj).unwrap();
    }
    assert!((0..64).all(|n| new.buffer.get(n) == old.buffer.get(n)));
}

#[test]
fn injection_drops_res0_fields_and_invalid_records() {
    let (mut brbe, el1) = (brbe(0, 0), only(El1));
    for register in [Register::InfInj, Register::SrcInj, Register::TgtInj] {
        brbe.write(&el1, register, u64::MAX).unwrap();
    }
    assert_eq!(brbe.read(&el1, Register::InfInj), Ok(0x0000_7fff_0000_3fe3));
    brbe.execute(&el1, Instruction::Inj).unwrap();
    let expected = BrbeRecord {
        inf: CCU | 0x3f << 8 | 3 << 6 | 3,
        src: u64::MAX,
        tgt: u64::MAX,
    };
    assert_eq!(youngest(&brbe), expected);
    brbe.write(&el1, Register::InfInj, !3).unwrap();
    brbe.execute(&el1, Instruction::Inj).unwrap();
    assert_eq!(youngest(&brbe), expected);
}

/// Filters, enables and PAUSED are not looked at, and time is not touched.
#[test]
fn injection_is_independent_of_what_is_recorded() {
    let (mut brbe, el1) = (brbe(EXBRE | CC, CC), at(El1, false));
    cycles_at(&mut brbe, &el1, 0);
    let inf = 5 << 32 | 0b000101 << 8 | 1 << 6 | 1 << 5 | 3;
    for (register, value) in [
        (Register::InfInj, inf),
        (Register::SrcInj, 0x10),
        (Register::TgtInj, 0x20),
    ] {
        brbe.write(&el1, register, value).unwrap();
    }
    let expected = BrbeRecord {
        inf,
        src: 0x10,
        tgt: 0x20,
    };
    brbe.execute(&el1, Instruction::Inj).unwrap();
    assert_eq!(youngest(&brbe), expected);
    assert_eq!(brbe.read(&el1, Register::InfInj), Ok(inf));
    assert_eq!(cycles_at(&mut brbe, &el1, 9), Some(9));
    brbe.write(&el1, Register::Fcr, PAUSED).unwrap();
    brbe.write(&el1, Register::CrEl1, 0).unwrap();
    brbe.execute(&el1, Instruction::Inj).unwrap();
    assert_eq!(youngest(&brbe), expected);
    assert_eq!(brbe.buffer.get(2), expected);
    assert!(brbe.paused());
}

/// R_SQLCX: an injection makes the other records older, and drops the oldest.
#[test]
fn r_sqlcx_injection_into_a_full_buffer_drops_the_oldest() {
    let config = Config {
        records: NumRecords::R8,
        ..Config::default()
    };
    let (mut brbe, el1) = (Brbe::new(config), only(El1));
    brbe.write(&el1, Register::InfInj, 3).unwrap();
    for n in 1..=9 {
        brbe.write(&el1, Register::SrcInj, n).unwrap();
        brbe.execute(&el1, Instruction::Inj).unwrap();
    }
    let sources = (0..8).map(|n| brbe.read(&el1, Register::Src(n)));
    assert!(sources.eq((2..=9).rev().map(Ok)));
}
