//! Branches, exceptions and registers, at the Exception level that the guest is on.

use std::path::Path;

use crate::run::*;

/// All cases, at the Exception level that the machine starts at.
fn check(run: &Run, el: u64) {
    assert_eq!(run.values("id"), [2, 0x5040]);
    assert_eq!(
        run.values("masks"),
        [0x00c0_017b, 0x307f_0080, 0x7fff_0000_3fe3]
    );
    let here = Some(el);
    run.expect(
        "branches",
        &[
            (DIRECT, here, "B_SRC", "B_TGT"),
            (DIRECT_LINK, here, "BL_SRC", "FUNCTION"),
            (RETURN, here, "RET_SRC", "BL_NEXT"),
            (INDIRECT, here, "BR_SRC", "BR_TGT"),
            (INDIRECT_LINK, here, "BLR_SRC", "FUNCTION"),
            (RETURN, here, "RET_SRC", "BLR_NEXT"),
            (CONDITIONAL, here, "BEQ_SRC", "BEQ_TGT"),
            (CONDITIONAL, here, "CBNZ_SRC", "CBNZ_TGT"),
            (CONDITIONAL, here, "TBNZ_SRC", "TBNZ_TGT"),
        ],
    );
    run.expect(
        "next",
        &[
            (DIRECT, here, "NEXT_SRC", "NEXT_TGT"),
            (CONDITIONAL, here, "NEXT_TGT", "NEXT_TGT2"),
            (CONDITIONAL, here, "NEXT_TGT2", "NEXT_TGT3"),
        ],
    );
    run.expect(
        "pages",
        &[
            (DIRECT, here, "PAGES_SRC", "PAGE_SRC"),
            (DIRECT, here, "PAGE_SRC", "PAGE_TGT"),
            (DIRECT, here, "LONG_SRC", "LONG_TGT"),
            (DIRECT, here, "LONG_TGT", "pages_done"),
        ],
    );
    run.expect(
        "conditional",
        &[
            (CONDITIONAL, here, "LOOP_SRC", "LOOP"),
            (CONDITIONAL, here, "LOOP_SRC", "LOOP"),
        ],
    );
    run.expect(
        "but-conditional",
        &[(DIRECT, here, "NOTCOND_SRC", "NOTCOND_TGT")],
    );
    run.expect(
        "authenticated",
        &[
            (INDIRECT_LINK, here, "BLRAAZ_SRC", "AUTH"),
            (RETURN, here, "RETAA_SRC", "BLRAAZ_NEXT"),
        ],
    );
    run.expect(
        "svc",
        &[
            (CALL, here, "SVC_NEXT", "VECTOR_SAME"),
            (ERET, here, "HANDLER_ERET", "SVC_NEXT"),
        ],
    );
    run.expect(
        "svc-without-exception",
        &[(ERET, here, "HANDLER_ERET", "SVC2_NEXT")],
    );
    run.expect(
        "undefined",
        &[
            (TRAP, here, "UNDEF_SRC", "VECTOR_SAME"),
            (DEBUG, here, "BRK_SRC", "VECTOR_SAME"),
        ],
    );
    run.expect(
        "aarch32",
        &[
            (ERET, None, "USER_ERET", ""),
            (CALL, here, "", "VECTOR_AARCH32"),
        ],
    );
    run.expect(
        "illegal",
        &[
            (ERET, here, "ILLEGAL_SRC", "ILLEGAL_TGT"),
            (TRAP, here, "ILLEGAL_TGT", "VECTOR_SAME"),
            (ERET, here, "HANDLER_ILLEGAL", "ILLEGAL_TGT"),
        ],
    );
    run.expect(
        "device",
        &[
            (DIRECT, here, "DEVICE_SRC", "DEVICE"),
            (CONDITIONAL, here, "DEVICE_BACK", "DEVICE_LOOP"),
            (CONDITIONAL, here, "DEVICE_BACK", "DEVICE_LOOP"),
        ],
    );
    check_abort(run, el);
    check_user(run, el);
    check_buffer(run, el);
    check_freeze(run);
}

/// An exception at the target of a branch: branch and exception are two records. The
/// address of the second is no label.
fn check_abort(run: &Run, el: u64) {
    let records = run.records("abort");
    let [.., exception, branch] = records.as_slice() else {
        panic!("{records:x?}")
    };
    let kind = |inf: u64| (inf >> 8 & 0x3f, inf >> 6 & 3, inf & 3);
    assert_eq!((kind(branch[0]), branch[2]), ((INDIRECT, el, 3), 2));
    assert_eq!(branch[1], run.labels["ABORT_SRC"]);
    assert_eq!((kind(exception[0]), exception[1]), ((ALIGNMENT, el, 3), 2));
    assert_eq!(exception[2], run.labels["VECTOR_SAME"]);
}

