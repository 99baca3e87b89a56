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

/// The exception that ends what the guest tries: how far behind the first instruction, its
/// class, BTYPE, and whether the second instruction was executed.
#[test]
fn what_qemu_does_not_execute_is_an_instruction() {
    let run = Run::new("boundaries.S", "", "");
    let (illegal, lower_step, step, brk) = (0x0e, 0x32, 0x33, 0x3c);
    for (case, expected) in [
        ("step-wait", [4, lower_step, 0, 0]),
        ("step-access", [4, step, 0, 0]),
        ("step-id", [4, step, 0, 0]),
        ("illegal-wait", [0, illegal, 0, 0]),
        ("illegal-access", [0, illegal, 0, 0]),
        ("illegal-id", [0, illegal, 0, 0]),
        ("branch-wait", [12, brk, 0, 0]),
        ("branch-access", [12, brk, 0, 0]),
    ] {
        assert_eq!(run.values(case), expected, "{case}");
    }
}
