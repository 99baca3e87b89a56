//! Interrupts: at a branch to itself, while waiting, and where they are unmasked.

use crate::run::*;

const EL1: Option<u64> = Some(1);

#[test]
fn at_branches_that_repeat_and_where_there_are_none() {
    // With deterministic time the timer fires where it did the last time.
    let more = ["-smp", "1", "-icount", "shift=0"];
    let run = Run::with("interrupts.S", ",gic-version=3", "", &more);
    for (case, kind, label, next) in [
        ("self", DIRECT, "SELF", "SELF_NEXT"),
        (
            "self-conditional",
            CONDITIONAL,
            "SELF_COND",
            "SELF_COND_NEXT",
        ),
    ] {
        let mut expected = vec![(kind, EL1, label, label); 30];
        expected.push((IRQ, EL1, label, "VECTOR_IRQ"));
        expected.push((ERET, EL1, "IRQ_ERET", next));
        run.expect(case, &expected);
    }
    run.expect(
        "unmasked",
        &[
            (DIRECT, EL1, "UNMASKED_SRC", "UNMASKED"),
            (IRQ, EL1, "UNMASKED_NEXT", "VECTOR_IRQ"),
            (ERET, EL1, "IRQ_ERET", "UNMASKED_NEXT"),
        ],
    );
}
