//! Exception returns (R_LMXHS to R_RRBCFP).

use super::*;

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
