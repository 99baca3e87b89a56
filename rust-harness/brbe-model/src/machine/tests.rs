use super::*;
use crate::config::NumRecords;
use crate::pe::{El2, El3, Hcr};
use ExceptionLevel::{El0, El1, El2 as Hyp, El3 as Mon};

const E0BRE: u64 = 1 << 0;
const EXBRE: u64 = 1 << 1;
const CC: u64 = 1 << 3;
const TS_PHYSICAL: u64 = 3 << 5;
const FZP: u64 = 1 << 8;
const FZPSS: u64 = 1 << 9;
const ERTN: u64 = 1 << 22;
const EXCEPTION: u64 = 1 << 23;
const ALL_TYPES: u64 = 0x7e << 16;
const PAUSED: u64 = 1 << 7;
const CCU: u64 = 1 << 46;

/// BRBE with these control registers, and every branch type selected.
fn brbe(el1: u64, el2: u64) -> Brbe {
    let mut brbe = Brbe::new(Config {
        pmu_snapshot: true,
        ..Config::default()
    });
    let el2_host = at(Hyp, false);
    brbe.write(&el2_host, Register::CrEl1, el1).unwrap();
    brbe.write(&el2_host, Register::CrEl2, el2).unwrap();
    brbe.write(&el2_host, Register::Fcr, ALL_TYPES).unwrap();
    brbe
}

/// EL2 implemented and enabled, EL3 not implemented.
fn at(el: ExceptionLevel, tge: bool) -> Pe {
    let hcr = Hcr {
        tge,
        ..Hcr::default()
    };
    let el2 = Some(El2 {
        enabled: true,
        hcr,
        hpmn: 6,
        fgt: None,
    });
    Pe {
        el,
        el2,
        ..Pe::default()
    }
}

/// Neither EL2 nor EL3 implemented.
fn only(el: ExceptionLevel) -> Pe {
    Pe {
        el,
        ..Pe::default()
    }
}

fn el3(sbrbe: u8, e3brec: bool, e3brew: bool, secure: bool) -> Option<El3> {
    Some(El3 {
        sbrbe,
        e3brec,
        e3brew,
        secure,
    })
}

fn youngest(brbe: &Brbe) -> Record {
    brbe.buffer.get(0)
}

fn branches(brbe: &mut Brbe, pe: &Pe) -> bool {
    brbe.branch(pe, BranchKind::Direct, 0x1000, 0x2000, 0)
}

// --- prohibited regions (R_FHGJN to R_YGGSC) -------------------------------------

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

// --- branches (R_LYGJZ to R_FJYDC) ------------------------------------------------

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

// --- exceptions (R_YSKQK to R_FYLTC) ------------------------------------------------