/// Source-only and target-only records at prohibited regions.
fn check_user(run: &Run, el: u64) {
    let (user, here) = (Some(0), Some(el));
    let all = run.records("user-all");
    let sources: Vec<_> = all.iter().map(|record| record[1]).collect();
    for label in ["USER_ERET", "USER_ALL", "USER_ALL_NEXT"] {
        assert!(sources.contains(&run.labels[label]), "{label}: {all:x?}");
    }
    assert!(all.iter().all(|record| record[0] & 3 == 3));
    run.expect(
        "user-only",
        &[
            (ERET, user, "", "USER_ONLY"),
            (DIRECT_LINK, user, "USER_ONLY", "USER_ONLY2"),
            (CALL, None, "USER_ONLY_NEXT", ""),
        ],
    );
    run.expect(
        "kernel-only",
        &[
            (ERET, None, "USER_ERET", ""),
            (CALL, here, "", "VECTOR_LOWER"),
        ],
    );
    run.expect("user-undefined", &[]);
}

fn check_buffer(run: &Run, el: u64) {
    for case in ["buffer", "bank1"] {
        let records = run.records(case);
        assert_eq!(records.len(), 32, "{case}");
        assert!(
            records
                .iter()
                .all(|[inf, ..]| inf & 0x3fff == CONDITIONAL << 8 | el << 6 | 3)
        );
    }
    run.expect("iall", &[]);
    let injected = [
        [0x23 << 8 | 2, 0x1234, 0],
        [0x105 << 32 | 5 << 8 | 1 << 6 | 3, 0x1234, 0x5678],
    ];
    assert_eq!(run.records("inject"), injected);
    let cycles: Vec<_> = run
        .records("cycles")
        .iter()
        .rev()
        .map(|r| r[0] >> 32)
        .collect();
    // 601 cycles are 256 + 44, times two, and a bit lost.
    assert_eq!(cycles, [1 << 14, 3, 2 << 8 | 44]);
}

fn check_freeze(run: &Run) {
    let one = run.records("freeze");
    assert_eq!(one.len(), 1);
    assert_eq!(
        (one[0][1], one[0][2]),
        (run.labels["FREEZE_SRC"], run.labels["FREEZE_TGT"])
    );
    // BRBE is frozen, with a time stamp; frozen again; and not any more.
    assert_eq!(
        run.values("freeze"),
        [ALL_TYPES | PAUSED, 1, ALL_TYPES | PAUSED, 0]
    );
    assert_eq!(run.values("freeze-between"), [ALL_TYPES | PAUSED]);
    assert_eq!(run.values("no-freeze"), [ALL_TYPES]);
    assert_eq!(run.records("no-freeze").len(), 1);
}

#[test]
fn at_el1() {
    let run = Run::new("branches.S", "", "");
    check(&run, 1);
    // QEMU takes every HVC for a call of PSCI's, where it boots a kernel at EL1.
    run.expect("hvc", &[]);
    // BRBCR_EL2 and BRBCR_EL12 are UNDEFINED: the destination keeps its value.
    assert_eq!(run.values("names"), [u64::MAX, u64::MAX, 2]);
    assert_eq!(run.values("none"), [0x5040]);
}

#[test]
fn at_el2_as_a_vhe_host() {
    let run = Run::new("branches.S", ",virtualization=on", "");
    check(&run, 2);
    run.expect(
        "hvc",
        &[
            (CALL, Some(2), "HVC_NEXT", "VECTOR_SAME"),
            (ERET, Some(2), "HANDLER_ERET", "HVC_NEXT"),
        ],
    );
    // BRBCR_EL1 is BRBCR_EL2; BRBCR_EL12 was left zero.
    assert_eq!(run.values("names"), [2, 0, 2]);
}

#[test]
fn with_options() {
    let stats = Path::new(env!("CARGO_TARGET_TMPDIR")).join("options.json");
    let options = format!(
        ",records=16,version=1.0,cc=off,cpus=0,stats={}",
        stats.display()
    );
    let run = Run::new("branches.S", "", &options);
    assert_eq!(run.values("id"), [1, 0x5010]);
    assert_eq!(run.records("buffer").len(), 16);
    assert_eq!(run.records("bank1").len(), 0);
    assert!(
        run.records("cycles")
            .iter()
            .all(|[inf, ..]| inf >> 32 == 1 << 14)
    );
    let stats = std::fs::read_to_string(stats).unwrap();
    assert!(
        stats.starts_with("{\"vcpus\": [\n  {\"vcpu\": 0, \"records\": 1"),
        "{stats}"
    );
    assert!(stats.contains("\"freezes\": 3"), "{stats}");
}

/// The guest runs on vCPU 0; only the other one has BRBE.
#[test]
fn on_a_vcpu_without_brbe() {
    let run = Run::new("branches.S", "", ",cpus=1");
    assert_eq!(run.values("id"), [0]);
    // BRBIDR0_EL1 is UNDEFINED: the destination keeps its value.
    assert_eq!(run.values("none"), [u64::MAX]);
}
