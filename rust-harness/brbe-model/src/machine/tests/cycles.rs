//! Cycle counts (D19.1.2, R_MJDLC).

use super::*;

#[test]
fn cycles_are_counted_from_the_previous_record() {
    let (mut brbe, el1) = (brbe(EXBRE | CC, CC), at(El1, false));
    assert_eq!(cycles_at(&mut brbe, &el1, 100), None); // the first record
    assert_eq!(cycles_at(&mut brbe, &el1, 107), Some(7));
    brbe.write(&el1, Register::Fcr, 1 << 17).unwrap();
    assert!(!brbe.branch(&el1, BranchKind::Return, 1, 2, 110)); // filtered
    assert_eq!(cycles_at(&mut brbe, &el1, 117), Some(10));
}

#[test]
fn both_brbcr_registers_must_allow_cycle_counts() {
    for (el1_cc, el2_cc) in [(0, CC), (CC, 0), (0, 0)] {
        let (mut brbe, el1) = (brbe(EXBRE | el1_cc, el2_cc), at(El1, false));
        cycles_at(&mut brbe, &el1, 0);
        assert_eq!(cycles_at(&mut brbe, &el1, 7), None);
    }
    // Without EL2, BRBCR_EL2.CC counts as 1.
    let mut without = brbe(EXBRE | CC, 0);
    cycles_at(&mut without, &only(El1), 0);
    assert_eq!(cycles_at(&mut without, &only(El1), 7), Some(7));
}

#[test]
fn an_implementation_without_cycle_counts_has_them_unknown() {
    let mut brbe = Brbe::new(Config {
        cycle_counts: false,
        ..Config::default()
    });
    brbe.write(&only(El1), Register::CrEl1, EXBRE | CC).unwrap();
    brbe.write(&only(El1), Register::Fcr, ALL_TYPES).unwrap();
    cycles_at(&mut brbe, &only(El1), 0);
    assert_eq!(cycles_at(&mut brbe, &only(El1), 7), None);
}

#[test]
fn unpausing_and_iall_make_the_next_count_unknown() {
    let (mut brbe, el1) = (brbe(EXBRE | CC, CC), at(El1, false));
    cycles_at(&mut brbe, &el1, 0);
    brbe.write(&el1, Register::Fcr, ALL_TYPES | PAUSED).unwrap();
    brbe.write(&el1, Register::Fcr, ALL_TYPES).unwrap();
    assert_eq!(cycles_at(&mut brbe, &el1, 1), None);
    assert_eq!(cycles_at(&mut brbe, &el1, 2), Some(1));
    brbe.execute(&el1, Instruction::Iall).unwrap();
    assert_eq!(cycles_at(&mut brbe, &el1, 3), None);
}

#[test]
fn counting_enabled_between_records_makes_the_next_unknown() {
    let (mut brbe, el1) = (brbe(EXBRE | CC, CC), at(El1, false));
    cycles_at(&mut brbe, &el1, 0);
    brbe.write(&el1, Register::CrEl1, EXBRE).unwrap();
    brbe.write(&el1, Register::CrEl1, EXBRE | CC).unwrap();
    assert_eq!(cycles_at(&mut brbe, &el1, 1), None);
    assert_eq!(cycles_at(&mut brbe, &el1, 2), Some(1));
}

/// The first record after a prohibited region has CCU = 1, whether the way
/// back made a record itself or not.
#[test]
fn prohibited_regions_make_the_count_unknown() {
    let (el0, el1) = (at(El0, false), at(El1, false));
    // ERTN = 0: there is no record of the return, and the count of the next record is
    // unknown.
    let mut quiet = brbe(E0BRE | CC, CC);
    cycles_at(&mut quiet, &el0, 0);
    assert!(!quiet.exception(&el0, &el1, ExceptionKind::Call, 1, 2, 1));
    assert!(!quiet.exception_return(&el1, &el0, 1, 2, 50));
    assert_eq!(cycles_at(&mut quiet, &el0, 51), None);
    // ERTN = 1: the count of the target-only record is unknown, that of the next record
    // is known.
    let mut half = brbe(E0BRE | CC | ERTN | EXCEPTION, CC);
    cycles_at(&mut half, &el0, 0);
    assert!(half.exception(&el0, &el1, ExceptionKind::Call, 1, 2, 3));
    assert_eq!(youngest(&half).inf >> 32, 3); // source-only, and known
    assert!(half.exception_return(&el1, &el0, 1, 2, 50));
    assert_eq!(youngest(&half).inf >> 32, CCU >> 32);
    assert_eq!(cycles_at(&mut half, &el0, 54), Some(4));
}

