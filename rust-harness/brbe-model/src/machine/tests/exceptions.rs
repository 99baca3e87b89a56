//! Exceptions (R_YSKQK to R_FYLTC).

use super::*;

/// The transition examples: SVC from EL0 to EL1 by E1BRE, E0BRE and EXCEPTION.
#[test]
fn exception_records_by_the_two_regions() {
    let call = 0b100010 << 8;
    let full = BrbeRecord {
        inf: CCU | call | 1 << 6 | 3,
        src: 0x104,
        tgt: 0x400,
    };
    let source = BrbeRecord {
        inf: CCU | call | 2,
        src: 0x104,
        tgt: 0,
    };
    let target = BrbeRecord {
        inf: CCU | call | 1 << 6 | 1,
        src: 0,
        tgt: 0x400,
    };
    for (enables, expected) in [
        (EXBRE | E0BRE | EXCEPTION, full),
        (E0BRE | EXCEPTION, source),
        (EXBRE | EXCEPTION, target),
        (EXBRE | E0BRE, BrbeRecord::default()),
        (EXCEPTION, BrbeRecord::default()),
    ] {
        let mut brbe = brbe(enables, 0);
        let recorded = brbe.exception(
            &at(El0, false),
            &at(El1, false),
            ExceptionKind::Call,
            0x104,
            0x400,
            0,
        );
        assert_eq!(youngest(&brbe), expected, "{enables:#x}");
        assert_eq!(recorded, expected != BrbeRecord::default());
    }
}

#[test]
fn the_target_el_gates_exceptions() {
    let hvc = |el1, el2| {
        let mut brbe = brbe(EXBRE | el1, el2);
        brbe.exception(
            &at(El1, false),
            &at(Hyp, false),
            ExceptionKind::Call,
            1,
            2,
            0,
        );
        youngest(&brbe).valid()
    };
    assert_eq!(hvc(0, EXCEPTION), Valid::Source);
    assert_eq!(hvc(0, EXCEPTION | EXBRE), Valid::Full);
    assert_eq!(hvc(EXCEPTION, EXBRE), Valid::None);
}

#[test]
fn exceptions_to_el3_need_recording_there() {
    let smc = |e3brec| {
        let mut brbe = brbe(EXBRE | EXCEPTION, 0);
        let before = Pe {
            el3: el3(0b11, e3brec, false, false),
            ..only(El1)
        };
        let after = Pe { el: Mon, ..before };
        brbe.exception(&before, &after, ExceptionKind::Call, 1, 2, 0);
        youngest(&brbe)
    };
    assert_eq!(smc(false), BrbeRecord::default());
    assert_eq!(smc(true).inf & 0xff, 3 << 6 | 3);
}

#[test]
fn filters_do_not_apply_to_exceptions_and_returns() {
    let mut brbe = brbe(EXBRE | EXCEPTION | ERTN, 0);
    brbe.write(&only(El1), Register::Fcr, 0).unwrap();
    assert!(brbe.exception(&only(El1), &only(El1), ExceptionKind::DataFault, 1, 2, 0));
    assert!(brbe.exception_return(&only(El1), &only(El1), 1, 2, 0));
}

#[test]
fn aarch32_at_either_end() {
    let mut brbe = brbe(EXBRE | E0BRE | EXCEPTION | ERTN, 0);
    let el0_32 = Pe {
        aarch32: true,
        ..only(El0)
    };
    brbe.exception(&el0_32, &only(El1), ExceptionKind::Call, 1, 2, 0);
    assert_eq!(youngest(&brbe).valid(), Valid::Target);
    brbe.exception_return(&only(El1), &el0_32, 3, 4, 0);
    assert_eq!(youngest(&brbe).valid(), Valid::Source);
    let el1_32 = Pe {
        aarch32: true,
        ..only(El1)
    };
    assert!(!brbe.exception(&only(El0), &el1_32, ExceptionKind::Call, 1, 2, 0));
}

/// Table D19-2: TYPE of each kind of exception; never mispredicted.
#[test]
fn table_d19_2_types() {
    use ExceptionKind::*;
    for (kind, code) in [
        (Call, 0b100010),
        (Trap, 0b100011),
        (SError, 0b100100),
        (InstructionDebug, 0b100110),
        (DataDebug, 0b100111),
        (Alignment, 0b101010),
        (InstructionFault, 0b101011),
        (DataFault, 0b101100),
        (Irq, 0b101110),
        (Fiq, 0b101111),
        (ImplementationDefined, 0b110000),
    ] {
        let mut brbe = brbe(EXBRE | EXCEPTION | 1 << 4, 1 << 4);
        let el1 = at(El1, false);
        assert!(brbe.exception(&el1, &el1, kind, 1, 2, 0));
        assert_eq!(youngest(&brbe).inf, CCU | code << 8 | 1 << 6 | 3);
    }
}

/// With EL3 recording, an exception from a prohibited region has a target only; without
/// FEAT_BRBEv1p1 there is not even a half record.
#[test]
fn r_glkgw_half_records_of_exceptions_to_el3() {
    let before = Pe {
        el3: el3(0b00, true, false, false),
        ..only(El1)
    };
    let after = Pe { el: Mon, ..before };
    for (version, expected) in [(Version::V1_1, Valid::Target), (Version::V1_0, Valid::None)] {
        let mut brbe = Brbe::new(Config {
            version,
            ..Config::default()
        });
        let all = EXBRE | EXCEPTION | ERTN;
        brbe.write(&only(El1), Register::CrEl1, all).unwrap();
        brbe.exception(&before, &after, ExceptionKind::Irq, 1, 2, 0);
        assert_eq!(youngest(&brbe).valid(), expected);
    }
}

/// TGE alone picks the register that governs EL0. Whether the exception is recorded is
/// for the register of the target's level to say.
#[test]
fn exceptions_from_el0_to_el2_under_tge() {
    let (el0, el2) = (at(El0, true), at(Hyp, true));
    for (enables, expected) in [
        (E0BRE | EXBRE | EXCEPTION, Valid::Full),
        (E0BRE | EXCEPTION, Valid::Source),
        (EXBRE | EXCEPTION, Valid::Target),
        (E0BRE | EXBRE, Valid::None),
    ] {
        let mut brbe = brbe(0, enables);
        brbe.exception(&el0, &el2, ExceptionKind::Irq, 1, 2, 0);
        assert_eq!(youngest(&brbe).valid(), expected, "{enables:#x}");
    }
}
