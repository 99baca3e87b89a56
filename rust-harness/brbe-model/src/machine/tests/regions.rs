//! Prohibited regions (R_FHGJN to R_YGGSC, D19.5).

use super::*;

#[test]
fn el0_follows_e0bre_or_with_tge_e0hbre() {
    assert!(branches(&mut brbe(E0BRE, 0), &at(El0, false)));
    assert!(!branches(&mut brbe(E0BRE, 0), &at(El0, true)));
    assert!(branches(&mut brbe(0, E0BRE), &at(El0, true)));
    assert!(!branches(&mut brbe(0, E0BRE), &at(El0, false)));
}

#[test]
fn el1_follows_e1bre_and_el2_follows_e2bre() {
    assert!(branches(&mut brbe(EXBRE, 0), &at(El1, false)));
    assert!(!branches(&mut brbe(0, EXBRE), &at(El1, false)));
    assert!(branches(&mut brbe(0, EXBRE), &at(Hyp, true)));
    assert!(!branches(&mut brbe(EXBRE, 0), &at(Hyp, true)));
}

#[test]
fn tge_counts_only_where_el2_is_enabled() {
    let mut pe = at(El0, true);
    pe.el2 = pe.el2.map(|el2| El2 {
        enabled: false,
        ..el2
    });
    assert!(branches(&mut brbe(E0BRE, 0), &pe));
}

#[test]
fn aarch32_is_prohibited() {
    let pe = Pe {
        aarch32: true,
        ..at(El0, false)
    };
    assert!(!branches(&mut brbe(E0BRE, E0BRE), &pe));
}

/// MDCR_EL3.SBRBE, the recording half of its table.
#[test]
fn sbrbe_prohibits_by_security_state() {
    for (sbrbe, non_secure, secure) in [
        (0b00, false, false),
        (0b01, true, false),
        (0b10, true, true),
        (0b11, true, true),
    ] {
        let with = |state| Pe {
            el3: el3(sbrbe, false, false, state),
            ..only(El1)
        };
        assert_eq!(
            branches(&mut brbe(EXBRE, 0), &with(false)),
            non_secure,
            "{sbrbe:#b}"
        );
        assert_eq!(
            branches(&mut brbe(EXBRE, 0), &with(true)),
            secure,
            "{sbrbe:#b}"
        );
    }
}

/// D19.5, R_JWWFY: E3BREC XOR E3BREW, FEAT_BRBEv1p1 only, SBRBE not looked at.
#[test]
fn el3_records_where_e3brec_differs_from_e3brew() {
    for (e3brec, e3brew) in [(false, false), (false, true), (true, false), (true, true)] {
        let pe = Pe {
            el3: el3(0, e3brec, e3brew, true),
            ..only(Mon)
        };
        assert_eq!(branches(&mut brbe(0, 0), &pe), e3brec != e3brew);
        let mut v1p0 = Brbe::new(Config {
            version: Version::V1_0,
            ..Config::default()
        });
        v1p0.fcr = Brbfcr::from_write(ALL_TYPES);
        assert!(!branches(&mut v1p0, &pe));
    }
}

/// R_YDZNK.
#[test]
fn nothing_is_recorded_while_paused() {
    let mut brbe = brbe(EXBRE | EXCEPTION | ERTN, 0);
    brbe.write(&only(El1), Register::Fcr, ALL_TYPES | PAUSED)
        .unwrap();
    assert!(!branches(&mut brbe, &only(El1)));
    assert!(!brbe.exception(&only(El1), &only(El1), ExceptionKind::Irq, 1, 2, 0));
    assert!(!brbe.exception_return(&only(El1), &only(El1), 1, 2, 0));
    assert!(!brbe.debug_entry(&only(El1), 1, 0) && !brbe.debug_exit(&only(El1), 1, 0));
}

/// SBRBE governs each of EL0 to EL2.
#[test]
fn sbrbe_prohibits_every_exception_level_below_el3() {
    for (el, tge) in [(El0, false), (El0, true), (El1, false), (Hyp, false)] {
        let with = |sbrbe| Pe {
            el3: el3(sbrbe, false, false, true),
            ..at(el, tge)
        };
        let all = EXBRE | E0BRE;
        assert!(!branches(&mut brbe(all, all), &with(0b00)));
        assert!(!branches(&mut brbe(all, all), &with(0b01)));
        assert!(branches(&mut brbe(all, all), &with(0b10)));
    }
}

/// Exceptions need not be reported where no Exception level is recorded.
#[test]
fn where_something_may_be_recorded() {
    let mon = |e3brec| Pe {
        el3: el3(0b00, e3brec, false, false),
        ..at(El1, false)
    };
    assert!(!brbe(CC | EXCEPTION, ERTN).may_record(&at(El1, false)));
    for enable in [EXBRE, E0BRE] {
        assert!(brbe(enable, 0).may_record(&at(Hyp, false)));
        assert!(brbe(0, enable).may_record(&at(El1, false)));
    }
    assert!(brbe(0, 0).may_record(&mon(true)));
    assert!(!brbe(0, 0).may_record(&mon(false)));
    let mut paused = brbe(EXBRE, EXBRE);
    let el1 = only(El1);
    paused.write(&el1, Register::Fcr, PAUSED).unwrap();
    assert!(!paused.may_record(&mon(true)));
}
