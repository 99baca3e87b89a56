//! Exception returns (R_LMXHS to R_RRBCFP).

use super::*;

#[test]
fn exception_return_records_by_the_two_regions() {
    let ertn = 0b000111 << 8;
    for (enables, expected) in [
        (
            EXBRE | E0BRE | ERTN,
            BrbeRecord {
                inf: CCU | ertn | 3,
                src: 0x10,
                tgt: 0x20,
            },
        ),
        (
            EXBRE | ERTN,
            BrbeRecord {
                inf: CCU | ertn | 2,
                src: 0x10,
                tgt: 0,
            },
        ),
        (
            E0BRE | ERTN,
            BrbeRecord {
                inf: CCU | ertn | 1,
                src: 0,
                tgt: 0x20,
            },
        ),
        (EXBRE | E0BRE, BrbeRecord::default()),
    ] {
        let mut brbe = brbe(enables, 0);
        brbe.exception_return(&at(El1, false), &at(El0, false), 0x10, 0x20, 0);
        assert_eq!(youngest(&brbe), expected, "{enables:#x}");
    }
}

#[test]
fn the_source_el_gates_exception_returns() {
    let eret = |el1, el2| {
        let mut brbe = brbe(EXBRE | el1, EXBRE | el2);
        brbe.exception_return(&at(Hyp, false), &at(El1, false), 1, 2, 0)
    };
    assert!(eret(0, ERTN));
    assert!(!eret(ERTN, 0));
}

/// R_GLKGW: from EL3 the gate is MDCR_EL3, and there is no ERTN.
#[test]
fn r_glkgw_exception_returns_from_el3() {
    for (version, e3brec, sbrbe, expected) in [
        (Version::V1_1, true, 0b11, Valid::Full),
        (Version::V1_1, true, 0b00, Valid::Source),
        (Version::V1_1, false, 0b11, Valid::None),
        (Version::V1_0, true, 0b11, Valid::None),
    ] {
        let mut brbe = Brbe::new(Config {
            version,
            ..Config::default()
        });
        brbe.write(&only(El1), Register::CrEl1, EXBRE).unwrap();
        let before = Pe {
            el3: el3(sbrbe, e3brec, false, false),
            ..only(Mon)
        };
        let after = Pe { el: El1, ..before };
        brbe.exception_return(&before, &after, 1, 2, 0);
        assert_eq!(youngest(&brbe).valid(), expected, "{version:?} {sbrbe:#b}");
    }
}

/// The target's region is that of the Security state returned to.
#[test]
fn an_exception_return_to_another_security_state() {
    let with = |el, secure| Pe {
        el3: el3(0b01, true, false, secure),
        ..only(el)
    };
    for (secure, expected) in [(false, Valid::Full), (true, Valid::Source)] {
        let mut brbe = brbe(EXBRE, 0);
        brbe.exception_return(&with(Mon, !secure), &with(El1, secure), 1, 2, 0);
        assert_eq!(youngest(&brbe).valid(), expected);
    }
}

/// An illegal return stays at its Exception level, which the record names.
#[test]
fn an_illegal_exception_return_names_the_level_that_it_stays_at() {
    let mut brbe = brbe(0, EXBRE | ERTN);
    assert!(brbe.exception_return(&at(Hyp, true), &at(Hyp, true), 0x10, 0x20, 0));
    let expected = BrbeRecord {
        inf: CCU | 0b000111 << 8 | 2 << 6 | 3,
        src: 0x10,
        tgt: 0x20,
    };
    assert_eq!(youngest(&brbe), expected);
}
