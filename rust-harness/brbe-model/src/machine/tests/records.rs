//! The record buffer (D19.4) and its registers.

use super::*;

#[test]
fn banks_show_the_older_half() {
    let (mut brbe, el1) = (brbe(EXBRE, 0), only(El1));
    for n in 1..=100 {
        brbe.branch(&el1, BranchKind::Direct, n, n + 1000, 0);
    }
    for bank in 0..4 {
        brbe.write(&el1, Register::Fcr, bank << 28 | PAUSED)
            .unwrap();
        for n in 0..32 {
            let index = bank * 32 + u64::from(n);
            let (src, tgt) = if index < 64 {
                (100 - index, 1100 - index)
            } else {
                (0, 0)
            };
            assert_eq!(brbe.read(&el1, Register::Src(n)), Ok(src));
            assert_eq!(brbe.read(&el1, Register::Tgt(n)), Ok(tgt));
            assert_eq!(
                brbe.read(&el1, Register::Inf(n)).unwrap() & 3,
                if src == 0 { 0 } else { 3 }
            );
        }
    }
}

/// R_BNGTH: an index of NUMREC or more reads as zero, and is never UNDEFINED.
#[test]
fn registers_past_the_last_record_read_as_zero() {
    let config = Config {
        records: NumRecords::R8,
        ..Config::default()
    };
    let (mut brbe, el1) = (Brbe::new(config), only(El1));
    brbe.write(&el1, Register::CrEl1, EXBRE).unwrap();
    brbe.write(&el1, Register::Fcr, ALL_TYPES).unwrap();
    (1..=20).for_each(|n| assert!(brbe.branch(&el1, BranchKind::Direct, n, n, 0)));
    for n in 0..32 {
        let expected = if n < 8 { 20 - u64::from(n) } else { 0 };
        assert_eq!(brbe.read(&el1, Register::Src(n)), Ok(expected));
    }
}

#[test]
fn iall_leaves_the_other_registers() {
    let (mut brbe, el1) = (brbe(EXBRE, 0), only(El1));
    brbe.branch(&el1, BranchKind::Direct, 1, 2, 0);
    brbe.write(&el1, Register::Ts, 7).unwrap();
    brbe.write(&el1, Register::SrcInj, 8).unwrap();
    brbe.execute(&el1, Instruction::Iall).unwrap();
    assert_eq!(youngest(&brbe), BrbeRecord::default());
    assert_eq!(brbe.read(&el1, Register::Ts), Ok(7));
    assert_eq!(brbe.read(&el1, Register::SrcInj), Ok(8));
    assert_eq!(brbe.read(&el1, Register::Fcr), Ok(ALL_TYPES));
    assert_eq!(brbe.read(&el1, Register::CrEl1), Ok(EXBRE));
}

/// BRB IALL works paused, and where nothing is recorded.
#[test]
fn iall_invalidates_while_paused_and_prohibited() {
    let (mut brbe, el1) = (brbe(EXBRE, 0), only(El1));
    branches(&mut brbe, &el1);
    brbe.write(&el1, Register::CrEl1, 0).unwrap();
    brbe.write(&el1, Register::Fcr, PAUSED).unwrap();
    brbe.execute(&el1, Instruction::Iall).unwrap();
    assert_eq!(youngest(&brbe), BrbeRecord::default());
    assert!(brbe.paused());
}
