//! Branches (R_LYGJZ to R_FJYDC).

use super::*;

#[test]
fn a_branch_makes_a_full_record() {
    let mut brbe = brbe(E0BRE | EXBRE, 0);
    for (kind, code) in [
        (BranchKind::Direct, 0b000000),
        (BranchKind::Indirect, 0b000001),
        (BranchKind::DirectCall, 0b000010),
        (BranchKind::IndirectCall, 0b000011),
        (BranchKind::Return, 0b000101),
        (BranchKind::Conditional, 0b001000),
    ] {
        for el in [El0, El1] {
            assert!(brbe.branch(&at(el, false), kind, 0x10, 0x20, 0));
            let inf = CCU | code << 8 | (el as u64) << 6 | 3;
            assert_eq!(
                youngest(&brbe),
                Record {
                    inf,
                    src: 0x10,
                    tgt: 0x20
                }
            );
        }
    }
}

#[test]
fn a_filtered_branch_makes_no_record() {
    let mut brbe = brbe(EXBRE, 0);
    brbe.write(&only(El1), Register::Fcr, 1 << 22).unwrap();
    assert!(!branches(&mut brbe, &only(El1)));
    assert!(brbe.branch(&only(El1), BranchKind::Conditional, 1, 2, 0));
}