/// The transition examples: SVC from EL0 to EL1 by E1BRE, E0BRE and EXCEPTION.
#[test]
fn exception_records_by_the_two_regions() {
    let call = 0b100010 << 8;
    let full = Record {
        inf: CCU | call | 1 << 6 | 3,
        src: 0x104,
        tgt: 0x400,
    };
    let source = Record {
        inf: CCU | call | 2,
        src: 0x104,
        tgt: 0,
    };
    let target = Record {
        inf: CCU | call | 1 << 6 | 1,
        src: 0,
        tgt: 0x400,
    };
    for (enables, expected) in [
        (EXBRE | E0BRE | EXCEPTION, full),
        (E0BRE | EXCEPTION, source),
        (EXBRE | EXCEPTION, target),
        (EXBRE | E0BRE, Record::default()),
        (EXCEPTION, Record::default()),
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
        assert_eq!(recorded, expected != Record::default());
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
    assert_eq!(smc(false), Record::default());
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

// --- exception returns (R_LMXHS to R_RRBCFP) -------------------------------------------

#[test]
fn exception_return_records_by_the_two_regions() {
    let ertn = 0b000111 << 8;
    for (enables, expected) in [
        (
            EXBRE | E0BRE | ERTN,
            Record {
                inf: CCU | ertn | 3,
                src: 0x10,
                tgt: 0x20,
            },
        ),
        (
            EXBRE | ERTN,
            Record {
                inf: CCU | ertn | 2,
                src: 0x10,
                tgt: 0,
            },
        ),
        (
            E0BRE | ERTN,
            Record {
                inf: CCU | ertn | 1,
                src: 0,
                tgt: 0x20,
            },
        ),
        (EXBRE | E0BRE, Record::default()),
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

// --- Debug state (R_LLCTG) -----------------------------------------------------------------

#[test]
fn debug_entry_and_exit_make_half_records() {
    let mut brbe = brbe(EXBRE | CC, CC);
    brbe.branch(&at(El1, false), BranchKind::Direct, 1, 2, 0);
    assert!(brbe.debug_entry(&at(El1, false), 0x10, 5));
    let expected = Record {
        inf: 5 << 32 | 0b100001 << 8 | 2,
        src: 0x10,
        tgt: 0,
    };
    assert_eq!(youngest(&brbe), expected);
    assert!(brbe.debug_exit(&at(El1, false), 0x20, 9));
    let expected = Record {
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
    // The exit's own record is the one that does not know its count.
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

// --- cycle counts (R_MJDLC) --------------------------------------------------------------

fn cycles_at(brbe: &mut Brbe, pe: &Pe, now: u64) -> Option<u64> {
    assert!(brbe.branch(pe, BranchKind::Direct, 1, 2, now));
    let inf = youngest(brbe).inf;
    (inf & CCU == 0).then_some(inf >> 32 & 0x3fff)
}

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
    // ERTN = 0: no record of the return, the next one does not know.
    let mut quiet = brbe(E0BRE | CC, CC);
    cycles_at(&mut quiet, &el0, 0);
    assert!(!quiet.exception(&el0, &el1, ExceptionKind::Call, 1, 2, 1));
    assert!(!quiet.exception_return(&el1, &el0, 1, 2, 50));
    assert_eq!(cycles_at(&mut quiet, &el0, 51), None);
    // ERTN = 1: the target-only record does not know, the next one does.
    let mut half = brbe(E0BRE | CC | ERTN | EXCEPTION, CC);
    cycles_at(&mut half, &el0, 0);
    assert!(half.exception(&el0, &el1, ExceptionKind::Call, 1, 2, 3));
    assert_eq!(youngest(&half).inf >> 32, 3); // source-only, and known
    assert!(half.exception_return(&el1, &el0, 1, 2, 50));
    assert_eq!(youngest(&half).inf >> 32, CCU >> 32);
    assert_eq!(cycles_at(&mut half, &el0, 54), Some(4));
}

/// EL3 that stops recording, by MDCR_EL3, is a prohibited region on the spot.
#[test]
fn r_mjdlc_a_region_prohibited_for_a_moment_makes_the_count_unknown() {
    let mon = |e3brec| Pe {
        el3: el3(0b11, e3brec, false, false),
        ..only(Mon)
    };
    let mut brbe = brbe(CC, 0);
    cycles_at(&mut brbe, &mon(true), 0);
    brbe.state_changed(&mon(true));
    assert_eq!(cycles_at(&mut brbe, &mon(true), 3), Some(3));
    brbe.state_changed(&mon(false));
    brbe.state_changed(&mon(true));
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

// --- the buffer and its registers ------------------------------------------------------

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
    assert_eq!(youngest(&brbe), Record::default());
    assert_eq!(brbe.read(&el1, Register::Ts), Ok(7));
    assert_eq!(brbe.read(&el1, Register::SrcInj), Ok(8));
    assert_eq!(brbe.read(&el1, Register::Fcr), Ok(ALL_TYPES));
    assert_eq!(brbe.read(&el1, Register::CrEl1), Ok(EXBRE));
}

/// D19.5.1: a saved buffer is restored from the oldest record to the youngest.
#[test]
fn injection_restores_a_buffer() {
    let (mut old, el1) = (brbe(EXBRE | CC, CC), only(El1));
    for n in 1..=10 {
        old.branch(&el1, BranchKind::Return, n, n + 100, n * 300);
    }
    let mut new = Brbe::new(Config::default());
    for n in (0..10).rev() {
        let value = |register| old.read(&el1, register).unwrap();
        new.write(&el1, Register::InfInj, value(Register::Inf(n)))
            .unwrap();
        new.write(&el1, Register::SrcInj, value(Register::Src(n)))
            .unwrap();
        new.write(&el1, Register::TgtInj, value(Register::Tgt(n)))
            .unwrap();
        new.execute(&el1, Instruction::Inj).unwrap();
    }
    assert!((0..64).all(|n| new.buffer.get(n) == old.buffer.get(n)));
}

#[test]
fn injection_drops_res0_fields_and_invalid_records() {
    let (mut brbe, el1) = (brbe(0, 0), only(El1));
    for register in [Register::InfInj, Register::SrcInj, Register::TgtInj] {
        brbe.write(&el1, register, u64::MAX).unwrap();
    }
    assert_eq!(brbe.read(&el1, Register::InfInj), Ok(0x0000_7fff_0000_3fe3));
    brbe.execute(&el1, Instruction::Inj).unwrap();
    let expected = Record {
        inf: CCU | 0x3f << 8 | 3 << 6 | 3,
        src: u64::MAX,
        tgt: u64::MAX,
    };
    assert_eq!(youngest(&brbe), expected);
    brbe.write(&el1, Register::InfInj, !3).unwrap();
    brbe.execute(&el1, Instruction::Inj).unwrap();
    assert_eq!(youngest(&brbe), expected);
}

// --- freezing (R_NXCWF, R_PYBRZ) -----------------------------------------------------------

const OVERFLOW: Pmu = Pmu {
    overflow: 1,
    counters: 6,
    icntr: false,
};

fn clock() -> Counter {
    Counter {
        physical: 1234,
        virtual_offset: 4,
        physical_offset: 0,
    }
}

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

// --- registers ----------------------------------------------------------------------------

#[test]
fn redirected_names_reach_one_register() {
    let vhe = {
        let hcr = Hcr {
            e2h: true,
            tge: true,
            ..Hcr::default()
        };
        let el2 = Some(El2 {
            enabled: true,
            hcr,
            hpmn: 6,
            fgt: None,
        });
        Pe {
            el: Hyp,
            el2,
            ..Pe::default()
        }
    };
    let mut brbe = Brbe::new(Config::default());
    brbe.write(&vhe, Register::CrEl12, FZP).unwrap();
    brbe.write(&vhe, Register::CrEl1, EXBRE).unwrap();
    assert_eq!(
        (brbe.brbcr_el1().bits(), brbe.brbcr_el2().bits()),
        (FZP, EXBRE)
    );
    assert_eq!(brbe.read(&vhe, Register::CrEl2), Ok(EXBRE));
    assert_eq!(brbe.read(&vhe, Register::CrEl12), Ok(FZP));
}

/// D24.8.2: at EL3 the register has no field where EL2 is not implemented.
#[test]
fn brbcr_el2_is_res0_without_el2() {
    let mon = Pe {
        el3: el3(0b11, false, false, false),
        ..only(Mon)
    };
    let mut brbe = Brbe::new(Config::default());
    assert_eq!(brbe.write(&mon, Register::CrEl2, u64::MAX), Ok(()));
    assert_eq!(brbe.read(&mon, Register::CrEl2), Ok(0));
}

#[test]
fn denied_accesses_change_nothing() {
    let mut brbe = brbe(EXBRE, 0);
    branches(&mut brbe, &only(El1));
    let before = youngest(&brbe);
    let denied = Err(Denied::Undefined);
    assert_eq!(brbe.write(&only(El0), Register::CrEl1, 0), denied);
    assert_eq!(brbe.write(&only(El1), Register::Src(0), 0), denied);
    assert_eq!(brbe.write(&only(El1), Register::Idr0, 0), denied);
    assert_eq!(brbe.execute(&only(El0), Instruction::Iall), denied);
    assert_eq!(brbe.read(&only(El0), Register::Ts), Err(Denied::Undefined));
    assert_eq!((brbe.brbcr_el1().bits(), youngest(&brbe)), (EXBRE, before));
}

/// S_YLMQQ, I_FPJPQ.
#[test]
fn warm_reset_stops_recording_and_keeps_records() {
    for version in [Version::V1_0, Version::V1_1] {
        let (mut brbe, el1) = (
            Brbe::new(Config {
                version,
                ..Config::default()
            }),
            only(El1),
        );
        brbe.write(&el1, Register::CrEl1, EXBRE | E0BRE | CC)
            .unwrap();
        brbe.write(&el1, Register::Fcr, ALL_TYPES | 1 << 28)
            .unwrap();
        brbe.write(&el1, Register::Ts, 5).unwrap();
        branches(&mut brbe, &el1);
        let record = youngest(&brbe);
        brbe.warm_reset();
        assert!(!brbe.allowed(&el1));
        assert_eq!(youngest(&brbe), record);
        let kept = version == Version::V1_1;
        assert_eq!(
            brbe.read(&el1, Register::CrEl1),
            Ok(if kept { CC } else { 0 })
        );
        assert_eq!(
            brbe.read(&el1, Register::Fcr),
            Ok(if kept { ALL_TYPES } else { 0 })
        );
        assert_eq!(brbe.read(&el1, Register::Ts), Ok(if kept { 5 } else { 0 }));
    }
}

/// FZPSS resets on a Cold reset only, with and without FEAT_BRBEv1p1.
#[test]
fn s_ylmqq_fzpss_survives_a_warm_reset() {
    for version in [Version::V1_0, Version::V1_1] {
        let mut brbe = Brbe::new(Config {
            version,
            pmu_snapshot: true,
            ..Config::default()
        });
        let hyp = at(Hyp, false);
        for register in [Register::CrEl1, Register::CrEl2] {
            brbe.write(&hyp, register, FZPSS | EXBRE | E0BRE).unwrap();
        }
        brbe.warm_reset();
        for register in [Register::CrEl1, Register::CrEl2] {
            assert_eq!(brbe.read(&hyp, register), Ok(FZPSS), "{version:?}");
        }
    }
}
