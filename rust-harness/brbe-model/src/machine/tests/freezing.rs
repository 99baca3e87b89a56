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

/// R_SRJND: software pauses and unpauses without a freeze event.
#[test]
fn r_srjnd_software_pausing_keeps_the_time_stamp_and_the_records() {
    let (mut brbe, el1) = (brbe(EXBRE, 0), only(El1));
    branches(&mut brbe, &el1);
    let record = youngest(&brbe);
    brbe.write(&el1, Register::Ts, 77).unwrap();
    for fcr in [ALL_TYPES | PAUSED, ALL_TYPES] {
        brbe.write(&el1, Register::Fcr, fcr).unwrap();
        assert_eq!(brbe.read(&el1, Register::Fcr), Ok(fcr));
        assert_eq!(brbe.read(&el1, Register::Ts), Ok(77));
        assert_eq!(youngest(&brbe), record);
    }
    assert!(branches(&mut brbe, &el1));
}

/// R_VMSDM: an overflow in a prohibited region waits for the way out of it.
#[test]
fn r_vmsdm_the_freeze_follows_the_record_of_the_return() {
    let (el0, el1) = (only(El0), only(El1));
    let mut brbe = brbe(E0BRE | FZP | ERTN, 0);
    assert!(!brbe.freeze_on_overflow(&el1, &OVERFLOW, clock));
    assert!(!brbe.paused());
    assert!(brbe.exception_return(&el1, &el0, 1, 2, 0));
    assert!(brbe.freeze_on_overflow(&el0, &OVERFLOW, clock));
    assert_eq!(youngest(&brbe).valid(), Valid::Target);
}

/// EL2 need not be enabled for BRBCR_EL2.FZPSS to count; nor does a capture
/// freeze what is paused.
#[test]
fn r_lbqzr_a_disabled_el2_and_a_paused_buffer() {
    let mut el1 = at(El1, false);
    el1.el2 = el1.el2.map(|el2| El2 {
        enabled: false,
        ..el2
    });
    assert!(!brbe(EXBRE | FZPSS, 0).freeze_on_capture(&el1, &clock()));
    let mut brbe = brbe(EXBRE | FZPSS, FZPSS);
    assert!(brbe.freeze_on_capture(&el1, &clock()));
    assert_eq!(brbe.read(&at(Hyp, false), Register::Ts), Ok(1230));
    let later = Counter {
        physical: 9999,
        ..clock()
    };
    assert!(!brbe.freeze_on_capture(&el1, &later));
    assert_eq!(brbe.read(&at(Hyp, false), Register::Ts), Ok(1230));
}

/// Without FEAT_PMUv3_SS or FEAT_PMUv3 there is no bit to ask for a freeze.
#[test]
fn no_freeze_without_the_features() {
    let el1 = only(El1);
    let mut brbe = Brbe::new(Config {
        pmu: false,
        pmu_snapshot: false,
        ..Config::default()
    });
    brbe.write(&el1, Register::CrEl1, u64::MAX).unwrap();
    assert!(!brbe.freeze_on_overflow(&el1, &OVERFLOW, clock));
    assert!(!brbe.freeze_on_capture(&el1, &clock()));
}
