//! EL3: FEAT_BRBEv1p1 records there, and MDCR_EL3.SBRBE says what is recorded below it.

use crate::run::*;

const EL1: Option<u64> = Some(1);
const EL3: Option<u64> = Some(3);

/// The record of EL1's branch, and none of the way there and back.
const BELOW: [(u64, Option<u64>, &str, &str); 1] = [(DIRECT, EL1, "EL1", "EL1_TGT")];

/// Runs the guest on one vCPU, which is enough: without PSCI all vCPUs would start with
/// the guest.
fn run(options: &str) -> Run {
    Run::with("el3.S", ",secure=on,gic-version=3", options, &["-smp", "1"])
}

#[test]
fn with_brbe_v1p1() {
    let run = run("");
    run.expect("el3", &[(DIRECT, EL3, "EL3_SRC", "EL3_TGT")]);
    run.expect("el3-both", &[]);
    run.expect("el3-off", &[]);
    run.expect("el3-late", &[(DIRECT, EL3, "LATE_SRC", "LATE_TGT")]);
    let all = run.records("round");
    let kinds: Vec<_> = all
        .iter()
        .rev()
        .map(|r| (r[0] >> 8 & 0x3f, r[0] >> 6 & 3))
        .collect();
    let expected = [
        (DIRECT_LINK, 3),
        (ERET, 1),
        (DIRECT, 1),
        (CALL, 3),
        (INDIRECT, 3),
    ];
    assert_eq!(kinds, expected, "{all:x?}");
    assert_eq!(
        all[1][1..],
        [run.labels["EL1_NEXT"], run.labels["VECTOR_EL3"]]
    );
    run.expect("round-below", &BELOW);
    run.expect("round-prohibited", &[]);
    run.expect("round-secure-prohibited", &BELOW);
    run.expect("round-no-trap-bit", &BELOW);
    let half = run.records("round-el3");
    let kinds: Vec<_> = half
        .iter()
        .rev()
        .map(|r| (r[0] >> 8 & 0x3f, r[0] & 3))
        .collect();
    // EL1 is prohibited: the ERET has a source only, the SMC a target only.
    let expected = [(DIRECT_LINK, 3), (ERET, 2), (CALL, 1), (INDIRECT, 3)];
    assert_eq!(kinds, expected, "{half:x?}");
    accesses(&run);
}

/// FEAT_BRBE without v1p1 never records at EL3, nor the ways there and back.
#[test]
fn with_brbe_v1() {
    let run = run(",version=1.0");
    for case in [
        "el3",
        "el3-both",
        "el3-off",
        "el3-late",
        "round-prohibited",
        "round-el3",
    ] {
        run.expect(case, &[]);
    }
    for case in [
        "round",
        "round-below",
        "round-secure-prohibited",
        "round-no-trap-bit",
    ] {
        run.expect(case, &BELOW);
    }
    accesses(&run);
}

/// SBRBE of 0 and 2 traps accesses to EL3, which a plugin cannot do: they are
/// UNDEFINED (2) instead of carried out (1). The Non-secure state alone is tried.
fn accesses(run: &Run) {
    assert_eq!(run.values("accesses"), [2, 1, 2, 1]);
}
