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
                BrbeRecord {
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

/// S_XZRTW, EnI: the selection inverted; BRBFCR_EL1 is for every Exception level.
#[test]
fn r_fjydc_eni_records_what_does_not_match() {
    const ENI: u64 = 1 << 16;
    let all = EXBRE | E0BRE;
    for pe in [at(El0, false), at(El0, true), at(El1, false), at(Hyp, true)] {
        let mut brbe = brbe(all, all);
        let recorded = |brbe: &mut Brbe, fcr, kind| {
            brbe.write(&at(Hyp, false), Register::Fcr, fcr).unwrap();
            brbe.branch(&pe, kind, 1, 2, 0)
        };
        assert!(recorded(&mut brbe, 1 << 22, BranchKind::Conditional));
        assert!(!recorded(&mut brbe, ENI | 1 << 22, BranchKind::Conditional));
        assert!(!recorded(&mut brbe, 1 << 22, BranchKind::Direct));
        assert!(recorded(&mut brbe, ENI | 1 << 22, BranchKind::Direct));
    }
}

/// A region that is computed once gives the same as each branch by itself.
#[test]
fn branches_in_a_region() {
    for (cc, expected) in [(CC, Some(3)), (0, None)] {
        let (mut brbe, el1) = (brbe(EXBRE | cc, CC), at(El1, false));
        let region = brbe.region(&el1).unwrap();
        assert!(region.selects(BranchKind::Return));
        assert!(brbe.branch_in(&region, BranchKind::Return, 1, 2, 10));
        assert_eq!(youngest(&brbe).cycle_count(), None);
        assert!(brbe.branch_in(&region, BranchKind::Return, 3, 4, 13));
        let cycles = youngest(&brbe).cycle_count();
        assert_eq!(cycles.and_then(|cycles| cycles.decode()), expected);
    }
    let mut paused = brbe(EXBRE, 0);
    paused.write(&only(El1), Register::Fcr, PAUSED).unwrap();
    assert!(paused.region(&only(El1)).is_none());
}

/// R_XHWRB: nothing is mispredicted, whatever MPRED allows.
#[test]
fn r_xhwrb_no_branch_is_mispredicted() {
    const MPRED: u64 = 1 << 4;
    let mut brbe = brbe(EXBRE | MPRED, MPRED);
    branches(&mut brbe, &at(El1, false));
    assert_eq!(youngest(&brbe).inf & 1 << 5, 0);
}
