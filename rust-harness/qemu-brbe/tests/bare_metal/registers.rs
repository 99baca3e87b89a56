//! Reads and writes of every register, and injection.

use crate::run::*;

#[test]
fn what_can_be_read_and_written() {
    let run = Run::new("registers.S", "", "");
    assert_eq!(run.values("records-are-read"), [0]);
    assert_eq!(run.values("records-are-not-written"), [7]);
    assert_eq!(run.values("no-such-register"), [6]);
    assert_eq!(run.values("whole"), [u64::MAX; 3]);
}

/// D24.8.5: what a record's VALID, CCU and TYPE make RES0 is zero.
#[test]
fn what_is_injected() {
    let run = Run::new("registers.S", "", "");
    let (ccu, all_types, el3, mpred) = (1 << 46, 0x3f << 8, 3 << 6, 1 << 5);
    assert_eq!(
        run.records("injected"),
        [
            [
                0x3fff << 32 | CONDITIONAL << 8 | el3 | mpred | 3,
                0x1111,
                0x2222
            ],
            [ccu | all_types | el3 | 3, 0x1111, 0x2222],
            [ccu | all_types | 2, 0x1111, 0],
            [ccu | all_types | el3 | 1, 0, 0x2222],
        ]
    );
}

#[test]
fn the_last_injected_is_the_youngest() {
    let run = Run::new("registers.S", "", "");
    let addresses = |case: &str| -> Vec<u64> { run.records(case).iter().map(|r| r[1]).collect() };
    assert_eq!(addresses("bank0"), (9..=40).rev().collect::<Vec<_>>());
    assert_eq!(addresses("bank1"), (1..=8).rev().collect::<Vec<_>>());
}