/// When EL3 stops recording, by MDCR_EL3, it is a prohibited region at once.
#[test]
fn r_mjdlc_a_region_prohibited_for_a_moment_makes_the_count_unknown() {
    let mon = |e3brec| Pe {
        el3: el3(0b11, e3brec, false, false),
        ..only(Mon)
    };
    let mut brbe = brbe(CC, 0);
    cycles_at(&mut brbe, &mon(true), 0);
    brbe.note_state(&mon(true));
    assert_eq!(cycles_at(&mut brbe, &mon(true), 3), Some(3));
    brbe.note_state(&mon(false));
    brbe.note_state(&mon(true));
    assert_eq!(cycles_at(&mut brbe, &mon(true), 9), None);
}

#[test]
fn r_mjdlc_an_unrecorded_return_from_a_prohibited_region_makes_the_count_unknown() {
    let mon = |e3brec| Pe {
        el3: el3(0b11, e3brec, false, false),
        ..only(Mon)
    };
    let mut brbe = brbe(EXBRE | CC, 0);
    cycles_at(&mut brbe, &mon(true), 0);
    let after = Pe {
        el: El1,
        ..mon(false)
    };
    assert!(!brbe.exception_return(&mon(false), &after, 1, 2, 5));
    assert_eq!(cycles_at(&mut brbe, &after, 9), None);
}

/// EXCEPTION = 0 with both sides allowed: nothing was prohibited, the count goes on.
#[test]
fn an_unrecorded_exception_between_allowed_regions_keeps_the_count() {
    let (el0, el1) = (at(El0, false), at(El1, false));
    let mut brbe = brbe(E0BRE | EXBRE | CC, CC);
    cycles_at(&mut brbe, &el0, 0);
    assert!(!brbe.exception(&el0, &el1, ExceptionKind::Call, 1, 2, 3));
    assert_eq!(cycles_at(&mut brbe, &el1, 9), Some(9));
}

/// BRBCR_EL2.CC counts while EL2 is implemented, enabled or not.
#[test]
fn r_mjdlc_brbcr_el2_cc_counts_where_el2_is_disabled() {
    let mut el1 = at(El1, false);
    el1.el2 = el1.el2.map(|el2| El2 {
        enabled: false,
        ..el2
    });
    for (el2_cc, expected) in [(0, None), (CC, Some(7))] {
        let mut brbe = brbe(EXBRE | CC, el2_cc);
        cycles_at(&mut brbe, &el1, 0);
        assert_eq!(cycles_at(&mut brbe, &el1, 7), expected);
    }
}

/// BRBCR_EL1.CC and BRBCR_EL2.CC are for every Exception level.
#[test]
fn r_mjdlc_both_brbcr_registers_govern_el2_and_el3() {
    let mon = Pe {
        el3: el3(0b11, true, false, false),
        ..at(Mon, false)
    };
    for pe in [at(Hyp, true), mon] {
        for (el1_cc, el2_cc, expected) in [(CC, CC, Some(7)), (0, CC, None), (CC, 0, None)] {
            let mut brbe = brbe(el1_cc, EXBRE | el2_cc);
            cycles_at(&mut brbe, &pe, 0);
            assert_eq!(cycles_at(&mut brbe, &pe, 7), expected);
        }
    }
}

/// A record made while cycles are not counted does not start a count.
#[test]
fn r_mjdlc_the_first_record_after_counting_became_enabled_does_not_know() {
    let (mut brbe, el1) = (brbe(EXBRE, CC), at(El1, false));
    cycles_at(&mut brbe, &el1, 0);
    brbe.write(&el1, Register::CrEl1, EXBRE | CC).unwrap();
    assert_eq!(cycles_at(&mut brbe, &el1, 3), None);
    assert_eq!(cycles_at(&mut brbe, &el1, 5), Some(2));
}

/// The cycles that were counted while paused belong to no record.
#[test]
fn r_mjdlc_an_unrecorded_branch_after_unpausing_keeps_the_count_unknown() {
    let (mut brbe, el1) = (brbe(EXBRE | CC, CC), at(El1, false));
    cycles_at(&mut brbe, &el1, 0);
    brbe.write(&el1, Register::Fcr, PAUSED).unwrap();
    brbe.write(&el1, Register::Fcr, 1 << 17).unwrap();
    assert!(!brbe.branch(&el1, BranchKind::Return, 1, 2, 4)); // filtered
    assert_eq!(cycles_at(&mut brbe, &el1, 6), None);
}

/// More than 20 bits of cycles: "exceeded", which is known.
#[test]
fn a_count_of_more_than_20_bits_saturates() {
    let (mut brbe, el1) = (brbe(EXBRE | CC, CC), at(El1, false));
    cycles_at(&mut brbe, &el1, 5);
    assert_eq!(cycles_at(&mut brbe, &el1, 5 + (1 << 20)), Some(0x3fff));
    assert_eq!(cycles_at(&mut brbe, &el1, 4 + (2 << 20)), Some(0xcff));
}
