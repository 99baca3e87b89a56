//! Pausing and freezing (D19.6).

use super::*;

#[test]
fn an_overflow_pauses_and_stamps_and_nothing_else() {
    let (mut brbe, el1) = (brbe(EXBRE | FZP | TS_PHYSICAL, 0), only(El1));
    branches(&mut brbe, &el1);
    let record = youngest(&brbe);
    assert!(brbe.freeze_on_overflow(&el1, &OVERFLOW, clock));
    assert_eq!(brbe.read(&el1, Register::Fcr), Ok(ALL_TYPES | PAUSED));
    assert_eq!(brbe.read(&el1, Register::Ts), Ok(1234));
    assert_eq!(youngest(&brbe), record);
    assert!(!branches(&mut brbe, &el1));
    // Paused: the flag is still set, but there is no second freeze event.
    let later = || Counter {
        physical: 9999,
        ..clock()
    };
    assert!(!brbe.freeze_on_overflow(&el1, &OVERFLOW, later));
    assert_eq!(brbe.read(&el1, Register::Ts), Ok(1234));
}

/// R_BHYTD: clearing PAUSED with the flag still set freezes again at once.
#[test]
fn the_freeze_is_level_sensitive() {
    let (mut brbe, el1) = (brbe(EXBRE | FZP, 0), only(El1));
    assert!(brbe.freeze_on_overflow(&el1, &OVERFLOW, clock));
    brbe.write(&el1, Register::Fcr, ALL_TYPES).unwrap();
    assert!(brbe.freeze_on_overflow(&el1, &OVERFLOW, clock));
    assert!(brbe.paused());
}

#[test]
fn no_freeze_without_fzp_or_in_a_prohibited_region() {
    let mut without_fzp = brbe(EXBRE, 0);
    assert!(!without_fzp.freeze_on_overflow(&only(El1), &OVERFLOW, clock));
    let mut user_only = brbe(E0BRE | FZP, 0);
    assert!(!user_only.freeze_on_overflow(&only(El1), &OVERFLOW, clock));
    assert!(user_only.freeze_on_overflow(&only(El0), &OVERFLOW, clock));
}

/// A VHE host at EL2 freezes on BRBCR_EL1.FZP: the range decides, not the EL.
#[test]
fn a_vhe_host_freezes_on_brbcr_el1_fzp() {
    let host = at(Hyp, true);
    assert!(brbe(FZP, EXBRE).freeze_on_overflow(&host, &OVERFLOW, clock));
    assert!(!brbe(0, EXBRE | FZP).freeze_on_overflow(&host, &OVERFLOW, clock));
}

/// R_LBQZR.
#[test]
fn a_capture_event_freezes_where_both_registers_say_so() {
    let el1 = at(El1, false);
    assert!(brbe(EXBRE | FZPSS, FZPSS).freeze_on_capture(&el1, &clock()));
    assert!(!brbe(EXBRE | FZPSS, 0).freeze_on_capture(&el1, &clock()));
    assert!(!brbe(EXBRE, FZPSS).freeze_on_capture(&el1, &clock()));
    assert!(!brbe(FZPSS, FZPSS).freeze_on_capture(&el1, &clock()));
    assert!(brbe(EXBRE | FZPSS, 0).freeze_on_capture(&only(El1), &clock()));
}
