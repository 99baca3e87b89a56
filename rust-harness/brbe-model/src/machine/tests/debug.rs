//! Debug state (R_LLCTG, R_LPYBQ).

use super::*;

#[test]
fn debug_entry_and_exit_make_half_records() {
    let mut brbe = brbe(EXBRE | CC, CC);
    brbe.branch(&at(El1, false), BranchKind::Direct, 1, 2, 0);
    assert!(brbe.debug_entry(&at(El1, false), 0x10, 5));
    let expected = BrbeRecord {
        inf: 5 << 32 | 0b100001 << 8 | 2,
        src: 0x10,
        tgt: 0,
    };
    assert_eq!(youngest(&brbe), expected);
    assert!(brbe.debug_exit(&at(El1, false), 0x20, 9));
    let expected = BrbeRecord {
        inf: CCU | 0b111001 << 8 | 1 << 6 | 1,
        src: 0,
        tgt: 0x20,
    };
    assert_eq!(youngest(&brbe), expected);
}

/// Debug state is a prohibited region, whatever is executed there.
#[test]
fn r_lpybq_nothing_is_recorded_and_nothing_freezes_in_debug_state() {
    let mut brbe = brbe(EXBRE | EXCEPTION | ERTN | FZP | FZPSS | CC, 0);
    let el1 = only(El1);
    brbe.debug_entry(&el1, 0x10, 0);
    let halt = youngest(&brbe);
    assert!(!brbe.allowed(&el1) && brbe.region(&el1).is_none());
    assert!(!branches(&mut brbe, &el1));
    assert!(!brbe.exception(&el1, &el1, ExceptionKind::DataFault, 1, 2, 0));
    assert!(!brbe.exception_return(&el1, &el1, 1, 2, 0));
    assert!(!brbe.freeze_on_overflow(&el1, &OVERFLOW, clock));
    assert!(!brbe.freeze_on_capture(&el1, &clock()));
    assert_eq!(youngest(&brbe), halt);
    assert!(brbe.debug_exit(&el1, 0x20, 9));
    // The exit's own record is the one whose count is unknown.
    assert_eq!(cycles_at(&mut brbe, &el1, 11), Some(2));
    assert!(brbe.freeze_on_overflow(&el1, &OVERFLOW, clock));
}

#[test]
fn an_unrecorded_way_out_of_debug_state_makes_the_count_unknown() {
    let (mut brbe, el0, el1) = (brbe(E0BRE | CC, 0), only(El0), only(El1));
    cycles_at(&mut brbe, &el0, 0);
    assert!(brbe.debug_entry(&el0, 0x10, 1));
    assert!(!brbe.debug_exit(&el1, 0x20, 9));
    assert!(!brbe.exception_return(&el1, &el0, 1, 2, 10));
    assert_eq!(cycles_at(&mut brbe, &el0, 11), None);
}

#[test]
fn a_warm_reset_leaves_debug_state() {
    let (mut brbe, el1) = (brbe(EXBRE, 0), only(El1));
    brbe.debug_entry(&el1, 0x10, 0);
    brbe.warm_reset();
    brbe.write(&el1, Register::CrEl1, EXBRE).unwrap();
    assert!(branches(&mut brbe, &el1));
}

/// Neither a filter nor an enable decides, but the region.
#[test]
fn r_llctg_debug_state_in_a_prohibited_region_leaves_no_record() {
    let mut brbe = brbe(E0BRE | EXCEPTION | ERTN, 0);
    brbe.write(&only(El1), Register::Fcr, 0).unwrap();
    assert!(!brbe.debug_entry(&only(El1), 0x10, 0));
    assert!(!brbe.debug_exit(&only(El1), 0x20, 0));
    assert!(brbe.debug_entry(&only(El0), 0x10, 0));
    assert!(brbe.debug_exit(&only(El0), 0x20, 0));
}
