//! Exceptions between two instructions: which of the two has been executed.

use crate::run::*;

/// The CC field of the records of `case`, oldest first.
fn cycles(run: &Run, case: &str) -> Vec<u64> {
    let records = run.records(case);
    records.iter().rev().map(|r| r[0] >> 32 & 0x3fff).collect()
}

#[test]
fn what_an_exception_came_before_was_not_executed() {
    let run = Run::new("boundaries.S", "", "");
    let (user, here) = (Some(0), Some(1));
    run.expect(
        "step-branch",
        &[
            (ERET, user, "", "STEP_SRC"),
            (DIRECT, user, "STEP_SRC", "STEP_TGT"),
            (DEBUG, None, "STEP_TGT", ""),
        ],
    );
    assert_eq!(cycles(&run, "step-branch"), [0, 1, 0]);
    run.expect(
        "step-call",
        &[
            (ERET, user, "", "STEP_CALL"),
            (CALL, None, "STEP_CALL_NEXT", ""),
            (ERET, user, "", "STEP_CALL_NEXT"),
            (DEBUG, None, "STEP_CALL_NEXT", ""),
        ],
    );
    assert_eq!(cycles(&run, "step-call"), [0, 1, 0, 0]);
    run.expect(
        "no-landing-pad",
        &[
            (INDIRECT, here, "PAD_SRC", "PAD_TGT"),
            (FAULT, here, "PAD_TGT", "VECTOR_SAME"),
        ],
    );
    assert_eq!(cycles(&run, "no-landing-pad"), [0, 0]);
}
